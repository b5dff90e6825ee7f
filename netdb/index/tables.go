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

// tables are the rows of a book by what they are looked for, and what follows from them. They
// know no lock. Choosing an address and finding an owner read only this, and never scan.
type tables struct {
	rev        int64
	pools      map[string]*poolIndex // by uid
	order      []*poolIndex          // as created
	byAddr     rowset
	byID       map[string]*ipam.Lease
	byUID      map[string][]*ipam.Lease // rows of a sandbox uid that do not cool: of a pool and an interface one is open
	names      map[PoolKey]ipam.PoolName
	withheld   map[netip.Addr]ipam.Withheld
	hostNames  map[string]*ipam.HostName // host interface names that are leased
	hostNameOf map[Link]*ipam.HostName   // the same by their holders
	sleeps     map[string]*ipam.Sleep    // by lease
	slots      map[string]*ipam.Slot     // by lease
	tombs      map[string]Tombstone      // by sandbox uid
	stones     *btree.Map[int64, string] // the same uids by revision: oldest first
	runtime    string                    // the container runtime that the book knows
	broken     []Unreadable

	opts *Options
}

func newTables(o *Options) *tables {
	return &tables{
		pools:      make(map[string]*poolIndex),
		byAddr:     newRowset(),
		byID:       make(map[string]*ipam.Lease),
		byUID:      make(map[string][]*ipam.Lease),
		names:      make(map[PoolKey]ipam.PoolName),
		withheld:   make(map[netip.Addr]ipam.Withheld),
		hostNames:  make(map[string]*ipam.HostName),
		hostNameOf: make(map[Link]*ipam.HostName),
		sleeps:     make(map[string]*ipam.Sleep),
		slots:      make(map[string]*ipam.Slot),
		tombs:      make(map[string]Tombstone),
		stones:     new(btree.Map[int64, string]),
		opts:       o,
	}
}

// copied is a copy that nothing changes, without what finds a row by its id or its sandbox.
func (x *tables) copied() *tables {
	c := *x
	c.byAddr = c.byAddr.snapshot()
	c.hostNames, c.hostNameOf = maps.Clone(c.hostNames), maps.Clone(c.hostNameOf)
	c.sleeps, c.slots = maps.Clone(c.sleeps), maps.Clone(c.slots)
	c.tombs, c.names, c.withheld = maps.Clone(c.tombs), maps.Clone(c.names), maps.Clone(c.withheld)
	c.byID, c.byUID, c.stones = nil, nil, nil
	c.order, c.pools = nil, make(map[string]*poolIndex, len(x.pools))
	for _, pi := range x.order {
		p := pi.copied()
		c.order, c.pools[p.pool.UID] = append(c.order, p), p
	}
	c.broken = slices.Clone(c.broken)
	return &c
}

// applyStep makes the tables agree with a step.
func (x *tables) applyStep(s *Step) {
	switch {
	case s.Removed:
		x.removePool(s.Pool)
	case s.Pool != nil:
		x.replacePool(s.Pool)
	case s.Tomb != "":
		x.bury(s.Tomb, s.Stone)
	case s.Runtime != "":
		x.runtime = s.Runtime
	case s.Old != nil || s.Now != nil:
		x.apply(s.Old, s.Now, s.Change.Rev)
		x.setNames(s)
		s.Sleep.apply(x.sleeps)
		s.Slot.apply(x.slots)
	}
	if s.Name != nil {
		x.names[KeyOfName(s.Name)] = *s.Name
	}
	if w := s.Withheld; w != nil {
		if delete(x.withheld, w.Addr); s.Now == nil {
			x.withheld[w.Addr] = *w
		}
	}
}

// open returns an owner's open lease, or nil.
func (x *tables) open(o ipam.Owner) *ipam.Lease {
	for _, l := range x.byUID[o.UID] {
		if l.State.Open() && l.Owner() == o {
			return l
		}
	}
	return nil
}

// apply replaces the row of one address: old is what was there, now what is;
// nil means no row. rev is the revision of the change.
func (x *tables) apply(old, now *ipam.Lease, rev int64) {
	if old != nil {
		x.byAddr.remove(old.Addr)
		delete(x.byID, old.ID)
		if of := slices.DeleteFunc(x.byUID[old.UID], func(l *ipam.Lease) bool { return l == old }); len(of) > 0 {
			x.byUID[old.UID] = of
		} else {
			delete(x.byUID, old.UID)
		}
		x.pools[old.PoolUID].leave(old)
	}
	if now != nil {
		x.byAddr.set(now)
		x.byID[now.ID] = now
		if holdsName(now) {
			x.byUID[now.UID] = append(x.byUID[now.UID], now)
		}
		x.pools[now.PoolUID].enter(now)
		return
	}
	pi := x.pools[old.PoolUID]
	pi.unoffer(old)
	x.vacate(pi, old.Range(), rev)
}

// vacate makes addresses free, as far as they have no row and are not offered. rev is
// the revision that made them so, 0 when they were never given.
func (x *tables) vacate(pi *poolIndex, r ipam.Range, rev int64) {
	if r.From != r.To {
		x.vacateRange(pi, r, rev)
		return
	}
	a := r.From
	if pi.isBlocked(a) || x.byAddr.at(a) != nil || pi.free.Has(a) || pi.freed.Has(a) || pi.offered(a) {
		return
	}
	_, kept := pi.keptFor[a]
	switch inside := pi.pool.OutsideAddr(a) == ""; {
	case kept && inside:
		pi.kept[a] = max(rev, pi.kept[a])
	case rev > 0 && inside:
		pi.freed.Add(r, rev)
	case rev > 0:
		pi.sendAway(r, rev)
	case inside:
		pi.free.Add(r)
	}
	pi.forget(x.opts.MostFreed)
}

// vacateRange is vacate of what was a delegated prefix, or a part of one.
func (x *tables) vacateRange(pi *poolIndex, r ipam.Range, rev int64) {
	inside, outside := splitRange(&pi.pool.PoolSpec, r)
	for _, in := range inside {
		rest := free.NewSet(in)
		for _, taken := range x.takenIn(pi, in) {
			rest.Take(taken)
		}
		for a := range pi.keptFor {
			if rest.Remove(a) {
				pi.kept[a] = max(rev, pi.kept[a])
			}
		}
		for part := range rest.All() {
			if rev > 0 {
				pi.freed.Add(part, rev)
			} else {
				pi.free.Add(part)
			}
		}
	}
	for _, out := range outside {
		if rev > 0 {
			pi.sendAway(out, rev)
		}
	}
	pi.forget(x.opts.MostFreed)
}

// takenIn returns what of a range is not to be made free: it is so, has a row, is offered or
// may be that of a row that cannot be read.
func (x *tables) takenIn(pi *poolIndex, r ipam.Range) (out []ipam.Range) {
	for _, l := range x.byAddr.overlapping(r) {
		out = append(out, l.Range())
	}
	out = append(out, pi.free.Within(r)...)
	for _, f := range pi.freed.Within(r) {
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

// withheldAt returns what is withheld of an address, alone or in a delegated prefix.
func (x *tables) withheldAt(a netip.Addr) *ipam.Withheld {
	if len(x.withheld) == 0 {
		return nil
	}
	return withheldAround(a, func(at netip.Addr) (*ipam.Withheld, bool) {
		w, ok := x.withheld[at]
		return &w, ok
	})
}

// withheldAround looks for an address, and for each delegated prefix that can have it: there may be
// as many withheld as an import had rows.
func withheldAround(a netip.Addr, withheld func(netip.Addr) (*ipam.Withheld, bool)) *ipam.Withheld {
	for bits := a.BitLen(); bits > 0; bits-- {
		p, err := a.Prefix(bits)
		if err != nil {
			return nil
		}
		if w, ok := withheld(p.Addr()); ok && w.Covers(a) {
			return w
		}
	}
	return nil
}

// notWithheld says of what is withheld which row has it, or which pool would give it; "" is none.
// Rows and pools come to be without what is withheld there, so this is damage.
func (x *tables) notWithheld(w *ipam.Withheld) string {
	r := ipam.RangeOf(w.Addr, w.PrefixLen)
	if rows := x.byAddr.overlapping(r); len(rows) > 0 {
		return fmt.Sprintf("%s is %s in pool %s", rows[0].Text(), rows[0].State, rows[0].PoolUID)
	}
	if in := x.poolOf(w.Addr); in != nil && Gives(&in.pool.PoolSpec, r) {
		return fmt.Sprintf("in pool %s, which would give it", in.pool.UID)
	}
	return ""
}
