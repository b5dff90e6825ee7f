package index

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/ipamd/ipamd/internal/ranges"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb/free"
)

// addPool makes a pool known, with every usable address free.
func (x *tables) addPool(p *ipam.Pool) *poolIndex {
	pi := newPoolIndex(p)
	x.pools[p.UID] = pi
	x.order = append(x.order, pi)
	slices.SortStableFunc(x.order, func(a, b *poolIndex) int {
		return cmp.Compare(a.pool.UID, b.pool.UID) // UUIDv7: the order of creation
	})
	return pi
}

// poolOf returns the pool whose prefix contains the address.
func (x *tables) poolOf(a netip.Addr) *poolIndex {
	for _, pi := range x.order {
		if pi.pool.Prefix.Contains(a) {
			return pi
		}
	}
	return nil
}

// replacePool makes a pool known, or known anew with its leases.
func (x *tables) replacePool(p *ipam.Pool) {
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
		pi.forget(x.opts.MostFreed)
	}
	for _, u := range x.broken {
		x.blockAll(u)
	}
	if was != nil {
		pi.takeOffers(was)
	}
}

// removePool makes a pool unknown whose rows are gone.
func (x *tables) removePool(p *ipam.Pool) {
	was := x.pools[p.UID]
	x.order = slices.DeleteFunc(x.order, func(pi *poolIndex) bool { return pi == was })
	delete(x.pools, p.UID)
}

// block keeps an address from being handed out because a row that cannot be
// read names it, even if another one, which cools, names it too.
func (x *tables) block(a netip.Addr) {
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
func (x *tables) blockAll(u Unreadable) {
	for _, a := range u.Addrs {
		x.block(a)
	}
	for _, r := range u.Ranges {
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
