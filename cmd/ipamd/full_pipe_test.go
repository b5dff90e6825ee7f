package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/client"
	"github.com/ipamd/ipamd/internal/nstest"
	"github.com/ipamd/ipamd/internal/realtest"
)

// drain takes what is in a pipe, and waits for nothing.
func drain(t *testing.T, r *os.File) string {
	t.Helper()
	waiting, err := unix.IoctlGetInt(int(r.Fd()), unix.TIOCINQ)
	if err != nil {
		t.Fatal(err)
	}
	was := make([]byte, waiting)
	if _, err := io.ReadFull(r, was); err != nil {
		t.Fatal(err)
	}
	return string(was)
}

// fill takes what is in a pipe, and fills it. It returns what it took. Its own
// way into the pipe does not wait; the daemon's does.
func fill(t *testing.T, r, w *os.File) string {
	t.Helper()
	was := drain(t, r)
	own, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", w.Fd()), unix.O_WRONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(own)
	for err == nil {
		_, err = unix.Write(own, []byte{'.'})
	}
	if !errors.Is(err, unix.EAGAIN) {
		t.Fatal(err)
	}
	return was
}

func pipe(t *testing.T) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close(); w.Close() })
	return r, w
}

// F5: standard error is a pipe that is full and not read. An address is
// quarantined, thousands of lines are due, and every call is answered. Once the
// pipe is read the lines come, with the number of those that were lost, and a
// pipe that is full again does not keep the daemon from ending in order.
func TestF5AFullPipeBlocksNoCall(t *testing.T) {
	realtest.Root(t)
	realtest.Need(t, "ip")
	ns := nstest.New(t)
	ns.Bridge("rt0", "10.8.64.1/24")
	dir, err := os.MkdirTemp("", "pipe-") // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket := filepath.Join(dir, "s")
	conf := confFile(t, fmt.Sprintf("[book]\npath = '%s/book.db'\n[socket]\npath = '%s'\ngroup = ''\ndeadline = '1m'\n[runtime]\nkind = 'none'\n"+
		"[[pool]]\nname = 'default'\nprefix = '10.8.64.0/24'\n[log]\nlevel = 'debug'\nformat = 'text'\n", dir, socket))
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	r, w := pipe(t)
	if _, err := unix.FcntlInt(w.Fd(), unix.F_SETPIPE_SZ, os.Getpagesize()); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("ip", "netns", "exec", ns.Name(), self, "run", "--config", conf)
	cmd.Env = append(os.Environ(), asDaemon+"=1")
	cmd.Stderr = w
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	c := &client.Client{Socket: socket}
	defer c.CloseIdleConnections()
	patience, cancel := context.WithCancel(ctx) // of a call: one that is held up ends
	defer cancel()
	end := time.AfterFunc(within/2, cancel)
	soon := func() context.Context { end.Reset(within / 2); return patience }
	var log strings.Builder
	realtest.Eventually(t, within, "the daemon to be ready", func() bool {
		log.WriteString(fill(t, r, w)) // full from the start
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		_, err := c.Ready(ctx)
		return err == nil
	})

	ns.Port("rt0", "10.8.64.2/24")
	got, err := c.Allocate(soon(), api.AllocateRequest{Sandbox: "first"})
	if err != nil || len(got.Skipped) > 1 || got.Leases[0].Address != "10.8.64.3" { // a pass may have quarantined it before
		t.Fatalf("beside a stranger: %+v, %v", got, err)
	}
	for i := range 3 * 1024 {
		if _, err := c.Cancel(soon(), api.CancelRequest{UID: fmt.Sprint("u", i), Attempt: 1}); err != nil {
			t.Fatalf("call %d: %v", i, err)
		}
	}
	if _, err := c.Allocate(soon(), api.AllocateRequest{Sandbox: "second"}); err != nil {
		t.Error(err)
	}
	if _, err := c.Status(soon()); err != nil {
		t.Error(err)
	}

	// A reader comes, until the daemon has said what it lost.
	realtest.Eventually(t, within, "the log to report lost lines", func() bool {
		log.WriteString(drain(t, r))
		return strings.Contains(log.String(), "lines are lost")
	})
	wants(t, "log", log.String(), `msg="address is quarantined" addr=10.8.64.2`, `msg="attempt is cancelled" uid=u0 attempt=1`)

	fill(t, r, w)
	if _, err := c.Cancel(soon(), api.CancelRequest{UID: "last", Attempt: 1}); err != nil {
		t.Error(err)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("it ended with %v", err)
		}
	case <-time.After(within):
		t.Error("it does not end while its log is not read")
	}
}
