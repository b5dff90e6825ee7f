package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ipamd/ipamd/internal/realtest"
)

// build builds everything that the demo runs, once for all tests.
func build(t *testing.T) (bin string) {
	t.Helper()
	realtest.Root(t)
	realtest.Need(t, "containerd", "containerd-shim-runc-v2", "runc", "busybox", "sqlite3", "go")
	bin = t.TempDir()
	cmd := exec.Command("go", "build", "-trimpath", "-o", bin, "../../cmd/...", "../../examples/...")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0") // as make builds it, so that little is left to do
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	return bin
}

func TestDemo(t *testing.T) {
	bin := build(t)
	t.Run("ends", func(t *testing.T) { ends(t, bin) })
	t.Run("notices failures", func(t *testing.T) { noticesFailures(t, bin) })
}

// ends runs the demo to its end, and ends it in several acts by each signal.
// Whatever way it ends, nothing is left.
func ends(t *testing.T, bin string) {
	t.Run("by itself", func(t *testing.T) {
		r := begin(t, bin)
		shown := r.end(t)
		if r.code != 0 || !strings.Contains(shown, "checks hold") {
			t.Errorf("exit code %d:\n%s", r.code, shown)
		}
		if strings.Contains(shown, "\x1b") {
			t.Error("colour without a terminal")
		}
	})
	for i, at := range []string{
		"$ ipamctl status",
		"$ sandbox run beta",
		"$ sandbox exec gamma",
		"ipamd is stopped",
		"$ sqlite3",
		"$ sandbox run delta",
		"No request arrives any more",
	} {
		signal := []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP}[i%3]
		t.Run(fmt.Sprintf("%s at %s", signal, at), func(t *testing.T) {
			r := begin(t, bin)
			r.until(t, at)
			if err := r.cmd.Process.Signal(signal); err != nil {
				t.Fatal(err)
			}
			shown := r.end(t)
			if r.code != 128+int(signal) || !strings.Contains(shown, "demo: interrupted: "+signal.String()) {
				t.Errorf("exit code %d:\n%s", r.code, shown)
			}
		})
	}
	t.Run("killed", func(t *testing.T) {
		r := begin(t, bin)
		r.until(t, "$ sandbox exec gamma")
		if err := r.cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, r.out) // until the last process inside has closed it
		_ = r.cmd.Wait()
		r.processesEnd(t)
		if strings.Contains(r.shown.String(), "checks hold") {
			t.Error("the demo went on to its end")
		}
		if err := sweepCgroups(); err != nil { // as the next demo does
			t.Error(err)
		}
		r.nothingLeft(t)
	})
}

// noticesFailures breaks a part of the world and sees the demo fail.
func noticesFailures(t *testing.T, bin string) {
	replace := func(t *testing.T, program, script string) {
		t.Helper()
		original := filepath.Join(bin, program)
		if err := os.Rename(original, original+".real"); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := os.Rename(original+".real", original); err != nil {
				t.Error(err)
			}
		})
		if err := os.WriteFile(original, []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct{ program, script, want string }{
		"a sandbox that is not pinged": {"sandbox", `[ "$1" = exec ] || exec "$0.real" "$@"`, "this does not hold: alpha reaches 10.8.64.3"},
		"a sandbox that does not run":  {"sandbox", `[ "$2" = gamma ] || exec "$0.real" "$@"`, "this does not hold: 10.8.64.4 is bound to gamma"},
		"a failing ipamctl":            {"ipamctl", `[ "$1" != map ] && exec "$0.real" "$@"; exit 1`, "ipamctl map: exit status 1"},
		"a daemon that does not start": {"ipamd", `echo no such luck >&2; exit 3`,
			"start ipamd: it ended at once: exit status 3"},
	} {
		t.Run(name, func(t *testing.T) {
			replace(t, c.program, c.script)
			r := begin(t, bin)
			shown := r.end(t)
			if r.code != 1 || !strings.Contains(shown, c.want) {
				t.Errorf("exit code %d, want 1 and %q:\n%s", r.code, c.want, shown)
			}
		})
	}
}

// A run is the demo while it runs.
type run struct {
	cmd    *exec.Cmd
	out    io.Reader // what is not read yet
	shown  bytes.Buffer
	code   int
	cgroup string
	spaces []string // the namespaces inside
}

func begin(t *testing.T, bin string) *run {
	t.Helper()
	r := &run{cmd: exec.Command(filepath.Join(bin, "demo"))}
	read, write := narrowPipe(t)
	t.Cleanup(func() { read.Close() })
	r.cmd.Stdout, r.cmd.Stderr = write, write
	r.cmd.Env = append(os.Environ(), "TERM=xterm")
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	write.Close()
	r.out = bufio.NewReaderSize(io.TeeReader(read, &r.shown), 64<<10) // room for a packet behind the longest line
	r.cgroup = cgroupOf(r.cmd.Process.Pid)
	r.until(t, "1. A runner")
	r.hold(t)
	return r
}

// narrowPipe holds one write at a time (pipe(2), O_DIRECT). So the demo stays
// where its test is, two writes ahead at the most, however late that reads.
func narrowPipe(t *testing.T) (read, write *os.File) {
	t.Helper()
	var ends [2]int
	if err := unix.Pipe2(ends[:], unix.O_CLOEXEC|unix.O_DIRECT); err != nil {
		t.Fatal(err)
	}
	read, write = os.NewFile(uintptr(ends[0]), "read"), os.NewFile(uintptr(ends[1]), "write")
	if _, err := unix.FcntlInt(uintptr(ends[1]), unix.F_SETPIPE_SZ, os.Getpagesize()); err != nil {
		t.Fatal(err)
	}
	return read, write
}

// until reads what is shown up to a line with that text.
func (r *run) until(t *testing.T, text string) {
	t.Helper()
	for {
		line, err := r.out.(*bufio.Reader).ReadString('\n')
		if strings.Contains(line, text) {
			return
		}
		if err != nil {
			_ = r.cmd.Process.Kill()
			_ = r.cmd.Wait()
			t.Fatalf("the demo ended before %q: %v\n%s", text, err, r.shown.String())
		}
	}
}

// end waits for the end, and looks for what is left.
func (r *run) end(t *testing.T) (shown string) {
	t.Helper()
	if _, err := io.Copy(io.Discard, r.out); err != nil {
		t.Error(err)
	}
	_ = r.cmd.Wait() // the exit code is what counts
	r.code = r.cmd.ProcessState.ExitCode()
	r.processesEnd(t)
	r.nothingLeft(t)
	return r.shown.String()
}

var kinds = []string{"net", "mnt", "pid"}

// hold names the namespaces of the demo's child, and keeps them open: the
// kernel gives the number of one that is gone to the next that is made.
func (r *run) hold(t *testing.T) {
	t.Helper()
	var children []string
	lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", r.cmd.Process.Pid)) // a child belongs to a thread
	for _, list := range lists {
		text, _ := os.ReadFile(list) // the thread may have ended
		children = append(children, strings.Fields(string(text))...)
	}
	if err != nil || len(children) != 1 {
		t.Fatalf("the demo has children %v, not one: %v", children, err)
	}
	for _, kind := range kinds {
		link := filepath.Join("/proc", children[0], "ns", kind)
		f, err := os.Open(link)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		space, err := os.Readlink(link)
		own, _ := os.Readlink(filepath.Join("/proc/self/ns", kind))
		if err != nil || space == own {
			t.Fatalf("the demo's child is not in a namespace of its own: %s %v", space, err)
		}
		r.spaces = append(r.spaces, space)
	}
}

// processesEnd waits until no process is in the demo's namespaces.
func (r *run) processesEnd(t *testing.T) {
	t.Helper()
	realtest.Eventually(t, limit, "no process is left", func() bool { return len(r.within()) == 0 })
}

// within lists the processes in the demo's namespaces.
func (r *run) within() (pids []string) {
	for _, kind := range kinds {
		links, _ := filepath.Glob("/proc/[0-9]*/ns/" + kind)
		for _, link := range links {
			if space, err := os.Readlink(link); err == nil && slices.Contains(r.spaces, space) {
				pids = append(pids, strings.Split(link, "/")[2])
			}
		}
	}
	return pids
}

// nothingLeft looks for mounts, namespaces, cgroups and files. Other programs run on
// this machine too, so it looks for the demo's by name.
func (r *run) nothingLeft(t *testing.T) {
	t.Helper()
	if pids := r.within(); len(pids) > 0 {
		t.Errorf("processes are left: %v", pids)
	}
	traces := []string{r.cgroup, demoDir}
	for _, name := range []string{"alpha", "beta", "gamma", "delta"} {
		traces = append(traces, "/run/netns/sandbox-"+name)
	}
	for _, pattern := range append(traces, "/sys/fs/cgroup/"+r.cgroup, "/sys/fs/cgroup/*/"+r.cgroup, "/var/lib/sandbox", book) {
		if left, _ := filepath.Glob(pattern); len(left) > 0 {
			t.Errorf("left behind: %v", left)
		}
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for _, trace := range append(traces, r.spaces...) {
		if bytes.Contains(mounts, []byte(trace)) {
			t.Errorf("a mount is left: %s", trace)
		}
	}
}
