package netdb

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
// file, or wait without end. What only reads follows none of them; what writes also
// wants to know whose they are.

var (
	errNoFile  = errors.New("it is no regular file")
	errTooLong = errors.New("it is longer than any book")
)

// mostBytes bounds a file that is read to its end, in bytes.
const mostBytes = 64 << 30

// openRegular opens a file that is neither a link nor a pipe nor a device, whose
// opening or reading could wait without end, or do something. flags are those of
// os.OpenFile. One that is opened for writing has one name.
func openRegular(path string, flags int) (*os.File, error) {
	if st, err := os.Lstat(path); err == nil && !st.Mode().IsRegular() {
		return nil, &fs.PathError{Op: "open", Path: path, Err: errNoFile} // before a device is opened
	}
	f, err := os.OpenFile(path, flags|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, err
	}
	st, err := statOf(f)
	switch {
	case err != nil:
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		err = errNoFile
	case st.Size > mostBytes:
		err = errTooLong
	case flags&os.O_RDWR != 0 && st.Nlink > 1:
		err = errOtherNames
	}
	if err != nil {
		return nil, errors.Join(&fs.PathError{Op: "open", Path: path, Err: err}, f.Close())
	}
	return f, nil
}

// statOf asks about a file that is open.
func statOf(f *os.File) (st unix.Stat_t, err error) {
	conn, err := f.SyscallConn()
	if err != nil {
		return st, err
	}
	return st, errors.Join(conn.Control(func(fd uintptr) { err = unix.Fstat(int(fd), &st) }), err)
}

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

// exposed says who else may change an open book, "" for no one. For a book
// that is only read, what is open to all users or to a group counts.
func (s *store) exposed() string {
	var found []string
	folder, err := lookAt(filepath.Dir(s.path), unix.O_DIRECTORY)
	looks := []exposure{folder}
	if err != nil {
		looks = nil // it was taken away, which is reported as that
	}
	if st, err := statOf(s.file.File); err == nil {
		looks = append(looks, exposure{s.path, st})
	}
	for _, e := range looks {
		if s.opts.ReadOnly {
			e.st.Uid = 0
		}
		if who := e.others(); who != "" {
			found = append(found, who)
		}
	}
	for dir := filepath.Dir(filepath.Dir(s.path)); dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		// Where the sticky bit is set only its owner can move a folder away.
		if e, err := lookAt(dir, unix.O_DIRECTORY); err == nil && e.worldWritable() != nil && e.st.Mode&unix.S_ISVTX == 0 {
			found = append(found, dir+": any user may put another folder in the place of the book's")
		}
	}
	return strings.Join(found, "; ")
}

// checkBeside refuses to write where another user has put a file for SQLite to write
// to: a link, a pipe, a file with a second name, or one that is neither ours nor of
// the owner of the book. A journal is rolled back into the book, and may name another
// file to be deleted, so it has to be our own.
func (o *opening) checkBeside() error {
	book, err := statOf(o.file.File)
	if err != nil {
		return err
	}
	for _, part := range []string{"-wal", "-shm", "-mark", "-journal"} {
		e, err := lookAt(o.path+part, 0)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
		case e.st.Mode&unix.S_IFMT != unix.S_IFREG:
			err = errNoFile
		case e.st.Nlink > 1:
			err = errOtherNames
		case !ours(e.st.Uid) && (part == "-journal" || e.st.Uid != book.Uid):
			err = fmt.Errorf("it belongs to user %d", e.st.Uid)
		}
		if err != nil {
			return fmt.Errorf("beside it lies %s, which ipamd did not make: %w", o.path+part, err)
		}
	}
	return nil
}
