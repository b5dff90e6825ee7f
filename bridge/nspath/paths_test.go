package nspath

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ipamd/ipamd/internal/nstest"
	"github.com/ipamd/ipamd/internal/realtest"
)

// TestG13NetnsPathsOnAFileSystemThatHangs: a look returns in its time, as many as
// there may be are given up and no more, a path that hangs is not looked at again,
// and namespaces elsewhere are found meanwhile. When the file system answers again
// nothing is left behind.
func TestG13NetnsPathsOnAFileSystemThatHangs(t *testing.T) {
	ns := nstest.New(t)
	dir := t.TempDir()
	stuck := filepath.Join(dir, "stuck")
	answer := nstest.Hang(t, stuck)
	paths := New([]string{stuck, dir})

	look := func(path string, within time.Duration) error {
		ctx, cancel := context.WithTimeout(context.Background(), within)
		defer cancel()
		fd, err := paths.Open(ctx, path)
		if err == nil || fd >= 0 {
			t.Errorf("a look at %s: %d, %v", path, fd, err)
		}
		return err
	}
	found := func(path string, want bool) {
		t.Helper()
		fd, err := paths.Open(t.Context(), path)
		if err != nil || fd >= 0 != want {
			t.Fatalf("a look at %s: %d, %v", path, fd, err)
		}
		if fd >= 0 {
			_ = unix.Close(fd)
		}
	}
	done := make(chan error, 1)
	go func() { done <- look(filepath.Join(stuck, "0"), 50*time.Millisecond) }()
	select {
	case err := <-done:
		if !errors.Is(err, context.DeadlineExceeded) && !strings.Contains(err.Error(), "has not come back") {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		answer()
		t.Fatal("a look does not return while the file system hangs")
	}
	if err := look(filepath.Join(stuck, "0"), time.Hour); !strings.Contains(err.Error(), "an earlier look has not come back") {
		t.Errorf("the same path again: %v", err)
	}
	before := runtime.NumGoroutine()
	for i := range 3 * mostLooks {
		look(filepath.Join(stuck, fmt.Sprint(i)), time.Millisecond)
		found(ns.Path(), true) // a namespace elsewhere, beside i looks
	}
	if n := runtime.NumGoroutine() - before; n > mostLooks {
		t.Errorf("%d looks are left behind, of %d that may be", n, mostLooks)
	}
	found(filepath.Join(dir, "none"), false) // in the folder beside

	answer()
	realtest.Eventually(t, time.Minute, "what was given up has ended", func() bool {
		paths.mu.Lock()
		defer paths.mu.Unlock()
		return len(paths.looks) == 0
	})
}
