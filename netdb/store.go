package netdb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"sync/atomic"
	"time"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// A store is the file of a book: locked, open in SQLite, with one connection that
// writes and others that read. It knows whose book it is and whether it can be written.
// Its fields are set while it is opened; what writes belongs to the lock holder of the
// [writer].
type store struct {
	path  string // without links
	opts  *Options
	clock *clock
	identity
	holding atomic.Pointer[Holding] // whose it is; the lock holder's to change

	file  *bookFile // locked
	files openFiles
	mark  marker
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
	if away := s.files.check(allFiles); away != nil {
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
	if s.mark.file != nil {
		errs = append(errs, s.mark.file.Close())
	}
	if s.file != nil {
		errs = append(errs, s.file.Close()) // behind all of SQLite's: see lock.go
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

// dsn names the file to the driver. Every connection gets its PRAGMAs here;
// setPragmas reads them back, because a driver's default is not a promise.
func (s *store) dsn(mode string, reader bool) string {
	q := url.Values{"mode": {mode}, "_pragma": {
		"synchronous(" + s.opts.Synchronous + ")", "foreign_keys(1)", "busy_timeout(0)",
	}}
	if reader {
		q["_pragma"] = append(q["_pragma"], "query_only(1)", "busy_timeout(1000)")
	}
	return fileURI(s.path, harden(q))
}

// statements are bound to the one connection that writes: BEGIN and COMMIT as
// unprepared calls add 40-60 µs to each commit.
type statements struct {
	begin, commit, rollback                                                *sql.Stmt
	insertLease, updateLease, replaceLease, deleteLease                    *sql.Stmt
	insertChange, upsertPool, upsertTomb, pruneRows, pruneTombs            *sql.Stmt
	removePool, upsertName, withhold, unwithhold                           *sql.Stmt
	noteRuntime, takeOver, touch, untouch, measureLog, foldLog, restartLog *sql.Stmt
	insertHostName, endHostName, pruneHostNames, upsertSleep, deleteSleep  *sql.Stmt
	upsertSlot, deleteSlot                                                 *sql.Stmt

	all []*sql.Stmt
}

func (o *opening) prepare(ctx context.Context) error {
	if o.opts.ReadOnly {
		return nil
	}
	for stmt, text := range map[**sql.Stmt]string{
		&o.sql.begin:        `BEGIN IMMEDIATE`,
		&o.sql.commit:       `COMMIT`,
		&o.sql.rollback:     `ROLLBACK`,
		&o.sql.insertLease:  insertLease,
		&o.sql.updateLease:  updateLease,
		&o.sql.replaceLease: replaceLease,
		&o.sql.deleteLease:  deleteLease,
		&o.sql.insertChange: insertChange,
		&o.sql.upsertPool:   upsertPool,
		&o.sql.upsertTomb: `INSERT INTO tombstones (uid, attempt, rev, wall, boottime, boot_id) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
			ON CONFLICT (uid) DO UPDATE SET (attempt, rev, wall, boottime, boot_id) = (?2, ?3, ?4, ?5, ?6)`,
		&o.sql.removePool: `DELETE FROM pools WHERE uid = ?1`,
		&o.sql.upsertName: `INSERT INTO pool_names (name, family, generation, configured) VALUES (?1, ?2, ?3, ?4)
			ON CONFLICT (name, family) DO UPDATE SET (generation, configured) = (?3, ?4)`,
		&o.sql.withhold:       insertWithheld,
		&o.sql.unwithhold:     `DELETE FROM withheld WHERE ip = ?1`,
		&o.sql.pruneRows:      `DELETE FROM changes WHERE rev <= ?1`,
		&o.sql.pruneTombs:     `DELETE FROM tombstones WHERE uid = ?1`,
		&o.sql.noteRuntime:    `UPDATE book SET runtime_id = ?1`,
		&o.sql.takeOver:       `UPDATE book SET (epoch, runner_uid, machine_id, boot_id) = (?1, ?2, ?3, ?4)`,
		&o.sql.touch:          `UPDATE book SET boot_id = boot_id || ' '`,
		&o.sql.untouch:        `UPDATE book SET boot_id = rtrim(boot_id)`,
		&o.sql.measureLog:     `PRAGMA wal_checkpoint(NOOP)`,
		&o.sql.foldLog:        `PRAGMA wal_checkpoint(PASSIVE)`,
		&o.sql.restartLog:     `PRAGMA wal_checkpoint(RESTART)`,
		&o.sql.insertHostName: insertHostName,
		&o.sql.endHostName:    endHostName,
		&o.sql.pruneHostNames: pruneHostNames,
		&o.sql.upsertSleep:    upsertSleep,
		&o.sql.deleteSleep:    deleteSleep,
		&o.sql.upsertSlot:     upsertSlot,
		&o.sql.deleteSlot:     deleteSlot,
	} {
		prepared, err := o.conn.PrepareContext(ctx, text)
		if err != nil {
			return o.classify("prepare", err)
		}
		*stmt, o.sql.all = prepared, append(o.sql.all, prepared)
	}
	return nil
}

func (s *statements) close() error {
	var errs []error
	for _, stmt := range s.all {
		errs = append(errs, stmt.Close())
	}
	return errors.Join(errs...)
}

// write stores a batch durably.
func (s *store) write(steps []step) error {
	for _, st := range steps {
		if err := s.writeStep(st); err != nil {
			return err
		}
		s.opts.meet("store")
	}
	_, err := s.sql.commit.Exec()
	return s.classify("commit", err)
}

func (s *store) writeStep(st step) error {
	what := st.change.Addr.String()
	var res sql.Result
	var err error
	switch {
	case st.removed:
		what = "the end of pool " + st.pool.Name
		res, err = s.sql.removePool.Exec(st.pool.UID)
	case st.pool != nil:
		what = "pool " + st.pool.Name
		res, err = s.sql.upsertPool.Exec(st.pool.row()...)
	case st.name != nil:
		what = "the name of pool " + st.name.key.name
		res, err = s.sql.upsertName.Exec(st.name.row()...)
	case st.tomb != "":
		what = "tombstone"
		res, err = s.sql.upsertTomb.Exec(st.tomb, st.stone.attempt,
			st.stone.rev, st.stone.at.Wall.UnixNano(), int64(st.stone.at.Boottime), st.stone.at.BootID)
	case st.holding != nil:
		what = "whose it is"
		res, err = s.sql.takeOver.Exec(st.holding.Epoch, st.holding.RunnerUID, st.holding.MachineID, s.bootID)
	case st.runtime != "":
		what = "runtime " + st.runtime
		res, err = s.sql.noteRuntime.Exec(st.runtime)
	case st.withheld != nil && st.old == nil && st.now == nil:
		res, err = s.sql.withhold.Exec(st.withheld.row()...)
	case st.old == nil:
		res, err = s.sql.insertLease.Exec(st.now.row()...)
	case st.now == nil:
		res, err = s.sql.deleteLease.Exec(st.old.fence()...)
	case st.now.ID == st.old.ID:
		res, err = s.sql.updateLease.Exec(append(st.now.other(), st.old.fence()...)...)
	default:
		res, err = s.sql.replaceLease.Exec(slices.Concat([]any{st.now.ID}, st.now.other(), st.old.fence())...)
	}
	if err != nil {
		return s.classify("store "+what, err)
	}
	if n, err := res.RowsAffected(); err != nil || n != 1 {
		return fmt.Errorf("store %s: %w: the row is not as it was read", what, ErrStale)
	}
	if st.pool != nil && st.name != nil {
		if _, err := s.sql.upsertName.Exec(st.name.row()...); err != nil {
			return s.classify("store the name of "+what, err)
		}
	}
	if w := st.withheld; w != nil && (st.old != nil || st.now != nil) {
		if st.now == nil {
			_, err = s.sql.withhold.Exec(w.row()...)
		} else {
			_, err = s.sql.unwithhold.Exec(key(w.Addr))
		}
		if err != nil {
			return s.classify("store that "+what+" is withheld", err)
		}
	}
	if err := s.writeNames(st); err != nil {
		return err
	}
	if err := s.writeSleep(st); err != nil {
		return err
	}
	if err := s.writeSlot(st); err != nil {
		return err
	}
	_, err = s.sql.insertChange.Exec(st.change.row(st.now, s.clock.uptime())...)
	return s.classify("record "+what, err)
}

// finish runs fn in the transaction that has begun, and commits.
func (s *store) finish(fn func() error) error {
	err := safely(fn)
	if err == nil {
		_, err = s.sql.commit.Exec()
	}
	if err != nil {
		_, _ = s.sql.rollback.Exec() // SQLite may have taken it back by itself
	}
	return err
}

type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

func each(ctx context.Context, q querier, query string, row func(scanner) error, args ...any) error {
	rows, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := row(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// reader returns what reads the file beside commits. While the files are away that is
// the connection that is held: a new one would find none, or others.
func (s *store) reader() querier {
	if r := s.readonly.Load(); r != nil && errors.Is(r.why, ErrMoved) && s.held != nil {
		return s.held
	}
	return s.readers
}

// cannotWrite remembers that the book cannot be written. The reason may change; that
// it began is not forgotten before the book can be written again.
func (s *store) cannotWrite(why error) { remember(&s.readonly, why, s.clock.now().Wall) }

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

// look notes it when the files were taken away, and returns why. A book that is
// only read does not look: it keeps what it read.
func (s *store) look(files int) error {
	if s.opts.ReadOnly {
		return nil
	}
	why := s.files.check(files)
	if why != nil {
		s.cannotWrite(why)
	}
	return why
}

// rescue folds the log into the book where the book lies at its path and its log
// does not: with that no acknowledged change is lost, whatever becomes of the log.
// For the lock holder.
func (s *store) rescue() error {
	if id, err := identOf(s.path); err != nil || id != s.files.ids[0] {
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
	if err := s.look(bookAndLog); err != nil {
		return err
	}
	s.mark.note(s.whose().Epoch, rev)
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
