package netdb

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// takeLock takes the lock of the book: a file beside it, because closing any
// descriptor of the book itself would drop SQLite's own POSIX locks. The lock
// goes with the process, so a stale file blocks nobody. It holds the owner's
// pid, to name it to the second.
//
// What lies at the path may be another program's, and so may a lock beside
// it: until the header was checked none is made and nothing is written. A
// reader makes none at all; where there is none, nobody has the book open.
func (b *Book) takeLock() (err error) {
	if b.lock, err = lockFile(b.path, 0); err != nil {
		return err
	}
	if err := b.checkHeader(); err != nil {
		return err
	}
	if b.lock == nil && b.opts.ReadOnly {
		return nil
	}
	if b.lock == nil {
		if b.lock, err = lockFile(b.path, os.O_CREATE); err != nil {
			return err
		}
		if err := b.checkHeader(); err != nil { // it may have come in between
			return err
		}
	}
	if err := b.lock.Truncate(0); err != nil {
		return fmt.Errorf("lock %s: %w", b.path, err)
	}
	if _, err := b.lock.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0); err != nil {
		return fmt.Errorf("lock %s: %w", b.path, err)
	}
	return nil
}

// lockFile locks the file beside the book. Without O_CREATE it returns nil
// when there is none.
func lockFile(path string, create int) (*os.File, error) {
	f, err := os.OpenFile(path+".lock", os.O_RDWR|create|unix.O_CLOEXEC, 0o600)
	if create == 0 && errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		defer f.Close()
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		return nil, fmt.Errorf("open %s: %w by process %s", path, ErrLocked, holder(f))
	}
	return f, nil
}

// holder names the process that has the lock.
func holder(f *os.File) string {
	buf := make([]byte, 32)
	n, _ := f.ReadAt(buf, 0)
	pid := strings.TrimSpace(string(buf[:n]))
	if pid == "" {
		return "unknown"
	}
	if comm, err := os.ReadFile("/proc/" + pid + "/comm"); err == nil {
		return pid + " (" + strings.TrimSpace(string(comm)) + ")"
	}
	return pid
}
