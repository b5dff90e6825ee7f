package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// asDaemon makes the test binary be ipamd itself, so that tests meet the real
// program in a process of its own.
const asDaemon = "IPAMD_TEST_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(asDaemon) != "" {
		main()
	}
	os.Exit(m.Run())
}

// within is how long a daemon may take for anything on a busy machine.
const within = 60 * time.Second

// A process is a running ipamd. It is gone when the test ends.
type process struct {
	t    testing.TB
	cmd  *exec.Cmd
	out  bytes.Buffer
	err  logBuffer
	done chan struct{}
}

// launch starts ipamd with a command line, in a folder of its own.
func launch(t testing.TB, dir string, args ...string) *process {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return start(t, dir, append([]string{self}, args...))
}

// start starts a command line that ends in ipamd's.
func start(t testing.TB, dir string, args []string) *process {
	t.Helper()
	p := &process{t: t, cmd: exec.Command(args[0], args[1:]...), done: make(chan struct{})}
	p.cmd.Dir = dir
	p.cmd.Env = append(os.Environ(), asDaemon+"=1")
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.err
	// The terminal's Ctrl-C is for the test, and a test that ends without its
	// cleanup (a panic, a timeout) takes the daemon with it.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.done)
		_ = p.cmd.Wait() // how it ended is in ProcessState
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill() // it may have ended
		<-p.done
	})
	return p
}

func (p *process) signal(s os.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.t.Fatal(err)
	}
}

// code waits for the end and returns the exit code, -1 for a signal's.
func (p *process) code() int {
	p.t.Helper()
	select {
	case <-p.done:
	case <-time.After(within):
		p.t.Fatalf("it did not end: %s", p.err.String())
	}
	return p.cmd.ProcessState.ExitCode()
}

// ipamd runs one command line to its end.
func ipamd(t testing.TB, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	p := launch(t, t.TempDir(), args...)
	return p.code(), p.out.String(), p.err.String()
}

func wants(t testing.TB, what, got string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(got, part) {
			t.Errorf("%s is %q, without %q", what, got, part)
		}
	}
}
