// Package free has the addresses that are free: as a set of ranges, and
// as a queue in the order in which they became free. Each operation costs the logarithm of the number
// of ranges, whether those have ten addresses or all of an IPv6 /64.
package free

import (
	"iter"
	"math"
	"math/big"
	"net/netip"

	"github.com/tidwall/btree"

	"github.com/ipamd/ipamd/internal/ranges"
)

// A Set is addresses as disjoint ranges. There are never more ranges than what was taken out,
// plus one for each that was added. It is changed in place, by one caller at a time.
type Set struct {
	ranges *btree.BTreeG[ranges.Range] // by From
	total  *big.Int                    // of all ranges
}

// NewSet returns a set of ranges that do not overlap.
func NewSet(of ...ranges.Range) Set {
	s := Set{btree.NewBTreeGOptions(
		func(a, b ranges.Range) bool { return a.From.Less(b.From) },
		btree.Options{NoLocks: true}), new(big.Int)}
	for _, r := range of {
		s.Add(r)
	}
	return s
}

// from is the pivot that finds a range by its first address.
func from(a netip.Addr) ranges.Range { return ranges.Range{From: a} }

// Add makes a range free. It must not overlap what is free already.
func (s Set) Add(r ranges.Range) {
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
func (s Set) holding(a netip.Addr) (r ranges.Range, ok bool) {
	s.ranges.Descend(from(a), func(item ranges.Range) bool {
		r, ok = item, item.Contains(a)
		return false
	})
	return r, ok
}

// following returns the first range that begins at or after a.
func (s Set) following(a netip.Addr) (r ranges.Range, ok bool) {
	s.ranges.Ascend(from(a), func(item ranges.Range) bool {
		r, ok = item, true
		return false
	})
	return r, ok
}

// Has reports whether an address is free.
func (s Set) Has(a netip.Addr) bool {
	_, ok := s.holding(a)
	return ok
}

// Remove takes one address out and reports whether it was free.
func (s Set) Remove(a netip.Addr) bool {
	r, ok := s.holding(a)
	if ok {
		s.cut(r, ranges.Between(a, a))
	}
	return ok
}

// cut takes gone out of r, which is one of the ranges and overlaps it.
func (s Set) cut(r, gone ranges.Range) {
	s.ranges.Delete(r)
	s.total.Sub(s.total, r.Size())
	for _, rest := range r.Without(gone) {
		s.ranges.Set(rest)
		s.total.Add(s.total, rest.Size())
	}
}

// Take takes out whatever of a range is free, and returns that.
func (s Set) Take(gone ranges.Range) (out []ranges.Range) {
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

// Rest returns what is left of a range without others, in order.
func Rest(of ranges.Range, gone ...ranges.Range) []ranges.Range {
	s := NewSet(of)
	for _, r := range gone {
		s.Take(r)
	}
	return s.ranges.Items()
}

// Within returns the ranges that overlap one, whole.
func (s Set) Within(r ranges.Range) (out []ranges.Range) {
	begin := r.From
	if f, ok := s.holding(begin); ok {
		begin = f.From
	}
	s.ranges.Ascend(from(begin), func(f ranges.Range) bool {
		if r.To.Less(f.From) {
			return false
		}
		out = append(out, f)
		return true
	})
	return out
}

// All yields every range, in order.
func (s Set) All() iter.Seq[ranges.Range] {
	return func(yield func(ranges.Range) bool) { s.ranges.Scan(yield) }
}

// Copy returns a set that is changed apart from this one. It costs nothing until then.
func (s Set) Copy() Set { return Set{s.ranges.IsoCopy(), new(big.Int).Set(s.total)} }

// Next returns the first free address at or after a, wrapping around once.
// An invalid a means from the start.
func (s Set) Next(a netip.Addr) (netip.Addr, bool) {
	if a.IsValid() {
		if s.Has(a) {
			return a, true
		}
		if r, ok := s.following(a); ok {
			return r.From, true
		}
	}
	first, ok := s.ranges.Min()
	return first.From, ok
}

// Upcoming lists what [Set.Next] would give n times over.
func (s Set) Upcoming(a netip.Addr, n int) []netip.Addr {
	var out []netip.Addr
	start, ok := s.Next(a)
	for at := start; ok && len(out) < n; {
		out = append(out, at)
		at, ok = s.Next(at.Next())
		if at == start {
			break
		}
	}
	return out
}

// FirstPrefix returns the first prefix of a length of which all is free.
func (s Set) FirstPrefix(bits int) (r ranges.Range, found bool) {
	s.ranges.Scan(func(free ranges.Range) bool {
		r, found = firstAligned(free, bits, free.From)
		return !found
	})
	return r, found
}

// Join adds a range, and returns the first prefix of a length of which all is free by that.
func (s Set) Join(r ranges.Range, bits int) (ranges.Range, bool) {
	s.Add(r)
	whole, _ := s.holding(r.From)
	p, ok := firstAligned(whole, bits, netip.PrefixFrom(r.From, bits).Masked().Addr())
	if !ok || !p.Overlaps(r) {
		p, ok = firstAligned(whole, bits, r.From)
	}
	return p, ok && p.Overlaps(r)
}

// firstAligned returns the first prefix of a length that lies in a range and does not
// begin before an address.
func firstAligned(in ranges.Range, bits int, notBefore netip.Addr) (ranges.Range, bool) {
	start := in.From
	if start.Less(notBefore) {
		start = notBefore
	}
	p := netip.PrefixFrom(start, bits).Masked()
	if p.Addr().Less(start) {
		next := ranges.Of(p).To.Next()
		if !next.IsValid() {
			return ranges.Range{}, false
		}
		p = netip.PrefixFrom(next, bits)
	}
	r := ranges.Of(p)
	return r, !in.To.Less(r.To)
}

// Count returns how many addresses are free, at most 2^64-1.
func (s Set) Count() uint64 { return Saturated(s.total) }

// Ranges is how many ranges there are.
func (s Set) Ranges() int { return s.ranges.Len() }

// Saturated returns a number, at most 2^64-1.
func Saturated(n *big.Int) uint64 {
	if !n.IsUint64() {
		return math.MaxUint64
	}
	return n.Uint64()
}
