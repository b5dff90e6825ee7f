// Package index has the rows of a book in memory, and what follows from them: who holds an
// address, which leases are open, which addresses are free and in which order they are given.
//
// It is derived from the book's tables when the book is opened, by a [Builder], and follows each
// commit by [Index.Apply]. It can be thrown away at any time and built again. What a commit
// changes is staged in a [Batch] on top of it: each change is a [Step], and the requests of that
// commit read the rows as the steps leave them, by a [View].
//
// It knows no SQL, no file and no clock: package netdb decides when a batch is applied, and says
// what the time is. Beside the rows it has one thing of its own: which addresses are offered to
// callers that are about to reserve them, see [Offers]. An offer is in memory only.
//
// Only the caller that has the lock of the book's writer changes the rows of an index. It reads them
// without the index's own lock, through its batch. All others use a [Reader] or [Offers], which
// take that lock.
//
// A row leases one address or, with a PrefixLen, a delegated prefix. Its pool may have changed since:
// a row, or an address that became free, that the pool could not give any more is outside the pool.
package index

import (
	"net/netip"
	"sync"
	"sync/atomic"

	"github.com/ipamd/ipamd/ipam"
)

// Options of an index.
type Options struct {
	// QuarantineShare is the share of a pool's addresses that may be quarantined without an
	// operator, 0 < share <= 1.
	QuarantineShare float64
	// MostFreed is how many ranges of freed addresses a pool's queue has room for.
	MostFreed int
	// Failpoint is called at named points, for a test to fail or to wait there.
	Failpoint func(point string)
}

// MostFreed is [Options.MostFreed] of a daemon. A full queue of a pool takes some 8 MiB. Addresses that
// the queue has no room for, or that the history does not know any more, count as never given: all of
// them have been free for longer than any in the queue.
const MostFreed = 1 << 16

// An Index is the rows of one book.
type Index struct{ Reader }

// A Reader answers questions about what is committed. Its methods are safe for concurrent use.
// What they return is shared: neither the index nor a caller may change it afterwards.
type Reader struct {
	opts     *Options
	proposed atomic.Int64 // how many names of patterns were proposed: see [Reader.Names]

	mu     sync.RWMutex
	tables *tables
}

func newIndex(o *Options, is *tables) *Index {
	x := &Index{Reader{opts: o, tables: is}}
	x.proposed.Store(is.rev)
	return x
}

// Batch returns an empty batch on top of the index.
func (x *Index) Batch() *Batch {
	b := &Batch{View: *newView(), index: x}
	b.Reset()
	return b
}

// Preview runs fn on what is committed. No commit is applied until fn returns, so fn must not wait.
func (x *Index) Preview(fn func(*View)) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	fn(&View{committed: x.tables, rev: x.tables.rev})
}

// Apply makes the steps of a batch, which is durable by then, visible to readers, all at once. It calls
// announce, which must not read the index, before any of them can see the batch. After a panic the index may
// have some of the steps, and has to be built anew.
func (x *Index) Apply(b *Batch, announce func()) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for i := range b.steps {
		x.opts.Failpoint("publish")
		x.tables.applyStep(&b.steps[i])
	}
	x.tables.rev = b.rev
	announce()
}

// Replace takes over the rows of an index that was just built. What is offered to callers stays
// offered. The other index must not be used afterwards.
func (x *Index) Replace(by *Index) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for uid, was := range x.tables.poolByUID {
		if pi := by.tables.poolByUID[uid]; pi != nil {
			pi.takeOffers(was)
		}
	}
	x.tables = by.tables
}

// Copy returns a copy for [Index.Check] and for questions about whole tables. No commit changes it.
// It has no maps by lease id or by sandbox uid, so no row is found in it by these.
func (x *Index) Copy() *Index {
	x.mu.Lock()
	defer x.mu.Unlock()
	return newIndex(x.opts, x.tables.copied())
}

// An Unreadable row is reported and left out of the index, and stays in the book. The addresses that
// it may lease are not given: those that its column for people names, and those of its key.
type Unreadable struct {
	Row    string // its address, as it is stored
	Reason string
	Addrs  []netip.Addr
	Ranges []ipam.Range // of delegated prefixes
	Pool   string       // its pool's uid, "" where it cannot be read
}

// Entries counts what is in memory for a pool, and all rows: for tests of the index's size.
func (x *Index) Entries(poolUID string) int {
	x.mu.RLock()
	defer x.mu.RUnlock()
	pi := x.tables.poolByUID[poolUID]
	return x.tables.rowByAddr.len() + pi.free.Ranges() + pi.freed.Len() + pi.freedOutside.Len() + pi.coolingByRev.Len() + pi.coolingOutside.Len() +
		len(pi.coolingByOwner) + len(pi.offers) + len(pi.blocked) + len(pi.prefixRows) + len(pi.offeredPrefixes)
}
