package census

import (
	"net/netip"
	"slices"
)

// AboutRange is [Board.About] of every address from one to another: what is seen on any of
// them is seen, in the order of the addresses. A range may be as large as a /64: what is
// looked at is the addresses of it, or what the board has, whichever is less.
func (b *Board) AboutRange(from, to netip.Addr) Answer {
	b.mu.RLock()
	defer b.mu.RUnlock()
	a := b.answer(from) // a range is in one pool, so on one bridge
	for _, addr := range within(b.byAddr, from, to) {
		a.Seen = append(a.Seen, b.sightings(addr, b.byAddr[addr])...)
	}
	return a
}

// In returns what is seen on every address from one to another, in the order of the
// addresses.
func (c Census) In(from, to netip.Addr) (out []Sighting) {
	for _, addr := range within(c.Seen, from, to) {
		out = append(out, c.Seen[addr]...)
	}
	return out
}

// within returns the keys of a range, in order.
func within[V any](all map[netip.Addr]V, from, to netip.Addr) (out []netip.Addr) {
	n := 0
	for a := from; a.IsValid() && !to.Less(a) && n <= len(all); a, n = a.Next(), n+1 {
		if _, is := all[a]; is {
			out = append(out, a)
		}
	}
	if n <= len(all) {
		return out
	}
	out = out[:0]
	for a := range all {
		if !a.Less(from) && !to.Less(a) {
			out = append(out, a)
		}
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return out
}
