package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"

	"modernc.org/sqlite"

	"github.com/ipamd/ipamd/netdb/bookfile"
)

// LongLog is a log that should have begun anew long before, in pages.
const LongLog = 4096

// Open opens a book for writing that [Opening.View] has accepted, or makes a new one, and migrates it.
func (o *Opening) Open(ctx context.Context, unborn bool) (err error) {
	if o.view != nil { // it was looked at
		if err := errors.Join(o.closeWriter(), o.view.Close()); err != nil {
			return err
		}
		o.view, o.Readers = nil, nil
	}
	if err := o.lock.CheckBeside(); err != nil {
		return err
	}
	if o.writerDB, err = sql.Open("sqlite", o.dsn("rw", false)); err != nil {
		return err
	}
	if o.Conn, err = o.writerDB.Conn(ctx); err != nil {
		return o.Classify("connect", err)
	}
	if o.Readers, err = o.openReaders(); err != nil {
		return err
	}
	if unborn { // what SQLite rolls back first is looked over behind that
		if _, _, err := o.CheckWhole(ctx); err != nil {
			return err
		}
		if err := o.setPragmas(ctx); err != nil {
			return err
		}
	}
	for _, step := range []func(context.Context) error{o.holdReader, o.setPragmas, o.migrate} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// migrate brings the schema up, each step whole or not at all.
func (o *Opening) migrate(ctx context.Context) error {
	if err := o.Conn.QueryRowContext(ctx, `PRAGMA user_version`).Scan(&o.Version); err != nil {
		return o.Classify("read the schema version", err)
	}
	if o.Version > 0 { // as it was accepted, and is opened now
		if err := o.checkOurs(ctx, o.Version); err != nil {
			return err
		}
	}
	for _, m := range o.Schema[o.Version:] {
		script := fmt.Sprintf("BEGIN IMMEDIATE;\n%s\nPRAGMA application_id = %d;\nPRAGMA user_version = %d;\nCOMMIT;",
			m.SQL, applicationID, m.Version)
		if _, err := o.Conn.ExecContext(ctx, script); err != nil {
			o.Conn.ExecContext(ctx, `ROLLBACK`)
			return o.Classify("migrate with "+m.Name, err)
		}
		o.Version = m.Version
	}
	return nil
}

// CheckWritable refuses a file that SQLite has open for reading only. It does
// that by itself, without an error, when the disk refuses to open a file for
// writing, even once; and then nothing is written until another start, however
// well the disk is.
func (o *Opening) CheckWritable(ctx context.Context) error {
	_, err := o.Conn.ExecContext(ctx, `UPDATE book SET one = one WHERE FALSE`)
	if err = o.Classify("open for writing", err); errors.Is(err, ErrBusy) {
		return nil // with the lock that another process has one would write
	}
	return err
}

func fileURI(path string, q url.Values) string {
	return "file:" + (&url.URL{Path: path}).EscapedPath() + "?" + q.Encode()
}

// dsn names the file to the driver. Every connection gets its PRAGMAs here;
// setPragmas reads them back, because a driver's default is not a promise.
func (f *File) dsn(mode string, reader bool) string {
	q := url.Values{"mode": {mode}, "_pragma": {
		"synchronous(" + f.Synchronous + ")", "foreign_keys(1)", "busy_timeout(0)",
	}}
	if reader {
		q["_pragma"] = append(q["_pragma"], "query_only(1)", "busy_timeout(1000)")
	}
	return fileURI(f.Path, harden(q))
}

// setPragmas sets what belongs to the file and asserts what belongs to the
// connections. From here on the log is there, and so is its index.
func (o *Opening) setPragmas(ctx context.Context) (err error) {
	for _, p := range []string{`journal_mode = WAL`, `wal_autocheckpoint = 0`, fmt.Sprintf(`journal_size_limit = %d`, LongLog*bookfile.PageSize)} {
		if _, err := o.Conn.ExecContext(ctx, `PRAGMA `+p); err != nil {
			return o.Classify("set "+p, err)
		}
	}
	if err := readNothing(ctx, o.Conn); err != nil { // the log is made for the first reader
		return o.Classify("open the log", err)
	}
	// The names of file and log must survive power loss, too, not only their
	// bytes. SQLite syncs the folder with its first sync of a log, and drops
	// the error of that: on a disk that fails, what it then acknowledged was
	// in a file without a name.
	if err := bookfile.SyncDir(filepath.Dir(o.Path)); err != nil {
		return err
	}
	if err := o.WantPragmas(ctx); err != nil {
		return err
	}
	if err := o.lock.CheckBeside(); err != nil { // again, with what SQLite has made or opened
		return err
	}
	o.files, err = o.lock.Files()
	return err
}

func readNothing(ctx context.Context, q Querier) error {
	var tables int
	return q.QueryRowContext(ctx, `SELECT count(*) FROM sqlite_master`).Scan(&tables)
}

// WantPragmas refuses a connection that does not keep what the book promises.
func (f *File) WantPragmas(ctx context.Context) error {
	want := map[string]string{"synchronous": "2", "foreign_keys": "1", "journal_mode": "wal"}
	if f.Synchronous == "normal" {
		want["synchronous"] = "1"
	}
	for pragma, value := range want {
		var got string
		if err := f.Conn.QueryRowContext(ctx, `PRAGMA `+pragma).Scan(&got); err != nil {
			return f.Classify("read "+pragma, err)
		}
		if got != value {
			return fmt.Errorf("PRAGMA %s is %s, not %s", pragma, got, value)
		}
	}
	return nil
}

// openReaders returns connections that read. A new one may not open other files than
// the ones that are open: it would answer from another book.
func (o *Opening) openReaders() (*sql.DB, error) {
	c, err := sqlite.NewConnector(o.dsn("ro", true))
	if err != nil {
		return nil, err
	}
	db := sql.OpenDB(ownFiles{c, o.File})
	db.SetMaxOpenConns(5) // one of them is held
	return db, nil
}

type ownFiles struct {
	driver.Connector
	file *File
}

func (o ownFiles) Connect(ctx context.Context) (driver.Conn, error) {
	if err := o.file.Away(bookfile.AllFiles); err != nil {
		return nil, err
	}
	conn, err := o.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	if err := o.file.Away(bookfile.AllFiles); err != nil { // replaced in between
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

// holdReader keeps one reader for as long as the book is open: while it is, closing
// the writer folds and deletes nothing.
func (o *Opening) holdReader(ctx context.Context) (err error) {
	if o.held, err = o.Readers.Conn(ctx); err == nil {
		err = readNothing(ctx, o.held)
	}
	return o.Classify("open for reading", err)
}

// Reader returns what reads the file beside commits. While the files are away that is
// the connection that is held: a new one would find none, or others.
func (f *File) Reader() Querier {
	if t := f.Failing.Now(); t != nil && errors.Is(t.Why, ErrMoved) && f.held != nil {
		return f.held
	}
	return f.Readers
}

// VacuumInto copies the book as it is into an empty file, on a connection of its own, in one read
// transaction.
func (f *File) VacuumInto(ctx context.Context, path string) error {
	db, err := sql.Open("sqlite", f.dsn("ro", false))
	if err != nil {
		return err
	}
	_, err = db.ExecContext(ctx, `VACUUM INTO ?`, path)
	return errors.Join(err, db.Close())
}
