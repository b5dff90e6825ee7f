package index

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/ipamd/ipamd/internal/ranges"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb/free"
)

// addPool adds a pool, with every usable address free.
func (x *tables) addPool(p *ipam.Pool) *poolIndex {
	pi := newPoolIndex(p)
	x.poolByUID[p.UID] = pi
	x.poolsInOrder = append(x.poolsInOrder, pi)
	slices.SortStableFunc(x.poolsInOrder, func(a, b *poolIndex) int {
		return cmp.Compare(a.pool.UID, b.pool.UID) // UUIDv7: the order of creation
	})
	return pi
}

// poolOf returns the pool whose prefix contains the address.
func (x *tables) poolOf(a netip.Addr) *poolIndex {
	for _, pi := range x.poolsInOrder {
		if pi.pool.Prefix.Contains(a) {
			return pi
		}
	}
	return nil
}

// replacePool adds a pool, or puts a changed one in the place of the old one: its rows, its queues of
// freed addresses and its offers are carried over, by what the pool can give now.
func (x *tables) replacePool(p *ipam.Pool) {
	was := x.poolByUID[p.UID]
	x.poolsInOrder = slices.DeleteFunc(x.poolsInOrder, func(pi *poolIndex) bool { return pi == was })
	pi := x.addPool(p)
	if was != nil {
		for l := range x.rowByAddr.all() {
			if l.PoolUID == p.UID {
				pi.addRow(l)
			}
		}
		for _, queue := range []free.Queue{was.freed, was.freedOutside} {
			for f := range queue.All() {
				pi.requeue(f.Range, f.Rev)
			}
		}
		for a, rev := range was.freeKept {
			if rev > 0 {
				pi.requeue(ranges.Between(a, a), rev)
			}
		}
		pi.trimFreed(x.opts.MostFreed)
	}
	for _, u := range x.unreadable {
		x.blockAll(u)
	}
	if was != nil {
		pi.takeOffers(was)
	}
}

// removePool removes a pool, whose rows are gone by then.
func (x *tables) removePool(p *ipam.Pool) {
	was := x.poolByUID[p.UID]
	x.poolsInOrder = slices.DeleteFunc(x.poolsInOrder, func(pi *poolIndex) bool { return pi == was })
	delete(x.poolByUID, p.UID)
}

// block keeps an address from being given, because a row that cannot be read may lease it. That
// holds although a row that can be read cools on it.
func (x *tables) block(a netip.Addr) {
	pi := x.poolOf(a)
	if pi == nil {
		return
	}
	pi.blocked[a] = struct{}{}
	pi.take(a)
	if l := x.rowByAddr.at(a); l != nil {
		x.poolByUID[l.PoolUID].unqueueCooling(l)
	}
}

// blockAll keeps all addresses from being given that a row which cannot be read may lease.
func (x *tables) blockAll(u Unreadable) {
	for _, a := range u.Addrs {
		x.block(a)
	}
	for _, r := range u.Ranges {
		for _, pi := range x.poolsInOrder {
			if !ranges.Of(pi.pool.Prefix).Overlaps(r) {
				continue
			}
			pi.blockedPrefixes = append(pi.blockedPrefixes, r)
			pi.takeRange(r)
			for _, l := range x.rowByAddr.overlapping(r) {
				x.poolByUID[l.PoolUID].unqueueCooling(l)
			}
		}
	}
}
