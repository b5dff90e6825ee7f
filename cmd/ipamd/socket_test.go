package main

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ipamd/ipamd/client"
	"github.com/ipamd/ipamd/config"
	"github.com/ipamd/ipamd/internal/realtest"
)

// reached reports whether a new caller is answered, in time: one may wait in the
// queue of a socket from which no process takes callers.
func (w *world) reached() bool {
	c := &client.Client{Socket: w.cfg.Socket.Path}
	defer c.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	_, err := c.Healthy(ctx)
	return err == nil
}

// A socket whose file is removed, or whose folder is, comes back with its mode
// and group; callers that are connected stay so; what another process listens on
// in its place is not taken from it. Both its own socket and the one that systemd
// gave, which a next start takes over without its file, too.
func TestF16TheSocketsFileIsMadeAgain(t *testing.T) {
	for _, by := range []string{"own", "given"} {
		t.Run(by, func(t *testing.T) {
			w := prepare(t, func(c *config.Config) {
				c.Socket.Path = filepath.Join(filepath.Dir(c.Socket.Path), "run", "s")
				c.Socket.Mode, c.Socket.Group = "0640", "12345"
			})
			w.client.Socket = w.cfg.Socket.Path
			w.ns.Bridge("rt0", "10.8.64.1/24")
			if by == "given" {
				w.given = func() *os.File { return listening(t, w.cfg.Socket.Path, 0o640, 12345) }
			}
			w.start()
			connected := w.client
			if _, err := connected.Healthy(ctx); err != nil {
				t.Fatal(err)
			}
			for _, gone := range []string{w.cfg.Socket.Path, filepath.Dir(w.cfg.Socket.Path)} {
				if err := os.RemoveAll(gone); err != nil {
					t.Fatal(err)
				}
				realtest.Eventually(t, wait, gone+" to be there again", w.reached)
				var st unix.Stat_t
				if err := unix.Lstat(w.cfg.Socket.Path, &st); err != nil || st.Mode != unix.S_IFSOCK|0o640 || st.Gid != 12345 {
					t.Errorf("it has mode %o and group %d, %v", st.Mode, st.Gid, err)
				}
				if _, err := connected.Healthy(ctx); err != nil {
					t.Errorf("who was connected: %v", err)
				}
			}
			if output := w.log.String(); !strings.Contains(output, "it is made again") || strings.Contains(output, "systemctl restart ipamd.socket") != (by == "given") {
				t.Errorf("the log says %s", output)
			}
			if by == "given" { // systemd has it yet, without its file
				if err := os.Remove(w.cfg.Socket.Path); err != nil {
					t.Fatal(err)
				}
				w.stopDaemon()
				w.start()
				realtest.Eventually(t, wait, "the next daemon to be reached", w.reached)
			}
			if _, err := connected.Healthy(ctx); err != nil { // it was, before the restart
				t.Fatal(err)
			}
			var other net.Listener
			realtest.Eventually(t, wait, "another to be quicker", func() bool {
				if err := os.Remove(w.cfg.Socket.Path); err != nil {
					return false
				}
				var err error
				other, err = new(net.ListenConfig).Listen(ctx, "unix", w.cfg.Socket.Path)
				return err == nil
			})
			defer other.Close()
			is, err := os.Lstat(w.cfg.Socket.Path)
			if err != nil {
				t.Fatal(err)
			}
			realtest.Eventually(t, wait, "the other to be reported", func() bool { return strings.Contains(w.log.String(), "cannot be made again") })
			if s, err := connected.Status(ctx); err != nil || s.Ready || !strings.Contains(strings.Join(s.NotReady, ";"), "callers do not reach the socket") {
				t.Errorf("its status is %+v, %v", s, err)
			}
			if now, err := os.Lstat(w.cfg.Socket.Path); err != nil || !os.SameFile(is, now) {
				t.Errorf("another's socket was replaced: %v", err)
			}
		})
	}
}

// listening is what systemd does: it makes the socket the first time, and gives
// the same one to each start.
func listening(t *testing.T, path string, mode os.FileMode, gid int) *os.File {
	t.Helper()
	if f := givenAt[path]; f != nil {
		return dup(t, f)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	ln.SetUnlinkOnClose(false)
	f, err := ln.File()
	if err != nil {
		t.Fatal(err)
	}
	ln.Close()
	t.Cleanup(func() { f.Close(); delete(givenAt, path) })
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(path, -1, gid); err != nil {
		t.Fatal(err)
	}
	givenAt[path] = f
	return dup(t, f)
}

var givenAt = make(map[string]*os.File)

func dup(t *testing.T, f *os.File) *os.File {
	t.Helper()
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	return os.NewFile(uintptr(fd), f.Name())
}
