package netdb

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"golang.org/x/sys/unix"
	"modernc.org/sqlite"
)

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

// openFiles are the three files that SQLite has open: the book, its log, and the
// log's index. Each is known by its identity, and its path has to lead to it:
// what is acknowledged in a file without a name, or with another one, is lost
// with the next start.
//
// All three count. Without the log's name its changes are lost; without the
// index's another process (a backup, a forgotten sqlite3) makes one of its own,
// and neither sees the locks of the other.
type openFiles struct {
	paths [3]string
	ids   [3]ident
}

// remember notes the files that lie at the path now, just behind the moment at
// which SQLite opened them. The book is the one that is locked.
func (f *openFiles) remember(path string, book ident) error {
	f.paths = [3]string{path, path + "-wal", path + "-shm"}
	for i, p := range f.paths {
		id, err := identOf(p)
		if err != nil {
			return fmt.Errorf("look at the book's files: %w", err)
		}
		f.ids[i] = id
	}
	if f.ids[0] != book {
		return fmt.Errorf("%s: %w", path, errReplaced)
	}
	return nil
}

// check returns an [ErrMoved] that names those of the first n files whose paths lead
// elsewhere. What cannot be asked (an I/O error) is no sign of that. Safe for
// concurrent use; a stat each.
func (f *openFiles) check(n int) error {
	if f.paths[0] == "" {
		return nil // not all are open yet
	}
	var gone []string
	for i, p := range f.paths[:n] {
		switch id, err := identOf(p); {
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENOTDIR):
			gone = append(gone, p+" is gone")
		case err == nil && id != f.ids[i]:
			gone = append(gone, p+" is another file now")
		}
	}
	if gone == nil {
		return nil
	}
	return fmt.Errorf("%w: %s; move back what was moved, and it goes on by itself", ErrMoved, strings.Join(gone, ", "))
}

// How many of the files: what a change is acknowledged in, and all.
const (
	bookAndLog = 2
	allFiles   = 3
)

// bookIsThere reports that the path of the book leads to the file that is open.
func (f *openFiles) bookIsThere() bool {
	id, err := identOf(f.paths[0])
	return err == nil && id == f.ids[0]
}

// look notes it when the files were taken away, and returns why. A book that is
// only read does not look: it keeps what it read.
func (b *Book) look(files int) error {
	if b.opts.ReadOnly {
		return nil
	}
	why := b.files.check(files)
	if why != nil {
		b.cannotWrite(why)
	}
	return why
}

// rescue folds the log into the book where the book lies at its path and its log
// does not: with that no acknowledged change is lost, whatever becomes of the log.
// Who calls has the turn.
func (b *Book) rescue() error {
	if !b.files.bookIsThere() {
		return nil
	}
	log, err := logOf(b.sql.foldLog)
	if err == nil && log.folded < log.length {
		err = fmt.Errorf("%d of the %d pages of its log are not in it: a reader holds them", log.length-log.folded, log.length)
	}
	if err != nil {
		return fmt.Errorf("fold the log into %s: %w", b.path, err)
	}
	return nil
}

// openReaders returns connections that read. A new one may not open other files than
// the ones that are open: it would answer from somebody else's book.
func (b *Book) openReaders() (*sql.DB, error) {
	c, err := sqlite.NewConnector(b.dsn("ro", true))
	if err != nil {
		return nil, err
	}
	db := sql.OpenDB(ownFiles{c, &b.files})
	db.SetMaxOpenConns(5) // one of them is held
	return db, nil
}

type ownFiles struct {
	driver.Connector
	files *openFiles
}

func (o ownFiles) Connect(ctx context.Context) (driver.Conn, error) {
	if err := o.files.check(allFiles); err != nil {
		return nil, err
	}
	conn, err := o.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	if err := o.files.check(allFiles); err != nil { // replaced in between
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

// reader returns what reads the file beside commits. While the files are away that is
// the connection that is held: a new one would find none, or others.
func (b *Book) reader() querier {
	if r := b.readonly.Load(); r != nil && errors.Is(r.why, ErrMoved) && b.held != nil {
		return b.held
	}
	return b.readers
}

// holdReader keeps one reader for as long as the book is open: while it is, closing
// the writer folds and deletes nothing.
func (b *Book) holdReader(ctx context.Context) (err error) {
	if b.held, err = b.readers.Conn(ctx); err == nil {
		err = b.readNothing(ctx, b.held)
	}
	return b.classify("open for reading", err)
}

// stillAway refuses a change before it is begun, while it is known that the files are
// not in their place; it looks again. Known it is to the commit that finds out, and to
// [Book.Info], which a daemon asks each second.
func (b *Book) stillAway() error {
	if r := b.readonly.Load(); r == nil || !errors.Is(r.why, ErrMoved) {
		return nil
	}
	return b.look(allFiles)
}

// settle is the last step before a change is acknowledged: it is durable, and lies
// where the next start looks for it. Then its revision is noted; without the note a
// later loss shows less. Who calls has the turn.
func (b *Book) settle() error {
	if err := b.look(bookAndLog); err != nil {
		return err
	}
	_ = b.note()
	return nil
}
