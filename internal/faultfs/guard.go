package faultfs

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// guarded is what the guard does once no process is before it any more: it gives
// up all that waits for an answer of the disk, and takes the mount away.
const guarded = `cat >/dev/null; echo 1 >&3; umount --lazy "$1"`

// guard takes the disk at dir away when the test ends, or its process dies.
//
// Who serves a disk and uses it, too, cannot be killed while a call waits for
// its own answer: the thread that waits is not woken for a signal, and what
// would end the wait, the last close of /dev/fuse, waits for the thread. So
// two processes stand by. The first is killed with this one, and is all that
// keeps the second, which outlives both, from its work. A pipe from here would
// not do: its end stays open for as long as the thread waits.
func guard(t testing.TB, dir string) {
	t.Helper()
	abort := aborter(t, dir)
	defer abort.Close()
	first := exec.Command("cat")
	first.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	hold, err := first.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	between, err := first.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	second := exec.Command("sh", "-c", guarded, "sh", dir)
	second.Stdin, second.ExtraFiles = between, []*os.File{abort}
	second.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // no signal to our group ends it
	if err := second.Start(); err != nil {
		t.Fatalf("guard %s: %v", dir, err)
	}
	started, ended := make(chan error), make(chan error)
	go func() {
		runtime.LockOSThread() // Pdeathsig means the death of the thread that started it
		err := first.Start()
		started <- err
		if err == nil {
			ended <- first.Wait()
		}
	}()
	if err := <-started; err != nil {
		t.Fatalf("guard %s: %v", dir, err)
	}
	t.Cleanup(func() {
		hold.Close()
		if err := <-ended; err != nil {
			t.Errorf("guard %s: %v", dir, err)
		}
		if err := second.Wait(); err != nil {
			t.Errorf("take %s away: %v", dir, err)
		}
	})
}

// aborter opens the kernel's switch for the connection behind a mount.
func aborter(t testing.TB, dir string) *os.File {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		t.Fatalf("look at %s: %v", dir, err)
	}
	control := t.TempDir()
	if err := unix.Mount("fusectl", control, "fusectl", 0, ""); err != nil {
		t.Fatalf("mount fusectl: %v", err)
	}
	defer func() {
		if err := unix.Unmount(control, unix.MNT_DETACH); err != nil {
			t.Errorf("unmount fusectl: %v", err)
		}
	}()
	f, err := os.OpenFile(filepath.Join(control, strconv.Itoa(int(unix.Minor(st.Dev))), "abort"), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(fmt.Errorf("find the switch of %s: %w", dir, err))
	}
	return f
}
