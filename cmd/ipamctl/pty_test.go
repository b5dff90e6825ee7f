package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ipamd/ipamd/internal/realtest"
	"github.com/ipamd/ipamd/internal/term"
)

// asItself makes the test binary be ipamctl, so that tests meet the real
// program on a terminal of its own.
const asItself = "IPAMCTL_TEST_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(asItself) != "" {
		main()
	}
	os.Exit(m.Run())
}

// soon is how long a program may take for anything on a busy machine.
const soon = time.Minute

// A pty is a terminal that a test holds the other end of, and the ipamctl on
// it.
type pty struct {
	t      *testing.T
	master *os.File
	slave  *os.File // also ours, so that its modes can be read after the end
	cmd    *exec.Cmd
	was    unix.Termios // before ipamctl began
	ended  chan error

	mu     sync.Mutex
	output bytes.Buffer
}

// onTerminal starts ipamctl on a terminal of its own.
func onTerminal(t *testing.T, columns, rows uint16, args ...string) *pty {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	p := &pty{t: t, master: master, ended: make(chan error, 1)}
	var number uint32
	p.control(func(fd int) (err error) {
		if err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err == nil {
			number, err = unix.IoctlGetUint32(fd, unix.TIOCGPTN)
		}
		return err
	})
	if p.slave, err = os.OpenFile(filepath.Join("/dev/pts", fmt.Sprint(number)), os.O_RDWR|unix.O_NOCTTY, 0); err != nil {
		t.Fatal(err)
	}
	p.resize(columns, rows)
	p.was = p.modes()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p.cmd = exec.Command(self, args...)
	p.cmd.Env = append(os.Environ(), asItself+"=1", "TERM=xterm", "LANG=C.UTF-8", "LC_ALL=", "COLUMNS=", "NO_COLOR=")
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = p.slave, p.slave, p.slave
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Pdeathsig: syscall.SIGKILL}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { p.ended <- p.cmd.Wait() }()
	go func() {
		chunk := make([]byte, 4096)
		for {
			n, err := master.Read(chunk)
			p.mu.Lock()
			p.output.Write(chunk[:n])
			p.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill() // it may have ended
		p.slave.Close()
		master.Close()
		if t.Failed() {
			t.Logf("the terminal: %q", p.all())
		}
	})
	return p
}

func (p *pty) control(f func(fd int) error) {
	p.t.Helper()
	conn, err := p.master.SyscallConn()
	if err != nil {
		p.t.Fatal(err)
	}
	if e := conn.Control(func(fd uintptr) { err = f(int(fd)) }); e != nil || err != nil {
		p.t.Fatal(e, err)
	}
}

// resize makes the terminal another size; the kernel signals ipamctl.
func (p *pty) resize(columns, rows uint16) {
	p.t.Helper()
	p.control(func(fd int) error {
		return unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Col: columns, Row: rows})
	})
}

func (p *pty) press(keys string) {
	p.t.Helper()
	if _, err := p.master.WriteString(keys); err != nil {
		p.t.Fatal(err)
	}
}

// modes is how the terminal is set: echo, lines, signals and the rest.
func (p *pty) modes() unix.Termios {
	p.t.Helper()
	conn, err := p.slave.SyscallConn()
	if err != nil {
		p.t.Fatal(err)
	}
	var modes *unix.Termios
	if e := conn.Control(func(fd uintptr) { modes, err = unix.IoctlGetTermios(int(fd), unix.TCGETS) }); e != nil || err != nil {
		p.t.Fatal(e, err)
	}
	return *modes
}

// all is everything that was written to the terminal.
func (p *pty) all() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.output.String()
}

// control is what ipamctl writes that is no text.
var control = regexp.MustCompile(`\x1b\[[0-9;?]*[a-zA-Z]`)

// screen is the last whole screen that was drawn, a string a line, without
// colour.
func (p *pty) screen() []string {
	all := p.all()
	end := strings.LastIndex(all, term.EndOfScreen)
	if end < 0 {
		return nil
	}
	begin := strings.LastIndex(all[:end], term.TopLeft)
	return strings.Split(control.ReplaceAllString(all[begin:end], ""), "\r\n")
}

// shows waits until the screen has all of these.
func (p *pty) shows(wants ...string) {
	p.t.Helper()
	realtest.Eventually(p.t, soon, fmt.Sprintf("the screen to show %q", wants), func() bool {
		screen := strings.Join(p.screen(), "\n")
		for _, want := range wants {
			if !strings.Contains(screen, want) {
				return false
			}
		}
		return true
	})
}

// code waits for ipamctl's end and returns its exit code, -1 for a signal's.
func (p *pty) code() int {
	p.t.Helper()
	select {
	case <-p.ended:
	case <-time.After(soon):
		p.t.Fatal("it did not end")
	}
	return p.cmd.ProcessState.ExitCode()
}

// restored fails unless the terminal is as it was: its modes, its own screen,
// its cursor.
func (p *pty) restored() {
	p.t.Helper()
	if got := p.modes(); got != p.was {
		p.t.Errorf("the terminal's modes are %+v, and were %+v", got, p.was)
	}
	realtest.Eventually(p.t, soon, "its own screen", func() bool {
		all := p.all()
		return strings.LastIndex(all, term.OwnScreen) > strings.LastIndex(all, term.AlternateScreen)
	})
	if all := p.all(); !strings.HasSuffix(all, term.OwnScreen) {
		p.t.Errorf("something was written after the terminal was given back: %q", all[max(0, len(all)-60):])
	}
}
