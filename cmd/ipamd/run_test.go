package main

import (
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/client"
	"github.com/ipamd/ipamd/internal/realtest"
)

// within is how long a daemon may take for anything on a busy machine.
const within = 30 * time.Second

// develop starts a development daemon and waits until it can allocate.
func develop(t *testing.T) (*process, *client.Client) {
	t.Helper()
	realtest.Root(t)
	dir := t.TempDir()
	p := launch(t, dir, "run", "--dev")
	c := &client.Client{Socket: filepath.Join(dir, devDir, "ipamd.sock")}
	t.Cleanup(c.CloseIdleConnections)
	realtest.Eventually(t, within, "the daemon is ready: "+p.err.String(), func() bool {
		select {
		case <-p.done:
			t.Fatalf("it ended: %s", p.err.String())
		default:
		}
		_, err := c.Ready(context.Background())
		return err == nil
	})
	return p, c
}

func links(t *testing.T) string {
	t.Helper()
	all, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, l := range all {
		names = append(names, l.Name)
	}
	return strings.Join(names, " ")
}

func TestDevelopmentDaemon(t *testing.T) {
	realtest.Root(t)
	forwarding := func() string {
		b, err := os.ReadFile("/proc/sys/net/ipv4/ip_forward")
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	before, forwardedBefore := links(t), forwarding()
	p, c := develop(t)
	if after := links(t); after != before || strings.Contains(after, "rt0") {
		t.Errorf("the host's links were %q and are %q", before, after)
	}
	if after := forwarding(); after != forwardedBefore {
		t.Errorf("the host's forwarding was %q and is %q", forwardedBefore, after)
	}
	status, err := c.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if status.PID != p.cmd.Process.Pid || !status.Bridge.Managed || !status.Bridge.Ready {
		t.Errorf("status: %+v", status)
	}
	reply, err := c.Allocate(t.Context(), api.AllocateRequest{Sandbox: "a"})
	if err != nil || reply.Leases[0].Address != "10.8.64.2" {
		t.Fatalf("allocate: %+v, %v", reply, err)
	}
	wants(t, "what it tells", p.err.String(), "ipamctl --socket "+c.Socket, "/ns/net")

	p.signal(syscall.SIGTERM)
	if code := p.code(); code != exitOK {
		t.Errorf("exit code %d: %s", code, p.err.String())
	}
	if _, err := os.Lstat(c.Socket); !os.IsNotExist(err) {
		t.Errorf("the socket is left: %v", err)
	}
	code, out, stderr := ipamd(t, "check", filepath.Join(filepath.Dir(c.Socket), "book.db"))
	if code != exitOK {
		t.Errorf("check: exit code %d, %s", code, stderr)
	}
	wants(t, "check", out, "whole: 1 addresses")
}

// TestCheckAfterKill: a book is whole at whatever moment its daemon dies, and
// can be looked at before anybody has opened it for writing again.
func TestCheckAfterKill(t *testing.T) {
	p, c := develop(t)
	for _, sandbox := range []string{"a", "b", "c"} {
		if _, err := c.Allocate(t.Context(), api.AllocateRequest{Sandbox: sandbox}); err != nil {
			t.Fatal(err)
		}
	}
	p.signal(syscall.SIGKILL)
	p.code()
	code, out, stderr := ipamd(t, "check", filepath.Join(filepath.Dir(c.Socket), "book.db"))
	if code != exitOK {
		t.Errorf("exit code %d, %s", code, stderr)
	}
	wants(t, "check", out, "whole: 3 addresses")
}

// TestSecondSignal: a call that is not done holds up the first signal, and
// not the second.
func TestSecondSignal(t *testing.T) {
	p, c := develop(t)
	conn, err := net.Dial("unix", c.Socket)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "POST /v1/leases HTTP/1.1\r\nHost: ipamd\r\nContent-Length: 100\r\nExpect: 100-continue\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Read(make([]byte, 1)); err != nil { // it reads the body: the call has begun
		t.Fatal(err)
	}
	p.signal(os.Interrupt)
	realtest.Eventually(t, within, "it takes no more connections", func() bool {
		_, err := c.Healthy(context.Background())
		return err != nil
	})
	select {
	case <-p.done:
		t.Fatalf("the first signal did not wait for the call: %s", p.err.String())
	default:
	}
	p.signal(os.Interrupt)
	select {
	case <-p.done:
	case <-time.After(within):
		t.Fatal("the second signal did not end it")
	}
	if ws := p.cmd.ProcessState.Sys().(syscall.WaitStatus); !ws.Signaled() || ws.Signal() != syscall.SIGINT {
		t.Errorf("it ended with %v", p.cmd.ProcessState)
	}
}

func TestStartThatFails(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "book.db")
	if err := os.WriteFile(path, []byte("somebody else's file"), 0o600); err != nil {
		t.Fatal(err)
	}
	code, out, stderr := ipamd(t, "--config", file(t, "[book]\npath = '"+path+"'\n[socket]\npath = '"+dir+"/s'\n[log]\nformat = 'journal'\n"))
	if code != exitError || out != "" {
		t.Errorf("exit code %d, stdout %q", code, out)
	}
	wants(t, "stderr", stderr, `<3>msg="cannot start"`, "not a lease book of ipamd", path)
	if got, err := os.ReadFile(path); err != nil || string(got) != "somebody else's file" {
		t.Errorf("the file is %q, %v", got, err)
	}
}
