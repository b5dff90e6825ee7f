package netdb

import (
	"math/big"
	"slices"

	"github.com/ipamd/ipamd/internal/ranges"
	"github.com/ipamd/ipamd/netdb/free"
)

// freed compares the queues of freed addresses. Memory may know what was pruned
// from the history, may have forgotten what was the oldest for a while, and may
// be offering what the table only has as free.
func (c *checker) freed(mem, fresh *poolIndex) {
	c.mem.mu.RLock()
	defer c.mem.mu.RUnlock()
	at := func(q free.Queue, f free.Freed) (out []Range) { // what of a range a queue has at its revision
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
func (c *checker) free(pi *poolIndex, rows []Range) {
	c.mem.mu.RLock()
	defer c.mem.mu.RUnlock()
	taken := slices.Concat(rows, pi.pool.refused(), pi.blockedPrefixes)
	for a := range pi.offers {
		taken = append(taken, ranges.Between(a, a))
	}
	for p := range pi.offeredPrefixes {
		taken = append(taken, ranges.Of(p))
	}
	for a := range pi.blocked {
		taken = append(taken, ranges.Between(a, a))
	}
	rest := free.NewSet(free.Rest(pi.pool.hosts(), taken...)...)
	claim := func(r Range, where string) {
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
