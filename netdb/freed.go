package netdb

import (
	"math/big"
	"net/netip"

	"github.com/tidwall/btree"

	"github.com/ipamd/ipamd/internal/ranges"
)

// mostFreed bounds what is remembered of a pool's addresses that were given
// before and are free again: some 8 MiB.
const mostFreed = 1 << 16

// A freedQueue has the addresses of a pool that were given before and have no
// row any more, in the order in which they became free: ranges, because a delegated
// prefix becomes free as a whole. It is derived from the
// history at open. Addresses that it has no room for, and those that the history
// does not know any more, count as never given: all of them have been free for
// longer than any in the queue.
type freedQueue struct {
	byRev  *btree.BTreeG[freedRange]
	byAddr *btree.BTreeG[freedRange] // disjoint
	total  *big.Int                  // of all ranges
}

// A freedRange became free at a revision; 0 when it was never given.
type freedRange struct {
	Range
	rev int64
}

func newFreedQueue() freedQueue {
	return freedQueue{
		btree.NewBTreeGOptions(func(a, b freedRange) bool {
			return a.rev < b.rev || a.rev == b.rev && a.From.Less(b.From)
		}, btree.Options{NoLocks: true}),
		btree.NewBTreeGOptions(func(a, b freedRange) bool { return a.From.Less(b.From) }, btree.Options{NoLocks: true}),
		new(big.Int),
	}
}

// add queues a range of which nothing is queued.
func (q freedQueue) add(r Range, rev int64) {
	f := freedRange{r, rev}
	q.byRev.Set(f)
	q.byAddr.Set(f)
	q.total.Add(q.total, r.Size())
}

func (q freedQueue) drop(f freedRange) {
	q.byRev.Delete(f)
	q.byAddr.Delete(f)
	q.total.Sub(q.total, f.Size())
}

// holding returns the range that contains a.
func (q freedQueue) holding(a netip.Addr) (f freedRange, ok bool) {
	q.byAddr.Descend(freedRange{Range: from(a)}, func(item freedRange) bool {
		f, ok = item, item.Contains(a)
		return false
	})
	return f, ok
}

// remove takes an address out and returns the revision that made it free; 0
// when it is not in the queue.
func (q freedQueue) remove(a netip.Addr) int64 {
	f, ok := q.holding(a)
	if !ok {
		return 0
	}
	q.cut(f, ranges.Between(a, a))
	return f.rev
}

// removeRange takes out whatever of a range is queued, and returns that.
func (q freedQueue) removeRange(gone Range) (out []freedRange) {
	for _, f := range q.within(gone) {
		q.cut(f, gone)
		f.Range, _ = f.Clip(gone)
		out = append(out, f)
	}
	return out
}

// within returns what overlaps a range, whole.
func (q freedQueue) within(r Range) (out []freedRange) {
	begin := r.From
	if f, ok := q.holding(begin); ok {
		begin = f.From
	}
	q.byAddr.Ascend(freedRange{Range: from(begin)}, func(f freedRange) bool {
		if r.To.Less(f.From) {
			return false
		}
		out = append(out, f)
		return true
	})
	return out
}

// cut takes gone out of f, which is one of the ranges and overlaps it.
func (q freedQueue) cut(f freedRange, gone Range) {
	q.drop(f)
	for _, rest := range f.Without(gone) {
		q.add(rest, f.rev)
	}
}

// first returns the address that became free first, and leaves it there.
func (q freedQueue) first() (netip.Addr, bool) {
	f, ok := q.byRev.Min()
	return f.From, ok
}

// upcoming lists the first n addresses.
func (q freedQueue) upcoming(n int) (out []netip.Addr) {
	q.byRev.Scan(func(f freedRange) bool {
		for a := f.From; len(out) < n && a.IsValid() && f.Contains(a); a = a.Next() {
			out = append(out, a)
		}
		return len(out) < n
	})
	return out
}

func (q freedQueue) has(a netip.Addr) bool {
	_, ok := q.holding(a)
	return ok
}

// len is the number of ranges.
func (q freedQueue) len() int { return q.byRev.Len() }

// count is how many addresses are queued, at most 2^64-1.
func (q freedQueue) count() uint64 { return saturated(q.total) }

// copied is a copy that nothing changes.
func (q freedQueue) copied() freedQueue {
	return freedQueue{q.byRev.IsoCopy(), q.byAddr.IsoCopy(), new(big.Int).Set(q.total)}
}
