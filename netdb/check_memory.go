package netdb

import (
	"maps"
	"math/big"
	"net/netip"
	"reflect"
	"slices"
	"time"

	"github.com/ipamd/ipamd/internal/ranges"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb/free"
)

// freed compares the queues of freed addresses. Memory may know what was pruned
// from the history, may have forgotten what was the oldest for a while, and may
// be offering what the table only has as free.
func (c *checker) freed(mem, fresh *poolIndex) {
	c.mem.mu.RLock()
	defer c.mem.mu.RUnlock()
	at := func(q free.Queue, f free.Freed) (out []ipam.Range) { // what of a range a queue has at its revision
		for _, m := range q.Within(f.Range) {
			if m.Rev == f.Rev {
				out = append(out, m.Range)
			}
		}
		return out
	}
	oldest, _ := mem.freed.First()
	for f := range fresh.freed.All() {
		known := at(mem.freed, f)
		for a, held := range mem.offers {
			if held == f.Rev || held == 0 {
				known = append(known, ranges.Between(a, a))
			}
		}
		for _, pieces := range mem.offeredPrefixes {
			for _, p := range pieces {
				if p.Rev == f.Rev || p.Rev == 0 {
					known = append(known, p.Range)
				}
			}
		}
		if f.Rev <= oldest.Rev || mem.freed.Len() == 0 { // a part of what became free at once may be forgotten
			known = append(known, mem.free.Within(f.Range)...)
		}
		for _, r := range free.Rest(f.Range, known...) {
			c.broken(FreedIsQueued, "%s became free at %d, in memory at %v", r, f.Rev, mem.freed.Within(r))
		}
	}
	oldest, _ = fresh.freed.First()
	for f := range mem.freed.All() {
		if f.Rev >= oldest.Rev && oldest.Rev > 0 && len(free.Rest(f.Range, at(fresh.freed, f)...)) > 0 {
			c.broken(FreedIsQueued, "%s became free at %d in memory, and at %v by the history", f.Range, f.Rev, fresh.freed.Within(f.Range))
		}
	}
}

// free compares what is free with what is left of the pool without its rows. It holds the
// lock for reading: holds change without a commit.
func (c *checker) free(pi *poolIndex, rows []ipam.Range) {
	c.mem.mu.RLock()
	defer c.mem.mu.RUnlock()
	taken := slices.Concat(rows, pi.pool.Refused(), pi.blockedPrefixes)
	for a := range pi.offers {
		taken = append(taken, ranges.Between(a, a))
	}
	for p := range pi.offeredPrefixes {
		taken = append(taken, ranges.Of(p))
	}
	for a := range pi.blocked {
		taken = append(taken, ranges.Between(a, a))
	}
	rest := free.NewSet(free.Rest(pi.pool.Hosts(), taken...)...)
	claim := func(r ipam.Range, where string) {
		is := new(big.Int)
		for _, part := range rest.Take(r) {
			is.Add(is, part.Size())
		}
		if is.Cmp(r.Size()) != 0 {
			c.broken(FreeIsTheRest, "%s is %s, and taken", r, where)
		}
	}
	for r := range pi.free.All() {
		claim(r, "free")
	}
	for f := range pi.freed.All() {
		claim(f.Range, "free")
	}
	for a := range pi.kept {
		claim(ranges.Between(a, a), "kept")
	}
	for a := range pi.keptFor {
		if pi.free.Has(a) || pi.freed.Has(a) {
			c.broken(FreeIsTheRest, "%s is kept for %q and free for others", a, pi.keptFor[a])
		}
	}
	if n := rest.Count(); n > 0 {
		c.broken(FreeIsTheRest, "pool %s has %d usable addresses, and %d are neither free nor taken: %v", pi.pool.Name, pi.size, n, slices.Collect(rest.All()))
	}
}

func (c *checker) owners(x *index) {
	for i, pi := range x.order {
		for _, other := range x.order[:i] {
			if pi.pool.Prefix.Overlaps(other.pool.Prefix) {
				c.broken(PoolsAreApart, "%s of pool %s and %s of pool %s", pi.pool.Prefix, pi.pool.UID, other.pool.Prefix, other.pool.UID)
			}
		}
	}
	seen := make(map[ipam.Owner]netip.Addr)
	var before *ipam.Lease
	for l := range x.byAddr.all() {
		if before != nil && before.Range().Overlaps(l.Range()) {
			c.broken(PrefixesAreApart, "%s is leased, and %s, too", before.Text(), l.Text())
		}
		before = l
		if l.State.Open() {
			if other, ok := seen[l.Owner()]; ok {
				c.broken(OneLeasePerOwner, "%s and %s both belong to %q", other, l.Addr, l.UID)
			}
			seen[l.Owner()] = l.Addr
		}
		// Outside its own pool a row may be: the pool shrank or moved with it.
		for _, in := range x.order {
			if in.pool.UID != l.PoolUID && in.pool.Prefix.Overlaps(l.Prefix()) {
				c.broken(AddressInPool, "%s is of pool %s, and in %s of pool %s", l.Text(), l.PoolUID, in.pool.Prefix, in.pool.UID)
			}
		}
	}
	for a, w := range c.mem.idx.withheld {
		if why := c.mem.idx.notWithheld(&w); why != "" {
			c.broken(WithheldHasNoRow, "%s is withheld since pool %s was removed, and %s", a, w.PoolUID, why)
		}
	}
}

func (c *checker) memory(fresh *index) {
	mem := c.mem.idx
	for l := range fresh.byAddr.all() {
		if m := mem.byAddr.at(l.Addr); m == nil || !reflect.DeepEqual(leaseRow(m), leaseRow(l)) {
			c.broken(MemoryEqualsTable, "%s: the table has %+v, memory %+v", l.Addr, l, m)
		}
	}
	for l := range mem.byAddr.all() {
		if fresh.byAddr.at(l.Addr) == nil {
			c.broken(MemoryEqualsTable, "%s is in memory only", l.Addr)
		}
	}
	if mem.rev != fresh.rev {
		c.broken(MemoryEqualsTable, "revision %d in memory, %d in the table", mem.rev, fresh.rev)
	}
	if !maps.Equal(mem.names, fresh.names) {
		c.broken(MemoryEqualsTable, "names of pools: %v in memory, %v in the table", mem.names, fresh.names)
	}
	if !maps.EqualFunc(mem.withheld, fresh.withheld, func(a, b ipam.Withheld) bool { return reflect.DeepEqual(withheldRow(&a), withheldRow(&b)) }) {
		c.broken(MemoryEqualsTable, "withheld: %v in memory, %v in the table", mem.withheld, fresh.withheld)
	}
	for _, pi := range mem.order {
		if fresh.pools[pi.pool.UID] == nil {
			c.broken(MemoryEqualsTable, "pool %s is in memory only", pi.pool.Name)
		}
	}
	if mem.runtime != fresh.runtime {
		c.broken(MemoryEqualsTable, "runtime %q in memory, %q in the table", mem.runtime, fresh.runtime)
	}
	if !maps.EqualFunc(mem.tombs, fresh.tombs, func(a, b tombstone) bool {
		a.at.Wall, a.at.Mono, b.at.Wall, b.at.Mono = time.Time{}, 0, time.Time{}, 0
		return a == b
	}) {
		c.broken(MemoryEqualsTable, "tombstones: %v in memory, %v in the table", mem.tombs, fresh.tombs)
	}
	if a, b := c.mem.HostNames(), (&memory{idx: fresh}).HostNames(); !slices.Equal(a, b) {
		c.broken(MemoryEqualsTable, "interface names: %v in memory, %v in the table", a, b)
	}
	for _, n := range fresh.hostNames {
		if !slices.ContainsFunc(fresh.byUID[n.UID], func(l *ipam.Lease) bool { return l.Interface == n.Interface }) && len(fresh.broken) == 0 {
			c.broken(NamesHaveLeases, "%s is leased to %q for %s, which has no lease", n.Name, n.UID, n.Interface)
		}
	}
	if a, b := c.mem.Sleeps(), (&memory{idx: fresh}).Sleeps(); !slices.EqualFunc(a, b, func(a, b *ipam.Sleep) bool {
		return a.LeaseID == b.LeaseID && a.Rev == b.Rev && sameSleep(a, b) && a.Still == b.Still && flightText(a) == flightText(b)
	}) {
		c.broken(MemoryEqualsTable, "sleeps: %v in memory, %v in the table", a, b)
	}
	for id := range fresh.sleeps {
		if l := fresh.byID[id]; (l == nil || !l.State.Open()) && len(fresh.broken) == 0 {
			c.broken(SleepsHaveLeases, "a sleep is recorded of lease %s, which is not open", id)
		}
	}
	if a, b := c.mem.Slots(), (&memory{idx: fresh}).Slots(); !slices.EqualFunc(a, b, func(a, b *ipam.Slot) bool { return *a == *b }) {
		c.broken(MemoryEqualsTable, "slots: %v in memory, %v in the table", a, b)
	}
	for id, s := range fresh.slots {
		switch l := fresh.byID[id]; {
		case l == nil && len(fresh.broken) > 0:
		case l == nil || !l.State.Open() && l.State != ipam.Releasing:
			c.broken(SlotsHaveLeases, "slot %s is of lease %s, which is not held", s.ID, id)
		case ipam.IsSlotUID(l.UID) == s.Claimed:
			c.broken(SlotsHaveLeases, "slot %s is of sandbox uid %q, and claimed: %t", s.ID, l.UID, s.Claimed)
		}
	}
	rows := make(map[string][]ipam.Range) // of each pool; a book may have as many pools as rows
	for l := range mem.byAddr.all() {
		rows[l.PoolUID] = append(rows[l.PoolUID], l.Range())
	}
	for uid, pi := range fresh.pools {
		m := mem.pools[uid]
		if m == nil {
			c.broken(MemoryEqualsTable, "pool %s is not in memory", pi.pool.Name)
			continue
		}
		if !reflect.DeepEqual(poolRow(m.pool), poolRow(pi.pool)) {
			c.broken(MemoryEqualsTable, "pool %s: the table has %+v, memory %+v", pi.pool.Name, pi.pool, m.pool)
		}
		if m.outside != pi.outside {
			c.broken(CountsEqualRecount, "pool %s counts %d outside, there are %d", pi.pool.Name, m.outside, pi.outside)
		}
		for _, s := range ipam.States() {
			if m.count[s] != pi.count[s] {
				c.broken(CountsEqualRecount, "pool %s counts %d %s, there are %d", pi.pool.Name, m.count[s], s, pi.count[s])
			}
		}
		if got, want := addrsOf(m.cooling.Values()), addrsOf(pi.cooling.Values()); !slices.Equal(got, want) {
			c.broken(CoolingIsQueued, "pool %s: %v in memory, %v in the table", pi.pool.Name, got, want)
		}
		if got, want := addrsOf(m.spent.Values()), addrsOf(pi.spent.Values()); !slices.Equal(got, want) {
			c.broken(CoolingIsQueued, "pool %s, outside: %v in memory, %v in the table", pi.pool.Name, got, want)
		}
		c.free(m, rows[uid])
		c.freed(m, pi)
	}
}

func addrsOf(ls []*ipam.Lease) (out []netip.Addr) {
	for _, l := range ls {
		out = append(out, l.Addr)
	}
	return out
}
