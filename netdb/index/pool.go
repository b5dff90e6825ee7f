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

// A poolIndex is what the index has of one pool. An address of the pool that no row leases is in one of
// free, freed, freeKept, offers, offeredPrefixes and blocked; one that can never be given is in none.
type poolIndex struct {
	pool *ipam.Pool
	size uint64 // how many addresses it could give if none were leased

	free   free.Set   // addresses that can be given, and count as never given
	freed  free.Queue // addresses that can be given, and were given before: first what became free first
	cursor netip.Addr // where in free the next address that was never given is looked for

	freeKept map[netip.Addr]int64  // free addresses that are kept for a sandbox: the revision at which each became free, 0 if it was never given
	keptFor  map[netip.Addr]string // all kept addresses: the sandbox's name
	keptAddr map[string]netip.Addr // the same by the sandbox's name

	coolingByRev   *btree.Map[int64, *ipam.Lease] // cooling rows inside the pool, by [ipam.Lease.CoolingRev]
	coolingOutside *btree.Map[int64, *ipam.Lease] // the same of rows outside, whose addresses are not given again
	coolingByOwner map[ipam.Owner]*ipam.Lease     // of those inside the pool, the last one of each owner
	freedOutside   free.Queue                     // addresses outside that became free: the pool may contain them again

	rowsOutside  int
	countByState map[ipam.State]int         // rows
	prefixRows   map[netip.Addr]*ipam.Lease // rows of delegated prefixes, by the first address

	offers          map[netip.Addr]int64          // addresses that are offered to a caller: the revision at which each became free; 0 if it was never given, or has a cooling row
	offeredPrefixes map[netip.Prefix][]free.Freed // the same of delegated prefixes: what of each was free

	blocked         map[netip.Addr]struct{} // addresses that a row which cannot be read may lease
	blockedPrefixes []ipam.Range            // the same of delegated prefixes
}

// newPoolIndex returns a pool without rows: every usable address is free.
func newPoolIndex(p *ipam.Pool) *poolIndex {
	pi := &poolIndex{
		pool:           p,
		free:           free.NewSet(free.Rest(p.Hosts(), p.Refused()...)...),
		freed:          free.NewQueue(),
		freeKept:       make(map[netip.Addr]int64),
		keptFor:        make(map[netip.Addr]string),
		keptAddr:       make(map[string]netip.Addr),
		coolingByRev:   new(btree.Map[int64, *ipam.Lease]),
		coolingOutside: new(btree.Map[int64, *ipam.Lease]),
		freedOutside:   free.NewQueue(),
		coolingByOwner: make(map[ipam.Owner]*ipam.Lease),
		offers:         make(map[netip.Addr]int64),
		countByState:   make(map[ipam.State]int),
		blocked:        make(map[netip.Addr]struct{}),

		prefixRows:      make(map[netip.Addr]*ipam.Lease),
		offeredPrefixes: make(map[netip.Prefix][]free.Freed),
	}
	for _, s := range ipam.States() {
		pi.countByState[s] = 0 // a snapshot has every state
	}
	pi.size = pi.free.Count() // with those that are kept
	pi.setKept()
	return pi
}

// checkGivable says why a pool can give an address to no sandbox.
func (pi *poolIndex) checkGivable(a netip.Addr) error {
	if note := pi.pool.OutsideAddr(a); note != "" {
		return fmt.Errorf("%w %s: it is %s", ipam.ErrNotInPool, pi.pool.Name, note)
	}
	if pi.isBlocked(a) {
		return fmt.Errorf("%w by a row that cannot be read; see doctor", ipam.ErrTaken)
	}
	return nil
}

// isBlocked reports whether a row that cannot be read may lease an address.
func (pi *poolIndex) isBlocked(a netip.Addr) bool {
	if _, blocked := pi.blocked[a]; blocked {
		return true
	}
	return slices.ContainsFunc(pi.blockedPrefixes, func(r ipam.Range) bool { return r.Contains(a) })
}

// blocks reports whether a row that cannot be read may lease an address of a range.
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

// takeRange is take of a range. It returns the parts that were free, with their revisions; nothing for a
// single address.
func (pi *poolIndex) takeRange(r ipam.Range) (out []free.Freed) {
	if r.From == r.To {
		pi.take(r.From)
		return nil
	}
	for _, part := range pi.free.Take(r) {
		out = append(out, free.Freed{Range: part})
	}
	out = append(out, pi.freed.Take(r)...)
	pi.freedOutside.Take(r)
	for a, rev := range pi.freeKept {
		if r.Contains(a) {
			delete(pi.freeKept, a)
			out = append(out, free.Freed{Range: ranges.Between(a, a), Rev: rev})
		}
	}
	return out
}

// queueOutside queues addresses that became free outside the pool. What is queued already stays as it is.
func (pi *poolIndex) queueOutside(r ipam.Range, rev int64) {
	var there []ipam.Range
	for _, f := range pi.freedOutside.Within(r) {
		there = append(there, f.Range)
	}
	for _, r := range free.Rest(r, there...) {
		pi.freedOutside.Add(r, rev)
	}
}

// requeue queues addresses that became free at a revision, each in freed or in freedOutside. What is
// queued already stays as it is.
func (pi *poolIndex) requeue(r ipam.Range, rev int64) {
	inside, outside := splitRange(&pi.pool.PoolSpec, r)
	for _, in := range inside {
		pi.queueFreed(in, rev)
	}
	for _, out := range outside {
		pi.queueOutside(out, rev)
	}
}

// trimFreed leaves at most that many ranges in each queue. What it takes out of freed, the longest free
// first, counts as never given from then on.
func (pi *poolIndex) trimFreed(most int) {
	for _, f := range pi.freed.Trim(most) {
		pi.free.Add(f.Range)
	}
	pi.freedOutside.Trim(most)
}

// takeOffers carries over from an older index of the pool what is offered to callers, and the cursor.
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

// take takes an address out of those that are free, and returns the revision at which it became
// free; 0 if it was never given, or was not free.
func (pi *poolIndex) take(a netip.Addr) int64 {
	pi.free.Remove(a)
	pi.freedOutside.Remove(a)
	rev := max(pi.freed.Remove(a), pi.freeKept[a])
	delete(pi.freeKept, a)
	return rev
}

// queueFreed puts addresses that are free, and count as never given, into the queue of those that became
// free at a revision. Others stay as they are.
func (pi *poolIndex) queueFreed(r ipam.Range, rev int64) {
	if rev == 0 {
		return
	}
	if r.From == r.To {
		if was, kept := pi.freeKept[r.From]; kept && was == 0 {
			pi.freeKept[r.From] = rev
		}
		if pi.free.Remove(r.From) {
			pi.freed.Add(r, rev)
		}
		return
	}
	for a, was := range pi.freeKept {
		if was == 0 && r.Contains(a) {
			pi.freeKept[a] = rev
		}
	}
	for _, part := range pi.free.Take(r) {
		pi.freed.Add(part, rev)
	}
}

// unoffer ends the offer of the address or prefix that a row leases.
func (pi *poolIndex) unoffer(l *ipam.Lease) {
	if l.PrefixLen == 0 {
		delete(pi.offers, l.Addr)
	} else {
		delete(pi.offeredPrefixes, l.Prefix())
	}
}

// removeRow takes a row out of the counts and the queues. It does not make its address free.
func (pi *poolIndex) removeRow(l *ipam.Lease) {
	pi.countByState[l.State]--
	if pi.pool.Outside(l) != "" {
		pi.rowsOutside--
	}
	if l.PrefixLen != 0 {
		delete(pi.prefixRows, l.Addr)
	}
	pi.unqueueCooling(l)
}

// unqueueCooling takes a row, if it cools, out of the queues of cooling rows.
func (pi *poolIndex) unqueueCooling(l *ipam.Lease) {
	if l.State == ipam.Cooling {
		pi.coolingByRev.Delete(l.CoolingRev())
		pi.coolingOutside.Delete(l.CoolingRev())
		if pi.coolingByOwner[l.Owner()] == l {
			delete(pi.coolingByOwner, l.Owner())
		}
	}
}

// addRow adds a row to the counts and the queues. Its address is neither free nor offered any more.
func (pi *poolIndex) addRow(l *ipam.Lease) {
	pi.countByState[l.State]++
	pi.takeRange(l.Range())
	pi.unoffer(l)
	if l.PrefixLen != 0 {
		pi.prefixRows[l.Addr] = l
	}
	outside := pi.pool.Outside(l) != ""
	if outside {
		pi.rowsOutside++
	}
	if l.State == ipam.Cooling && !pi.blocks(l.Range()) {
		if outside {
			pi.coolingOutside.Set(l.CoolingRev(), l)
			return
		}
		pi.coolingByRev.Set(l.CoolingRev(), l)
		if last := pi.coolingByOwner[l.Owner()]; l.UID != "" && (last == nil || last.CoolingRev() < l.CoolingRev()) {
			pi.coolingByOwner[l.Owner()] = l
		}
	}
}

// copied is the copy for [Index.Copy].
func (pi *poolIndex) copied() *poolIndex {
	p := *pi
	p.free, p.freed, p.freedOutside = p.free.Copy(), p.freed.Copy(), p.freedOutside.Copy()
	p.freeKept, p.keptFor, p.keptAddr = maps.Clone(p.freeKept), maps.Clone(p.keptFor), maps.Clone(p.keptAddr)
	p.coolingByRev, p.coolingOutside = p.coolingByRev.IsoCopy(), p.coolingOutside.IsoCopy()
	p.offers, p.countByState, p.blocked = maps.Clone(p.offers), maps.Clone(p.countByState), maps.Clone(p.blocked)
	p.prefixRows, p.offeredPrefixes, p.blockedPrefixes = nil, maps.Clone(p.offeredPrefixes), slices.Clone(p.blockedPrefixes)
	p.coolingByOwner = nil
	return &p
}

// setKept takes the addresses that a new pool keeps for sandboxes out of those that any sandbox can get.
func (pi *poolIndex) setKept() {
	for _, k := range pi.pool.Kept {
		pi.free.Remove(k.Address)
		pi.keptFor[k.Address], pi.keptAddr[k.Sandbox], pi.freeKept[k.Address] = k.Sandbox, k.Address, 0
	}
}

// splitRange divides a range into addresses that the pool could give, and others.
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

// Gives reports whether a pool could give any address of a range.
func Gives(s *ipam.PoolSpec, r ipam.Range) bool {
	inside, _ := splitRange(s, r)
	return len(inside) > 0
}
