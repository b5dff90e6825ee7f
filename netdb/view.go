package netdb

import (
	"database/sql"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"modernc.org/sqlite/vfs"
)

// A view lets SQLite read a locked book and its log, and cannot write: no byte of
// the book, its log or the log's index changes, and none of them is made. SQLite
// keeps the index of the log in memory instead, and at the end folds nothing.
//
// Through its own files SQLite writes even for a reader: it makes the index anew,
// and the last connection to close folds the log into the book and deletes it.
// A book that is refused stays as it was.
type view struct {
	book *bookFile
	path string
	name string // of the file system that SQLite knows
	fs   *vfs.FS
}

func newView(path string, book *bookFile) (v *view, err error) {
	v = &view{book: book, path: path}
	if v.name, v.fs, err = vfs.New(v); err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	return v, nil
}

// Close is for when every connection is closed.
func (v *view) Close() error { return v.fs.Close() }

// open returns connections that see the book as it is with its log. Only one
// that holds the file for itself keeps the index in memory; it locks nothing.
func (v *view) open(pragmas ...string) (*sql.DB, error) {
	q := url.Values{"vfs": {v.name}, "mode": {"ro"}, "_pragma": append([]string{"locking_mode(exclusive)"}, pragmas...)}
	return sql.Open("sqlite", fileURI(v.path, harden(q)))
}

func fileURI(path string, q url.Values) string {
	return "file:" + (&url.URL{Path: path}).EscapedPath() + "?" + q.Encode()
}

// Open is for SQLite. The book is read through the descriptor that is locked, and
// a log that is not there is an empty one.
func (v *view) Open(name string) (fs.File, error) {
	switch filepath.Clean(name) {
	case v.path:
		return &viewed{io.NewSectionReader(v.book, 0, math.MaxInt64), v.book.Stat}, nil
	case v.path + "-wal":
		f, err := openRegular(v.path+"-wal", os.O_RDONLY)
		if errors.Is(err, fs.ErrNotExist) {
			return &viewed{io.NewSectionReader(nothing{}, 0, 0), func() (fs.FileInfo, error) { return nothing{}, nil }}, nil
		}
		return f, err
	}
	return nil, fs.ErrNotExist
}

// A viewed file has a position of its own.
type viewed struct {
	*io.SectionReader
	stat func() (fs.FileInfo, error)
}

func (f *viewed) Stat() (fs.FileInfo, error) { return f.stat() }

func (f *viewed) Close() error { return nil }

// nothing is an empty file.
type nothing struct{}

func (nothing) ReadAt([]byte, int64) (int, error) { return 0, io.EOF }
func (nothing) Name() string                      { return "" }
func (nothing) Size() int64                       { return 0 }
func (nothing) Mode() fs.FileMode                 { return 0 }
func (nothing) ModTime() time.Time                { return time.Time{} }
func (nothing) IsDir() bool                       { return false }
func (nothing) Sys() any                          { return nil }
