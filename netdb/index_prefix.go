package netdb

import (
	"slices"

	"github.com/ipamd/ipamd/internal/ranges"
)

// takeRange is take of many addresses: what of them is free, and since when.
func (pi *poolIndex) takeRange(r Range) (out []freedRange) {
	if r.From == r.To {
		pi.take(r.From)
		return nil
	}
	for _, free := range pi.free.takeRange(r) {
		out = append(out, freedRange{Range: free})
	}
	out = append(out, pi.freed.removeRange(r)...)
	pi.away.removeRange(r)
	for a, rev := range pi.kept {
		if r.Contains(a) {
			delete(pi.kept, a)
			out = append(out, freedRange{ranges.Between(a, a), rev})
		}
	}
	return out
}

// sendAway queues what is outside, but for what is there already.
func (pi *poolIndex) sendAway(r Range, rev int64) {
	rest := newFreeset()
	rest.add(r)
	for _, f := range pi.away.within(r) {
		rest.removeRange(f.Range)
	}
	for _, r := range rest.all() {
		pi.away.add(r, rev)
	}
}

// vacateRange is vacate of what was a delegated prefix, or a part of one.
func (x *index) vacateRange(pi *poolIndex, r Range, rev int64) {
	inside, outside := pi.pool.split(r)
	for _, in := range inside {
		rest := newFreeset()
		rest.add(in)
		for _, taken := range x.takenIn(pi, in) {
			rest.removeRange(taken)
		}
		for a := range pi.keptFor {
			if rest.remove(a) {
				pi.kept[a] = max(rev, pi.kept[a])
			}
		}
		for _, free := range rest.all() {
			if rev > 0 {
				pi.freed.add(free, rev)
			} else {
				pi.free.add(free)
			}
		}
	}
	for _, out := range outside {
		if rev > 0 {
			pi.sendAway(out, rev)
		}
	}
	pi.forget(x.mostFreed)
}

// takenIn returns what of a range is not to be made free: it is so, has a row, is offered or
// may be that of a row that cannot be read.
func (x *index) takenIn(pi *poolIndex, r Range) (out []Range) {
	for _, l := range x.byAddr.overlapping(r) {
		out = append(out, l.Range())
	}
	out = append(out, pi.free.within(r)...)
	for _, f := range pi.freed.within(r) {
		out = append(out, f.Range)
	}
	for a := range pi.offers {
		out = append(out, ranges.Between(a, a))
	}
	for p := range pi.offeredPrefixes {
		out = append(out, ranges.Of(p))
	}
	for a := range pi.blocked {
		out = append(out, ranges.Between(a, a))
	}
	return append(out, pi.blockedPrefixes...)
}

// blocks reports whether a row that cannot be read may be of an address of a range.
func (pi *poolIndex) blocks(r Range) bool {
	if r.From == r.To {
		return pi.isBlocked(r.From)
	}
	for a := range pi.blocked {
		if r.Contains(a) {
			return true
		}
	}
	return slices.ContainsFunc(pi.blockedPrefixes, r.Overlaps)
}

// blockAll keeps all that an unreadable row may mean from being handed out.
func (x *index) blockAll(u Unreadable) {
	for _, a := range u.addrs {
		x.block(a)
	}
	for _, r := range u.ranges {
		for _, pi := range x.order {
			if !ranges.Of(pi.pool.Prefix).Overlaps(r) {
				continue
			}
			pi.blockedPrefixes = append(pi.blockedPrefixes, r)
			pi.takeRange(r)
			for _, l := range x.byAddr.overlapping(r) {
				x.pools[l.PoolUID].unqueue(l)
			}
		}
	}
}
