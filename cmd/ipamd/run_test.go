package main

import (
	"context"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/client"
	"github.com/ipamd/ipamd/internal/nstest"
	"github.com/ipamd/ipamd/internal/realtest"
)

// develop starts a development daemon and waits until it can allocate.
func develop(t *testing.T, dir string) (*process, *client.Client) {
	t.Helper()
	realtest.Root(t)
	t.Cleanup(func() { _ = syscall.Unmount(filepath.Join(dir, devNetns), 0) }) // none is named after the second time
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
	dir := t.TempDir()
	p, c := develop(t, dir)
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
	wants(t, "what it prints", p.err.String(), "ipamctl --socket "+c.Socket, "nsenter --net="+filepath.Join(dir, devNetns))

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

	// Its network is the one of before, with what was plugged meanwhile.
	plug := exec.Command("nsenter", "--net="+filepath.Join(dir, devNetns), "ip", "link", "add", "veth9", "type", "veth", "peer", "name", "guest9")
	if output, err := plug.CombinedOutput(); err != nil {
		t.Fatalf("plug: %v: %s", err, output)
	}
	p, c = develop(t, dir)
	shown, err := exec.Command("nsenter", "--net=/proc/"+strconv.Itoa(p.cmd.Process.Pid)+"/ns/net", "ip", "link").CombinedOutput()
	if err != nil || !strings.Contains(string(shown), "veth9") || !strings.Contains(string(shown), "rt0") {
		t.Errorf("after a restart: %v: %s", err, shown)
	}
	if reply, err := c.Allocate(t.Context(), api.AllocateRequest{Sandbox: "a"}); err != nil || !reply.Existing {
		t.Errorf("after a restart: %+v, %v", reply, err)
	}
}

// TestDevelopmentRefusesANamespaceInUse asks the part of --dev that makes a
// bridge to do so where something is up. It asks inside a namespace of the
// test's, not on the host: when the refusal broke once, the host had an rt0.
func TestDevelopmentRefusesANamespaceInUse(t *testing.T) {
	realtest.Need(t, "ip")
	ns := nstest.New(t) // its lo is up
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := start(t, t.TempDir(), []string{"ip", "netns", "exec", ns.Name(), self, "run", "--dev", "--inside"})
	if code := p.code(); code != exitUsage {
		t.Errorf("exit code %d", code)
	}
	wants(t, "stderr", p.err.String(), "this network namespace is in use: lo is up; --dev makes its own")
	if links := ns.Exec("ip", "-br", "link"); strings.Contains(links, "rt0") {
		t.Errorf("it made its bridge: %s", links)
	}
}

// TestCheckAfterKill: a book is whole at whatever moment its daemon dies, and
// can be looked at before anybody has opened it for writing again.
func TestCheckAfterKill(t *testing.T) {
	p, c := develop(t, t.TempDir())
	for _, sandbox := range []string{"a", "b", "c"} {
		if _, err := c.Allocate(t.Context(), api.AllocateRequest{Sandbox: sandbox}); err != nil {
			t.Fatal(err)
		}
	}
	p.signal(syscall.SIGKILL)
	p.code()
	path := filepath.Join(filepath.Dir(c.Socket), "book.db")
	content := func() string {
		t.Helper()
		var all []byte
		for _, name := range []string{path, path + "-wal"} {
			b, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, b...)
		}
		return string(all)
	}
	before := content()
	code, out, stderr := ipamd(t, "check", path)
	if content() != before {
		t.Error("looking at the book changed it")
	}
	if code != exitOK {
		t.Errorf("exit code %d, %s", code, stderr)
	}
	wants(t, "check", out, "whole: 3 addresses")
}

// callTime is how long the call of TestSecondSignal lasts: what the server gives
// a body that does not come.
const callTime = 5 * time.Second

// TestSecondSignal: a call that is not done holds up the first signal, and
// not the second. Where the call was over before that could be seen, it is made
// again.
func TestSecondSignal(t *testing.T) {
	for range 10 {
		if secondSignal(t) {
			return
		}
	}
	t.Error("no call lasted until the second signal")
}

// secondSignal reports whether the call lasted so long.
func secondSignal(t *testing.T) bool {
	p, c := develop(t, t.TempDir())
	began := time.Now()
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
	over := func() bool { return time.Since(began) >= callTime }
	p.signal(os.Interrupt)
	realtest.Eventually(t, within, "it takes no more connections", func() bool {
		_, err := c.Healthy(context.Background())
		return err != nil
	})
	select {
	case <-p.done:
		if over() {
			return false
		}
		t.Fatalf("the first signal did not wait for the call: %s", p.err.String())
	default:
	}
	p.signal(os.Interrupt)
	code := p.code()
	if code == exitOK && over() {
		return false
	}
	if code != 128+int(syscall.SIGINT) {
		t.Errorf("exit code %d: %s", code, p.err.String())
	}
	return true
}

func TestStartThatFails(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "book.db")
	if err := os.WriteFile(path, []byte("somebody else's file"), 0o600); err != nil {
		t.Fatal(err)
	}
	code, out, stderr := ipamd(t, "--config", confFile(t, "[book]\npath = '"+path+"'\n[socket]\npath = '"+dir+"/s'\ngroup = ''\n[log]\nformat = 'journal'\n"))
	if code != exitError || out != "" {
		t.Errorf("exit code %d, stdout %q", code, out)
	}
	wants(t, "stderr", stderr, `<3>msg="cannot start"`, "not a lease book of ipamd", path)
	if got, err := os.ReadFile(path); err != nil || string(got) != "somebody else's file" {
		t.Errorf("the file is %q, %v", got, err)
	}
}
