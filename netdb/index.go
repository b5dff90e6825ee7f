package netdb

import (
	"cmp"
	"iter"
	"net/netip"
	"slices"

	"github.com/tidwall/btree"

	"github.com/ipamd/ipamd/internal/ranges"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb/free"
)

// index is what the book keeps in memory: everything, derived from the table
// at open and after each commit. It can be thrown away at any time and loaded
// again; choosing an address and finding an owner read only this and never
// scan.
type index struct {
	rev        int64
	pools      map[string]*poolIndex // by uid
	order      []*poolIndex          // as created
	byAddr     rowset
	byID       map[string]*ipam.Lease
	byUID      map[string][]*ipam.Lease  // rows of a sandbox uid that do not cool: of a pool and an interface one is open
	hostNames  map[string]*ipam.HostName // host interface names that are leased
	hostNameOf map[link]*ipam.HostName   // the same by their holders
	sleeps     map[string]*ipam.Sleep    // by lease
	slots      map[string]*ipam.Slot     // by lease
	tombs      map[string]tombstone      // by sandbox uid
	stones     *btree.Map[int64, string] // the same uids by revision: oldest first
	broken     []Unreadable

	names    map[nameKey]ipam.PoolName
	withheld map[netip.Addr]ipam.Withheld

	runtime   string // the container runtime that the book knows
	mostFreed int    // of a pool
	mostTombs int    // of the book
}

// An Unreadable row is reported and skipped, never dropped. The addresses that
// it names, by its text or by its key, are not handed out.
type Unreadable struct {
	Row    string // the row's address as stored
	Reason string
	addrs  []netip.Addr
	ranges []ipam.Range // of delegated prefixes
	pool   string       // uid, "" where it cannot be read
}

// PoolUID is the uid of the row's pool, "" where it cannot be read.
func (u *Unreadable) PoolUID() string { return u.pool }

func newIndex() *index {
	return &index{
		pools:      make(map[string]*poolIndex),
		byAddr:     newRowset(),
		byID:       make(map[string]*ipam.Lease),
		byUID:      make(map[string][]*ipam.Lease),
		hostNames:  make(map[string]*ipam.HostName),
		hostNameOf: make(map[link]*ipam.HostName),
		sleeps:     make(map[string]*ipam.Sleep),
		slots:      make(map[string]*ipam.Slot),
		tombs:      make(map[string]tombstone),
		stones:     new(btree.Map[int64, string]),

		names:    make(map[nameKey]ipam.PoolName),
		withheld: make(map[netip.Addr]ipam.Withheld),

		mostFreed: mostFreed,
		mostTombs: MaxTombstones,
	}
}

// addPool makes a pool known, with every usable address free.
func (x *index) addPool(p *ipam.Pool) *poolIndex {
	pi := newPoolIndex(p)
	x.pools[p.UID] = pi
	x.order = append(x.order, pi)
	slices.SortStableFunc(x.order, func(a, b *poolIndex) int {
		return cmp.Compare(a.pool.UID, b.pool.UID) // UUIDv7: the order of creation
	})
	return pi
}

// poolOf returns the pool whose prefix contains the address.
func (x *index) poolOf(a netip.Addr) *poolIndex {
	for _, pi := range x.order {
		if pi.pool.Prefix.Contains(a) {
			return pi
		}
	}
	return nil
}

// open returns an owner's open lease, or nil.
func (x *index) open(o ipam.Owner) *ipam.Lease {
	for _, l := range x.byUID[o.UID] {
		if l.State.Open() && l.Owner() == o {
			return l
		}
	}
	return nil
}

// replacePool makes a pool known, or known anew with its leases.
func (x *index) replacePool(p *ipam.Pool) {
	was := x.pools[p.UID]
	x.order = slices.DeleteFunc(x.order, func(pi *poolIndex) bool { return pi == was })
	pi := x.addPool(p)
	if was != nil {
		for l := range x.byAddr.all() {
			if l.PoolUID == p.UID {
				pi.enter(l)
			}
		}
		for _, queue := range []free.Queue{was.freed, was.away} {
			for f := range queue.All() {
				pi.requeue(f.Range, f.Rev)
			}
		}
		for a, rev := range was.kept {
			if rev > 0 {
				pi.requeue(ranges.Between(a, a), rev)
			}
		}
		pi.forget(x.mostFreed)
	}
	for _, u := range x.broken {
		x.blockAll(u)
	}
	if was != nil {
		pi.takeOffers(was)
	}
}

// removePool makes a pool unknown whose rows are gone.
func (x *index) removePool(p *ipam.Pool) {
	was := x.pools[p.UID]
	x.order = slices.DeleteFunc(x.order, func(pi *poolIndex) bool { return pi == was })
	delete(x.pools, p.UID)
}

// apply replaces the row of one address: old is what was there, now what is;
// nil means no row. rev is the revision of the change.
func (x *index) apply(old, now *ipam.Lease, rev int64) {
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
func (x *index) vacate(pi *poolIndex, r ipam.Range, rev int64) {
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
	pi.forget(x.mostFreed)
}

// vacateRange is vacate of what was a delegated prefix, or a part of one.
func (x *index) vacateRange(pi *poolIndex, r ipam.Range, rev int64) {
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
	pi.forget(x.mostFreed)
}

// takenIn returns what of a range is not to be made free: it is so, has a row, is offered or
// may be that of a row that cannot be read.
func (x *index) takenIn(pi *poolIndex, r ipam.Range) (out []ipam.Range) {
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

// block keeps an address from being handed out because a row that cannot be
// read names it, even if another one, which cools, names it too.
func (x *index) block(a netip.Addr) {
	pi := x.poolOf(a)
	if pi == nil {
		return
	}
	pi.blocked[a] = struct{}{}
	pi.take(a)
	if l := x.byAddr.at(a); l != nil {
		x.pools[l.PoolUID].unqueue(l)
	}
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

// A rowset is the rows of a book by their addresses, in numeric order. A
// snapshot costs the same for one row and for 60 000, because it shares all that
// does not change afterwards: a reader of all rows holds no lock meanwhile,
// and no commit waits for it.
type rowset struct{ rows *btree.BTreeG[addressed] }

type addressed struct {
	addr  netip.Addr
	lease *ipam.Lease
}

func newRowset() rowset {
	return rowset{btree.NewBTreeGOptions(
		func(a, b addressed) bool { return a.addr.Less(b.addr) },
		btree.Options{NoLocks: true})}
}

// at returns the row that leases an address, or nil: its own, or that of the delegated prefix
// which contains it.
func (s rowset) at(a netip.Addr) (l *ipam.Lease) {
	if row, ok := s.rows.Get(addressed{addr: a}); ok {
		return row.lease
	}
	s.rows.Descend(addressed{addr: a}, func(row addressed) bool {
		if row.lease.Covers(a) {
			l = row.lease
		}
		return false
	})
	return l
}

// overlapping returns the rows that lease an address of a range, in order.
func (s rowset) overlapping(r ipam.Range) (out []*ipam.Lease) {
	if l := s.at(r.From); l != nil && l.Addr.Less(r.From) {
		out = append(out, l)
	}
	s.rows.Ascend(addressed{addr: r.From}, func(row addressed) bool {
		if r.To.Less(row.addr) {
			return false
		}
		out = append(out, row.lease)
		return true
	})
	return out
}

func (s rowset) set(l *ipam.Lease) { s.rows.Set(addressed{l.Addr, l}) }

func (s rowset) remove(a netip.Addr) { s.rows.Delete(addressed{addr: a}) }

func (s rowset) len() int { return s.rows.Len() }

// all yields every row. A set that another goroutine changes meanwhile is read
// by a snapshot.
func (s rowset) all() iter.Seq[*ipam.Lease] {
	return func(yield func(*ipam.Lease) bool) {
		s.rows.Scan(func(row addressed) bool { return yield(row.lease) })
	}
}

// snapshot returns the rows as they are now. It changes the set that it is
// taken from, as a writer does.
func (s rowset) snapshot() rowset { return rowset{s.rows.IsoCopy()} }
