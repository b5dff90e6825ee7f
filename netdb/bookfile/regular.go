package bookfile

import (
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// ErrNotRegular means that a link, a folder, a pipe or a device lies where a file has to.
var ErrNotRegular = errors.New("it is no regular file")

var errTooLong = errors.New("it is longer than any book")

// mostBytes bounds a file that is read to its end, in bytes.
const mostBytes = 64 << 30

// OpenRegular opens a file that is neither a link nor a pipe nor a device, whose
// opening or reading could wait without end, or do something. flags are those of
// os.OpenFile. One that is opened for writing has one name.
func OpenRegular(path string, flags int) (*os.File, error) {
	if st, err := os.Lstat(path); err == nil && !st.Mode().IsRegular() {
		return nil, &fs.PathError{Op: "open", Path: path, Err: ErrNotRegular} // before a device is opened
	}
	f, err := os.OpenFile(path, flags|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, err
	}
	st, err := statOf(f)
	switch {
	case err != nil:
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		err = ErrNotRegular
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

// unwrapPath takes the path off an error that is wrapped with it anyway.
func unwrapPath(err error) error {
	if p, ok := err.(*fs.PathError); ok {
		return p.Err
	}
	return err
}

// An ident says which file it is, whatever its name.
type ident struct{ dev, ino uint64 }

// identOf returns the identity of what lies at a path, which may be a link.
func identOf(path string) (ident, error) {
	var st unix.Stat_t
	for {
		err := unix.Lstat(path, &st)
		if err == nil {
			return ident{uint64(st.Dev), st.Ino}, nil
		}
		if err != unix.EINTR {
			return ident{}, &fs.PathError{Op: "lstat", Path: path, Err: err}
		}
	}
}
