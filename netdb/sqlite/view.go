package sqlite

import (
	"context"
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

	"github.com/ipamd/ipamd/netdb/bookfile"
)

// View lets SQLite look at the book without writing a byte, and checks that it is whole and ours; [File.Conn] then
// reads it. unborn means that there is nothing in it yet: a first start ended early.
func (o *Opening) View(ctx context.Context) (unborn bool, err error) {
	if o.foundLog, err = bookfile.ReadLog(o.Path); err != nil {
		return false, fmt.Errorf("read its log: %w", err)
	}
	m, err := bookfile.ReadMark(o.Path)
	if err != nil {
		return false, fmt.Errorf("read its mark: %w", err)
	}
	o.Mark.Found(m)
	if err := o.openView(ctx); err != nil {
		return false, err
	}
	if o.Version, unborn, err = o.CheckWhole(ctx); err != nil || unborn {
		return unborn, err
	}
	if latest := len(o.Schema); o.Version < latest && o.ReadOnly {
		return false, fmt.Errorf("%w: schema is %d, not %d: start ipamd once to migrate it", ErrOlderSchema, o.Version, latest)
	}
	return false, nil
}

func (o *Opening) openView(ctx context.Context) (err error) {
	v := &view{book: o.lock, path: o.Path}
	var name string
	if name, v.fs, err = vfs.New(v); err != nil {
		return err
	}
	o.view = v
	// Only a connection that holds the file for itself keeps the index in memory; it
	// locks nothing.
	q := url.Values{"vfs": {name}, "mode": {"ro"}, "_pragma": {
		"locking_mode(exclusive)", "synchronous(" + o.Synchronous + ")", "foreign_keys(1)", "query_only(1)",
	}}
	if o.writerDB, err = sql.Open("sqlite", fileURI(o.Path, harden(q))); err != nil {
		return err
	}
	o.writerDB.SetMaxOpenConns(4)
	o.Readers = o.writerDB
	if o.Conn, err = o.writerDB.Conn(ctx); err != nil {
		return o.Classify("connect", err)
	}
	return limit(o.Conn)
}

// CheckWhole lets SQLite look the file over. The stamp is checked again,
// because the newest header may still be in the log, and the schema before anything
// that it names is read. unborn means that there is nothing in the file.
func (f *File) CheckWhole(ctx context.Context) (version int, unborn bool, err error) {
	var app, tables int
	for query, into := range map[string]*int{`PRAGMA user_version`: &version, `PRAGMA application_id`: &app, `SELECT count(*) FROM sqlite_master`: &tables} {
		if err := f.Conn.QueryRowContext(ctx, query).Scan(into); err != nil {
			return 0, false, f.Classify("read the header", err)
		}
	}
	if tables == 0 && version == 0 && app == 0 && !f.ReadOnly {
		return 0, true, nil
	}
	if err := f.checkStamp(app, version); err != nil {
		return 0, false, err
	}
	if err := f.checkOurs(ctx, version); err != nil {
		return 0, false, err
	}
	return version, false, f.WithoutChecks(ctx, f.Conn, func() error {
		var verdict string
		if err := f.Conn.QueryRowContext(ctx, `PRAGMA quick_check(1)`).Scan(&verdict); err != nil {
			return f.Classify("check", err)
		}
		if verdict != "ok" {
			return fmt.Errorf("%w: %s", ErrDamaged, verdict)
		}
		return nil
	})
}

// WithoutChecks runs fn while SQLite overlooks CHECK constraints: a row that
// breaks one is a bad row, to be reported and skipped, not a broken file.
func (f *File) WithoutChecks(ctx context.Context, conn *sql.Conn, fn func() error) error {
	if _, err := conn.ExecContext(ctx, `PRAGMA ignore_check_constraints = 1`); err != nil {
		return f.Classify("check", err)
	}
	err := fn()
	if _, off := conn.ExecContext(ctx, `PRAGMA ignore_check_constraints = 0`); off != nil && err == nil {
		err = f.Classify("check", off)
	}
	return err
}

// A view lets SQLite read a locked book and its log, and cannot write: no byte of
// the book, its log or the log's index changes, and none of them is made. SQLite
// keeps the index of the log in memory instead, and at the end folds nothing.
//
// Through its own files SQLite writes even for a reader: it makes the index anew,
// and the last connection to close folds the log into the book and deletes it.
// A book that is refused stays as it was.
type view struct {
	book *bookfile.File
	path string
	fs   *vfs.FS
}

// Close is for when every connection is closed.
func (v *view) Close() error { return v.fs.Close() }

// Open is for SQLite. The book is read through the descriptor that is locked, and
// a log that is not there is an empty one.
func (v *view) Open(name string) (fs.File, error) {
	switch filepath.Clean(name) {
	case v.path:
		return &viewed{io.NewSectionReader(v.book, 0, math.MaxInt64), v.book.Stat}, nil
	case v.path + bookfile.LogEnd:
		f, err := bookfile.OpenRegular(v.path+bookfile.LogEnd, os.O_RDONLY)
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
