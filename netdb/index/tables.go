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

// tables are the rows of a book, and what follows from them, each in a map that is named for its key.
// They have no lock of their own. Choosing an address and finding an owner read only these, and never
// walk all rows.
type tables struct {
	rev          int64
	poolByUID    map[string]*poolIndex
	poolsInOrder []*poolIndex // the oldest first
	rowByAddr    rowset
	rowByID      map[string]*ipam.Lease // by lease id
	// rowsBySandboxUID has the rows that are not cooling. Of those of one uid, pool and interface at
	// most one is open.
	rowsBySandboxUID    map[string][]*ipam.Lease
	poolNames           map[PoolKey]ipam.PoolName
	withheldByAddr      map[netip.Addr]ipam.Withheld // by the first address
	hostNameByName      map[string]*ipam.HostName
	hostNameByInterface map[SandboxInterface]*ipam.HostName // the same names
	sleepByLeaseID      map[string]*ipam.Sleep
	slotByLeaseID       map[string]*ipam.Slot
	tombstoneByUID      map[string]Tombstone      // by sandbox uid
	tombstoneUIDByRev   *btree.Map[int64, string] // the same: the sandbox uids, the oldest tombstone first
	runtime             string                    // id of the container runtime that the book's containers are in
	unreadable          []Unreadable

	opts *Options
}

func newTables(o *Options) *tables {
	return &tables{
		poolByUID:           make(map[string]*poolIndex),
		rowByAddr:           newRowset(),
		rowByID:             make(map[string]*ipam.Lease),
		rowsBySandboxUID:    make(map[string][]*ipam.Lease),
		poolNames:           make(map[PoolKey]ipam.PoolName),
		withheldByAddr:      make(map[netip.Addr]ipam.Withheld),
		hostNameByName:      make(map[string]*ipam.HostName),
		hostNameByInterface: make(map[SandboxInterface]*ipam.HostName),
		sleepByLeaseID:      make(map[string]*ipam.Sleep),
		slotByLeaseID:       make(map[string]*ipam.Slot),
		tombstoneByUID:      make(map[string]Tombstone),
		tombstoneUIDByRev:   new(btree.Map[int64, string]),
		opts:                o,
	}
}

// copied is the copy for [Index.Copy].
func (x *tables) copied() *tables {
	c := *x
	c.rowByAddr = c.rowByAddr.snapshot()
	c.hostNameByName, c.hostNameByInterface = maps.Clone(c.hostNameByName), maps.Clone(c.hostNameByInterface)
	c.sleepByLeaseID, c.slotByLeaseID = maps.Clone(c.sleepByLeaseID), maps.Clone(c.slotByLeaseID)
	c.tombstoneByUID, c.poolNames, c.withheldByAddr = maps.Clone(c.tombstoneByUID), maps.Clone(c.poolNames), maps.Clone(c.withheldByAddr)
	c.rowByID, c.rowsBySandboxUID, c.tombstoneUIDByRev = nil, nil, nil
	c.poolsInOrder, c.poolByUID = nil, make(map[string]*poolIndex, len(x.poolByUID))
	for _, pi := range x.poolsInOrder {
		p := pi.copied()
		c.poolsInOrder, c.poolByUID[p.pool.UID] = append(c.poolsInOrder, p), p
	}
	c.unreadable = slices.Clone(c.unreadable)
	return &c
}

// applyStep makes the change of a step in the tables.
func (x *tables) applyStep(s *Step) {
	switch {
	case s.PoolRemoved:
		x.removePool(s.Pool)
	case s.Pool != nil:
		x.replacePool(s.Pool)
	case s.TombstoneUID != "":
		x.setTombstone(s.TombstoneUID, s.Tombstone)
	case s.Runtime != "":
		x.runtime = s.Runtime
	case s.Old != nil || s.Now != nil:
		x.apply(s.Old, s.Now, s.Change.Rev)
		x.applyHostNames(s)
		s.Sleep.apply(x.sleepByLeaseID)
		s.Slot.apply(x.slotByLeaseID)
	}
	if s.PoolName != nil {
		x.poolNames[PoolKeyOfName(s.PoolName)] = *s.PoolName
	}
	if w := s.Withheld; w != nil {
		if delete(x.withheldByAddr, w.Addr); s.Now == nil {
			x.withheldByAddr[w.Addr] = *w
		}
	}
}

// open returns an owner's open lease, or nil.
func (x *tables) open(o ipam.Owner) *ipam.Lease {
	for _, l := range x.rowsBySandboxUID[o.UID] {
		if l.State.Open() && l.Owner() == o {
			return l
		}
	}
	return nil
}

// apply replaces the row of one address, or prefix: old is the row before the change, now the row
// after it; nil is no row. rev is the revision of the change.
func (x *tables) apply(old, now *ipam.Lease, rev int64) {
	if old != nil {
		x.rowByAddr.remove(old.Addr)
		delete(x.rowByID, old.ID)
		if of := slices.DeleteFunc(x.rowsBySandboxUID[old.UID], func(l *ipam.Lease) bool { return l == old }); len(of) > 0 {
			x.rowsBySandboxUID[old.UID] = of
		} else {
			delete(x.rowsBySandboxUID, old.UID)
		}
		x.poolByUID[old.PoolUID].removeRow(old)
	}
	if now != nil {
		x.rowByAddr.set(now)
		x.rowByID[now.ID] = now
		if sandboxRow(now) {
			x.rowsBySandboxUID[now.UID] = append(x.rowsBySandboxUID[now.UID], now)
		}
		x.poolByUID[now.PoolUID].addRow(now)
		return
	}
	pi := x.poolByUID[old.PoolUID]
	pi.unoffer(old)
	x.vacate(pi, old.Range(), rev)
}

// vacate makes those addresses of a range free that have no row and are not offered. rev is the
// revision at which they became free, 0 if they were never given.
func (x *tables) vacate(pi *poolIndex, r ipam.Range, rev int64) {
	if r.From != r.To {
		x.vacateRange(pi, r, rev)
		return
	}
	a := r.From
	if pi.isBlocked(a) || x.rowByAddr.at(a) != nil || pi.free.Has(a) || pi.freed.Has(a) || pi.offered(a) {
		return
	}
	_, kept := pi.keptFor[a]
	switch inside := pi.pool.OutsideAddr(a) == ""; {
	case kept && inside:
		pi.freeKept[a] = max(rev, pi.freeKept[a])
	case rev > 0 && inside:
		pi.freed.Add(r, rev)
	case rev > 0:
		pi.queueOutside(r, rev)
	case inside:
		pi.free.Add(r)
	}
	pi.trimFreed(x.opts.MostFreed)
}

// vacateRange is vacate of more than one address: a delegated prefix, or a part of one.
func (x *tables) vacateRange(pi *poolIndex, r ipam.Range, rev int64) {
	inside, outside := splitRange(&pi.pool.PoolSpec, r)
	for _, in := range inside {
		rest := free.NewSet(in)
		for _, taken := range x.takenIn(pi, in) {
			rest.Take(taken)
		}
		for a := range pi.keptFor {
			if rest.Remove(a) {
				pi.freeKept[a] = max(rev, pi.freeKept[a])
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
			pi.queueOutside(out, rev)
		}
	}
	pi.trimFreed(x.opts.MostFreed)
}

// takenIn returns the parts of a range that must not be made free: they are free already, have a row,
// are offered to a caller, or may be leased by a row that cannot be read. What it returns may reach beyond
// the range.
func (x *tables) takenIn(pi *poolIndex, r ipam.Range) (out []ipam.Range) {
	for _, l := range x.rowByAddr.overlapping(r) {
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

// withheldAt returns the entry that withholds an address, alone or with the delegated prefix that it
// is in; nil if none does.
func (x *tables) withheldAt(a netip.Addr) *ipam.Withheld {
	if len(x.withheldByAddr) == 0 {
		return nil
	}
	return withheldAround(a, func(at netip.Addr) (*ipam.Withheld, bool) {
		w, ok := x.withheldByAddr[at]
		return &w, ok
	})
}

// withheldAround looks for the entry of an address, and for that of each prefix that contains it. There
// may be as many entries as an import had rows, so it does not walk them.
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

// notWithheld says in a sentence which row leases a withheld address, or which pool could give it; "" if
// none. A new row and a new pool end what is withheld of their addresses, so either one is damage.
func (x *tables) notWithheld(w *ipam.Withheld) string {
	r := ipam.RangeOf(w.Addr, w.PrefixLen)
	if rows := x.rowByAddr.overlapping(r); len(rows) > 0 {
		return fmt.Sprintf("%s is %s in pool %s", rows[0].Text(), rows[0].State, rows[0].PoolUID)
	}
	if in := x.poolOf(w.Addr); in != nil && Gives(&in.pool.PoolSpec, r) {
		return fmt.Sprintf("in pool %s, which would give it", in.pool.UID)
	}
	return ""
}
