package bookfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// The lock of a book is flock(2) on the book's own file, so that every name of
// it (a symlink, a bind mount, a hard link) leads to the same lock. It does not
// collide with the POSIX locks that SQLite takes on the same file, but closing
// any descriptor of the file drops those: the locked descriptor is opened before
// SQLite opens the book and closed after SQLite closed it. So no library that opens
// the file by its path, and closes it again, can take it.

// ErrLocked means that another process, or this one, has the book open.
var ErrLocked = errors.New("the book is in use")

// errOtherNames refuses a book with a second hard link: SQLite keeps a log
// beside each name, and what is acknowledged in one is unknown to the other.
var errOtherNames = errors.New("the file has another name, a hard link, with a log of its own")

// errReplaced means that another file came to the path before the lock.
var errReplaced = errors.New("the file was replaced while it was opened")

// opened holds the books that this process has open, by identity. A second
// opening must not even open the file: closing it again would drop the POSIX
// locks of the first.
var opened sync.Map

// A File is the locked file of a book. Its name is the path at which it was locked.
type File struct {
	*os.File
	id ident
}

func (f *File) Close() error {
	defer opened.Delete(f.id)
	return f.File.Close()
}

// Lock opens the file at a resolved path, and locks it, or refuses at once:
// [ErrLocked] names the process that has it. It makes an empty file, readable by
// its owner only, when there is none and create is set; else the error is
// fs.ErrNotExist. What is there is not changed.
func Lock(path string, create bool) (*File, error) {
	tries := 16 // a file that is replaced each time between opening and locking
	for until := time.Now().Add(forkMost); ; {
		f, err := lockOnce(path, create)
		switch {
		case err == nil:
			return f, nil
		case errors.Is(err, errForked) && time.Now().Before(until):
			time.Sleep(time.Millisecond)
		case errors.Is(err, errReplaced) && tries > 1:
			tries--
		default:
			return nil, err
		}
	}
}

// forkMost is how long a child that is being started may keep the lock of a file
// which was closed already: it has a copy of each descriptor until it executes its
// program.
const forkMost = time.Second

// errForked means that the kernel names no other process as the holder: it is a child
// that is being started, or in another PID namespace.
var errForked = fmt.Errorf("%w by a process that cannot be named: one of another PID namespace (a container), or one that is being started", ErrLocked)

func lockOnce(path string, create bool) (_ *File, err error) {
	if st, err := os.Lstat(path); err == nil && !st.Mode().IsRegular() {
		return nil, ErrNotRegular // before a device is opened
	}
	lockedBy := func(pid int) error { return fmt.Errorf("%w by process %s", ErrLocked, nameOf(pid)) }
	id, err := identOf(path)
	if _, here := opened.Load(id); here && err == nil {
		return nil, lockedBy(os.Getpid())
	}
	flags := unix.O_RDONLY | unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_CLOEXEC // a FIFO would block
	if errors.Is(err, fs.ErrNotExist) && create {
		flags |= unix.O_CREAT | unix.O_EXCL
	}
	raw, err := os.OpenFile(path, flags, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil, errReplaced
	}
	if err != nil {
		return nil, unwrapPath(err)
	}
	f := &File{File: raw}
	locked := false
	defer func() {
		if err != nil && !locked {
			err = errors.Join(err, raw.Close())
		} else if err != nil {
			err = errors.Join(err, f.Close())
		}
	}()
	st, err := statOf(raw)
	if err != nil {
		return nil, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil, ErrNotRegular
	}
	f.id = ident{uint64(st.Dev), st.Ino}
	if _, here := opened.LoadOrStore(f.id, true); here {
		return nil, lockedBy(os.Getpid())
	}
	locked = true
	if err := unix.Flock(int(raw.Fd()), unix.LOCK_EX|unix.LOCK_NB); errors.Is(err, unix.EWOULDBLOCK) {
		by := holder(f.id)
		if by == 0 || by == os.Getpid() {
			return nil, errForked
		}
		return nil, lockedBy(by)
	} else if err != nil {
		return nil, fmt.Errorf("lock: %w", err)
	}
	if now, err := identOf(path); err != nil || now != f.id {
		return nil, errReplaced
	}
	if st.Nlink > 1 {
		return nil, fmt.Errorf(`%w; "find -samefile" on its file system finds it`, errOtherNames)
	}
	return f, nil
}

// holder is the process that has the flock on a file, as the kernel lists it:
// "N: FLOCK ADVISORY WRITE PID MAJOR:MINOR:INODE 0 EOF"; 0 where none is listed, or
// one of another PID namespace. Some file systems (btrfs, overlayfs) list another
// device than stat(2) gives, so the inode alone is second best.
func holder(id ident) (pid int) {
	list, err := os.ReadFile("/proc/locks")
	if err != nil {
		return 0
	}
	full := fmt.Sprintf("%02x:%02x:%d", unix.Major(id.dev), unix.Minor(id.dev), id.ino)
	inode := ":" + strconv.FormatUint(id.ino, 10)
	for line := range strings.Lines(string(list)) {
		f := strings.Fields(line)
		if len(f) < 6 || f[1] != "FLOCK" || !strings.HasSuffix(f[5], inode) {
			continue
		}
		by, err := strconv.Atoi(f[4])
		if err != nil || by <= 0 {
			continue // of another PID namespace
		}
		if pid = by; f[5] == full {
			return pid
		}
	}
	return pid
}

// nameOf is a pid with the command's name, where it can be read.
func nameOf(pid int) string {
	comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	if err != nil {
		return strconv.Itoa(pid)
	}
	return fmt.Sprintf("%d (%s)", pid, strings.TrimSpace(string(comm)))
}
