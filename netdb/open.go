package netdb

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/binary"
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

// readThrough reads the book and its log to their ends. Nobody may have the
// book open in this process: closing a descriptor drops SQLite's locks.
func readThrough(path string) error {
	for _, name := range []string{path, path + "-wal"} {
		f, err := os.Open(name)
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

func open(path string, opts Options) (*Book, error) {
	b := &Book{
		path:    path,
		opts:    opts,
		staged:  newOverlay(),
		upkeep:  upkeep{pages: foldAt}, // unknown
		changed: make(chan struct{}),
		turn:    make(chan struct{}, 1),
		closing: make(chan struct{}),
	}
	b.close = sync.OnceValue(b.shut)
	if err := b.open(); err != nil {
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

func (b *Book) open() error {
	ctx := context.Background()
	b.clock.read = b.opts.Now
	b.clock.begin()
	b.bootID = b.clock.last.BootID
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
func (b *Book) takeLock() (err error) {
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

// accept lets SQLite look at the book without writing a byte, reads it into memory,
// and refuses what is not to be opened. unborn means that there is nothing in it
// yet: a first start ended early.
func (b *Book) accept(ctx context.Context) (unborn bool, err error) {
	log, err := readLog(b.path + "-wal")
	if err != nil {
		return false, fmt.Errorf("open %s: read its log: %w", b.path, err)
	}
	b.foundLog = log
	if m, err := readMark(b.path); err != nil {
		return false, fmt.Errorf("open %s: read its mark: %w", b.path, err)
	} else if m != nil {
		b.mark = *m
	}
	if err := b.openView(ctx); err != nil {
		return false, b.refuse(err)
	}
	unborn, err = b.readView(ctx, log)
	if log.broken != "" && b.kept() && !errors.Is(err, ErrNotABook) && !errors.Is(err, ErrNewerSchema) {
		err = fmt.Errorf("%w: its log, %s-wal: %s", ErrDamaged, b.path, log.broken)
	}
	if err != nil {
		return false, b.refuse(err)
	}
	return unborn, nil
}

func (b *Book) openView(ctx context.Context) (err error) {
	if b.view, err = newView(b.path, b.file); err != nil {
		return err
	}
	if b.writerDB, err = b.view.open("synchronous("+b.opts.Synchronous+")", "foreign_keys(1)", "query_only(1)", "trusted_schema(0)"); err != nil {
		return err
	}
	b.writerDB.SetMaxOpenConns(4)
	b.readers = b.writerDB
	b.conn, err = b.writerDB.Conn(ctx)
	return b.classify("connect", err)
}

func (b *Book) readView(ctx context.Context, log logEnd) (unborn bool, err error) {
	if unborn, err = b.checkWhole(ctx); err != nil || unborn {
		return unborn, err
	}
	if err := b.checkSchema(ctx); err != nil {
		return false, err
	}
	var rev int64
	if rev, err = b.readIdentity(ctx); errors.Is(err, sql.ErrNoRows) && !b.opts.ReadOnly {
		return false, nil // a first start that ended before it had one, and acknowledged nothing
	} else if err != nil {
		return false, b.classify("read the identity", err)
	}
	if err := b.judge(log, rev); err != nil {
		return false, err
	}
	if b.schema < len(b.opts.schema) {
		return false, nil // it is read behind its migration
	}
	if b.opts.ReadOnly {
		if err := b.wantPragmas(ctx); err != nil {
			return false, err
		}
	}
	if err := b.resumeClock(ctx); err != nil {
		return false, err
	}
	return false, b.load(ctx)
}

// openForWriting opens a book that is accepted, or makes a new one.
func (b *Book) openForWriting(ctx context.Context, unborn bool) (err error) {
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
func (b *Book) refuse(err error) error {
	var se *sqlite.Error
	if errors.As(err, &se) && se.Code() == sqlite3.SQLITE_ERROR && !errors.Is(err, ErrDamaged) {
		err = fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	next := `"ipamd rebuild" moves it aside and builds a new one from what is live`
	if !b.opts.ReadOnly {
		next = fmt.Sprintf(`"ipamd check %s" looks it over, %s`, b.path, next)
	}
	switch {
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
		"synchronous(" + b.opts.Synchronous + ")", "foreign_keys(1)", "busy_timeout(0)", "trusted_schema(0)",
	}}
	if reader {
		q["_pragma"] = append(q["_pragma"], "query_only(1)", "busy_timeout(1000)")
	}
	return fileURI(b.path, q)
}

// headerSize is that of SQLite's file header and the header of the schema's
// page behind it, in bytes.
const headerSize = 108

// sqliteMagic begins every SQLite file.
const sqliteMagic = "SQLite format 3\x00"

// checkHeader reads the first bytes of the file itself, before SQLite may
// touch it: another application's file must stay as it is. unborn means that there
// is no book in it yet.
func (b *Book) checkHeader() (unborn bool, err error) {
	header := make([]byte, headerSize)
	switch n, err := b.file.ReadAt(header, 0); {
	case err == io.EOF && n == 0:
		if err := b.checkOrphanLog(); err != nil || !b.opts.ReadOnly {
			return true, err // without one: made by hand, or a first start that died at once
		}
		return false, b.refuse(fmt.Errorf("%w: it is empty", ErrNotABook))
	case err == nil && !b.opts.ReadOnly && b.bornHalf(header):
		return true, b.checkOrphanLog()
	case err != nil && err != io.EOF:
		return false, fmt.Errorf("open %s: %w", b.path, err)
	case err != nil || string(header[:len(sqliteMagic)]) != sqliteMagic:
		return false, b.refuse(fmt.Errorf("%w: it is no SQLite file", ErrNotABook))
	}
	unborn = b.rollsBack()
	if unborn && b.opts.ReadOnly {
		return false, fmt.Errorf("open %s: %s-journal has to be rolled back first: start ipamd once", b.path, b.path)
	}
	version, app := binary.BigEndian.Uint32(header[60:]), binary.BigEndian.Uint32(header[68:])
	if tables := binary.BigEndian.Uint16(header[103:]); app == 0 && version == 0 && tables == 0 {
		return unborn, nil // a first start that died before its migration; checkWhole looks closer
	}
	if err := b.checkStamp(int64(app), int64(version)); err != nil {
		return false, b.refuse(err)
	}
	return unborn, nil
}

// journalMagic begins the rollback journal of a SQLite file.
const journalMagic = "\xd9\xd5\x05\xf9\x20\xa1\x63\xd7"

// bornHalf reports a first start that lost power while it wrote the header:
// the file has its size and not yet its first sector, and the journal beside
// it, which was synced before, lets SQLite start again from nothing.
func (b *Book) bornHalf(header []byte) bool {
	return strings.Trim(string(header), "\x00") == "" && b.rollsBack()
}

// rollsBack reports a journal that SQLite rolls back when it opens the file. A book
// has one in its first moments only, before it is given its log.
func (b *Book) rollsBack() bool {
	f, err := os.Open(b.path + "-journal")
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
func (b *Book) checkOrphanLog() error {
	if st, err := os.Stat(b.path + "-wal"); err == nil && st.Size() > 0 {
		return b.refuse(fmt.Errorf("%w: its log is there, %s-wal, and the book itself is not", ErrDamaged, b.path))
	}
	return nil
}

func (b *Book) checkStamp(app, version int64) error {
	if app != applicationID {
		return fmt.Errorf("%w: application id %#x is another program's", ErrNotABook, app)
	}
	if latest := len(b.opts.schema); version > int64(latest) {
		return fmt.Errorf("%w: its schema is %d, this one knows up to %d; upgrade ipamd",
			ErrNewerSchema, version, latest)
	}
	return nil
}

// checkWhole lets SQLite look the file over. The stamp is checked again,
// because the newest header may still be in the log. unborn means that there is
// nothing in the file.
func (b *Book) checkWhole(ctx context.Context) (unborn bool, err error) {
	var version, app, tables int64
	if err := b.conn.QueryRowContext(ctx, `SELECT (SELECT user_version FROM pragma_user_version),
		(SELECT application_id FROM pragma_application_id), (SELECT count(*) FROM sqlite_schema)`).
		Scan(&version, &app, &tables); err != nil {
		return false, b.classify("read the header", err)
	}
	if tables == 0 && version == 0 && app == 0 && !b.opts.ReadOnly {
		return true, nil
	}
	if err := b.checkStamp(app, version); err != nil {
		return false, err
	}
	return false, b.withoutChecks(ctx, func() error {
		var verdict string
		if err := b.conn.QueryRowContext(ctx, `PRAGMA quick_check(1)`).Scan(&verdict); err != nil {
			return b.classify("check", err)
		}
		if verdict != "ok" {
			return fmt.Errorf("%w: %s", ErrDamaged, verdict)
		}
		return nil
	})
}

// checkUnborn looks over what SQLite rolls back first.
func (b *Book) checkUnborn(ctx context.Context) error {
	_, err := b.checkWhole(ctx)
	return err
}

// withoutChecks runs fn while SQLite overlooks CHECK constraints: a row that
// breaks one is a bad row, to be reported and skipped, not a broken file.
func (b *Book) withoutChecks(ctx context.Context, fn func() error) error {
	if _, err := b.conn.ExecContext(ctx, `PRAGMA ignore_check_constraints = 1`); err != nil {
		return b.classify("check", err)
	}
	err := fn()
	if _, off := b.conn.ExecContext(ctx, `PRAGMA ignore_check_constraints = 0`); off != nil && err == nil {
		err = b.classify("check", off)
	}
	return err
}

// setPragmas sets what belongs to the file and asserts what belongs to the
// connections. From here on the log is there, and so is its index.
func (b *Book) setPragmas(ctx context.Context) error {
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
	return b.files.remember(b.path, b.file.id)
}

func (b *Book) readNothing(ctx context.Context, q querier) error {
	var tables int
	return q.QueryRowContext(ctx, `SELECT count(*) FROM sqlite_schema`).Scan(&tables)
}

func (b *Book) wantPragmas(ctx context.Context) error {
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

// checkSchema reads the version of the schema.
func (b *Book) checkSchema(ctx context.Context) error {
	if err := b.conn.QueryRowContext(ctx, `PRAGMA user_version`).Scan(&b.schema); err != nil {
		return b.classify("read the schema version", err)
	}
	if latest := len(b.opts.schema); b.schema < latest && b.opts.ReadOnly {
		return fmt.Errorf("schema is %d, not %d: start ipamd once to migrate it", b.schema, latest)
	}
	return nil
}

// migrate brings the schema up, each step whole or not at all.
func (b *Book) migrate(ctx context.Context) error {
	if err := b.checkSchema(ctx); err != nil {
		return err
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
// that by itself, and tells nobody, when the disk refuses to open a file for
// writing, even once; and then nothing is written until another start, however
// well the disk is.
func (b *Book) checkWritable(ctx context.Context) error {
	_, err := b.conn.ExecContext(ctx, `UPDATE book SET one = one WHERE FALSE`)
	if err = b.classify("open for writing", err); errors.Is(err, ErrBusy) {
		return nil // with the lock that another process has one would write
	}
	return err
}
