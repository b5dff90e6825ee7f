package netdb

import (
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"modernc.org/sqlite/vfs"

	"github.com/ipamd/ipamd/netdb/bookfile"
)

// lookWithin bounds a look at a book that is only read: it may be any user's. A daemon
// waits for its own, however slow the disk is.
const lookWithin = 10 * time.Minute

// accept lets SQLite look at the book without writing a byte, reads it into memory,
// and refuses what is not to be opened. unborn means that there is nothing in it
// yet: a first start ended early.
func (o *opening) accept(ctx context.Context) (unborn bool, err error) {
	if o.foundLog, err = bookfile.ReadLog(o.path); err != nil {
		return false, fmt.Errorf("read its log: %w", err)
	}
	m, err := bookfile.ReadMark(o.path)
	if err != nil {
		return false, fmt.Errorf("read its mark: %w", err)
	}
	o.mark.Found(m)
	if err := o.openView(ctx); err != nil {
		return false, err
	}
	unborn, err = o.readView(ctx)
	if why := o.foundLog.Broken; why != "" && o.kept() && !errors.Is(err, ErrNotABook) && !errors.Is(err, ErrNewerSchema) {
		err = fmt.Errorf("%w: its log, %s-wal: %s", ErrDamaged, o.path, why)
	}
	return unborn, err
}

func (o *opening) openView(ctx context.Context) (err error) {
	v := &view{book: o.file, path: o.path}
	var name string
	if name, v.fs, err = vfs.New(v); err != nil {
		return err
	}
	o.view = v
	// Only a connection that holds the file for itself keeps the index in memory; it
	// locks nothing.
	q := url.Values{"vfs": {name}, "mode": {"ro"}, "_pragma": {
		"locking_mode(exclusive)", "synchronous(" + o.opts.Synchronous + ")", "foreign_keys(1)", "query_only(1)",
	}}
	if o.writerDB, err = sql.Open("sqlite", fileURI(o.path, harden(q))); err != nil {
		return err
	}
	o.writerDB.SetMaxOpenConns(4)
	o.readers = o.writerDB
	if o.conn, err = o.writerDB.Conn(ctx); err != nil {
		return o.classify("connect", err)
	}
	return limit(o.conn)
}

func (o *opening) readView(ctx context.Context) (unborn bool, err error) {
	if o.schema, unborn, err = o.checkWhole(ctx); err != nil || unborn {
		return unborn, err
	}
	if latest := len(o.opts.schema); o.schema < latest && o.opts.ReadOnly {
		return false, fmt.Errorf("%w: schema is %d, not %d: start ipamd once to migrate it", ErrOlderSchema, o.schema, latest)
	}
	var rev int64
	if rev, err = o.readIdentity(ctx); errors.Is(err, sql.ErrNoRows) && !o.opts.ReadOnly {
		return false, nil // a first start that ended before it had one, and acknowledged nothing
	} else if err != nil {
		return false, o.classify("read the identity", err)
	}
	if err := o.judge(rev); err != nil {
		return false, err
	}
	if o.schema < len(o.opts.schema) {
		return false, nil // it is read behind its migration
	}
	if o.opts.ReadOnly {
		if err := o.wantPragmas(ctx); err != nil {
			return false, err
		}
	}
	if err := o.resumeClock(ctx); err != nil {
		return false, err
	}
	return false, o.load(ctx)
}

// headerSize is that of SQLite's file header and the header of the schema's
// page behind it, in bytes.
const headerSize = 108

// sqliteMagic begins every SQLite file.
const sqliteMagic = "SQLite format 3\x00"

// checkHeader reads the first bytes of the file itself, before SQLite may
// touch it: another application's file must stay as it is. unborn means that there
// is no book in it yet.
func (o *opening) checkHeader() (unborn bool, err error) {
	header := make([]byte, headerSize)
	switch n, err := o.file.ReadAt(header, 0); {
	case err == io.EOF && n == 0:
		if err := o.checkOrphanLog(); err != nil || !o.opts.ReadOnly {
			return true, err // without one: made by hand, or a first start that died at once
		}
		return false, fmt.Errorf("%w: it is empty", ErrNotABook)
	case err == nil && !o.opts.ReadOnly && o.bornHalf(header):
		return true, o.checkOrphanLog()
	case err != nil && err != io.EOF:
		return false, err
	case err != nil || string(header[:len(sqliteMagic)]) != sqliteMagic:
		return false, fmt.Errorf("%w: it is no SQLite file", ErrNotABook)
	}
	unborn = o.rollsBack()
	if unborn && o.opts.ReadOnly {
		return false, fmt.Errorf("%s-journal has to be rolled back first: start ipamd once", o.path)
	}
	version, app := binary.BigEndian.Uint32(header[60:]), binary.BigEndian.Uint32(header[68:])
	if tables := binary.BigEndian.Uint16(header[103:]); app == 0 && version == 0 && tables == 0 {
		return unborn, nil // a first start that died before its migration; checkWhole looks closer
	}
	if err := o.checkStamp(int(app), int(int32(version))); err != nil {
		return false, err
	}
	return unborn, nil
}

// journalMagic begins the rollback journal of a SQLite file.
const journalMagic = "\xd9\xd5\x05\xf9\x20\xa1\x63\xd7"

// bornHalf reports a first start that lost power while it wrote the header:
// the file has its size and not yet its first sector, and the journal beside
// it, which was synced before, lets SQLite start again from nothing.
func (o *opening) bornHalf(header []byte) bool {
	return strings.Trim(string(header), "\x00") == "" && o.rollsBack()
}

// rollsBack reports a journal that SQLite rolls back when it opens the file. A book
// has one in its first moments only, before it is given its log.
func (o *opening) rollsBack() bool {
	f, err := bookfile.OpenRegular(o.path+bookfile.JournalEnd, os.O_RDONLY)
	if err != nil {
		return false
	}
	defer f.Close()
	start := make([]byte, len(journalMagic))
	_, err = io.ReadFull(f, start)
	return err == nil && string(start) == journalMagic
}

// checkOrphanLog refuses a log without its book. SQLite would delete it, and
// the changes in it were acknowledged.
func (o *opening) checkOrphanLog() error {
	if st, err := os.Stat(o.path + bookfile.LogEnd); err == nil && st.Size() > 0 {
		return fmt.Errorf("%w: its log is there, %s-wal, and the book itself is not", ErrDamaged, o.path)
	}
	return nil
}

func (s *store) checkStamp(app, version int) error {
	if app != applicationID {
		return fmt.Errorf("%w: application id %#x is another program's", ErrNotABook, app)
	}
	if latest := len(s.opts.schema); version > latest || version < 0 {
		return fmt.Errorf("%w: its schema is %d, this one knows up to %d; upgrade ipamd",
			ErrNewerSchema, version, latest)
	}
	return nil
}

// checkWhole lets SQLite look the file over. The stamp is checked again,
// because the newest header may still be in the log, and the schema before anything
// that it names is read. unborn means that there is nothing in the file.
func (s *store) checkWhole(ctx context.Context) (version int, unborn bool, err error) {
	var app, tables int
	for query, into := range map[string]*int{`PRAGMA user_version`: &version, `PRAGMA application_id`: &app, `SELECT count(*) FROM sqlite_master`: &tables} {
		if err := s.conn.QueryRowContext(ctx, query).Scan(into); err != nil {
			return 0, false, s.classify("read the header", err)
		}
	}
	if tables == 0 && version == 0 && app == 0 && !s.opts.ReadOnly {
		return 0, true, nil
	}
	if err := s.checkStamp(app, version); err != nil {
		return 0, false, err
	}
	if err := s.checkOurs(ctx, version); err != nil {
		return 0, false, err
	}
	return version, false, s.withoutChecks(ctx, s.conn, func() error {
		var verdict string
		if err := s.conn.QueryRowContext(ctx, `PRAGMA quick_check(1)`).Scan(&verdict); err != nil {
			return s.classify("check", err)
		}
		if verdict != "ok" {
			return fmt.Errorf("%w: %s", ErrDamaged, verdict)
		}
		return nil
	})
}

// withoutChecks runs fn while SQLite overlooks CHECK constraints: a row that
// breaks one is a bad row, to be reported and skipped, not a broken file.
func (s *store) withoutChecks(ctx context.Context, conn *sql.Conn, fn func() error) error {
	if _, err := conn.ExecContext(ctx, `PRAGMA ignore_check_constraints = 1`); err != nil {
		return s.classify("check", err)
	}
	err := fn()
	if _, off := conn.ExecContext(ctx, `PRAGMA ignore_check_constraints = 0`); off != nil && err == nil {
		err = s.classify("check", off)
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

func fileURI(path string, q url.Values) string {
	return "file:" + (&url.URL{Path: path}).EscapedPath() + "?" + q.Encode()
}

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
