package netdb

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ipamd/ipamd/internal/elapsed"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/migrations"
	"github.com/ipamd/ipamd/netdb/bookfile"
	"github.com/ipamd/ipamd/netdb/group"
	"github.com/ipamd/ipamd/netdb/index"
	"github.com/ipamd/ipamd/netdb/sqlite"
)

// A Book is an open lease book. All methods are safe for concurrent use.
//
// It is made of parts, each with fields of its own: the store is the file, the index
// what is in it, the writer makes commits, the history reads what was committed, and
// the upkeep follows each commit. The verbs that change a book are parts, too, one for each kind:
// a verb is one function of a transaction, in the file of its noun.
type Book struct {
	*index.Reader
	*index.Offers
	*signal
	*history
	*upkeep

	leases
	releases
	quarantines
	pools
	sleeps
	slots
	formers

	store  *store
	writer *writer
	close  func() error

	backing  sync.Mutex // held while a backup is made
	checking sync.Mutex // held while a running book is checked
}

// Close waits for the commit that is under way, refuses what waits, folds the log
// into the file and unlocks it. Where its files were taken away, nothing is deleted, and
// the log is folded only into a book that is still in its place. It may be called again.
func (b *Book) Close() error { return b.close() }

// Now is the moment as the book dates it: the one to compare the book's own
// stamps with.
func (b *Book) Now() ipam.Stamp { return b.store.clock.Now() }

// Lease returns the row with an id: [ipam.ErrGone] when it has ended, [ipam.ErrNotFound]
// when the book never knew it, or has forgotten it.
func (b *Book) Lease(id string) (*ipam.Lease, error) {
	if l, is := b.Reader.Lease(id); is {
		return l, nil
	}
	_, err := b.writer.past.ended(context.Background(), id)
	return nil, err
}

// Epoch is new whenever earlier revisions can no longer be compared.
func (b *Book) Epoch() string { return b.store.whose().Epoch }

// A Candidate is an address that is offered to a caller; an Unreadable row is reported and skipped.
type (
	Candidate  = index.Candidate
	Unreadable = index.Unreadable
)

// Info describes the file.
type Info struct {
	Path            string
	Bytes, WALBytes int64
	Synchronous     string
	RunnerUID       string
	MachineID       string
	BootID          string    // of the present boot
	Clock           error     // why the machine's clocks contradict each other, and no time before that counts for a wait; nil when they do not
	ClockSince      time.Time // when that was met
	Rebooted        bool      // the book was last opened in another boot: every netns of then is gone
	Schema          int
	Restored        string // why the book has another epoch since it was opened, "" when it has not
	Unreadable      []Unreadable
	ReadOnly        error     // why it cannot be written, nil when it can
	ReadOnlySince   time.Time // the first refusal since it last could
	Growing         error     // why its files grow although changes go on, nil when they do not; see [Book.Tidy]
	GrowingSince    time.Time
	Exposed         string        // who else may change the book's file or folder, "" for no one
	CommitP50       time.Duration // over the last 256 commits; 0 before the first
	CommitP99       time.Duration // likewise
}

// Info describes the file as it is now, and looks whether it lies where it was opened;
// a mark that was taken away is made again.
func (b *Book) Info() Info {
	s, whose := b.store, b.store.whose()
	i := Info{Path: s.Path, Synchronous: s.opts.Synchronous, RunnerUID: whose.RunnerUID,
		MachineID: whose.MachineID, BootID: s.Boot, Rebooted: s.rebooted, Schema: s.Version, Restored: s.restored}
	_ = s.Look(bookfile.AllFiles) // it is in ReadOnly
	b.writer.keepMark()
	i.Exposed = s.Exposed()
	i.Bytes, i.WALBytes = s.Sizes()
	if t := s.Failing.Now(); t != nil {
		i.ReadOnly, i.ReadOnlySince = t.Why, t.Since
	}
	grows := b.growing()
	i.Growing, i.GrowingSince = grows.Why, grows.Since
	i.ClockSince, i.Clock = s.clock.Oddity()
	i.Unreadable = b.Unreadable()
	i.CommitP50, i.CommitP99 = b.writer.times.quantiles()
	return i
}

// durations remembers the last 256.
type durations struct {
	mu   sync.Mutex
	ring [256]time.Duration
	n    int
}

func (d *durations) add(t time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ring[d.n%len(d.ring)] = t
	d.n++
}

func (d *durations) quantiles() (p50, p99 time.Duration) {
	d.mu.Lock()
	n, ring := min(d.n, len(d.ring)), d.ring
	d.mu.Unlock()
	if n == 0 {
		return 0, 0
	}
	sorted := slices.Sorted(slices.Values(ring[:n]))
	return sorted[n/2], sorted[n*99/100]
}

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

// A store is the file of a book, and what it says of itself: whose it is, and of when. Its fields are
// set while it is opened; what writes belongs to the lock holder of the [writer].
type store struct {
	*sqlite.File
	opts  *Options
	clock *elapsed.Clock
	identity
	holding atomic.Pointer[ipam.Holding] // whose it is; the lock holder's to change
	sql     statements
}

func (s *store) shut() error { return errors.Join(s.sql.close(), s.File.Shut()) }

// An opening is a store on its way: what a start alone does, and what it alone knows.
type opening struct {
	*store
	file *sqlite.Opening
	idx  *index.Index // once it is read
}

func open(path string, opts Options) (*Book, error) {
	clock := elapsed.NewClock(opts.Now)
	file := sqlite.New(sqlite.Options{Path: path, ReadOnly: opts.ReadOnly, Synchronous: opts.Synchronous,
		Schema: opts.schema, Boot: clock.Boot(), Now: func() time.Time { return clock.Now().Wall }})
	s := &store{File: file.File, opts: &opts, clock: clock}
	o := &opening{store: s, file: file}
	if err := o.open(); err != nil {
		return nil, errors.Join(file.Refuse(err), s.sql.close(), s.Close())
	}
	h := &history{store: s, index: o.idx}
	w := &writer{store: s, index: o.idx, past: h, opts: s.opts, clock: clock, staged: o.idx.Batch()}
	w.group = group.New(w, ipam.ErrClosed)
	u := &upkeep{store: s, index: o.idx, writer: w, past: h, opts: s.opts, clock: clock, pages: foldAt, pruneAt: o.idx.Rev() + pruneEvery}
	w.upkeep = u
	offers := o.idx.Offers(clock.Now)
	return &Book{Reader: &o.idx.Reader, Offers: offers, signal: &w.signal, history: h, upkeep: u,
		leases: leases{w}, releases: releases{w, offers}, quarantines: quarantines{w}, pools: pools{w},
		sleeps: sleeps{w}, slots: slots{w}, formers: formers{w}, store: s, writer: w, close: sync.OnceValue(func() error {
			w.group.Close()
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
	Now func() ipam.Stamp
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
		o.Now = ipam.Now
	}
	if o.meet == nil {
		o.meet = func(string) {}
	}
	o.mostTombs = cmp.Or(o.mostTombs, MaxTombstones)
	if o.schema == nil {
		o.schema = migrations.All()
	}
	if o.MachineID == "" {
		id, _ := os.ReadFile("/etc/machine-id") // not every root file system has one
		o.MachineID = strings.TrimSpace(string(id))
	}
	switch {
	case o.Synchronous != "full" && o.Synchronous != "normal":
		return ipam.Invalid("synchronous", "%q is neither full nor normal", o.Synchronous)
	case o.QuarantineShare <= 0 || o.QuarantineShare > 1:
		return ipam.Invalid("quarantine share", "%v is not above 0 and up to 1", o.QuarantineShare)
	case o.Tombstone <= 0:
		return ipam.Invalid("tombstone", "%v is not a positive duration", o.Tombstone)
	case o.KeepChanges <= 0 || o.KeepFor <= 0:
		return ipam.Invalid("changes kept", "neither count (%d) nor age (%v) may be zero", o.KeepChanges, o.KeepFor)
	}
	return nil
}

// index is what the index of a book needs of them.
func (o *Options) index() *index.Options {
	return &index.Options{QuarantineShare: o.QuarantineShare, MostFreed: cmp.Or(o.mostFreed, index.MostFreed), Meet: o.meet}
}

// lookWithin bounds a look at a book that is only read: it may be any user's. A daemon
// waits for its own, however slow the disk is.
const lookWithin = 10 * time.Minute

func (o *opening) open() error {
	ctx, cancel := context.Background(), context.CancelFunc(func() {})
	if o.opts.ReadOnly {
		ctx, cancel = context.WithTimeout(ctx, lookWithin)
	}
	defer cancel()
	unborn, err := o.file.Find()
	if err == nil && !unborn {
		unborn, err = o.accept(ctx)
	}
	if err != nil || o.opts.ReadOnly {
		return err
	}
	if err := o.file.Open(ctx, unborn); err != nil {
		return err
	}
	for _, step := range []func(context.Context) error{o.resumeClock, o.file.CheckWritable, o.identify, o.prepare, o.load} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	if err := o.file.RenewLog(); err != nil {
		return err
	}
	return o.file.OpenMark(o.whose().Epoch, o.idx.Rev())
}

// accept looks at the book without writing a byte, reads it into memory,
// and refuses what is not to be opened. unborn means that there is nothing in it
// yet: a first start ended early.
func (o *opening) accept(ctx context.Context) (unborn bool, err error) {
	if unborn, err = o.file.View(ctx); err == nil && !unborn {
		err = o.readView(ctx)
	}
	return unborn, o.file.JudgeLog(err)
}

func (o *opening) readView(ctx context.Context) (err error) {
	var rev int64
	if rev, err = o.readIdentity(ctx); errors.Is(err, sql.ErrNoRows) && !o.opts.ReadOnly {
		return nil // a first start that ended before it had one, and acknowledged nothing
	} else if err != nil {
		return o.Classify("read the identity", err)
	}
	if o.restored, o.lost, err = o.file.Judge(o.whose().Epoch, rev); err != nil {
		return err
	}
	if o.Version < len(o.opts.schema) {
		return nil // it is read behind its migration
	}
	if o.opts.ReadOnly {
		if err := o.WantPragmas(ctx); err != nil {
			return err
		}
	}
	if err := o.resumeClock(ctx); err != nil {
		return err
	}
	return o.load(ctx)
}

// load reads the book into memory, unless that was done when it was accepted.
func (o *opening) load(ctx context.Context) (err error) {
	if o.idx == nil {
		o.idx, err = o.readIndex(ctx, o.Conn)
	}
	return o.Classify("read", err)
}

// resumeClock reads when the book last recorded something. A book that has
// nothing yet begins with the boot.
func (o *opening) resumeClock(ctx context.Context) error {
	var l elapsed.Last
	var wall, uptime, seen int64
	err := o.Conn.QueryRowContext(ctx, `SELECT wall, uptime, boottime, boot_id FROM changes ORDER BY rev DESC LIMIT 1`).
		Scan(&wall, &uptime, &seen, &l.At.BootID)
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	if err != nil {
		return o.Classify("read when the book was last changed", err)
	}
	l.At.Wall, l.At.Boottime, l.Uptime = time.Unix(0, wall), time.Duration(seen), time.Duration(uptime)
	o.clock.Resume(l)
	return nil
}
