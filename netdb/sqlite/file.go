// Package sqlite keeps a book's file open in SQLite: only one that is ours and whole, with
// one connection that writes and others that read, and says whether it can be written.
//
// It knows the schema as text, and nothing of what rows mean.
package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/ipamd/ipamd/migrations"
	"github.com/ipamd/ipamd/netdb/bookfile"
)

// Options say how a file is opened.
type Options struct {
	Path        string                 // without links
	ReadOnly    bool                   // nothing is written, and no file made
	Synchronous string                 // "full" or "normal"
	Schema      []migrations.Migration // the steps to this build's
	Boot        string                 // of the machine, as the mark has it
	Now         func() time.Time       // dates what fails
}

// A File is a book's file: locked, and open in SQLite. Its fields are set while it is opened; what
// writes is for one caller at a time.
type File struct {
	Options
	Conn    *sql.Conn // the one that writes; of a book that is looked at, the one that reads
	Readers *sql.DB
	Mark    *bookfile.Marker
	Version int      // of the schema
	Failing Troubles // why it cannot be written

	lock     *bookfile.File
	files    bookfile.Files
	view     *view // of a book that is only read, or not yet accepted
	writerDB *sql.DB
	held     *sql.Conn // a reader, for as long as the book is open; see close
}

// An Opening is a file on its way, by [Opening.Find], [Opening.View] and [Opening.Open]: what a start
// alone does, and what it alone knows. Where one of them fails the file is to be closed, too.
type Opening struct {
	*File
	foundLog bookfile.Log // as it was before
}

// New begins an opening.
func New(o Options) *Opening {
	return &Opening{File: &File{Options: o, Mark: bookfile.MarkerOf(o.Path)}}
}

// Shut closes a book whose last change is made: it folds the log into the file. Where its files were
// taken away, nothing is deleted, and the log is folded only into a book that is still in its place.
func (f *File) Shut() error {
	if f.ReadOnly {
		return f.Close()
	}
	if away := f.Away(bookfile.AllFiles); away != nil {
		f.CannotWrite(away)
		return errors.Join(f.Rescue(), f.Close())
	}
	var err error
	if f.Failing.Now() == nil {
		if _, err = f.Conn.ExecContext(context.Background(), `PRAGMA wal_checkpoint(TRUNCATE)`); err != nil {
			err = fmt.Errorf("checkpoint %s: %w", f.Path, err)
		}
	}
	return errors.Join(err, f.close(true))
}

// Close closes what is open, and folds nothing.
func (f *File) Close() error { return f.close(false) }

// close closes what is open. The last connection to close folds the log into
// the file, and deletes what lies at the log's path; one that can only read cannot.
func (f *File) close(fold bool) error {
	var errs []error
	readers := func() {
		if f.held != nil {
			errs = append(errs, f.held.Close())
		}
		if f.Readers != nil {
			errs = append(errs, f.Readers.Close())
		}
	}
	if fold {
		readers()
	}
	errs = append(errs, f.closeWriter())
	if !fold {
		readers()
	}
	if f.view != nil {
		errs = append(errs, f.view.Close())
	}
	errs = append(errs, f.Mark.Close())
	if f.lock != nil {
		errs = append(errs, f.lock.Close()) // behind all of SQLite's: closing it drops their locks
	}
	return errors.Join(errs...)
}

// closeWriter closes the connection that writes; its statements are closed with it.
func (f *File) closeWriter() error {
	var errs []error
	if f.Conn != nil {
		errs = append(errs, f.Conn.Close())
	}
	if f.writerDB != nil {
		errs = append(errs, f.writerDB.Close())
	}
	f.Conn, f.writerDB = nil, nil
	return errors.Join(errs...)
}

// CannotWrite remembers that the book cannot be written. The reason may change; that
// it began is not forgotten before the book can be written again.
func (f *File) CannotWrite(why error) { f.Failing.Remember(why, f.Now()) }

// Classify maps SQLite's result codes to what a caller can do next.
func (f *File) Classify(doing string, err error) error {
	if err == nil {
		return nil
	}
	var se *sqlite.Error
	if !errors.As(err, &se) {
		return fmt.Errorf("%s: %w", doing, err)
	}
	switch se.Code() & 0xff {
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED:
		return fmt.Errorf("%s: %w: another process writes to %s", doing, ErrBusy, f.Path)
	case sqlite3.SQLITE_FULL, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN:
		err = fmt.Errorf("%s: %w: %w", doing, ErrReadOnly, err)
		f.CannotWrite(err)
		return err
	case sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB:
		err = fmt.Errorf("%s: %w: %w; %w", doing, ErrDamaged, err, ErrReadOnly)
		f.CannotWrite(err)
		return err
	}
	return fmt.Errorf("%s: %w", doing, err)
}

// Away is [ErrMoved], and names them, while the paths of the first n files lead elsewhere
// than to those that are open.
func (f *File) Away(n int) error {
	gone := f.files.Away(n)
	if gone == nil {
		return nil
	}
	return fmt.Errorf("%w: %s; move back what was moved, and it goes on by itself", ErrMoved, strings.Join(gone, ", "))
}

// Look notes it when the first n files were taken away, and returns why. A book that is
// only read does not look: it keeps what it read.
func (f *File) Look(n int) error {
	if f.ReadOnly {
		return nil
	}
	why := f.Away(n)
	if why != nil {
		f.CannotWrite(why)
	}
	return why
}

// Settle is the last step before a change is acknowledged: it is durable, and lies
// where the next start looks for it. Then its revision is noted.
func (f *File) Settle(epoch string, rev int64) error {
	if err := f.Look(bookfile.BookAndLog); err != nil {
		return err
	}
	f.Mark.Note(epoch, rev)
	return nil
}

// Rescue folds the log into the book where the book lies at its path and its log
// does not: with that no acknowledged change is lost, whatever becomes of the log.
func (f *File) Rescue() error {
	if !f.files.BookLies() {
		return nil
	}
	log, err := f.Checkpoint("PASSIVE")
	if err == nil && log.Folded < log.Pages {
		err = fmt.Errorf("%d of the %d pages of its log are not in it: a reader holds them", log.Pages-log.Folded, log.Pages)
	}
	if err != nil {
		return fmt.Errorf("fold the log into %s: %w", f.Path, err)
	}
	return nil
}

// A Log is the log as a checkpoint left it: its pages, how many of them are
// in the file, too, and whether it was to begin anew and a reader holds it.
type Log struct {
	Pages, Folded int
	Held          bool
}

// ErrFolding means that another process folds the log just now.
var ErrFolding = errors.New("another process folds the log")

// Checkpoint runs a checkpoint of SQLite's: NOOP, PASSIVE, RESTART or TRUNCATE.
func (f *File) Checkpoint(mode string) (l Log, err error) {
	if err := f.Conn.QueryRowContext(context.Background(), `PRAGMA wal_checkpoint(`+mode+`)`).Scan(&l.Held, &l.Pages, &l.Folded); err != nil {
		return Log{}, err
	}
	if l.Pages < 0 {
		return Log{}, ErrFolding
	}
	return l, nil
}

// Sizes are those of the book and of its log, in bytes; 0 where one is not there.
func (f *File) Sizes() (book, log int64) {
	size := func(path string) int64 {
		st, err := os.Stat(path)
		if err != nil {
			return 0
		}
		return st.Size()
	}
	return size(f.Path), size(f.Path + bookfile.LogEnd)
}

// Exposed says who else may change the book's file or folder, "" for no one.
func (f *File) Exposed() string { return f.lock.ExposedTo(f.ReadOnly) }
