package netdb

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/ipamd/ipamd/migrations"
)

// applicationID marks the file as a lease book of ipamd: "ipam" in ASCII.
const applicationID = 0x6970616d

// Open opens the book at path, or makes a new one. It locks it against a
// second daemon, checks that it is a lease book, that it is whole and not
// newer than this build, migrates it, and reads it into memory.
//
// A refusal leaves the file as it was: it is never deleted or replaced here.
//
// A book that another process keeps locked is refused at once. A disk that takes
// its time is waited for, however long: with a deadline of 5 s over all of it a
// large book on a slow disk, or any on a machine that stood still meanwhile, was
// refused at each start, and a migration that takes longer could never end.
func Open(path string, opts Options) (*Book, error) {
	if err := opts.check(); err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	if !opts.ReadOnly {
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return nil, fmt.Errorf("open %s: %w", path, err)
		}
	}
	real, err := RealPath(path)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	path = real
	b, err := open(path, opts)
	damaged := errors.Is(err, ErrDamaged)
	if damaged || errors.Is(err, ErrReadOnly) {
		// SQLite calls damaged, too, what the disk could not read, and a book
		// must not be rebuilt for that.
		if unread := readThrough(path); unread != nil {
			return nil, fmt.Errorf("open %s: %w; look after the disk, the book itself may be whole", path, unread)
		}
	}
	if damaged {
		return open(path, opts)
	}
	return b, err
}

// readThrough reads the book and its log to their ends. No part of this process may have the
// book open in this process: closing a descriptor drops SQLite's locks.
func readThrough(path string) error {
	for _, name := range []string{path, path + "-wal"} {
		f, err := openRegular(name, os.O_RDONLY)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, f)
		if err := errors.Join(err, f.Close()); err != nil {
			return err
		}
	}
	return nil
}

// An opening is a book on its way: what a start alone does, and what it alone knows.
type opening struct {
	*Book
	foundLog logEnd // as it was before
}

func open(path string, opts Options) (*Book, error) {
	b := &Book{
		path:      path,
		opts:      opts,
		staged:    newOverlay(),
		upkeep:    upkeep{pages: foldAt}, // unknown
		writeLock: make(chan struct{}, 1),
		closing:   make(chan struct{}),
	}
	b.close = sync.OnceValue(b.shut)
	if err := (&opening{Book: b}).open(); err != nil {
		return nil, errors.Join(err, b.closeFiles(false))
	}
	return b, nil
}

func (o *Options) check() error {
	if o.Now == nil {
		o.Now = Now
	}
	if o.schema == nil {
		o.schema = migrations.All()
	}
	if o.MachineID == "" {
		id, _ := os.ReadFile("/etc/machine-id") // not every root file system has one
		o.MachineID = strings.TrimSpace(string(id))
	}
	switch {
	case o.Synchronous != "full" && o.Synchronous != "normal":
		return invalid("synchronous", "%q is neither full nor normal", o.Synchronous)
	case o.QuarantineShare <= 0 || o.QuarantineShare > 1:
		return invalid("quarantine share", "%v is not above 0 and up to 1", o.QuarantineShare)
	case o.Tombstone <= 0:
		return invalid("tombstone", "%v is not a positive duration", o.Tombstone)
	case o.KeepChanges <= 0 || o.KeepFor <= 0:
		return invalid("changes kept", "neither count (%d) nor age (%v) may be zero", o.KeepChanges, o.KeepFor)
	}
	return nil
}

func (b *opening) open() error {
	ctx, cancel := context.Background(), context.CancelFunc(func() {})
	if b.opts.ReadOnly {
		ctx, cancel = context.WithTimeout(ctx, lookWithin)
	}
	defer cancel()
	b.clock.read = b.opts.Now
	b.clock.begin()
	b.bootID = b.clock.last.BootID
	if err := b.checkExposed(); err != nil { // before a new one is made
		return err
	}
	if err := b.takeLock(); err != nil {
		return err
	}
	unborn, err := b.checkHeader()
	if err == nil && !unborn {
		unborn, err = b.accept(ctx)
	}
	if err != nil || b.opts.ReadOnly {
		return err
	}
	if err := b.closeView(); err != nil {
		return fmt.Errorf("open %s: %w", b.path, err)
	}
	return b.openForWriting(ctx, unborn)
}

// takeLock locks the book's file, or a new one where there is none.
func (b *opening) takeLock() (err error) {
	b.file, err = lockFile(b.path, false)
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if orphan := b.checkOrphanLog(); orphan != nil || b.opts.ReadOnly {
		return cmp.Or(orphan, err)
	}
	b.file, err = lockFile(b.path, true)
	return err
}

// openForWriting opens a book that is accepted, or makes a new one.
func (b *opening) openForWriting(ctx context.Context, unborn bool) (err error) {
	if err := b.checkBeside(); err != nil {
		return err
	}
	if b.writerDB, err = sql.Open("sqlite", b.dsn("rw", false)); err != nil {
		return fmt.Errorf("open %s: %w", b.path, err)
	}
	if b.conn, err = b.writerDB.Conn(ctx); err != nil {
		return b.refuse(b.classify("connect", err))
	}
	if b.readers, err = b.openReaders(); err != nil {
		return fmt.Errorf("open %s: %w", b.path, err)
	}
	steps := []func(context.Context) error{
		b.holdReader, b.setPragmas, b.migrate, b.resumeClock, b.checkWritable, b.identify, b.prepare, b.loadOnce, b.renewLog, b.openMark,
	}
	if unborn {
		steps = slices.Insert(steps, 0, b.checkUnborn, b.setPragmas)
	}
	for _, step := range steps {
		if err := step(ctx); err != nil {
			return b.refuse(err)
		}
	}
	return nil
}

// refuse names the file, and what to do about one that may be a broken book; who
// opens it for reading is looking it over already. A statement of ours that SQLite
// does not understand is about tables that are not there any more.
func (b *opening) refuse(err error) error {
	var se *sqlite.Error
	if errors.As(err, &se) && se.Code() == sqlite3.SQLITE_ERROR && !errors.Is(err, ErrDamaged) {
		err = fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	next := `"ipamd rebuild" moves it aside and builds a new one from what is live`
	if !b.opts.ReadOnly {
		next = fmt.Sprintf(`"ipamd check %s" looks it over, %s`, b.path, next)
	}
	switch {
	case errors.Is(err, ErrOldBuild):
		return fmt.Errorf(`open %s: %w: run "ipamd rebuild", which moves it aside and takes its leases over into a new one`, b.path, err)
	case errors.Is(err, ErrDamaged):
		return fmt.Errorf("open %s: %w; %s", b.path, err, next)
	case errors.Is(err, ErrNotABook):
		return fmt.Errorf("open %s: %w; give another path; or, if it was the book, %s, with --force where nothing of it can be read",
			b.path, err, next)
	}
	return fmt.Errorf("open %s: %w", b.path, err)
}

// dsn names the file to the driver. Every connection gets its PRAGMAs here;
// setPragmas reads them back, because a driver's default is not a promise.
func (b *Book) dsn(mode string, reader bool) string {
	q := url.Values{"mode": {mode}, "_pragma": {
		"synchronous(" + b.opts.Synchronous + ")", "foreign_keys(1)", "busy_timeout(0)",
	}}
	if reader {
		q["_pragma"] = append(q["_pragma"], "query_only(1)", "busy_timeout(1000)")
	}
	return fileURI(b.path, harden(q))
}

// setPragmas sets what belongs to the file and asserts what belongs to the
// connections. From here on the log is there, and so is its index.
func (b *opening) setPragmas(ctx context.Context) error {
	for _, p := range []string{`journal_mode = WAL`, `wal_autocheckpoint = 0`, fmt.Sprintf(`journal_size_limit = %d`, longLog*pageSize)} {
		if _, err := b.conn.ExecContext(ctx, `PRAGMA `+p); err != nil {
			return b.classify("set "+p, err)
		}
	}
	if err := b.readNothing(ctx, b.conn); err != nil { // the log is made for the first reader
		return b.classify("open the log", err)
	}
	// The names of file and log must survive power loss, too, not only their
	// bytes. SQLite syncs the folder with its first sync of a log, and drops
	// the error of that: on a disk that fails, what it then acknowledged was
	// in a file without a name.
	if err := syncDir(filepath.Dir(b.path)); err != nil {
		return err
	}
	if err := b.wantPragmas(ctx); err != nil {
		return err
	}
	if err := b.checkBeside(); err != nil { // again, with what SQLite has made or opened
		return err
	}
	return b.files.remember(b.path, b.file.id)
}

func (b *opening) readNothing(ctx context.Context, q querier) error {
	var tables int
	return q.QueryRowContext(ctx, `SELECT count(*) FROM sqlite_master`).Scan(&tables)
}

func (b *opening) wantPragmas(ctx context.Context) error {
	want := map[string]string{"synchronous": "2", "foreign_keys": "1", "journal_mode": "wal"}
	if b.opts.Synchronous == "normal" {
		want["synchronous"] = "1"
	}
	for pragma, value := range want {
		var got string
		if err := b.conn.QueryRowContext(ctx, `PRAGMA `+pragma).Scan(&got); err != nil {
			return b.classify("read "+pragma, err)
		}
		if got != value {
			return fmt.Errorf("PRAGMA %s is %s, not %s", pragma, got, value)
		}
	}
	return nil
}

// migrate brings the schema up, each step whole or not at all.
func (b *opening) migrate(ctx context.Context) error {
	if err := b.checkSchema(ctx); err != nil {
		return err
	}
	if b.schema > 0 { // as it was accepted, and is opened now
		if err := b.checkOurs(ctx, int64(b.schema)); err != nil {
			return err
		}
	}
	for _, m := range b.opts.schema[b.schema:] {
		script := fmt.Sprintf("BEGIN IMMEDIATE;\n%s\nPRAGMA application_id = %d;\nPRAGMA user_version = %d;\nCOMMIT;",
			m.SQL, applicationID, m.Version)
		if _, err := b.conn.ExecContext(ctx, script); err != nil {
			b.conn.ExecContext(ctx, `ROLLBACK`)
			return b.classify("migrate with "+m.Name, err)
		}
		b.schema = m.Version
	}
	return nil
}

// checkWritable refuses a file that SQLite has open for reading only. It does
// that by itself, without an error, when the disk refuses to open a file for
// writing, even once; and then nothing is written until another start, however
// well the disk is.
func (b *opening) checkWritable(ctx context.Context) error {
	_, err := b.conn.ExecContext(ctx, `UPDATE book SET one = one WHERE FALSE`)
	if err = b.classify("open for writing", err); errors.Is(err, ErrBusy) {
		return nil // with the lock that another process has one would write
	}
	return err
}
