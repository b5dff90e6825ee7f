package nsthread

import (
	"os"
	"testing"

	"github.com/ipamd/ipamd/internal/realtest"
)

func open(t *testing.T, path string) int {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return int(f.Fd())
}

func TestIsNetns(t *testing.T) {
	for _, c := range []struct {
		path   string
		is, ok bool
	}{
		{"/proc/self/ns/net", true, true},
		{"/proc/self/ns/mnt", false, true},
		{"/proc/self/status", false, false},
		{t.TempDir(), false, false},
	} {
		if is, err := IsNetns(open(t, c.path)); is != c.is || (err == nil) != c.ok {
			t.Errorf("%s is a network namespace: %v, %v; want %v, and no error: %v", c.path, is, err, c.is, c.ok)
		}
	}
}

func TestIsOwnAsksOfTheThread(t *testing.T) {
	realtest.Root(t)
	home := open(t, "/proc/self/ns/net")
	if own, err := IsOwn(home); err != nil || !own {
		t.Errorf("the namespace of the process is its own: %v, %v", own, err)
	}
	err := InNew(func() error {
		if own, err := IsOwn(home); err != nil || own {
			t.Errorf("in another namespace, that of the process is its own: %v, %v", own, err)
		}
		if own, err := IsOwn(open(t, "/proc/thread-self/ns/net")); err != nil || !own {
			t.Errorf("the namespace of the thread is its own: %v, %v", own, err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := IsOwn(-1); err == nil {
		t.Error("no file is looked at without an error")
	}
}
