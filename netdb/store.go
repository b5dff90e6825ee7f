package netdb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/ipamd/ipamd/internal/elapsed"
	"github.com/ipamd/ipamd/netdb/bookfile"
)

// A store is the file of a book: locked, open in SQLite, with one connection that
// writes and others that read. It knows whose book it is and whether it can be written.
// Its fields are set while it is opened; what writes belongs to the lock holder of the
// [writer].
type store struct {
	path  string // without links
	opts  *Options
	clock *elapsed.Clock
	identity
	holding atomic.Pointer[Holding] // whose it is; the lock holder's to change

	file  *bookfile.File // locked
	files bookfile.Files
	mark  *bookfile.Marker
	view  *view // of a book that is only read, or not yet accepted

	writerDB, readers *sql.DB
	conn              *sql.Conn // the one that writes
	held              *sql.Conn // a reader, for as long as the book is open; see close
	sql               statements
	schema            int

	readonly atomic.Pointer[trouble] // why it cannot be written
}

// shut closes a book whose last commit is made.
func (s *store) shut() error {
	if s.opts.ReadOnly {
		return s.close(false)
	}
	if away := s.away(bookfile.AllFiles); away != nil {
		s.cannotWrite(away)
		return errors.Join(s.rescue(), s.close(false))
	}
	var err error
	if s.readonly.Load() == nil {
		if _, err = s.conn.ExecContext(context.Background(), `PRAGMA wal_checkpoint(TRUNCATE)`); err != nil {
			err = fmt.Errorf("checkpoint %s: %w", s.path, err)
		}
	}
	return errors.Join(err, s.close(true))
}

// close closes what is open. The last connection to close folds the log into
// the file, and deletes what lies at the log's path; one that can only read cannot.
func (s *store) close(fold bool) error {
	var errs []error
	readers := func() {
		if s.held != nil {
			errs = append(errs, s.held.Close())
		}
		if s.readers != nil {
			errs = append(errs, s.readers.Close())
		}
	}
	if fold {
		readers()
	}
	errs = append(errs, s.closeWriter())
	if !fold {
		readers()
	}
	if s.view != nil {
		errs = append(errs, s.view.Close())
	}
	errs = append(errs, s.mark.Close())
	if s.file != nil {
		errs = append(errs, s.file.Close()) // behind all of SQLite's: closing it drops their locks
	}
	return errors.Join(errs...)
}

func (s *store) closeWriter() error {
	var errs []error
	if s.conn != nil {
		errs = append(errs, s.sql.close(), s.conn.Close())
	}
	if s.writerDB != nil {
		errs = append(errs, s.writerDB.Close())
	}
	s.conn, s.writerDB = nil, nil
	return errors.Join(errs...)
}

// cannotWrite remembers that the book cannot be written. The reason may change; that
// it began is not forgotten before the book can be written again.
func (s *store) cannotWrite(why error) { remember(&s.readonly, why, s.clock.Now().Wall) }

// classify maps SQLite's result codes to what a caller can do next.
func (s *store) classify(doing string, err error) error {
	if err == nil {
		return nil
	}
	var se *sqlite.Error
	if !errors.As(err, &se) {
		return fmt.Errorf("%s: %w", doing, err)
	}
	switch se.Code() & 0xff {
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED:
		return fmt.Errorf("%s: %w: another process writes to %s", doing, ErrBusy, s.path)
	case sqlite3.SQLITE_FULL, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN:
		err = fmt.Errorf("%s: %w: %w", doing, ErrReadOnly, err)
		s.cannotWrite(err)
		return err
	case sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB:
		err = fmt.Errorf("%s: %w: %w; %w", doing, ErrDamaged, err, ErrReadOnly)
		s.cannotWrite(err)
		return err
	}
	return fmt.Errorf("%s: %w", doing, err)
}

// A trouble is what does not work, and since when.
type trouble struct {
	why   error
	since time.Time
}

// remember keeps the first moment of a trouble, and its last reason.
func remember(p *atomic.Pointer[trouble], why error, now time.Time) {
	next := &trouble{why: why, since: now}
	for {
		old := p.Load()
		if old != nil {
			next.since = old.since
		}
		if p.CompareAndSwap(old, next) {
			return
		}
	}
}

// away is [ErrMoved], and names them, while the paths of the first n files lead elsewhere
// than to those that are open.
func (s *store) away(n int) error {
	gone := s.files.Away(n)
	if gone == nil {
		return nil
	}
	return fmt.Errorf("%w: %s; move back what was moved, and it goes on by itself", ErrMoved, strings.Join(gone, ", "))
}

// look notes it when the files were taken away, and returns why. A book that is
// only read does not look: it keeps what it read.
func (s *store) look(files int) error {
	if s.opts.ReadOnly {
		return nil
	}
	why := s.away(files)
	if why != nil {
		s.cannotWrite(why)
	}
	return why
}

// rescue folds the log into the book where the book lies at its path and its log
// does not: with that no acknowledged change is lost, whatever becomes of the log.
// For the lock holder.
func (s *store) rescue() error {
	if !s.files.BookLies() {
		return nil
	}
	log, err := logOf(s.sql.foldLog)
	if err == nil && log.folded < log.length {
		err = fmt.Errorf("%d of the %d pages of its log are not in it: a reader holds them", log.length-log.folded, log.length)
	}
	if err != nil {
		return fmt.Errorf("fold the log into %s: %w", s.path, err)
	}
	return nil
}

// settle is the last step before a change is acknowledged: it is durable, and lies
// where the next start looks for it. Then its revision is noted.
func (s *store) settle(rev int64) error {
	if err := s.look(bookfile.BookAndLog); err != nil {
		return err
	}
	s.mark.Note(s.whose().Epoch, rev)
	return nil
}

// A walLog is the log as a checkpoint left it: its pages, how many of them are
// in the file, too, and whether it was to begin anew and a reader holds it.
type walLog struct {
	length, folded int
	held           bool
}

// errFolding means that another process folds the log just now.
var errFolding = errors.New("another process folds the log")

// logOf runs a checkpoint.
func logOf(checkpoint *sql.Stmt) (walLog, error) {
	var l walLog
	if err := checkpoint.QueryRow().Scan(&l.held, &l.length, &l.folded); err != nil {
		return walLog{}, err
	}
	if l.length < 0 {
		return walLog{}, errFolding
	}
	return l, nil
}
