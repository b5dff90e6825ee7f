// Package index has the rows of a book in memory, and what follows from them: who holds an
// address, what is open, what is free and in which order it is given.
//
// It is derived from the book's tables when the book is opened, by a [Builder], and follows each
// commit by [Index.Apply]. It can be thrown away at any time and built again. What a commit
// changes is staged in a [Batch] on top of it, which the requests of that commit read.
//
// It knows no SQL, no file and no clock. When a batch is applied, and what the time is, the book
// says. Beside the rows it has one thing of its own: which addresses are offered to callers,
// see [Offers]. An offer is in memory only.
//
// One caller at a time changes an index, and reads it without a lock, by a batch: the one that
// holds the book's writer. All others ask a [Reader] or [Offers], which take the lock.
package index

import (
	"net/netip"
	"sync"
	"sync/atomic"

	"github.com/ipamd/ipamd/ipam"
)

// Options of an index.
type Options struct {
	// QuarantineShare is how much of a pool may be quarantined without an operator.
	QuarantineShare float64
	// MostFreed is how many ranges of freed addresses are remembered of a pool.
	MostFreed int
	// Meet is called at the points that a test fails or delays.
	Meet func(point string)
}

// MostFreed bounds what is remembered of a pool's addresses that were given
// before and are free again: some 8 MiB. Those that the queue has no room for, and those that the
// history does not know any more, count as never given: all of them have been free for longer than
// any in the queue.
const MostFreed = 1 << 16

// An Index is the rows of one book.
type Index struct{ Reader }

// A Reader answers questions about what is committed. Its methods are safe for concurrent use.
// What they return is shared and not changed afterwards: it must not be changed.
type Reader struct {
	opts  *Options
	named atomic.Int64 // names of patterns that were proposed

	mu sync.RWMutex
	is *tables
}

func newIndex(o *Options, is *tables) *Index {
	x := &Index{Reader{opts: o, is: is}}
	x.named.Store(is.rev)
	return x
}

// Batch returns an empty one on top of the index.
func (x *Index) Batch() *Batch {
	b := &Batch{View: *newView(), of: x}
	b.Reset()
	return b
}

// Preview runs fn on what is committed, which does not change meanwhile. fn must not wait.
func (x *Index) Preview(fn func(*View)) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	fn(&View{is: x.is, rev: x.is.rev})
}

// Apply makes a durable batch visible to readers, all of it at once. After a panic the index may
// have half of it, and is to be built anew.
func (x *Index) Apply(b *Batch) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for i := range b.steps {
		x.opts.Meet("publish")
		x.is.applyStep(&b.steps[i])
	}
	x.is.rev = b.rev
}

// Replace puts what another index has in the place of what was there; what is offered stays so.
// The other one is not used any more.
func (x *Index) Replace(by *Index) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for uid, was := range x.is.pools {
		if pi := by.is.pools[uid]; pi != nil {
			pi.takeOffers(was)
		}
	}
	x.is = by.is
}

// Copy returns an index that nothing changes, for [Index.Check] and for questions about whole
// tables: no row is found in it by its id or its sandbox.
func (x *Index) Copy() *Index {
	x.mu.Lock()
	defer x.mu.Unlock()
	return newIndex(x.opts, x.is.copied())
}

// An Unreadable row is reported and skipped, never dropped. The addresses that
// it names, by its text or by its key, are not handed out.
type Unreadable struct {
	Row    string // the row's address as stored
	Reason string
	Addrs  []netip.Addr
	Ranges []ipam.Range // of delegated prefixes
	Pool   string       // its pool's uid, "" where it cannot be read
}

// Entries is how much is in memory of a pool and of all rows: ranges, queues and single addresses.
func (x *Index) Entries(poolUID string) int {
	x.mu.RLock()
	defer x.mu.RUnlock()
	pi := x.is.pools[poolUID]
	return x.is.byAddr.len() + pi.free.Ranges() + pi.freed.Len() + pi.away.Len() + pi.cooling.Len() + pi.spent.Len() +
		len(pi.own) + len(pi.offers) + len(pi.blocked) + len(pi.prefixes) + len(pi.offeredPrefixes)
}
