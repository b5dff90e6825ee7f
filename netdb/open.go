package netdb

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/ipamd/ipamd/internal/elapsed"
	"github.com/ipamd/ipamd/migrations"
	"github.com/ipamd/ipamd/netdb/bookfile"
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
// its time is waited for, however long: with a deadline a large book on a slow disk is
// refused at each start, and a long migration never ends.
func Open(path string, opts Options) (*Book, error) {
	err := opts.check()
	if err == nil && !opts.ReadOnly {
		err = os.MkdirAll(filepath.Dir(path), 0o700)
	}
	real := path
	if err == nil {
		real, err = bookfile.RealPath(path)
	}
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	path = real
	b, err := open(path, opts)
	damaged := errors.Is(err, ErrDamaged)
	if damaged || errors.Is(err, ErrReadOnly) {
		// SQLite calls damaged, too, what the disk could not read, and a book
		// must not be rebuilt for that.
		if unread := bookfile.ReadThrough(path); unread != nil {
			return nil, fmt.Errorf("open %s: %w; look after the disk, the book itself may be whole", path, unread)
		}
	}
	if damaged {
		return open(path, opts)
	}
	return b, err
}

// An opening is a store on its way: what a start alone does, and what it alone knows.
type opening struct {
	*store
	foundLog bookfile.Log // as it was before
	idx      *index       // once it is read
}

func open(path string, opts Options) (*Book, error) {
	s := &store{path: path, opts: &opts, clock: elapsed.NewClock(opts.Now), mark: bookfile.MarkerOf(path)}
	o := &opening{store: s}
	if err := o.open(); err != nil {
		return nil, errors.Join(o.refuse(err), s.close(false))
	}
	m := &memory{opts: s.opts, clock: s.clock, idx: o.idx}
	m.nameCount.Store(o.idx.rev)
	h := &history{store: s, memory: m}
	w := &writer{store: s, memory: m, opts: s.opts, clock: s.clock, staged: newOverlay(),
		locked: make(chan struct{}, 1), closing: make(chan struct{})}
	u := &upkeep{store: s, memory: m, writer: w, past: h, opts: s.opts, clock: s.clock, pages: foldAt, pruneAt: o.idx.rev + pruneEvery}
	w.upkeep = u
	return &Book{memory: m, history: h, upkeep: u, store: s, writer: w, close: sync.OnceValue(func() error {
		close(w.closing)
		w.locked <- struct{}{}
		return s.shut()
	})}, nil
}

// Options opens a book. The zero of each is refused unless it says otherwise.
type Options struct {
	// Synchronous is "full" (every acknowledged change survives power loss)
	// or "normal" (it survives kill -9 only).
	Synchronous string
	// RunnerUID names the runner that the book belongs to. Empty: a new book
	// gets a generated one and an old one keeps its own.
	RunnerUID string
	// MachineID is recorded beside it. Empty: /etc/machine-id, if there.
	MachineID string
	// QuarantineShare is how much of a pool may be quarantined without an
	// operator, 0 < share <= 1; at least one address and at most 65 536.
	QuarantineShare float64
	// Tombstone is how long a cancelled attempt stays refused.
	Tombstone time.Duration
	// KeepChanges and KeepFor bound the history: a change leaves when more
	// than so many are newer, or when it is older.
	KeepChanges int
	KeepFor     time.Duration
	// ReadOnly opens a book to look at it: nothing is migrated or written,
	// and changes answer ErrReadOnly.
	ReadOnly bool
	// Now dates changes. Nil: the machine's clocks.
	Now func() Stamp
	// OnCommit is called with each commit's time and number of requests, before they
	// are answered. The next commit waits for it, so it must not wait. May be nil.
	OnCommit func(took time.Duration, batch int)

	schema    []migrations.Migration // the steps to this build's; nil: all there are. A test has more
	mostFreed int                    // what a pool's queue of freed addresses has room for; 0: enough. A test has less
	mostTombs int                    // how many tombstones the book keeps; 0: enough. A test has fewer
	meet      func(point string)     // called at the points of a commit that a test fails; nil: nothing
}

func (o *Options) check() error {
	if o.Now == nil {
		o.Now = Now
	}
	if o.meet == nil {
		o.meet = func(string) {}
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

func (o *opening) open() error {
	ctx, cancel := context.Background(), context.CancelFunc(func() {})
	if o.opts.ReadOnly {
		ctx, cancel = context.WithTimeout(ctx, lookWithin)
	}
	defer cancel()
	o.bootID = o.clock.Boot()
	if !o.opts.ReadOnly {
		if err := bookfile.Exposed(o.path); err != nil { // before a new one is made
			return err
		}
	}
	if err := o.takeLock(); err != nil {
		return err
	}
	unborn, err := o.checkHeader()
	if err == nil && !unborn {
		unborn, err = o.accept(ctx)
	}
	if err != nil || o.opts.ReadOnly {
		return err
	}
	if o.view != nil { // it was looked at
		if err := errors.Join(o.closeWriter(), o.view.Close()); err != nil {
			return err
		}
		o.view, o.readers = nil, nil
	}
	return o.openForWriting(ctx, unborn)
}

// takeLock locks the book's file, or a new one where there is none.
func (o *opening) takeLock() (err error) {
	o.file, err = bookfile.Lock(o.path, false)
	if errors.Is(err, fs.ErrNotExist) {
		if orphan := o.checkOrphanLog(); orphan != nil || o.opts.ReadOnly {
			return cmp.Or(orphan, err)
		}
		o.file, err = bookfile.Lock(o.path, true)
	}
	if errors.Is(err, bookfile.ErrNotRegular) {
		return fmt.Errorf("%w: %w", ErrNotABook, err)
	}
	return err
}

// openForWriting opens a book that is accepted, or makes a new one.
func (o *opening) openForWriting(ctx context.Context, unborn bool) (err error) {
	if err := o.file.CheckBeside(); err != nil {
		return err
	}
	if o.writerDB, err = sql.Open("sqlite", o.dsn("rw", false)); err != nil {
		return err
	}
	if o.conn, err = o.writerDB.Conn(ctx); err != nil {
		return o.classify("connect", err)
	}
	if o.readers, err = o.openReaders(); err != nil {
		return err
	}
	steps := []func(context.Context) error{
		o.holdReader, o.setPragmas, o.migrate, o.resumeClock, o.checkWritable, o.identify, o.prepare, o.load, o.renewLog, o.openMark,
	}
	if unborn {
		// What SQLite rolls back first is looked over behind that.
		steps = slices.Insert(steps, 0, func(ctx context.Context) error { _, _, err := o.checkWhole(ctx); return err }, o.setPragmas)
	}
	for _, step := range steps {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// refuse names the file, and what to do about one that may be a broken book; who
// opens it for reading is looking it over already. A statement of ours that SQLite
// does not understand is about tables that are not there any more.
func (o *opening) refuse(err error) error {
	var se *sqlite.Error
	if errors.As(err, &se) && se.Code() == sqlite3.SQLITE_ERROR && !errors.Is(err, ErrDamaged) {
		err = fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	next := `"ipamd rebuild" moves it away and builds a new one from what is live`
	if !o.opts.ReadOnly {
		next = fmt.Sprintf(`"ipamd check %s" looks it over, %s`, o.path, next)
	}
	switch {
	case errors.Is(err, ErrOldBuild):
		return fmt.Errorf(`open %s: %w: run "ipamd rebuild", which moves it away and takes its leases over into a new one`, o.path, err)
	case errors.Is(err, ErrDamaged):
		return fmt.Errorf("open %s: %w; %s", o.path, err, next)
	case errors.Is(err, ErrNotABook) && o.file != nil:
		return fmt.Errorf("open %s: %w; give another path; or, if it was the book, %s, with --force where nothing of it can be read",
			o.path, err, next)
	}
	return fmt.Errorf("open %s: %w", o.path, err)
}

// migrate brings the schema up, each step whole or not at all.
func (o *opening) migrate(ctx context.Context) error {
	if err := o.conn.QueryRowContext(ctx, `PRAGMA user_version`).Scan(&o.schema); err != nil {
		return o.classify("read the schema version", err)
	}
	if o.schema > 0 { // as it was accepted, and is opened now
		if err := o.checkOurs(ctx, o.schema); err != nil {
			return err
		}
	}
	for _, m := range o.opts.schema[o.schema:] {
		script := fmt.Sprintf("BEGIN IMMEDIATE;\n%s\nPRAGMA application_id = %d;\nPRAGMA user_version = %d;\nCOMMIT;",
			m.SQL, applicationID, m.Version)
		if _, err := o.conn.ExecContext(ctx, script); err != nil {
			o.conn.ExecContext(ctx, `ROLLBACK`)
			return o.classify("migrate with "+m.Name, err)
		}
		o.schema = m.Version
	}
	return nil
}

// load reads the book into memory, unless that was done when it was accepted.
func (o *opening) load(ctx context.Context) (err error) {
	if o.idx == nil {
		o.idx, err = o.readIndex(ctx, o.conn)
	}
	return o.classify("read", err)
}

// checkWritable refuses a file that SQLite has open for reading only. It does
// that by itself, without an error, when the disk refuses to open a file for
// writing, even once; and then nothing is written until another start, however
// well the disk is.
func (o *opening) checkWritable(ctx context.Context) error {
	_, err := o.conn.ExecContext(ctx, `UPDATE book SET one = one WHERE FALSE`)
	if err = o.classify("open for writing", err); errors.Is(err, ErrBusy) {
		return nil // with the lock that another process has one would write
	}
	return err
}
