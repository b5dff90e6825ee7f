package netdb

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb/bookfile"
	"github.com/ipamd/ipamd/netdb/index"
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
	_, err := b.writer.history.ended(context.Background(), id)
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
