package netdb

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

// setPragmas sets what belongs to the file and asserts what belongs to the
// connections. From here on the log is there, and so is its index.
func (o *opening) setPragmas(ctx context.Context) (err error) {
	for _, p := range []string{`journal_mode = WAL`, `wal_autocheckpoint = 0`, fmt.Sprintf(`journal_size_limit = %d`, longLog*bookfile.PageSize)} {
		if _, err := o.conn.ExecContext(ctx, `PRAGMA `+p); err != nil {
			return o.classify("set "+p, err)
		}
	}
	if err := o.readNothing(ctx, o.conn); err != nil { // the log is made for the first reader
		return o.classify("open the log", err)
	}
	// The names of file and log must survive power loss, too, not only their
	// bytes. SQLite syncs the folder with its first sync of a log, and drops
	// the error of that: on a disk that fails, what it then acknowledged was
	// in a file without a name.
	if err := bookfile.SyncDir(filepath.Dir(o.path)); err != nil {
		return err
	}
	if err := o.wantPragmas(ctx); err != nil {
		return err
	}
	if err := o.file.CheckBeside(); err != nil { // again, with what SQLite has made or opened
		return err
	}
	o.files, err = o.file.Files()
	return err
}

func (o *opening) readNothing(ctx context.Context, q querier) error {
	var tables int
	return q.QueryRowContext(ctx, `SELECT count(*) FROM sqlite_master`).Scan(&tables)
}

func (o *opening) wantPragmas(ctx context.Context) error {
	want := map[string]string{"synchronous": "2", "foreign_keys": "1", "journal_mode": "wal"}
	if o.opts.Synchronous == "normal" {
		want["synchronous"] = "1"
	}
	for pragma, value := range want {
		var got string
		if err := o.conn.QueryRowContext(ctx, `PRAGMA `+pragma).Scan(&got); err != nil {
			return o.classify("read "+pragma, err)
		}
		if got != value {
			return fmt.Errorf("PRAGMA %s is %s, not %s", pragma, got, value)
		}
	}
	return nil
}

// openReaders returns connections that read. A new one may not open other files than
// the ones that are open: it would answer from another book.
func (o *opening) openReaders() (*sql.DB, error) {
	c, err := sqlite.NewConnector(o.dsn("ro", true))
	if err != nil {
		return nil, err
	}
	db := sql.OpenDB(ownFiles{c, o.store})
	db.SetMaxOpenConns(5) // one of them is held
	return db, nil
}

type ownFiles struct {
	driver.Connector
	store *store
}

func (o ownFiles) Connect(ctx context.Context) (driver.Conn, error) {
	if err := o.store.away(bookfile.AllFiles); err != nil {
		return nil, err
	}
	conn, err := o.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	if err := o.store.away(bookfile.AllFiles); err != nil { // replaced in between
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

// holdReader keeps one reader for as long as the book is open: while it is, closing
// the writer folds and deletes nothing.
func (o *opening) holdReader(ctx context.Context) (err error) {
	if o.held, err = o.readers.Conn(ctx); err == nil {
		err = o.readNothing(ctx, o.held)
	}
	return o.classify("open for reading", err)
}

// reader returns what reads the file beside commits. While the files are away that is
// the connection that is held: a new one would find none, or others.
func (s *store) reader() querier {
	if r := s.readonly.Load(); r != nil && errors.Is(r.why, ErrMoved) && s.held != nil {
		return s.held
	}
	return s.readers
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
