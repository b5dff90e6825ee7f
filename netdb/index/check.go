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

// Check walks the invariants of an index, beside another one that was just built from the same
// book, and calls broken with each that is broken. That leases, pools, sleeps and what is withheld are
// the same is for the caller to compare, which knows what of them is stored. Check is for the one caller that changes the index, or of
// a copy: it takes the lock for what is offered only, which changes without a commit.
func (x *Index) Check(fresh *Index, broken func(invariant, format string, args ...any)) {
	c := &comparison{mem: x, fresh: fresh, broken: broken}
	c.owners()
	c.tables(x.is, fresh.is)
	c.beside(fresh.is)
	rows := make(map[string][]ipam.Range) // of each pool; a book may have as many pools as rows
	for l := range x.is.byAddr.all() {
		rows[l.PoolUID] = append(rows[l.PoolUID], l.Range())
	}
	for uid, pi := range fresh.is.pools {
		if m := x.is.pools[uid]; m != nil {
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
	if !maps.Equal(mem.names, fresh.names) {
		c.broken(MemoryEqualsTable, "names of pools: %v in memory, %v in the table", mem.names, fresh.names)
	}
	if !maps.EqualFunc(mem.tombs, fresh.tombs, func(a, b Tombstone) bool {
		a.At.Wall, a.At.Mono, b.At.Wall, b.At.Mono = time.Time{}, 0, time.Time{}, 0
		return a == b
	}) {
		c.broken(MemoryEqualsTable, "tombstones: %v in memory, %v in the table", mem.tombs, fresh.tombs)
	}
	if a, b := c.mem.HostNames(), c.fresh.HostNames(); !slices.Equal(a, b) {
		c.broken(MemoryEqualsTable, "interface names: %v in memory, %v in the table", a, b)
	}
	if a, b := c.mem.Slots(), c.fresh.Slots(); !slices.EqualFunc(a, b, func(a, b *ipam.Slot) bool { return *a == *b }) {
		c.broken(MemoryEqualsTable, "slots: %v in memory, %v in the table", a, b)
	}
	for uid, pi := range mem.pools {
		if fresh.pools[uid] == nil {
			c.broken(MemoryEqualsTable, "pool %s is in memory only", pi.pool.Name)
		}
	}
	for uid, pi := range fresh.pools {
		if mem.pools[uid] == nil {
			c.broken(MemoryEqualsTable, "pool %s is not in memory", pi.pool.Name)
		}
	}
}

// beside looks for what belongs to a lease that is not there, or is in no such state.
func (c *comparison) beside(x *tables) {
	for _, n := range x.hostNames {
		if !slices.ContainsFunc(x.byUID[n.UID], func(l *ipam.Lease) bool { return l.Interface == n.Interface }) && len(x.broken) == 0 {
			c.broken(NamesHaveLeases, "%s is leased to %q for %s, which has no lease", n.Name, n.UID, n.Interface)
		}
	}
	for id := range x.sleeps {
		if l := x.byID[id]; (l == nil || !l.State.Open()) && len(x.broken) == 0 {
			c.broken(SleepsHaveLeases, "a sleep is recorded of lease %s, which is not open", id)
		}
	}
	for id, s := range x.slots {
		switch l := x.byID[id]; {
		case l == nil && len(x.broken) > 0:
		case l == nil || !l.State.Open() && l.State != ipam.Releasing:
			c.broken(SlotsHaveLeases, "slot %s is of lease %s, which is not held", s.ID, id)
		case ipam.IsSlotUID(l.UID) == s.Claimed:
			c.broken(SlotsHaveLeases, "slot %s is of sandbox uid %q, and claimed: %t", s.ID, l.UID, s.Claimed)
		}
	}
}

// counts compares how many rows there are, and which of them cool.
func (c *comparison) counts(m, pi *poolIndex) {
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
}

func addrsOf(ls []*ipam.Lease) (out []netip.Addr) {
	for _, l := range ls {
		out = append(out, l.Addr)
	}
	return out
}

// owners looks for rows and pools that a table cannot have.
func (c *comparison) owners() {
	x := c.fresh.is
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
	for a, w := range c.mem.is.withheld {
		if why := c.mem.is.notWithheld(&w); why != "" {
			c.broken(WithheldHasNoRow, "%s is withheld since pool %s was removed, and %s", a, w.PoolUID, why)
		}
	}
}

// freed compares the queues of freed addresses. Memory may know what was pruned
// from the history, may have forgotten what was the oldest for a while, and may
// be offering what the table only has as free.
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
