package systemd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ipamd/ipamd/internal/realtest"
)

// wait bounds everything that is waited for here: far beyond what two cores and
// a slow disk need.
const wait = 3 * time.Minute

// A machine is a small Debian that runs systemd as its first process, with a
// network of its own. What is written in it ends with the test.
type machine struct {
	t      testing.TB
	dir    string
	root   string // its file system, seen from here
	leader int    // its first process
	made   []string
}

// boot starts a machine and waits until systemd is done starting.
func boot(t testing.TB) *machine {
	t.Helper()
	if os.Getenv("SHORT") != "" {
		realtest.Lack(t, "SHORT is set, so no machine is booted")
	}
	realtest.Root(t)
	realtest.Need(t, "systemd-nspawn", "nsenter")
	lower, err := filepath.Abs("../.cache/rootfs")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(lower, "usr")); err != nil {
		realtest.Lack(t, "needs .cache/rootfs, which scripts/rootfs makes")
	}
	dir, err := os.MkdirTemp("", "ipamd-machine-")
	if err != nil {
		t.Fatal(err)
	}
	m := &machine{t: t, dir: dir, root: filepath.Join(dir, "root")}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	for _, sub := range []string{"root", "up", "work"} {
		if err := os.Mkdir(filepath.Join(dir, sub), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	layers := fmt.Sprintf("lowerdir=%s,upperdir=%s/up,workdir=%s/work", lower, dir, dir)
	if err := unix.Mount("overlay", m.root, "overlay", 0, layers); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(m.root, 0); err != nil {
			t.Errorf("unmount the machine's files: %v", err)
		}
	})
	m.start()
	return m
}

func (m *machine) start() {
	m.t.Helper()
	m.sweepCgroups()
	console, err := os.Create(filepath.Join(m.dir, "console"))
	if err != nil {
		m.t.Fatal(err)
	}
	defer console.Close()
	// runc wants keyrings and a device filter of its containers.
	cmd := exec.Command("systemd-nspawn", "--register=no", "--keep-unit", "--quiet", "--boot", "--directory="+m.root,
		"--machine="+filepath.Base(m.dir), "--private-network", "--link-journal=no", "--resolv-conf=off", "--timezone=off", "--console=pipe",
		"--system-call-filter=keyctl add_key bpf", "--capability=CAP_BPF,CAP_PERFMON")
	cmd.Env = append(os.Environ(), "SYSTEMD_NSPAWN_UNIFIED_HIERARCHY=1")
	cmd.Stdout, cmd.Stderr = console, console
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		m.t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { defer close(ended); _ = cmd.Wait() }()
	m.t.Cleanup(func() {
		if m.leader > 0 {
			_ = unix.Kill(m.leader, unix.SIGKILL) // and all in it
		}
		select {
		case <-ended:
		case <-time.After(wait):
			m.t.Error("the machine does not end")
			_ = cmd.Process.Kill()
			<-ended
		}
		m.sweepCgroups()
		if m.t.Failed() {
			text, _ := os.ReadFile(console.Name())
			m.t.Logf("the console:\n%s", text)
		}
	})
	realtest.Eventually(m.t, wait, "the machine is up", func() bool {
		select {
		case <-ended:
			text, _ := os.ReadFile(console.Name())
			m.t.Fatalf("the machine ended:\n%s", text)
		default:
		}
		m.leader = child(cmd.Process.Pid)
		if m.leader == 0 {
			return false
		}
		out, _ := m.try("systemctl", "is-system-running")
		return out == "running" || out == "degraded"
	})
}

// child is a process's only child, 0 when there is none.
func child(pid int) int {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		return 0
	}
	all := strings.Fields(string(text))
	if len(all) != 1 {
		return 0
	}
	n, _ := strconv.Atoi(all[0])
	return n
}

// try runs a command line in the machine, and returns what it printed on its
// standard output; the error has what it printed on the other.
func (m *machine) try(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	cmd := exec.CommandContext(ctx, "nsenter", append([]string{"-t", strconv.Itoa(m.leader), "-m", "-u", "-i", "-n", "-p", "-C", "--",
		"env", "-i", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "TERM=dumb", "LC_ALL=C", "SYSTEMD_PAGER=cat", "DEBIAN_FRONTEND=noninteractive"}, args...)...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	cmd.WaitDelay = time.Second
	err := cmd.Run()
	if err != nil {
		err = fmt.Errorf("%s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(errs.String()))
	}
	return strings.TrimSpace(out.String()), err
}

// do is try that must work.
func (m *machine) do(args ...string) string {
	m.t.Helper()
	out, err := m.try(args...)
	if err != nil {
		journal, _ := m.try("journalctl", "-u", "ipamd", "-n", "40", "--no-pager", "-o", "cat")
		m.t.Fatalf("%v\n%s\nthe journal:\n%s", err, out, journal)
	}
	return out
}

// sh is do of a shell's line.
func (m *machine) sh(script string) string {
	m.t.Helper()
	return m.do("sh", "-euc", script)
}

// put writes a file of the machine.
func (m *machine) put(name, text string) {
	m.t.Helper()
	path := filepath.Join(m.root, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		m.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		m.t.Fatal(err)
	}
}

// dropIn changes the service until the test t ends; "" takes the change back.
func (m *machine) dropIn(t testing.TB, text string) {
	t.Helper()
	const name = "/etc/systemd/system/ipamd.service.d/test.conf"
	m.put(name, text)
	m.do("systemctl", "daemon-reload")
	t.Cleanup(func() {
		m.do("rm", "-f", name)
		m.do("systemctl", "daemon-reload")
	})
}

// property is one of the service, as `systemctl show` has it.
func (m *machine) property(name string) string {
	m.t.Helper()
	return m.do("systemctl", "show", "--value", "-p", name, "ipamd.service")
}

// journal is what ipamd's unit logged since a mark.
func (m *machine) journal(since string) string {
	m.t.Helper()
	return m.do("journalctl", "-u", "ipamd", "-o", "cat", "--no-pager", "--after-cursor="+since)
}

// mark is where the journal stands now.
func (m *machine) mark() string {
	m.t.Helper()
	_, cursor, ok := strings.Cut(m.do("journalctl", "-n", "1", "-o", "cat", "--show-cursor", "--no-pager"), "-- cursor: ")
	if !ok {
		m.t.Fatal("the journal has no cursor")
	}
	return strings.TrimSpace(cursor)
}

// queued is how many callers wait at ipamd's socket for the daemon to take them.
func (m *machine) queued() int {
	m.t.Helper()
	fields := strings.Fields(m.do("ss", "-Hxl", "src", "/run/ipamd/ipamd.sock")) // type, state, queue, backlog
	if len(fields) < 4 {
		m.t.Fatalf("no process listens: %q", fields)
	}
	n, err := strconv.Atoi(fields[2])
	if err != nil {
		m.t.Fatal(err)
	}
	return n
}

// eventually waits for something in the machine; ok is asked at its pace.
func (m *machine) eventually(what string, ok func() bool) {
	m.t.Helper()
	realtest.Eventually(m.t, wait, what, ok)
}

// sweepCgroups removes what systemd-nspawn leaves without a systemd around it:
// two empty groups beside this process. What was there before stays.
func (m *machine) sweepCgroups() {
	first := m.made == nil
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		m.t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		for _, base := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified", "/sys/fs/cgroup/systemd"} {
			for _, name := range []string{"payload", "supervisor"} {
				dir := filepath.Join(base, fields[2], name)
				if _, err := os.Stat(dir); err != nil {
					continue
				}
				if first {
					m.made = append(m.made, dir)
				} else if !slices.Contains(m.made, dir) {
					removeTree(dir)
				}
			}
		}
	}
	if first {
		m.made = append(m.made, "")
	}
}

// removeTree removes a cgroup and those in it, which have no files to remove.
func removeTree(dir string) {
	var all []string
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			all = append(all, path)
		}
		return nil
	})
	slices.Reverse(all)
	for _, d := range all {
		if err := os.Remove(d); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return
		}
	}
}
