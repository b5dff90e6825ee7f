package socket_test

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ipamd/ipamd/server/servertest"
	"github.com/ipamd/ipamd/server/socket"
)

// TestListen is the socket's part of L15: a live one names its holder, a
// stale one does not block.
func TestListen(t *testing.T) {
	path := filepath.Join(filepath.Dir(servertest.Socket(t)), "made", "s")
	ln, err := socket.Listen(path, 0o660, os.Getgid())
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	if fi, err := os.Stat(path); err != nil || fi.Mode() != os.ModeSocket|0o660 {
		t.Errorf("socket: %v, %v", fi, err)
	}
	if ln.Addr().String() != path {
		t.Errorf("listens on %s", ln.Addr())
	}
	if left, _ := os.ReadDir(filepath.Dir(path)); len(left) != 1 {
		t.Errorf("left beside the socket: %v", left)
	}
	if _, err := socket.Listen(path, 0o660, -1); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("process %d listens", os.Getpid())) {
		t.Errorf("a second listener: %v", err)
	}
	ln.Close()
	ln.Close()
	if _, err := os.Lstat(path); !os.IsNotExist(err) {
		t.Errorf("after Close: %v", err)
	}
}

func TestListenStale(t *testing.T) {
	path := servertest.Socket(t)
	dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	dead.SetUnlinkOnClose(false)
	dead.Close()
	ln, err := socket.Listen(path, 0o600, -1)
	if err != nil {
		t.Fatalf("a stale socket blocks: %v", err)
	}
	// Somebody else's socket at the same path is not removed by our Close.
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	next, err := socket.Listen(path, 0o600, -1)
	if err != nil {
		t.Fatal(err)
	}
	defer next.Close()
	ln.Close()
	if _, err := os.Lstat(path); err != nil {
		t.Errorf("the next one's socket: %v", err)
	}
}

func TestListenRefuses(t *testing.T) {
	path := servertest.Socket(t)
	if err := os.WriteFile(path, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := socket.Listen(path, 0o600, -1); err == nil || !strings.Contains(err.Error(), "no socket") {
		t.Errorf("a file: %v", err)
	}
	if text, _ := os.ReadFile(path); string(text) != "precious" {
		t.Error("the file was touched")
	}
	long := filepath.Join(filepath.Dir(path), strings.Repeat("x", 120), "s")
	if _, err := socket.Listen(long, 0o600, -1); err == nil || !strings.Contains(err.Error(), "too long") {
		t.Errorf("a long path: %v", err)
	}
}
