package netdb

import (
	"net/netip"

	"github.com/tidwall/btree"
)

// mostFreed bounds what is remembered of a pool's addresses that were given
// before and are free again: some 8 MiB.
const mostFreed = 1 << 16

// A freedQueue has the addresses of a pool that were given before and have no
// row any more, in the order in which they became free. It is derived from the
// history at open. Addresses that it has no room for, and those that the history
// does not know any more, count as never given: all of them have been free for
// longer than any in the queue.
type freedQueue struct {
	byRev *btree.Map[int64, netip.Addr] // by the revision that made them free
	revs  map[netip.Addr]int64
}

func newFreedQueue() freedQueue {
	return freedQueue{new(btree.Map[int64, netip.Addr]), make(map[netip.Addr]int64)}
}

func (q freedQueue) add(a netip.Addr, rev int64) {
	q.byRev.Set(rev, a)
	q.revs[a] = rev
}

// remove takes an address out and returns the revision that made it free; 0
// when it is not in the queue.
func (q freedQueue) remove(a netip.Addr) int64 {
	rev, ok := q.revs[a]
	if ok {
		q.byRev.Delete(rev)
		delete(q.revs, a)
	}
	return rev
}

// first returns the address that became free first, and leaves it there.
func (q freedQueue) first() (netip.Addr, bool) {
	_, a, ok := q.byRev.Min()
	return a, ok
}

// upcoming lists the first n addresses.
func (q freedQueue) upcoming(n int) (out []netip.Addr) {
	q.byRev.Scan(func(_ int64, a netip.Addr) bool {
		if len(out) < n {
			out = append(out, a)
		}
		return len(out) < n
	})
	return out
}

func (q freedQueue) has(a netip.Addr) bool {
	_, ok := q.revs[a]
	return ok
}

func (q freedQueue) len() int { return len(q.revs) }
