package bookfile

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// A user who can write to a book, or make files beside it, decides what is in it. A
// planted link, pipe or device beside a book has a program of root's write to another
// file, or wait without end. What only reads follows none of them, see [OpenRegular]; what
// writes also wants to know whose they are.

// ErrExposed means that all users may write to the book, or make files beside it.
var ErrExposed = errors.New("any user may write to it")

// An exposure is what lets others than the daemon change a book: a file or a folder,
// as it is.
type exposure struct {
	path string
	st   unix.Stat_t
}

// worldWritable refuses what all users may write to.
func (e exposure) worldWritable() error {
	if e.st.Mode&unix.S_IWOTH == 0 {
		return nil
	}
	return fmt.Errorf("%w: %s (mode %04o); chmod o-w, or give the book a folder of its own", ErrExposed, e.path, e.st.Mode&0o7777)
}

// others names who else may write to it, "" when only root may and the user that
// this process runs as.
func (e exposure) others() string {
	var who []string
	if err := e.worldWritable(); err != nil {
		who = append(who, "any user may write to it")
	}
	if e.st.Mode&unix.S_IWGRP != 0 {
		who = append(who, fmt.Sprintf("group %d may write to it", e.st.Gid))
	}
	if !ours(e.st.Uid) {
		who = append(who, fmt.Sprintf("it belongs to user %d", e.st.Uid))
	}
	if e.st.Mode&unix.S_IFMT == unix.S_IFREG && e.st.Nlink > 1 {
		who = append(who, fmt.Sprintf("it has %d names, hard links, and the next start refuses it: %q finds them", e.st.Nlink, "find -samefile"))
	}
	if who == nil {
		return ""
	}
	return e.path + ": " + strings.Join(who, ", ")
}

// ours reports that a file of this owner is one that this process, or root, made.
func ours(uid uint32) bool { return uid == 0 || int(uid) == os.Geteuid() }

// lookAt looks at a file or a folder by its descriptor, without opening it.
func lookAt(path string, flags int) (exposure, error) {
	f, err := os.OpenFile(path, flags|unix.O_PATH|unix.O_NOFOLLOW, 0)
	if err != nil {
		return exposure{}, err
	}
	defer f.Close()
	st, err := statOf(f)
	return exposure{path, st}, err
}

// Exposed returns an [ErrExposed] that names the file or folder when all users may
// write to the book at path, or make files beside it. What is not there is not exposed.
func Exposed(path string) error {
	path, err := RealPath(path)
	if err != nil {
		return nil // opening it reports that
	}
	folder, _ := lookAt(filepath.Dir(path), unix.O_DIRECTORY)
	book, _ := lookAt(path, 0) // one that is not there has no mode
	return cmp.Or(folder.worldWritable(), book.worldWritable())
}

// ExposedTo says who else may change an open book, "" for no one. For a book
// that is only read, what is open to all users or to a group counts.
func (f *File) ExposedTo(readOnly bool) string {
	var found []string
	path := f.Name()
	folder, err := lookAt(filepath.Dir(path), unix.O_DIRECTORY)
	looks := []exposure{folder}
	if err != nil {
		looks = nil // it was taken away, which is reported as that
	}
	if st, err := statOf(f.File); err == nil {
		looks = append(looks, exposure{path, st})
	}
	for _, e := range looks {
		if readOnly {
			e.st.Uid = 0
		}
		if who := e.others(); who != "" {
			found = append(found, who)
		}
	}
	for dir := filepath.Dir(filepath.Dir(path)); dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		// Where the sticky bit is set only its owner can move a folder away.
		if e, err := lookAt(dir, unix.O_DIRECTORY); err == nil && e.worldWritable() != nil && e.st.Mode&unix.S_ISVTX == 0 {
			found = append(found, dir+": any user may put another folder in the place of the book's")
		}
	}
	return strings.Join(found, "; ")
}

// CheckBeside refuses to write where another user has put a file for SQLite to write
// to: a link, a pipe, a file with a second name, or one that is neither ours nor of
// the owner of the book. A journal is rolled back into the book, and may name another
// file to be deleted, so it has to be our own.
func (f *File) CheckBeside() error {
	book, err := statOf(f.File)
	if err != nil {
		return err
	}
	for _, part := range []string{LogEnd, IndexEnd, MarkEnd, JournalEnd} {
		e, err := lookAt(f.Name()+part, 0)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
		case e.st.Mode&unix.S_IFMT != unix.S_IFREG:
			err = ErrNotRegular
		case e.st.Nlink > 1:
			err = errOtherNames
		case !ours(e.st.Uid) && (part == JournalEnd || e.st.Uid != book.Uid):
			err = fmt.Errorf("it belongs to user %d", e.st.Uid)
		}
		if err != nil {
			return fmt.Errorf("beside it lies %s, which ipamd did not make: %w", f.Name()+part, err)
		}
	}
	return nil
}
