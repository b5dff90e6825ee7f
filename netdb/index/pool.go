package index

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/tidwall/btree"

	"github.com/ipamd/ipamd/internal/ranges"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb/free"
)

// A poolIndex is one pool's share of the index.
type poolIndex struct {
	pool    *ipam.Pool
	size    uint64
	free    free.Set                       // no row, not offered, usable; never given, or so long ago that it is forgotten
	freed   free.Queue                     // the same of those that were given before
	kept    map[netip.Addr]int64           // the same of those that are kept for a sandbox: the revision that made it free, 0 when it was never given
	keptFor map[netip.Addr]string          // the sandbox that an address is kept for
	keptOf  map[string]netip.Addr          // and the address that is kept for a sandbox
	cursor  netip.Addr                     // where the walk over the never-used goes on
	cooling *btree.Map[int64, *ipam.Lease] // inside the pool, by [ipam.Lease.CooledAt]: released longest ago first
	spent   *btree.Map[int64, *ipam.Lease] // the same of those outside, which are not given again
	away    free.Queue                     // what became free and is outside: it has its place when it comes back inside
	outside int                            // rows outside
	own     map[ipam.Owner]*ipam.Lease     // an owner's last cooling address
	offers  map[netip.Addr]int64           // to callers, not committed yet: the revision that made the address free, 0 when it was never given
	count   map[ipam.State]int             // rows by state
	blocked map[netip.Addr]struct{}        // occupied by a row that cannot be read

	prefixes        map[netip.Addr]*ipam.Lease    // rows of delegated prefixes
	offeredPrefixes map[netip.Prefix][]free.Freed // the same as offers: what was free of each
	blockedPrefixes []ipam.Range
}

// newPoolIndex has every usable address free.
func newPoolIndex(p *ipam.Pool) *poolIndex {
	pi := &poolIndex{
		pool:    p,
		free:    free.NewSet(free.Rest(p.Hosts(), p.Refused()...)...),
		freed:   free.NewQueue(),
		kept:    make(map[netip.Addr]int64),
		keptFor: make(map[netip.Addr]string),
		keptOf:  make(map[string]netip.Addr),
		cooling: new(btree.Map[int64, *ipam.Lease]),
		spent:   new(btree.Map[int64, *ipam.Lease]),
		away:    free.NewQueue(),
		own:     make(map[ipam.Owner]*ipam.Lease),
		offers:  make(map[netip.Addr]int64),
		count:   make(map[ipam.State]int),
		blocked: make(map[netip.Addr]struct{}),

		prefixes:        make(map[netip.Addr]*ipam.Lease),
		offeredPrefixes: make(map[netip.Prefix][]free.Freed),
	}
	for _, s := range ipam.States() {
		pi.count[s] = 0 // a snapshot has every state
	}
	pi.size = pi.free.Count()
	pi.keep()
	return pi
}

// mayGive says why a pool can never give an address.
func (pi *poolIndex) mayGive(a netip.Addr) error {
	if note := pi.pool.OutsideAddr(a); note != "" {
		return fmt.Errorf("%w %s: it is %s", ipam.ErrNotInPool, pi.pool.Name, note)
	}
	if pi.isBlocked(a) {
		return fmt.Errorf("%w by a row that cannot be read; see doctor", ipam.ErrTaken)
	}
	return nil
}

// isBlocked reports whether a row that cannot be read may be of an address.
func (pi *poolIndex) isBlocked(a netip.Addr) bool {
	if _, blocked := pi.blocked[a]; blocked {
		return true
	}
	return slices.ContainsFunc(pi.blockedPrefixes, func(r ipam.Range) bool { return r.Contains(a) })
}

// blocks reports whether a row that cannot be read may be of an address of a range.
func (pi *poolIndex) blocks(r ipam.Range) bool {
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

// takeRange is take of many addresses: what of them is free, and since when.
func (pi *poolIndex) takeRange(r ipam.Range) (out []free.Freed) {
	if r.From == r.To {
		pi.take(r.From)
		return nil
	}
	for _, part := range pi.free.Take(r) {
		out = append(out, free.Freed{Range: part})
	}
	out = append(out, pi.freed.Take(r)...)
	pi.away.Take(r)
	for a, rev := range pi.kept {
		if r.Contains(a) {
			delete(pi.kept, a)
			out = append(out, free.Freed{Range: ranges.Between(a, a), Rev: rev})
		}
	}
	return out
}

// sendAway queues what is outside, but for what is there already.
func (pi *poolIndex) sendAway(r ipam.Range, rev int64) {
	var there []ipam.Range
	for _, f := range pi.away.Within(r) {
		there = append(there, f.Range)
	}
	for _, r := range free.Rest(r, there...) {
		pi.away.Add(r, rev)
	}
}

// requeue queues addresses that became free at a revision: where they are given from, or
// where they wait to come back inside. What is queued already stays as it is.
func (pi *poolIndex) requeue(r ipam.Range, rev int64) {
	inside, outside := splitRange(&pi.pool.PoolSpec, r)
	for _, in := range inside {
		pi.queue(in, rev)
	}
	for _, out := range outside {
		pi.sendAway(out, rev)
	}
}

// forget makes those of too many freed addresses count as never given that have been
// free for longest.
func (pi *poolIndex) forget(most int) {
	for _, f := range pi.freed.Trim(most) {
		pi.free.Add(f.Range)
	}
	pi.away.Trim(most)
}

// takeOffers carries over what is offered to callers, and where the walk is.
func (pi *poolIndex) takeOffers(was *poolIndex) {
	pi.cursor = was.cursor
	for a, rev := range was.offers {
		pi.offers[a] = max(pi.take(a), rev)
	}
	for p, pieces := range was.offeredPrefixes {
		pi.takeRange(ranges.Of(p))
		pi.offeredPrefixes[p] = pieces
	}
}

// take takes an address out of those that are free and returns the revision
// that made it so, 0 when it was never given.
func (pi *poolIndex) take(a netip.Addr) int64 {
	pi.free.Remove(a)
	pi.away.Remove(a)
	rev := max(pi.freed.Remove(a), pi.kept[a])
	delete(pi.kept, a)
	return rev
}

// queue notes of addresses, as far as they are free and count as never given, which revision
// made them free.
func (pi *poolIndex) queue(r ipam.Range, rev int64) {
	if rev == 0 {
		return
	}
	if r.From == r.To {
		if was, kept := pi.kept[r.From]; kept && was == 0 {
			pi.kept[r.From] = rev
		}
		if pi.free.Remove(r.From) {
			pi.freed.Add(r, rev)
		}
		return
	}
	for a, was := range pi.kept {
		if was == 0 && r.Contains(a) {
			pi.kept[a] = rev
		}
	}
	for _, part := range pi.free.Take(r) {
		pi.freed.Add(part, rev)
	}
}

// unoffer ends the offer of what a row leases.
func (pi *poolIndex) unoffer(l *ipam.Lease) {
	if l.PrefixLen == 0 {
		delete(pi.offers, l.Addr)
	} else {
		delete(pi.offeredPrefixes, l.Prefix())
	}
}

func (pi *poolIndex) leave(l *ipam.Lease) {
	pi.count[l.State]--
	if pi.pool.Outside(l) != "" {
		pi.outside--
	}
	if l.PrefixLen != 0 {
		delete(pi.prefixes, l.Addr)
	}
	pi.unqueue(l)
}

// unqueue takes a cooling lease out of the queue of those to be given again.
func (pi *poolIndex) unqueue(l *ipam.Lease) {
	if l.State == ipam.Cooling {
		pi.cooling.Delete(l.CooledAt())
		pi.spent.Delete(l.CooledAt())
		if pi.own[l.Owner()] == l {
			delete(pi.own, l.Owner())
		}
	}
}

func (pi *poolIndex) enter(l *ipam.Lease) {
	pi.count[l.State]++
	pi.takeRange(l.Range())
	pi.unoffer(l)
	if l.PrefixLen != 0 {
		pi.prefixes[l.Addr] = l
	}
	outside := pi.pool.Outside(l) != ""
	if outside {
		pi.outside++
	}
	if l.State == ipam.Cooling && !pi.blocks(l.Range()) {
		if outside {
			pi.spent.Set(l.CooledAt(), l)
			return
		}
		pi.cooling.Set(l.CooledAt(), l)
		if last := pi.own[l.Owner()]; l.UID != "" && (last == nil || last.CooledAt() < l.CooledAt()) {
			pi.own[l.Owner()] = l
		}
	}
}

// copied is a copy that nothing changes.
func (pi *poolIndex) copied() *poolIndex {
	p := *pi
	p.free, p.freed, p.away = p.free.Copy(), p.freed.Copy(), p.away.Copy()
	p.kept, p.keptFor, p.keptOf = maps.Clone(p.kept), maps.Clone(p.keptFor), maps.Clone(p.keptOf)
	p.cooling, p.spent = p.cooling.IsoCopy(), p.spent.IsoCopy()
	p.offers, p.count, p.blocked = maps.Clone(p.offers), maps.Clone(p.count), maps.Clone(p.blocked)
	p.prefixes, p.offeredPrefixes, p.blockedPrefixes = nil, maps.Clone(p.offeredPrefixes), slices.Clone(p.blockedPrefixes)
	p.own = nil
	return &p
}

// keep takes what a new pool keeps out of what it may give to anyone.
func (pi *poolIndex) keep() {
	for _, k := range pi.pool.Kept {
		pi.free.Remove(k.Address)
		pi.keptFor[k.Address], pi.keptOf[k.Sandbox], pi.kept[k.Address] = k.Sandbox, k.Address, 0
	}
}

// splitRange divides a range into what the pool could give and what it could not.
func splitRange(s *ipam.PoolSpec, r ipam.Range) (inside, outside []ipam.Range) {
	if r.From == r.To {
		if s.OutsideAddr(r.From) == "" {
			return []ipam.Range{r}, nil
		}
		return nil, []ipam.Range{r}
	}
	if part, some := s.Hosts().Clip(r); some {
		inside = free.Rest(part, s.Refused()...)
	}
	if len(inside) == 1 && inside[0] == r {
		return inside, nil
	}
	return inside, free.Rest(r, inside...)
}

// Gives reports whether the pool could give an address of a range.
func Gives(s *ipam.PoolSpec, r ipam.Range) bool {
	inside, _ := splitRange(s, r)
	return len(inside) > 0
}
