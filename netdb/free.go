package netdb

import (
	"fmt"
	"math"
	"math/big"
	"math/bits"
	"net/netip"
	"strings"

	"github.com/tidwall/btree"
	"go4.org/netipx"
)

// A freeset is the addresses of a pool that have no row and are not offered,
// as disjoint ranges. Every operation is O(log ranges), and there
// are never more ranges than leases plus exclusions plus one, whether the
// pool is a /30 or an IPv6 /64.
type freeset struct {
	ranges *btree.BTreeG[Range] // by From
	total  *big.Int             // of all ranges
}

func newFreeset() freeset {
	return freeset{btree.NewBTreeGOptions(
		func(a, b Range) bool { return a.From.Less(b.From) },
		btree.Options{NoLocks: true}), new(big.Int)}
}

// from is the pivot that finds a range by its first address.
func from(a netip.Addr) Range { return Range{From: a} }

// add makes a range free. It must not overlap what is free already.
func (s freeset) add(r Range) {
	if !r.From.IsValid() || r.To.Less(r.From) {
		return
	}
	s.total.Add(s.total, r.size())
	if prev := r.From.Prev(); prev.IsValid() {
		if left, ok := s.holding(prev); ok {
			s.ranges.Delete(left)
			r.From = left.From
		}
	}
	if next := r.To.Next(); next.IsValid() {
		if right, ok := s.ranges.Get(from(next)); ok {
			s.ranges.Delete(right)
			r.To = right.To
		}
	}
	s.ranges.Set(r)
}

// holding returns the range that contains a.
func (s freeset) holding(a netip.Addr) (r Range, ok bool) {
	s.ranges.Descend(from(a), func(item Range) bool {
		r, ok = item, item.Contains(a)
		return false
	})
	return r, ok
}

// following returns the first range that begins at or after a.
func (s freeset) following(a netip.Addr) (r Range, ok bool) {
	s.ranges.Ascend(from(a), func(item Range) bool {
		r, ok = item, true
		return false
	})
	return r, ok
}

func (s freeset) has(a netip.Addr) bool {
	_, ok := s.holding(a)
	return ok
}

// remove takes one address out and reports whether it was free.
func (s freeset) remove(a netip.Addr) bool {
	r, ok := s.holding(a)
	if ok {
		s.cut(r, Range{a, a})
	}
	return ok
}

// removeRange takes out whatever of a range is free.
func (s freeset) removeRange(gone Range) {
	for {
		r, ok := s.holding(gone.From)
		if !ok {
			r, ok = s.following(gone.From)
		}
		if !ok || gone.To.Less(r.From) {
			return
		}
		s.cut(r, gone)
	}
}

// cut takes gone out of r, which is one of the ranges and overlaps it.
func (s freeset) cut(r, gone Range) {
	s.ranges.Delete(r)
	s.total.Sub(s.total, r.size())
	for _, rest := range []Range{{r.From, gone.From.Prev()}, {gone.To.Next(), r.To}} {
		if rest.From.IsValid() && rest.To.IsValid() && !rest.To.Less(rest.From) {
			s.ranges.Set(rest)
			s.total.Add(s.total, rest.size())
		}
	}
}

// next returns the first free address at or after a, wrapping around once.
// An invalid a means from the start.
func (s freeset) next(a netip.Addr) (netip.Addr, bool) {
	if a.IsValid() {
		if s.has(a) {
			return a, true
		}
		if r, ok := s.following(a); ok {
			return r.From, true
		}
	}
	first, ok := s.ranges.Min()
	return first.From, ok
}

// upcoming lists what next would give n times over.
func (s freeset) upcoming(a netip.Addr, n int) []netip.Addr {
	var out []netip.Addr
	start, ok := s.next(a)
	for at := start; ok && len(out) < n; {
		out = append(out, at)
		at, ok = s.next(at.Next())
		if at == start {
			break
		}
	}
	return out
}

// count returns how many addresses are free, at most 2^64-1.
func (s freeset) count() uint64 { return saturated(s.total) }

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

// ParseRange reads "10.8.64.200-10.8.64.250", "10.8.64.7" or "10.8.64.16/28".
func ParseRange(s string) (Range, error) {
	if p, err := netip.ParsePrefix(s); err == nil {
		return prefixRange(p.Masked()), nil
	}
	if a, err := netip.ParseAddr(s); err == nil {
		return Range{a, a}, nil
	}
	from, to, isRange := strings.Cut(s, "-")
	if !isRange {
		return Range{}, fmt.Errorf("%q is no address, range or prefix", s)
	}
	r, err := netipx.ParseIPRange(strings.TrimSpace(from) + "-" + strings.TrimSpace(to))
	if err != nil {
		return Range{}, fmt.Errorf("%q is no range of addresses", s)
	}
	return Range{r.From(), r.To()}, nil
}

// String writes the range as [ParseRange] reads it.
func (r Range) String() string {
	if r.From == r.To {
		return r.From.String()
	}
	return r.From.String() + "-" + r.To.String()
}

// size returns how many addresses the range holds.
func (r Range) size() *big.Int {
	from, to := r.From.As16(), r.To.As16()
	n := new(big.Int).SetBytes(to[:])
	n.Sub(n, new(big.Int).SetBytes(from[:]))
	return n.Add(n, big.NewInt(1))
}

func saturated(n *big.Int) uint64 {
	if !n.IsUint64() {
		return math.MaxUint64
	}
	return n.Uint64()
}

func saturatingAdd(a, b uint64) uint64 {
	sum, carry := bits.Add64(a, b, 0)
	if carry != 0 {
		return math.MaxUint64
	}
	return sum
}

// prefixRange returns the first and the last address of a masked prefix.
func prefixRange(p netip.Prefix) Range { return Range{p.Addr(), netipx.PrefixLastIP(p)} }
