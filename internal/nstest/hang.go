package nstest

import (
	"fmt"
	"os"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// Hang mounts a file system that never answers, as FUSE or NFS may. answer ends
// that: from then on it says that it is gone.
func Hang(t testing.TB, at string) (answer func()) {
	t.Helper()
	if err := os.MkdirAll(at, 0o755); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	answer = sync.OnceFunc(func() { unix.Close(fd) })
	if err := unix.Mount("hang", at, "fuse", 0, fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", fd)); err != nil {
		answer()
		t.Fatal(err)
	}
	t.Cleanup(func() {
		answer()
		if err := unix.Unmount(at, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return answer
}
