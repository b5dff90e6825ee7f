package ctrdtest

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	containerd "github.com/containerd/containerd/v2/client"

	"github.com/ipamd/ipamd/internal/realtest"
)

// Every wait in this package ends by itself, well after what a loaded machine
// with two cores needs that stands still now and then.
const patience = 3 * time.Minute

// A Daemon is a running containerd. Its methods fail the test on error and
// belong on the test's own goroutine.
type Daemon struct {
	Address string  // path of the socket
	Version Version // which of the two this is
	PID     int     // of the daemon now; another one after Restart

	t       testing.TB
	dir     string
	cgroup  string // parent of all containers' cgroups
	program string
	path    string // PATH of the daemon, where it finds its shim

	cmd    *exec.Cmd
	ended  chan struct{} // closed when cmd has ended and is reaped
	client *containerd.Client
}

// Start starts a containerd and waits until it serves. It ends with the test,
// with everything that was started in it.
func Start(t testing.TB, v Version) *Daemon {
	t.Helper()
	program, path := v.binary(t)
	// Not t.TempDir: its names grow with the test's, and a unix socket's path
	// ends at 107 bytes.
	dir, err := os.MkdirTemp("", "ctrdtest-")
	if err != nil {
		t.Fatal(err)
	}
	d := &Daemon{
		Address: filepath.Join(dir, "c.sock"),
		Version: v,
		t:       t,
		dir:     dir,
		cgroup:  filepath.Base(dir),
		program: program,
		path:    path,
	}
	t.Cleanup(d.clean)
	if err := os.WriteFile(filepath.Join(dir, "config.toml"), []byte(v.config(dir)), 0o600); err != nil {
		t.Fatal(err)
	}
	d.makeRootfs()
	d.start()
	return d
}

func (d *Daemon) start() {
	d.t.Helper()
	log, err := os.OpenFile(d.logFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		d.t.Fatal(err)
	}
	defer log.Close()
	cmd := exec.Command(d.program, "--config", filepath.Join(d.dir, "config.toml"))
	cmd.Env = append(os.Environ(), "PATH="+d.path)
	cmd.Stdout, cmd.Stderr = log, log
	// A group of its own: an interrupt at the terminal is for the test, which
	// then stops the daemon in order. A test that dies before that takes the
	// daemon along.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	started, ended := make(chan error), make(chan struct{})
	go func() {
		runtime.LockOSThread() // Pdeathsig means the death of the thread that started it
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait()
		}
		close(ended)
	}()
	if err := <-started; err != nil {
		d.t.Fatalf("start %s: %v", d.program, err)
	}
	d.cmd, d.ended, d.PID = cmd, ended, cmd.Process.Pid

	realtest.Eventually(d.t, patience, "containerd listens", func() bool {
		if d.over() {
			d.t.Fatalf("containerd ended at its start: %v", cmd.ProcessState)
		}
		c, err := net.Dial("unix", d.Address)
		if err == nil {
			c.Close()
		}
		return err == nil
	})
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if ok, err := d.Client().IsServing(ctx); !ok || err != nil {
		d.t.Fatalf("containerd listens, but serves: %v, %v", ok, err)
	}
}

func (d *Daemon) logFile() string { return filepath.Join(d.dir, "log") }

func (d *Daemon) over() bool {
	select {
	case <-d.ended:
		return true
	default:
		return false
	}
}

// Client returns a client of the daemon, closed by the end of the test and by
// [Daemon.Stop] and [Daemon.Kill9]: ask again after those.
func (d *Daemon) Client() *containerd.Client {
	d.t.Helper()
	if d.client == nil {
		c, err := containerd.New(d.Address)
		if err != nil {
			d.t.Fatalf("make a client of %s: %v", d.Address, err)
		}
		d.client = c
	}
	return d.client
}

func (d *Daemon) closeClient() {
	if d.client != nil {
		_ = d.client.Close()
		d.client = nil
	}
}

// Stop ends the daemon in order (TERM, and KILL when that is not enough).
// Containers go on: their shims do not need it.
func (d *Daemon) Stop() {
	d.closeClient()
	d.signal(syscall.SIGTERM)
	select {
	case <-d.ended:
	case <-time.After(patience / 3):
		d.Kill9()
	}
}

// Kill9 ends the daemon as a crash would. Containers go on.
func (d *Daemon) Kill9() {
	d.closeClient()
	d.signal(syscall.SIGKILL)
	<-d.ended
}

// LoseMetadata stops the daemon and starts it again without its metadata: the id
// that it has made for itself stays, and no container, namespace or image does.
func (d *Daemon) LoseMetadata() {
	d.t.Helper()
	d.Stop()
	if err := os.Remove(filepath.Join(d.dir, "root", "io.containerd.metadata.v1.bolt", "meta.db")); err != nil {
		d.t.Fatal(err)
	}
	d.Restart()
}

// Restart starts the daemon again on the same root and state, after Stop or
// Kill9, or by itself calling Stop.
func (d *Daemon) Restart() {
	d.t.Helper()
	if !d.over() {
		d.Stop()
	}
	d.start()
}

// Freeze stops the daemon in its tracks (SIGSTOP): the socket still accepts,
// nothing answers. It returns once that is so. Thaw lets it go on.
func (d *Daemon) Freeze() {
	d.t.Helper()
	d.signal(syscall.SIGSTOP)
	realtest.Eventually(d.t, patience, "containerd is stopped in its tracks", func() bool {
		return d.over() || stopped(d.cmd.Process.Pid)
	})
}

// stopped reports that each thread of a process is: the signal goes from one to
// the next.
func stopped(pid int) bool {
	threads, err := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/task/*/stat")
	for _, file := range threads {
		stat, readErr := os.ReadFile(file)
		_, rest, _ := strings.Cut(string(stat), ") ")
		err = errors.Join(err, readErr)
		if !strings.HasPrefix(rest, "T") {
			return false
		}
	}
	return err == nil && len(threads) > 0
}

// Thaw undoes Freeze.
func (d *Daemon) Thaw() { d.signal(syscall.SIGCONT) }

func (d *Daemon) signal(sig syscall.Signal) {
	if d.over() {
		return
	}
	// The process is not reaped before Wait returns, so the pid is still its own.
	if err := d.cmd.Process.Signal(sig); err != nil && !d.over() {
		d.t.Logf("send %v to containerd: %v", sig, err)
	}
}
