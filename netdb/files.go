package netdb

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"modernc.org/sqlite"
)

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
// elsewhere. What cannot be looked up (an I/O error) is no sign of that. Safe for
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

// openReaders returns connections that read. A new one may not open other files than
// the ones that are open: it would answer from another book.
func (o *opening) openReaders() (*sql.DB, error) {
	c, err := sqlite.NewConnector(o.dsn("ro", true))
	if err != nil {
		return nil, err
	}
	db := sql.OpenDB(ownFiles{c, &o.files})
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

// holdReader keeps one reader for as long as the book is open: while it is, closing
// the writer folds and deletes nothing.
func (o *opening) holdReader(ctx context.Context) (err error) {
	if o.held, err = o.readers.Conn(ctx); err == nil {
		err = o.readNothing(ctx, o.held)
	}
	return o.classify("open for reading", err)
}

// parts are what is appended to a book's name: the file itself, its log, the
// log's index, and the mark. The file goes first. A crash behind it leaves a log
// without its book, which Open refuses and the next MoveAside takes away; a
// book without its log would open, and be older than what was acknowledged.
var parts = [...]string{"", "-wal", "-shm", "-mark"}

// What a rebuild, a restore and an import have behind the name of the book while they make
// another one beside it. Whatever has these names is theirs, and is deleted by the next.
const (
	RebuildingEnd = ".rebuilding" // while it is made
	RebuiltEnd    = ".rebuilt"    // once it is whole and durable
)

// MoveAside gives a closed book another name, with its log, so that a new one
// can be made at path: "book.db" becomes "book.db.broken-20261121T120000Z", or
// that with "-2", "-3", … behind it. Nothing is deleted, overwritten or looked
// into, and the new name comes back once it is durable. It holds the book's
// lock meanwhile: [ErrLocked] names the process that has it open.
//
// When only a part could be moved, the new name comes back with the error; to
// call it again moves the rest.
func MoveAside(path string, now time.Time) (to string, err error) {
	if path, err = filepath.Abs(path); err == nil {
		to, err = moveAside(path, now)
	}
	if err != nil {
		return to, fmt.Errorf("move %s away: %w", path, err)
	}
	return to, nil
}

func moveAside(path string, now time.Time) (to string, err error) {
	there, err := partsOf(path)
	if err != nil {
		return "", err
	}
	if len(there) == 0 {
		return "", fmt.Errorf("there is no book: %w", fs.ErrNotExist)
	}
	switch lock, err := lockFile(path, false); {
	case errors.Is(err, fs.ErrNotExist): // without its book no process can have opened the log
	case err != nil:
		return "", err
	default:
		defer lock.Close()
	}
	if there, err = partsOf(path); err != nil { // it may have been moved while the lock was taken
		return "", err
	}
	to, err = unusedName(path + ".broken-" + now.UTC().Format("20060102T150405Z"))
	if err != nil {
		return "", err
	}
	for i, part := range there {
		if err := os.Rename(path+part, to+part); err != nil {
			if i == 0 {
				to = ""
			}
			return to, err
		}
	}
	return to, syncDir(filepath.Dir(path))
}

// partsOf lists the parts of a book that are there. One that is no regular
// file is not ipamd's: a link's target would stay where it is.
func partsOf(path string) (there []string, err error) {
	for _, part := range parts {
		st, err := os.Lstat(path + part)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			return nil, err
		case !st.Mode().IsRegular():
			return nil, fmt.Errorf("%s%s: %w", path, part, errNoFile)
		}
		there = append(there, part)
	}
	return there, nil
}

// unusedName returns the name, or the first numbered one, of which no part is
// there.
func unusedName(name string) (string, error) {
	to := name
	for n := 2; ; n++ {
		there, err := partsOf(to)
		if err == nil && len(there) == 0 || err != nil && !errors.Is(err, errNoFile) {
			return to, err
		}
		to = name + "-" + strconv.Itoa(n)
	}
}

// syncDir makes the names in a folder survive power loss, as a sync of a file
// does for its bytes.
func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	defer dir.Close()
	if err := dir.Sync(); err != nil {
		return fmt.Errorf("sync %s: %w", path, err)
	}
	return nil
}
