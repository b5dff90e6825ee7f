package netdb

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// parts are what is appended to a book's name: the file itself, its log, the
// log's index, and the mark. The file goes first. A crash behind it leaves a log
// without its book, which Open refuses and the next MoveAside takes away; a
// book without its log would open, and be older than what was acknowledged.
var parts = [...]string{"", "-wal", "-shm", "-mark"}

// MoveAside gives a closed book another name, with its log, so that a new one
// can be made at path: "book.db" becomes "book.db.broken-20261121T120000Z", or
// that with "-2", "-3", … behind it. Nothing is deleted, overwritten or looked
// into, and the new name comes back once it is durable. It holds the book's
// lock meanwhile: [ErrLocked] names who has it open.
//
// When only a part could be moved, the new name comes back with the error; to
// call it again moves the rest.
func MoveAside(path string, now time.Time) (to string, err error) {
	if path, err = filepath.Abs(path); err != nil {
		return "", fmt.Errorf("move aside: %w", err)
	}
	there, err := partsOf(path)
	if err != nil {
		return "", fmt.Errorf("move aside %s: %w", path, err)
	}
	if len(there) == 0 {
		return "", fmt.Errorf("move aside %s: there is no book: %w", path, fs.ErrNotExist)
	}
	switch lock, err := lockFile(path, false); {
	case errors.Is(err, fs.ErrNotExist): // without its book nobody can have opened the log
	case err != nil:
		return "", err
	default:
		defer lock.Close()
	}
	if there, err = partsOf(path); err != nil { // it may have been moved while the lock was taken
		return "", fmt.Errorf("move aside %s: %w", path, err)
	}
	to, err = unusedName(path + ".broken-" + now.UTC().Format("20060102T150405Z"))
	if err != nil {
		return "", fmt.Errorf("move aside %s: %w", path, err)
	}
	for i, part := range there {
		if err := os.Rename(path+part, to+part); err != nil {
			if i == 0 {
				to = ""
			}
			return to, fmt.Errorf("move aside %s: %w", path, err)
		}
	}
	if err := syncDir(filepath.Dir(path)); err != nil {
		return to, fmt.Errorf("move aside %s: %w", path, err)
	}
	return to, nil
}

// partsOf lists the parts of a book that are there. One that is no regular
// file belongs to somebody else: a link's target would stay where it is.
func partsOf(path string) (there []string, err error) {
	for _, part := range parts {
		st, err := os.Lstat(path + part)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			return nil, err
		case !st.Mode().IsRegular():
			return nil, fmt.Errorf("%s%s is no regular file", path, part)
		}
		there = append(there, part)
	}
	return there, nil
}

// unusedName returns the name, or the first numbered one, of which no part is
// there.
func unusedName(name string) (string, error) {
	for n := 1; ; n++ {
		to := name
		if n > 1 {
			to += "-" + strconv.Itoa(n)
		}
		used := false
		for _, part := range parts {
			switch _, err := os.Lstat(to + part); {
			case err == nil:
				used = true
			case !errors.Is(err, fs.ErrNotExist):
				return "", err
			}
		}
		if !used {
			return to, nil
		}
	}
}

// syncDir makes the names in a folder survive power loss, as a sync of a file
// does for its bytes.
func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	defer dir.Close()
	if err := dir.Sync(); err != nil {
		return fmt.Errorf("sync %s: %w", path, err)
	}
	return nil
}
