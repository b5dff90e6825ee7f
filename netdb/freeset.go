package netdb

import (
	"math"
	"math/big"
	"math/bits"
	"net/netip"

	"github.com/tidwall/btree"

	"github.com/ipamd/ipamd/internal/ranges"
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
	s.total.Add(s.total, r.Size())
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
		s.cut(r, ranges.Between(a, a))
	}
	return ok
}

// removeRange takes out whatever of a range is free.
func (s freeset) removeRange(gone Range) { s.takeRange(gone) }

// cut takes gone out of r, which is one of the ranges and overlaps it.
func (s freeset) cut(r, gone Range) {
	s.ranges.Delete(r)
	s.total.Sub(s.total, r.Size())
	for _, rest := range r.Without(gone) {
		s.ranges.Set(rest)
		s.total.Add(s.total, rest.Size())
	}
}

// takeRange takes out whatever of a range is free, and returns that.
func (s freeset) takeRange(gone Range) (out []Range) {
	r, ok := s.holding(gone.From)
	if !ok {
		r, ok = s.following(gone.From)
	}
	for ok && !gone.To.Less(r.From) {
		s.cut(r, gone)
		part, _ := r.Clip(gone)
		out = append(out, part)
		r, ok = s.following(gone.From)
	}
	return out
}

// within returns the ranges that overlap one, whole.
func (s freeset) within(r Range) (out []Range) {
	begin := r.From
	if f, ok := s.holding(begin); ok {
		begin = f.From
	}
	s.ranges.Ascend(from(begin), func(f Range) bool {
		if r.To.Less(f.From) {
			return false
		}
		out = append(out, f)
		return true
	})
	return out
}

// all returns every range, in order.
func (s freeset) all() []Range { return s.ranges.Items() }

// copy returns a set that is changed apart from this one. It costs nothing until then.
func (s freeset) copy() freeset { return freeset{s.ranges.IsoCopy(), new(big.Int).Set(s.total)} }

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

// saturated returns a number, at most 2^64-1.
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
