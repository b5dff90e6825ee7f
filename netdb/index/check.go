package index

import (
	"maps"
	"math/big"
	"net/netip"
	"slices"
	"time"

	"github.com/ipamd/ipamd/internal/ranges"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb/free"
)

// The invariants that [Index.Check] walks, by name.
const (
	OneLeasePerOwner   = "one-lease-per-owner"  // one open lease per (pool, uid, interface)
	AddressInPool      = "address-in-pool"      // a row's address lies in its own pool's prefix, or in none
	WithheldHasNoRow   = "withheld-has-no-row"  // what a removed pool left withheld has no row, and no pool would give it
	PoolsAreApart      = "pools-are-apart"      // no two pools' prefixes overlap
	PrefixesAreApart   = "prefixes-are-apart"   // no row leases an address that another one leases, too
	CountsEqualRecount = "counts-equal-recount" // per pool and state
	FreeIsTheRest      = "free-is-the-rest"     // usable = free + kept + rows + offered + unreadable
	CoolingIsQueued    = "cooling-is-queued"    // every cooling row that may be given again is in the queue, in revision order
	FreedIsQueued      = "freed-is-queued"      // what became free is queued as the history has it
	MemoryEqualsTable  = "memory-equals-table"  // the index is what loading anew would give
	NamesHaveLeases    = "names-have-leases"    // a host interface name that is leased is that of an interface with a row
	SleepsHaveLeases   = "sleeps-have-leases"   // what is recorded of a sleep is of an open lease
	SlotsHaveLeases    = "slots-have-leases"    // a slot is of a lease that is held: its pool's until it is claimed
)

// Check compares an index with a fresh one, which was just built from the same book, and calls broken
// with each invariant that does not hold. It does not compare the contents of leases, pools, sleeps and
// withheld addresses: the caller does, which knows what of them is stored.
//
// The caller is the one that changes the index, or has a copy. Check takes the lock only to read
// what is offered, which changes without a commit.
func (x *Index) Check(fresh *Index, broken func(invariant, format string, args ...any)) {
	c := &comparison{mem: x, fresh: fresh, broken: broken}
	c.owners()
	c.tables(x.tables, fresh.tables)
	c.leaseRows(fresh.tables)
	rows := make(map[string][]ipam.Range) // of each pool; a book may have as many pools as rows
	for l := range x.tables.rowByAddr.all() {
		rows[l.PoolUID] = append(rows[l.PoolUID], l.Range())
	}
	for uid, pi := range fresh.tables.poolByUID {
		if m := x.tables.poolByUID[uid]; m != nil {
			c.counts(m, pi)
			c.free(m, rows[uid])
			c.freed(m, pi)
		}
	}
}

type comparison struct {
	mem, fresh *Index
	broken     func(invariant, format string, args ...any)
}

// tables compares the small tables, and which pools there are.
func (c *comparison) tables(mem, fresh *tables) {
	if mem.rev != fresh.rev {
		c.broken(MemoryEqualsTable, "revision %d in memory, %d in the table", mem.rev, fresh.rev)
	}
	if mem.runtime != fresh.runtime {
		c.broken(MemoryEqualsTable, "runtime %q in memory, %q in the table", mem.runtime, fresh.runtime)
	}
	if !maps.Equal(mem.poolNames, fresh.poolNames) {
		c.broken(MemoryEqualsTable, "names of pools: %v in memory, %v in the table", mem.poolNames, fresh.poolNames)
	}
	if !maps.EqualFunc(mem.tombstoneByUID, fresh.tombstoneByUID, func(a, b Tombstone) bool {
		a.At.Wall, a.At.Mono, b.At.Wall, b.At.Mono = time.Time{}, 0, time.Time{}, 0
		return a == b
	}) {
		c.broken(MemoryEqualsTable, "tombstones: %v in memory, %v in the table", mem.tombstoneByUID, fresh.tombstoneByUID)
	}
	if a, b := c.mem.HostNames(), c.fresh.HostNames(); !slices.Equal(a, b) {
		c.broken(MemoryEqualsTable, "interface names: %v in memory, %v in the table", a, b)
	}
	if a, b := c.mem.Slots(), c.fresh.Slots(); !slices.EqualFunc(a, b, func(a, b *ipam.Slot) bool { return *a == *b }) {
		c.broken(MemoryEqualsTable, "slots: %v in memory, %v in the table", a, b)
	}
	for uid, pi := range mem.poolByUID {
		if fresh.poolByUID[uid] == nil {
			c.broken(MemoryEqualsTable, "pool %s is in memory only", pi.pool.Name)
		}
	}
	for uid, pi := range fresh.poolByUID {
		if mem.poolByUID[uid] == nil {
			c.broken(MemoryEqualsTable, "pool %s is not in memory", pi.pool.Name)
		}
	}
}

// leaseRows looks for names, sleeps and slots whose lease is not there, or not in a state that has them.
func (c *comparison) leaseRows(x *tables) {
	for _, n := range x.hostNameByName {
		if !slices.ContainsFunc(x.rowsBySandboxUID[n.UID], func(l *ipam.Lease) bool { return l.Interface == n.Interface }) && len(x.unreadable) == 0 {
			c.broken(NamesHaveLeases, "%s is leased to %q for %s, which has no lease", n.Name, n.UID, n.Interface)
		}
	}
	for id := range x.sleepByLeaseID {
		if l := x.rowByID[id]; (l == nil || !l.State.Open()) && len(x.unreadable) == 0 {
			c.broken(SleepsHaveLeases, "a sleep is recorded of lease %s, which is not open", id)
		}
	}
	for id, s := range x.slotByLeaseID {
		switch l := x.rowByID[id]; {
		case l == nil && len(x.unreadable) > 0:
		case l == nil || !l.State.Open() && l.State != ipam.Releasing:
			c.broken(SlotsHaveLeases, "slot %s is of lease %s, which is not held", s.ID, id)
		case ipam.IsSlotUID(l.UID) == s.Claimed:
			c.broken(SlotsHaveLeases, "slot %s is of sandbox uid %q, and claimed: %t", s.ID, l.UID, s.Claimed)
		}
	}
}

// counts compares how many rows of a pool there are, and the queues of those that cool.
func (c *comparison) counts(m, pi *poolIndex) {
	if m.rowsOutside != pi.rowsOutside {
		c.broken(CountsEqualRecount, "pool %s counts %d outside, there are %d", pi.pool.Name, m.rowsOutside, pi.rowsOutside)
	}
	for _, s := range ipam.States() {
		if m.countByState[s] != pi.countByState[s] {
			c.broken(CountsEqualRecount, "pool %s counts %d %s, there are %d", pi.pool.Name, m.countByState[s], s, pi.countByState[s])
		}
	}
	if got, want := addrsOf(m.coolingByRev.Values()), addrsOf(pi.coolingByRev.Values()); !slices.Equal(got, want) {
		c.broken(CoolingIsQueued, "pool %s: %v in memory, %v in the table", pi.pool.Name, got, want)
	}
	if got, want := addrsOf(m.coolingOutside.Values()), addrsOf(pi.coolingOutside.Values()); !slices.Equal(got, want) {
		c.broken(CoolingIsQueued, "pool %s, outside: %v in memory, %v in the table", pi.pool.Name, got, want)
	}
}

func addrsOf(ls []*ipam.Lease) (out []netip.Addr) {
	for _, l := range ls {
		out = append(out, l.Addr)
	}
	return out
}

// owners looks for rows and pools that contradict each other.
func (c *comparison) owners() {
	x := c.fresh.tables
	for i, pi := range x.poolsInOrder {
		for _, other := range x.poolsInOrder[:i] {
			if pi.pool.Prefix.Overlaps(other.pool.Prefix) {
				c.broken(PoolsAreApart, "%s of pool %s and %s of pool %s", pi.pool.Prefix, pi.pool.UID, other.pool.Prefix, other.pool.UID)
			}
		}
	}
	seen := make(map[ipam.Owner]netip.Addr)
	var before *ipam.Lease
	for l := range x.rowByAddr.all() {
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
		// A row may be outside its own pool, which was made smaller or moved, but in no other.
		for _, in := range x.poolsInOrder {
			if in.pool.UID != l.PoolUID && in.pool.Prefix.Overlaps(l.Prefix()) {
				c.broken(AddressInPool, "%s is of pool %s, and in %s of pool %s", l.Text(), l.PoolUID, in.pool.Prefix, in.pool.UID)
			}
		}
	}
	for a, w := range c.mem.tables.withheldByAddr {
		if why := c.mem.tables.notWithheld(&w); why != "" {
			c.broken(WithheldHasNoRow, "%s is withheld since pool %s was removed, and %s", a, w.PoolUID, why)
		}
	}
}

// freed compares the queues of freed addresses. Three differences are none: in memory may be what
// was pruned from the history, the oldest may have been trimmed from the queue in memory, and an address
// that the fresh index has in its queue may be offered.
func (c *comparison) freed(mem, fresh *poolIndex) {
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
		for a, rev := range mem.offers {
			if rev == f.Rev || rev == 0 {
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

// free compares what is free with what is left of the pool without its rows. It takes the lock
// because offers change without a commit.
func (c *comparison) free(pi *poolIndex, rows []ipam.Range) {
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
	for a := range pi.freeKept {
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
