package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/ipamd/ipamd/internal/realtest"
	"github.com/ipamd/ipamd/internal/term"
	"github.com/ipamd/ipamd/server/servertest"
)

// top shows the status of a real daemon and what becomes of it. A daemon that
// goes is shown, with what was known last; another that answers on the socket
// is seen by itself.
func TestTopFollowsTheDaemon(t *testing.T) {
	first := servertest.Start(t)
	link := filepath.Join(t.TempDir(), "s")
	point := func(at string) {
		t.Helper()
		if err := os.Symlink(at, link+".new"); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(link+".new", link); err != nil {
			t.Fatal(err)
		}
	}
	point(first.Socket)
	p := onTerminal(t, 100, 40, "top", "--every", "100ms", "--socket", link)
	p.shows("ipamctl top", "every 100ms", "is ready", "10.8.64.0/24", "0%", "·")
	w := &world{socket: first.Socket}
	if code := w.ctl(t, &screen{}, "allocate", "web-1"); code != 0 {
		t.Fatalf("allocate: exit %d", code)
	}
	p.shows("<1%", "1 reserved", "█")
	if err := first.Stop(); err != nil {
		t.Fatal(err)
	}
	p.shows("no answer for", "is ipamd running?", "below is what was so", "1 reserved")
	second := servertest.Start(t)
	point(second.Socket)
	p.shows("changes/s", "0%", second.Book.Epoch())
	if now := p.modes(); now == p.was {
		t.Error("the terminal is not raw: keys would echo")
	}
	p.press("q")
	if code := p.code(); code != 0 {
		t.Errorf("q: exit %d", code)
	}
}

// Whatever ends it, the terminal is as it was.
func TestTopGivesTheTerminalBack(t *testing.T) {
	rig := servertest.Start(t)
	signal := func(s syscall.Signal) func(*pty) {
		return func(p *pty) {
			if err := p.cmd.Process.Signal(s); err != nil {
				p.t.Fatal(err)
			}
		}
	}
	press := func(keys string) func(*pty) { return func(p *pty) { p.press(keys) } }
	for name, end := range map[string]func(*pty){
		"q": press("q"), "Q": press("Q"), "other keys, then q": press("jk\x1b[A  q"), "Ctrl-C": press("\x03"),
		"SIGINT": signal(syscall.SIGINT), "SIGTERM": signal(syscall.SIGTERM), "SIGHUP": signal(syscall.SIGHUP), "SIGQUIT": signal(syscall.SIGQUIT),
	} {
		t.Run(name, func(t *testing.T) {
			p := onTerminal(t, 80, 24, "top", "--every", "100ms", "--socket", rig.Socket)
			p.shows("is ready")
			end(p)
			if code := p.code(); code != 0 {
				t.Errorf("exit %d", code)
			}
			p.restored()
		})
	}
	t.Run("the daemon hangs", func(t *testing.T) {
		w := runner()
		w.stall = make(chan struct{})
		w.serve(t)
		p := onTerminal(t, 80, 24, "top", "--every", "100ms", "--timeout", "10m", "--socket", w.socket)
		p.shows("asking")
		p.press("q")
		if code := p.code(); code != 0 {
			t.Errorf("exit %d", code)
		}
		p.restored()
	})
	t.Run("no daemon is there", func(t *testing.T) {
		p := onTerminal(t, 80, 24, "top", "--every", "100ms", "--socket", rig.Socket+".none")
		p.shows("no answer for", "is ipamd running?")
		p.press("q")
		if code := p.code(); code != 0 {
			t.Errorf("exit %d", code)
		}
		p.restored()
	})
	t.Run("the terminal goes", func(t *testing.T) {
		p := onTerminal(t, 80, 24, "top", "--every", "100ms", "--socket", rig.Socket)
		p.shows("is ready")
		p.slave.Close()
		p.master.Close()
		p.code() // it ends, however
	})
}

// Ctrl-Z suspends it with the terminal as it was, and it comes back.
func TestTopIsSuspended(t *testing.T) {
	rig := servertest.Start(t)
	p := onTerminal(t, 80, 24, "top", "--every", "100ms", "--socket", rig.Socket)
	p.shows("is ready")
	for _, suspend := range []func(){
		func() { p.press("\x1a") },
		func() {
			if err := p.cmd.Process.Signal(syscall.SIGTSTP); err != nil {
				t.Fatal(err)
			}
		},
	} {
		suspend()
		realtest.Eventually(t, soon, "it to be stopped", func() bool {
			stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
			return err == nil && strings.Contains(string(stat), ") T ")
		})
		p.restored()
		if err := p.cmd.Process.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		realtest.Eventually(t, soon, "it to be back", func() bool {
			all := p.all()
			return strings.LastIndex(all, term.AlternateScreen) > strings.LastIndex(all, term.OwnScreen)
		})
		p.shows("is ready")
	}
	p.press("q")
	p.code()
	p.restored()
}

// A terminal that changes its size gets a screen that fits, and is updated when
// there is more than fits.
func TestTopFits(t *testing.T) {
	w := troubled().serve(t)
	p := onTerminal(t, 80, 24, "top", "--every", "100ms", "--socket", w.socket)
	for _, size := range [][2]uint16{{80, 24}, {60, 12}, {132, 60}, {20, 3}, {1, 1}, {100, 40}} {
		p.resize(size[0], size[1])
		realtest.Eventually(t, soon, fmt.Sprintf("a screen of %v", size), func() bool {
			screen := p.screen()
			if len(screen) == 0 || len(screen) > int(size[1]) {
				return false
			}
			for _, line := range screen {
				if term.Width(line) > int(size[0]) {
					return false
				}
			}
			whole := size[1] == 60
			return strings.Contains(screen[len(screen)-1], "more lines") != whole || size[0] < 80
		})
	}
	p.press("q")
	p.code()
}

// Without a terminal it is one page, which says so, and ends as status does.
func TestTopWithoutATerminal(t *testing.T) {
	w := troubled().serve(t)
	for name, s := range map[string]*screen{
		"a pipe": {}, "a dumb terminal": {terminal: true, columns: 80, env: map[string]string{"TERM": "dumb"}},
	} {
		if code := w.ctl(t, s, "top"); code != exitUnavailable {
			t.Errorf("%s: exit %d, want %d", name, code, exitUnavailable)
		}
		if !strings.Contains(s.err.String(), "one page") || !strings.Contains(s.out.String(), "is not ready") || strings.Contains(s.out.String(), "\x1b") {
			t.Errorf("%s: %q, %q", name, s.err.String(), s.out.String())
		}
	}
	for _, line := range []string{"top --every 1ms", "top --every 0", "top -q", "top -o json"} {
		if code := w.ctl(t, &screen{}, words(line)...); code != exitUsage {
			t.Errorf("%s: exit %d", line, code)
		}
	}
}
