package bookfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// asideEnd is what a book that was moved aside has behind its old name, before the time.
const asideEnd = ".broken-"

// MoveAside gives a closed book another name, with its log, so that a new one
// can be made at path: "book.db" becomes "book.db.broken-20261121T120000Z", or
// that with "-2", "-3", … behind it. Nothing is deleted, overwritten or looked
// into, and the new name comes back once it is durable. It holds the book's
// lock meanwhile: [ErrLocked] names the process that has it open.
//
// When only a part could be moved, the new name comes back with the error; to
// call it again moves the rest.
func MoveAside(path string, now time.Time) (to string, err error) {
	if path, err = filepath.Abs(path); err == nil {
		to, err = moveAside(path, now)
	}
	if err != nil {
		return to, fmt.Errorf("move %s away: %w", path, err)
	}
	return to, nil
}

func moveAside(path string, now time.Time) (to string, err error) {
	there, err := partsOf(path)
	if err != nil {
		return "", err
	}
	if len(there) == 0 {
		return "", fmt.Errorf("there is no book: %w", fs.ErrNotExist)
	}
	switch lock, err := Lock(path, false); {
	case errors.Is(err, fs.ErrNotExist): // without its book no process can have opened the log
	case err != nil:
		return "", err
	default:
		defer lock.Close()
	}
	if there, err = partsOf(path); err != nil { // it may have been moved while the lock was taken
		return "", err
	}
	to, err = unusedName(path + asideEnd + now.UTC().Format("20060102T150405Z"))
	if err != nil {
		return "", err
	}
	for i, part := range there {
		if err := os.Rename(path+part, to+part); err != nil {
			if i == 0 {
				to = ""
			}
			return to, err
		}
	}
	return to, SyncDir(filepath.Dir(path))
}

// MovedAside names the last book that was moved away from a path; "" when there is none.
func MovedAside(path string) string {
	names, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		return ""
	}
	for _, e := range slices.Backward(names) {
		name := filepath.Join(filepath.Dir(path), e.Name())
		if strings.HasPrefix(name, path+asideEnd) && !slices.ContainsFunc(Parts[1:], func(part string) bool { return strings.HasSuffix(name, part) }) {
			return name
		}
	}
	return ""
}

// partsOf lists the parts of a book that are there. One that is no regular
// file is not ipamd's: a link's target would stay where it is.
func partsOf(path string) (there []string, err error) {
	for _, part := range Parts {
		st, err := os.Lstat(path + part)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			return nil, err
		case !st.Mode().IsRegular():
			return nil, fmt.Errorf("%s%s: %w", path, part, ErrNotRegular)
		}
		there = append(there, part)
	}
	return there, nil
}

// unusedName returns the name, or the first numbered one, of which no part is
// there.
func unusedName(name string) (string, error) {
	to := name
	for n := 2; ; n++ {
		there, err := partsOf(to)
		if err == nil && len(there) == 0 || err != nil && !errors.Is(err, ErrNotRegular) {
			return to, err
		}
		to = name + "-" + strconv.Itoa(n)
	}
}
