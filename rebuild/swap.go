package rebuild

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ipamd/ipamd/netdb/bookfile"
)

// A Swap puts a new book in the place of the one at its path. A crash leaves
// one of three things, and the names there set them apart:
//
//   - the old book: whatever lies beside it is thrown away and begun anew;
//   - no book, but a whole new one beside its place: the old one was moved
//     away already. The daemon refuses to begin an empty one, and the next
//     rebuild moves the new one in;
//   - the new book.
type Swap struct{ Path string }

// Rebuilding is where a new book is made, rebuilt where it lies once it is
// whole and durable.
func (s Swap) Rebuilding() string { return s.Path + bookfile.RebuildingEnd }
func (s Swap) Sealed() string     { return s.Path + bookfile.RebuiltEnd }

// Cut reports whether a rebuild ended after it had moved the old book away.
func (s Swap) Cut() (bool, error) {
	old, err := exists(s.Path)
	if err != nil || old {
		return false, err
	}
	return exists(s.Sealed())
}

// Guard keeps rebuilds of the book at path away until the closer that it returns is
// closed. It refuses where a rebuilt book waits to be moved in: a daemon that begins an
// empty one there forgets what cools and who is paused.
func Guard(path string) (io.Closer, error) {
	real, err := bookfile.RealPath(path)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	s := Swap{real}
	lock, err := s.Lock(unix.LOCK_SH)
	if errors.Is(err, fs.ErrNotExist) {
		return io.NopCloser(nil), nil // its folder comes with the book
	}
	if err != nil {
		return nil, err
	}
	cut, err := s.Cut()
	if err == nil && cut {
		err = fmt.Errorf(`a rebuild of %s was cut short; "ipamd rebuild" finishes it`, s.Path)
	}
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return lock, nil
}

// Lock keeps rebuilds and the openings of daemons apart; how is LOCK_EX for
// the one, LOCK_SH for the others. It is on the folder itself, so that nothing
// is left behind. It waits a second at most: a child that is being started has a copy
// of the descriptor, and the lock with it, until it executes its program.
func (s Swap) Lock(how int) (*os.File, error) {
	dir, err := os.Open(filepath.Dir(s.Path))
	if err != nil {
		return nil, err
	}
	err = unix.Flock(int(dir.Fd()), how|unix.LOCK_NB)
	for until := time.Now().Add(time.Second); errors.Is(err, unix.EWOULDBLOCK) && time.Now().Before(until); {
		time.Sleep(5 * time.Millisecond)
		err = unix.Flock(int(dir.Fd()), how|unix.LOCK_NB)
	}
	if err != nil {
		if errors.Is(err, unix.EWOULDBLOCK) {
			err = errors.New("a rebuild works there, or a daemon starts; try again")
		}
		return nil, errors.Join(fmt.Errorf("lock %s: %w", dir.Name(), err), dir.Close())
	}
	return dir, nil
}

// discard throws away what was being made.
func (s Swap) discard() error {
	var errs []error
	for _, name := range []string{s.Rebuilding(), s.Sealed()} {
		for _, part := range bookfile.Parts {
			if err := os.Remove(name + part); err != nil && !errors.Is(err, fs.ErrNotExist) {
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}

// finish moves a closed book that is whole into place, and the old one, if
// there is any, away. It returns the old one's new name.
func (s Swap) finish(now time.Time) (aside string, err error) {
	if there, err := exists(s.Rebuilding()); err != nil {
		return "", err
	} else if there {
		if err := s.Seal(); err != nil {
			return "", err
		}
	}
	switch in, err := s.markIsIn(); {
	case err != nil:
		return "", err
	case !in:
		aside, err = bookfile.MoveAside(s.Path, now)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return aside, err
		}
		if err := moveMark(s.Sealed(), s.Path); err != nil {
			return aside, err
		}
	}
	// A book that came there in between is not overwritten.
	if err := unix.Renameat2(unix.AT_FDCWD, s.Sealed(), unix.AT_FDCWD, s.Path, unix.RENAME_NOREPLACE); err != nil {
		return aside, fmt.Errorf("move %s to %s: %w", s.Sealed(), s.Path, err)
	}
	if err := syncPath(filepath.Dir(s.Path)); err != nil {
		return aside, err
	}
	return aside, s.discard()
}

// markIsIn reports a run that was cut between the last two moves: all of the old book
// is moved away, and the mark at its place is the new one's.
func (s Swap) markIsIn() (bool, error) {
	there := make(map[string]bool)
	for _, name := range []string{s.Path, s.Path + bookfile.LogEnd, s.Path + bookfile.MarkEnd, s.Sealed() + bookfile.MarkEnd} {
		is, err := exists(name)
		if err != nil {
			return false, err
		}
		there[name] = is
	}
	return there[s.Path+bookfile.MarkEnd] && !there[s.Path] && !there[s.Path+bookfile.LogEnd] && !there[s.Sealed()+bookfile.MarkEnd], nil
}

// Seal makes the new book durable under the name that says that it is whole.
func (s Swap) Seal() error {
	if st, err := os.Stat(s.Rebuilding() + bookfile.LogEnd); err == nil && st.Size() > 0 {
		return fmt.Errorf("%s-wal has not been folded into its book", s.Rebuilding())
	}
	if err := syncPath(s.Rebuilding()); err != nil {
		return err
	}
	// The mark goes first: without it the book would begin another epoch.
	if err := moveMark(s.Rebuilding(), s.Sealed()); err != nil {
		return err
	}
	if err := os.Rename(s.Rebuilding(), s.Sealed()); err != nil {
		return err
	}
	return syncPath(filepath.Dir(s.Path))
}

// moveMark moves the note of a book's last revision to where the book goes.
func moveMark(from, to string) error {
	if err := os.Rename(from+bookfile.MarkEnd, to+bookfile.MarkEnd); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil // an earlier run has moved it
}

// exists reports a regular file. What is anything else was not made by a rebuild, and
// is neither followed nor moved into place.
func exists(path string) (bool, error) {
	switch st, err := os.Lstat(path); {
	case err == nil && !st.Mode().IsRegular():
		return false, fmt.Errorf("%s is no regular file", path)
	case err == nil:
		return true, nil
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	default:
		return false, err
	}
}

// syncPath makes a file's bytes, or a folder's names, survive power loss. It follows no link and
// waits at no pipe: the folder is of an operator's choice, and others may write there.
func syncPath(path string) error {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("sync %s: %w", path, err)
	}
	return nil
}
