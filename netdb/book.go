package netdb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"iter"
	"net/netip"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ipamd/ipamd/migrations"
)

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
	meet      func(point string)     // called at the points of a commit that a test fails; may be nil
}

// A Book is an open lease book. All methods are safe for concurrent use.
type Book struct {
	path string // without links
	opts Options

	file     *bookFile // locked
	files    openFiles
	mark     mark // the one that lies beside
	markFile *os.File
	markBorn born
	sector   [markSize]byte // what is written to it
	restored string         // why it has another epoch since this opening, "" when it has not
	lost     int64          // revisions that were acknowledged and are not there

	view              *view // of a book that is only read, or not yet accepted
	writerDB, readers *sql.DB
	conn              *sql.Conn
	held              *sql.Conn // a reader, for as long as the book is open; see closeFiles
	sql               statements

	epoch, runnerUID, machineID string
	bootID                      string // of the present boot
	rebooted                    bool
	schema                      int

	mu      sync.RWMutex
	idx     *index // written by the holder of writeLock only, under mu
	commits durations
	signal  signal

	queue     queue
	staged    *overlay // for the holder of writeLock
	clock     clock
	memory    memory
	conflicts conflicts
	nextLook  time.Time     // at a damaged book; for the holder of writeLock
	writeLock chan struct{} // full while it is held; full for good once closed
	closing   chan struct{}
	close     func() error
	busy      atomic.Pointer[error]
	readonly  atomic.Pointer[trouble]
	upkeep    upkeep
}

// Close waits for the commit that is under way, refuses what waits, folds the log
// into the file and unlocks it. Where the file or its log was taken away, nothing is
// folded that cannot be found again, and nothing is deleted. Calling it again is fine.
func (b *Book) Close() error { return b.close() }

func (b *Book) shut() error {
	close(b.closing)
	b.writeLock <- struct{}{}
	if b.opts.ReadOnly {
		return b.closeFiles(false)
	}
	away := b.files.check(allFiles)
	if away != nil {
		b.cannotWrite(away)
		return errors.Join(b.rescue(), b.closeFiles(false))
	}
	var errs []error
	if b.readonly.Load() == nil {
		if _, err := b.conn.ExecContext(context.Background(), `PRAGMA wal_checkpoint(TRUNCATE)`); err != nil {
			errs = append(errs, fmt.Errorf("checkpoint %s: %w", b.path, err))
		}
	}
	errs = append(errs, b.closeFiles(true))
	return errors.Join(errs...)
}

// closeFiles closes what is open. The last connection to close folds the log into
// the file, and deletes what lies at the log's path; one that can only read cannot.
func (b *Book) closeFiles(fold bool) error {
	var errs []error
	readers := func() {
		if b.held != nil {
			errs = append(errs, b.held.Close())
		}
		if b.readers != nil {
			errs = append(errs, b.readers.Close())
		}
	}
	if fold {
		readers()
	}
	errs = append(errs, b.closeWriter())
	if !fold {
		readers()
	}
	if b.view != nil {
		errs = append(errs, b.view.Close())
	}
	if b.markFile != nil {
		errs = append(errs, b.markFile.Close())
	}
	if b.file != nil {
		errs = append(errs, b.file.Close()) // behind all of SQLite's: see lock.go
	}
	return errors.Join(errs...)
}

func (b *Book) closeWriter() error {
	var errs []error
	if b.conn != nil {
		errs = append(errs, b.sql.close(), b.conn.Close())
	}
	if b.writerDB != nil {
		errs = append(errs, b.writerDB.Close())
	}
	b.conn, b.writerDB = nil, nil
	return errors.Join(errs...)
}

// closeView ends the look at a book that is opened for writing next.
func (b *opening) closeView() error {
	if b.view == nil {
		return nil
	}
	err := errors.Join(b.closeWriter(), b.view.Close())
	b.view, b.readers = nil, nil
	return err
}

// Epoch is new whenever earlier revisions can no longer be compared.
func (b *Book) Epoch() string { return b.epoch }

// Rev is the last committed revision.
func (b *Book) Rev() int64 {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return b.idx.rev
}

// At returns the row of an address.
func (b *Book) At(a netip.Addr) (*Lease, bool) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	l := b.idx.byAddr.at(a)
	return l, l != nil
}

// Held returns the owner's open lease.
func (b *Book) Held(o Owner) (*Lease, bool) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	l := b.idx.open(o)
	return l, l != nil
}

// Leases returns every row in numeric order of the addresses, and the
// revision at which that was so.
func (b *Book) Leases() ([]*Lease, int64) {
	rows, rev := b.snapshot()
	return slices.AppendSeq(make([]*Lease, 0, rows.len()), b.scan(rows)), rev
}

// snapshot returns the rows as they are now, to be read without a lock, and the
// revision of that.
func (b *Book) snapshot() (rowset, int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.idx.byAddr.snapshot(), b.idx.rev
}

// scan yields the rows of a snapshot, and holds no lock meanwhile.
func (b *Book) scan(rows rowset) iter.Seq[*Lease] {
	b.meet("scan")
	return rows.all()
}

// InState returns the rows in one state, in numeric order.
func (b *Book) InState(s State) []*Lease {
	rows, _ := b.snapshot()
	var out []*Lease
	for l := range b.scan(rows) {
		if l.State == s {
			out = append(out, l)
		}
	}
	return out
}

// Usage returns what each pool holds, and the revision at which that was so.
func (b *Book) Usage() ([]Usage, int64) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	var out []Usage
	for _, pi := range b.idx.order {
		u := Usage{Pool: *pi.pool, Size: pi.size, Free: saturatingAdd(pi.free.count(), uint64(pi.freed.len())), ByState: make(map[State]int),
			QuarantineCap: b.opts.mostQuarantined(pi)}
		for h := range pi.held {
			if b.idx.byAddr.at(h) == nil {
				u.Free = saturatingAdd(u.Free, 1)
			}
		}
		for _, s := range States() {
			u.ByState[s] = pi.count[s]
		}
		out = append(out, u)
	}
	return out, b.idx.rev
}

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
	i := Info{Path: b.path, Synchronous: b.opts.Synchronous, RunnerUID: b.runnerUID,
		MachineID: b.machineID, BootID: b.bootID, Rebooted: b.rebooted, Schema: b.schema, Restored: b.restored}
	_ = b.look(allFiles) // it is in ReadOnly
	b.keepMark()
	i.Exposed = b.exposed()
	if st, err := os.Stat(b.path); err == nil {
		i.Bytes = st.Size()
	}
	if st, err := os.Stat(b.path + "-wal"); err == nil {
		i.WALBytes = st.Size()
	}
	if r := b.readonly.Load(); r != nil {
		i.ReadOnly, i.ReadOnlySince = r.why, r.since
	}
	grows := b.upkeep.growing()
	i.Growing, i.GrowingSince = grows.why, grows.since
	i.ClockSince, i.Clock = b.clock.oddity()
	b.mu.RLock()
	commits := b.commits
	i.Unreadable = slices.Clone(b.idx.broken)
	b.mu.RUnlock()
	i.CommitP50, i.CommitP99 = commits.quantiles()
	return i
}

// durations remembers the last 256.
type durations struct {
	ring [256]time.Duration
	n    int
}

func (d *durations) add(t time.Duration) {
	d.ring[d.n%len(d.ring)] = t
	d.n++
}

func (d *durations) quantiles() (p50, p99 time.Duration) {
	n := min(d.n, len(d.ring))
	if n == 0 {
		return 0, 0
	}
	sorted := slices.Sorted(slices.Values(d.ring[:n]))
	return sorted[n/2], sorted[n*99/100]
}
