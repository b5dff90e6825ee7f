package bookfile

import (
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// F15: a program that this process starts meanwhile has a copy of the lock for a
// moment; a book that was closed can be opened all the same.
func TestF15AForkKeepsNoLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "book.db")
	var forks sync.WaitGroup
	stop := make(chan struct{})
	for range 4 {
		forks.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					_ = exec.Command("true").Run() // that it was started is enough
				}
			}
		})
	}
	defer forks.Wait()
	defer close(stop)
	for range 2000 {
		f, err := Lock(path, true)
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
