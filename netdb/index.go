package netdb

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/tidwall/btree"

	"github.com/ipamd/ipamd/internal/ranges"
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
	byID       map[string]*Lease
	byUID      map[string][]*Lease       // rows of a sandbox uid that do not cool: of a pool and an interface one is open
	hostNames  map[string]*HostName      // host interface names that are leased
	hostNameOf map[link]*HostName        // the same by their holders
	sleeps     map[string]*Sleep         // by lease
	slots      map[string]*Slot          // by lease
	tombs      map[string]tombstone      // by sandbox uid
	stones     *btree.Map[int64, string] // the same uids by revision: oldest first
	broken     []Unreadable

	names    map[nameKey]nameMemory
	withheld map[netip.Addr]Withheld

	runtime   string // the container runtime that the book knows
	mostFreed int    // of a pool
	mostTombs int    // of the book
}

// poolIndex is one pool's share of the index.
type poolIndex struct {
	pool    *Pool
	size    uint64
	free    freeset                   // no row, not offered, usable; never given, or so long ago that it is forgotten
	freed   freedQueue                // the same of those that were given before
	kept    map[netip.Addr]int64      // the same of those that are kept for a sandbox: the revision that made it free, 0 when it was never given
	keptFor map[netip.Addr]string     // the sandbox that an address is kept for
	keptOf  map[string]netip.Addr     // and the address that is kept for a sandbox
	cursor  netip.Addr                // where the walk over the never-used goes on
	cooling *btree.Map[int64, *Lease] // inside the pool, by [Lease.CooledAt]: released longest ago first
	spent   *btree.Map[int64, *Lease] // the same of those outside, which are not given again
	away    freedQueue                // what became free and is outside: it has its place when it comes back inside
	outside int                       // rows outside
	own     map[Owner]*Lease          // an owner's last cooling address
	offers  map[netip.Addr]int64      // to callers, not committed yet: the revision that made the address free, 0 when it was never given
	count   map[State]int             // rows by state
	blocked map[netip.Addr]struct{}   // occupied by a row that cannot be read

	prefixes        map[netip.Addr]*Lease         // rows of delegated prefixes
	offeredPrefixes map[netip.Prefix][]freedRange // the same as offers: what was free of each
	blockedPrefixes []Range
}

// An Unreadable row is reported and skipped, never dropped. The addresses that
// it names, by its text or by its key, are not handed out.
type Unreadable struct {
	Row    string // the row's address as stored
	Reason string
	addrs  []netip.Addr
	ranges []Range // of delegated prefixes
	pool   string  // uid, "" where it cannot be read
}

// PoolUID is the uid of the row's pool, "" where it cannot be read.
func (u *Unreadable) PoolUID() string { return u.pool }

type tombstone struct {
	attempt int64
	rev     int64
	at      Stamp
}

// bury sets a sandbox uid's tombstone.
func (x *index) bury(uid string, stone tombstone) {
	x.unbury(uid)
	x.tombs[uid] = stone
	x.stones.Set(stone.rev, uid)
}

func (x *index) unbury(uid string) {
	x.stones.Delete(x.tombs[uid].rev)
	delete(x.tombs, uid)
}

func newIndex() *index {
	return &index{
		pools:      make(map[string]*poolIndex),
		byAddr:     newRowset(),
		byID:       make(map[string]*Lease),
		byUID:      make(map[string][]*Lease),
		hostNames:  make(map[string]*HostName),
		hostNameOf: make(map[link]*HostName),
		sleeps:     make(map[string]*Sleep),
		slots:      make(map[string]*Slot),
		tombs:      make(map[string]tombstone),
		stones:     new(btree.Map[int64, string]),

		names:    make(map[nameKey]nameMemory),
		withheld: make(map[netip.Addr]Withheld),

		mostFreed: mostFreed,
		mostTombs: MaxTombstones,
	}
}

// addPool makes a pool known, with every usable address free.
func (x *index) addPool(p *Pool) *poolIndex {
	pi := &poolIndex{
		pool:    p,
		free:    newFreeset(),
		freed:   newFreedQueue(),
		kept:    make(map[netip.Addr]int64),
		keptFor: make(map[netip.Addr]string),
		keptOf:  make(map[string]netip.Addr),
		cooling: new(btree.Map[int64, *Lease]),
		spent:   new(btree.Map[int64, *Lease]),
		away:    newFreedQueue(),
		own:     make(map[Owner]*Lease),
		offers:  make(map[netip.Addr]int64),
		count:   make(map[State]int),
		blocked: make(map[netip.Addr]struct{}),

		prefixes:        make(map[netip.Addr]*Lease),
		offeredPrefixes: make(map[netip.Prefix][]freedRange),
	}
	for _, s := range States() {
		pi.count[s] = 0 // a snapshot has every state
	}
	pi.free.add(p.hosts())
	pi.free.remove(p.Gateway)
	for _, r := range p.Exclude {
		pi.free.removeRange(r)
	}
	pi.size = pi.free.count()
	pi.keep()
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
func (x *index) open(o Owner) *Lease {
	for _, l := range x.byUID[o.UID] {
		if l.State.Open() && l.Owner() == o {
			return l
		}
	}
	return nil
}

// mayGive says why a pool can never give an address.
func (pi *poolIndex) mayGive(a netip.Addr) error {
	if usable, note := pi.pool.usable(a); !usable {
		return fmt.Errorf("%w %s: it is %s", ErrNotInPool, pi.pool.Name, note)
	}
	if pi.isBlocked(a) {
		return fmt.Errorf("%w by a row that cannot be read; see doctor", ErrTaken)
	}
	return nil
}

// isBlocked reports whether a row that cannot be read may be of an address.
func (pi *poolIndex) isBlocked(a netip.Addr) bool {
	if _, blocked := pi.blocked[a]; blocked {
		return true
	}
	return slices.ContainsFunc(pi.blockedPrefixes, func(r Range) bool { return r.Contains(a) })
}

// replacePool makes a pool known, or known anew with its leases.
func (x *index) replacePool(p *Pool) {
	was := x.pools[p.UID]
	x.order = slices.DeleteFunc(x.order, func(pi *poolIndex) bool { return pi == was })
	pi := x.addPool(p)
	if was != nil {
		for l := range x.byAddr.all() {
			if l.PoolUID == p.UID {
				pi.enter(l)
			}
		}
		for _, queue := range []freedQueue{was.freed, was.away} {
			queue.byRev.Scan(func(f freedRange) bool {
				pi.requeue(f.Range, f.rev)
				return true
			})
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
func (x *index) removePool(p *Pool) {
	was := x.pools[p.UID]
	x.order = slices.DeleteFunc(x.order, func(pi *poolIndex) bool { return pi == was })
	delete(x.pools, p.UID)
}

// requeue queues addresses that became free at a revision: where they are given from, or
// where they wait to come back inside. What is queued already stays as it is.
func (pi *poolIndex) requeue(r Range, rev int64) {
	inside, outside := pi.pool.split(r)
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
	for pi.freed.len() > most {
		oldest, _ := pi.freed.byRev.Min()
		pi.freed.drop(oldest)
		pi.free.add(oldest.Range)
	}
	for pi.away.len() > most {
		oldest, _ := pi.away.byRev.Min()
		pi.away.drop(oldest)
	}
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
	pi.free.remove(a)
	pi.away.remove(a)
	rev := max(pi.freed.remove(a), pi.kept[a])
	delete(pi.kept, a)
	return rev
}

// queue notes of addresses, as far as they are free and count as never given, which revision
// made them free.
func (pi *poolIndex) queue(r Range, rev int64) {
	if rev == 0 {
		return
	}
	if r.From == r.To {
		if was, kept := pi.kept[r.From]; kept && was == 0 {
			pi.kept[r.From] = rev
		}
		if pi.free.remove(r.From) {
			pi.freed.add(r, rev)
		}
		return
	}
	for a, was := range pi.kept {
		if was == 0 && r.Contains(a) {
			pi.kept[a] = rev
		}
	}
	for _, free := range pi.free.takeRange(r) {
		pi.freed.add(free, rev)
	}
}

// apply replaces the row of one address: old is what was there, now what is;
// nil means no row. rev is the revision of the change.
func (x *index) apply(old, now *Lease, rev int64) {
	if old != nil {
		x.byAddr.remove(old.Addr)
		delete(x.byID, old.ID)
		if of := slices.DeleteFunc(x.byUID[old.UID], func(l *Lease) bool { return l == old }); len(of) > 0 {
			x.byUID[old.UID] = of
		} else {
			delete(x.byUID, old.UID)
		}
		x.pools[old.PoolUID].leave(old)
	}
	if now != nil {
		x.byAddr.set(now)
		x.byID[now.ID] = now
		if now.holds() {
			x.byUID[now.UID] = append(x.byUID[now.UID], now)
		}
		x.pools[now.PoolUID].enter(now)
		return
	}
	pi := x.pools[old.PoolUID]
	pi.unoffer(old)
	x.vacate(pi, old.Range(), rev)
}

// unoffer ends the offer of what a row leases.
func (pi *poolIndex) unoffer(l *Lease) {
	if l.PrefixLen == 0 {
		delete(pi.offers, l.Addr)
	} else {
		delete(pi.offeredPrefixes, l.Prefix())
	}
}

func (pi *poolIndex) leave(l *Lease) {
	pi.count[l.State]--
	if pi.pool.outsideOf(l) != "" {
		pi.outside--
	}
	if l.PrefixLen != 0 {
		delete(pi.prefixes, l.Addr)
	}
	pi.unqueue(l)
}

// unqueue takes a cooling lease out of the queue of those to be given again.
func (pi *poolIndex) unqueue(l *Lease) {
	if l.State == Cooling {
		pi.cooling.Delete(l.CooledAt())
		pi.spent.Delete(l.CooledAt())
		if pi.own[l.Owner()] == l {
			delete(pi.own, l.Owner())
		}
	}
}

func (pi *poolIndex) enter(l *Lease) {
	pi.count[l.State]++
	pi.takeRange(l.Range())
	pi.unoffer(l)
	if l.PrefixLen != 0 {
		pi.prefixes[l.Addr] = l
	}
	outside := pi.pool.outsideOf(l) != ""
	if outside {
		pi.outside++
	}
	if l.State == Cooling && !pi.blocks(l.Range()) {
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

// vacate makes addresses free, as far as they have no row and are not offered. rev is
// the revision that made them so, 0 when they were never given.
func (x *index) vacate(pi *poolIndex, r Range, rev int64) {
	if r.From != r.To {
		x.vacateRange(pi, r, rev)
		return
	}
	a := r.From
	if pi.isBlocked(a) || x.byAddr.at(a) != nil || pi.free.has(a) || pi.freed.has(a) || pi.offered(a) {
		return
	}
	_, kept := pi.keptFor[a]
	switch inside := pi.pool.outside(a) == ""; {
	case kept && inside:
		pi.kept[a] = max(rev, pi.kept[a])
	case rev > 0 && inside:
		pi.freed.add(r, rev)
	case rev > 0:
		pi.sendAway(r, rev)
	case inside:
		pi.free.add(r)
	}
	pi.forget(x.mostFreed)
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
