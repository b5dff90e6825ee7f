package netdb

import (
	"math/big"

	"github.com/ipamd/ipamd/internal/ranges"
)

// freed compares the queues of freed addresses. Memory may know what was pruned
// from the history, may have forgotten what was the oldest for a while, and may
// be offering what the table only has as free.
func (c *checker) freed(mem, fresh *poolIndex) {
	c.mem.mu.RLock()
	defer c.mem.mu.RUnlock()
	oldest, _ := mem.freed.byRev.Min()
	fresh.freed.byRev.Scan(func(f freedRange) bool {
		rest := newFreeset()
		rest.add(f.Range)
		for _, m := range mem.freed.within(f.Range) {
			if m.rev == f.rev {
				rest.removeRange(m.Range)
			}
		}
		for a, held := range mem.offers {
			if held == f.rev || held == 0 {
				rest.remove(a)
			}
		}
		for _, pieces := range mem.offeredPrefixes {
			for _, p := range pieces {
				if p.rev == f.rev || p.rev == 0 {
					rest.removeRange(p.Range)
				}
			}
		}
		if f.rev <= oldest.rev || mem.freed.len() == 0 { // a part of what became free at once may be forgotten
			for _, free := range mem.free.within(f.Range) {
				rest.removeRange(free)
			}
		}
		for _, r := range rest.all() {
			c.broken(FreedIsQueued, "%s became free at %d, in memory at %v", r, f.rev, mem.freed.within(r))
		}
		return true
	})
	oldest, _ = fresh.freed.byRev.Min()
	mem.freed.byRev.Scan(func(f freedRange) bool {
		rest := newFreeset()
		rest.add(f.Range)
		for _, m := range fresh.freed.within(f.Range) {
			if m.rev == f.rev {
				rest.removeRange(m.Range)
			}
		}
		if rest.count() > 0 && f.rev >= oldest.rev && oldest.rev > 0 {
			c.broken(FreedIsQueued, "%s became free at %d in memory, and at %v by the history", f.Range, f.rev, fresh.freed.within(f.Range))
		}
		return true
	})
}

// free compares what is free with what is left of the pool without its rows. It holds the
// lock for reading: holds change without a commit.
func (c *checker) free(pi *poolIndex, rows []Range) {
	c.mem.mu.RLock()
	defer c.mem.mu.RUnlock()
	rest := newFreeset()
	rest.add(pi.pool.hosts())
	rest.remove(pi.pool.Gateway)
	for _, r := range pi.pool.Exclude {
		rest.removeRange(r)
	}
	taken := append(rows, pi.blockedPrefixes...)
	for a := range pi.offers {
		taken = append(taken, ranges.Between(a, a))
	}
	for p := range pi.offeredPrefixes {
		taken = append(taken, ranges.Of(p))
	}
	for a := range pi.blocked {
		taken = append(taken, ranges.Between(a, a))
	}
	for _, r := range taken {
		rest.removeRange(r)
	}
	claim := func(r Range, where string) {
		is := new(big.Int)
		for _, part := range rest.takeRange(r) {
			is.Add(is, part.Size())
		}
		if is.Cmp(r.Size()) != 0 {
			c.broken(FreeIsTheRest, "%s is %s, and taken", r, where)
		}
	}
	pi.free.ranges.Scan(func(r Range) bool { claim(r, "free"); return true })
	pi.freed.byRev.Scan(func(f freedRange) bool { claim(f.Range, "free"); return true })
	for a := range pi.kept {
		claim(ranges.Between(a, a), "kept")
	}
	for a := range pi.keptFor {
		if pi.free.has(a) || pi.freed.has(a) {
			c.broken(FreeIsTheRest, "%s is kept for %q and free for others", a, pi.keptFor[a])
		}
	}
	if n := rest.count(); n > 0 {
		c.broken(FreeIsTheRest, "pool %s has %d usable addresses, and %d are neither free nor taken: %v", pi.pool.Name, pi.size, n, rest.all())
	}
}
