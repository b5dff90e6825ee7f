package index

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"sort"
	"time"

	"github.com/tidwall/btree"

	"github.com/ipamd/ipamd/internal/ranges"
	"github.com/ipamd/ipamd/ipam"
)

// A Candidate is an address that is offered to one caller, and to no other
// meanwhile. An offer is in memory only: it ends when a row comes to have the address, and
// with [Offers.Drop].
type Candidate struct {
	Addr      netip.Addr
	PrefixLen int // as of an [ipam.Lease]
	Pool      *ipam.Pool
	Early     bool // its cooldown was cut short, because nothing else is left
	Cut       ipam.Cut

	rev    int64         // of the cooling row that was found cooled; 0: there was none
	cooled []*ipam.Lease // the same of a delegated prefix, which may be in the place of many
}

// Offers offers addresses to callers: which those are is the index's to know, and the time the
// book's. Its methods are safe for concurrent use.
type Offers struct {
	of  *Index
	now func() ipam.Stamp
}

// Offers returns those of an index, by the time that now tells.
func (x *Index) Offers(now func() ipam.Stamp) *Offers { return &Offers{x, now} }

// Range returns the first and the last address that are offered.
func (c *Candidate) Range() ipam.Range { return ipam.RangeOf(c.Addr, c.PrefixLen) }

// Text is the address or the delegated prefix.
func (c *Candidate) Text() string { return ipam.TextOf(c.Addr, c.PrefixLen) }

// Pick offers the address that the pool gives next: never
// used first, in address order, walking on from the last one given; then the
// one that became free longest ago; then the one released longest ago whose
// cooldown is over and whose row is still there; at exhaustion, unless the
// policy is strict, the one released longest ago whose CooldownMin is over.
// The cost does not depend on how many leases there are.
//
// Nothing to offer is [ipam.ErrExhausted]; an unknown pool is [ipam.ErrNotFound].
func (x *Offers) Pick(poolUID string, policy ipam.Policy) (Candidate, error) {
	x.of.mu.Lock()
	defer x.of.mu.Unlock()
	pi, err := x.of.is.giving(poolUID)
	if err != nil {
		return Candidate{}, err
	}
	policy = pi.pool.Policy(policy)
	a, found := pi.free.Next(pi.cursor)
	if found {
		pi.cursor = a.Next()
	} else if first, some := pi.freed.First(); some {
		a, found = first.From, true
	}
	if found {
		pi.offers[a] = pi.take(a)
		return Candidate{Addr: a, Pool: pi.pool}, nil
	}
	exhausted := pi.exhausted(0, 0)
	now := x.now()
	l := pi.rested(func(l *ipam.Lease) bool { return l.PrefixLen == 0 && !pi.offered(l.Addr) })
	if l == nil {
		exhausted.Next = pi.nextOfPrefixes(now, policy)
		return Candidate{}, exhausted
	}
	rest := now.Since(l.Since)
	if rest < leastRest(policy) {
		exhausted.Next = leastRest(policy) - rest
		return Candidate{}, exhausted
	}
	c := Candidate{Addr: l.Addr, Pool: pi.pool, Early: rest < policy.Cooldown, rev: l.Rev}
	if c.Early {
		c.Cut = ipam.CutEarly
	}
	pi.offers[l.Addr] = 0
	return c, nil
}

// rested returns the cooling lease that was released longest ago, of those that a
// function wants and whose addresses can be given again; nil when there is none.
// Revisions order them, not clocks.
func (pi *poolIndex) rested(wanted func(*ipam.Lease) bool) (found *ipam.Lease) {
	pi.cooling.Scan(func(_ int64, l *ipam.Lease) bool {
		if _, kept := pi.keptFor[l.Addr]; !kept && wanted(l) {
			found = l
		}
		return found == nil
	})
	return found
}

// nextOfPrefixes is how long until the addresses of a delegated prefix have cooled: it
// becomes free as a whole, when its cooldown is over. It is 0 when none cools, and at least
// a moment when one does.
func (pi *poolIndex) nextOfPrefixes(now ipam.Stamp, policy ipam.Policy) time.Duration {
	l := pi.rested(func(l *ipam.Lease) bool { return l.PrefixLen != 0 })
	if l == nil {
		return 0
	}
	return max(policy.Cooldown-now.Since(l.Since), time.Second)
}

// offered reports whether an address is offered to a caller, alone or in a prefix.
func (pi *poolIndex) offered(a netip.Addr) bool {
	_, offered := pi.offers[a]
	for p := range pi.offeredPrefixes {
		offered = offered || p.Contains(a)
	}
	return offered
}

// Available counts the addresses of a pool that can be given now: those without
// a row, and those that have cooled for as long as the policy wants at exhaustion.
// When there is none, next is how long until the one that cools for longest can
// be given; 0 when none cools. What is kept for a sandbox does not count. The cost does
// not depend on how many leases there are.
func (x *Offers) Available(poolUID string, policy ipam.Policy) (n uint64, next time.Duration) {
	now := x.now()
	x.of.mu.RLock()
	defer x.of.mu.RUnlock()
	pi := x.of.is.pools[poolUID]
	if pi == nil || pi.pool.State == ipam.PoolDraining {
		return 0, 0
	}
	policy = pi.pool.Policy(policy)
	n = saturatingAdd(pi.free.Count(), pi.freed.Count())
	switch oldest := pi.rested(func(l *ipam.Lease) bool { return l.PrefixLen == 0 }); {
	case oldest == nil && n == 0:
		return 0, pi.nextOfPrefixes(now, policy)
	case oldest == nil:
		return n, 0
	case n == 0 && now.Since(oldest.Since) < leastRest(policy):
		return 0, leastRest(policy) - now.Since(oldest.Since)
	}
	rested := sort.Search(pi.cooling.Len(), func(at int) bool {
		_, l, _ := pi.cooling.GetAt(at)
		return now.Since(l.Since) < leastRest(policy)
	})
	for a := range pi.keptFor {
		if l := x.of.is.byAddr.at(a); l != nil && l.PrefixLen == 0 && l.State == ipam.Cooling && now.Since(l.Since) >= leastRest(policy) {
			rested--
		}
	}
	for _, l := range pi.prefixes {
		if l.State == ipam.Cooling && now.Since(l.Since) >= leastRest(policy) {
			rested--
		}
	}
	return saturatingAdd(n, uint64(max(rested, 0))), 0
}

// Drop ends the offer of a candidate that was not taken. It may be called
// after it was reserved, too, and twice.
func (x *Offers) Drop(c Candidate) {
	x.of.mu.Lock()
	defer x.of.mu.Unlock()
	pi := x.of.is.pools[c.Pool.UID]
	if pi == nil {
		return
	}
	if c.PrefixLen != 0 {
		p := netip.PrefixFrom(c.Addr, c.PrefixLen)
		pieces := pi.offeredPrefixes[p]
		delete(pi.offeredPrefixes, p)
		for _, f := range pieces {
			x.of.is.vacate(pi, f.Range, f.Rev)
		}
		return
	}
	if rev, offered := pi.offers[c.Addr]; offered {
		delete(pi.offers, c.Addr)
		x.of.is.vacate(pi, ranges.Between(c.Addr, c.Addr), rev)
	}
}

// Upcoming lists up to n addresses that [Offers.Pick] would offer next, for
// those who look ahead. It offers none of them.
func (x *Offers) Upcoming(poolUID string, n int, policy ipam.Policy) []netip.Addr {
	now := x.now()
	x.of.mu.RLock()
	defer x.of.mu.RUnlock()
	pi := x.of.is.pools[poolUID]
	if pi == nil || pi.pool.State == ipam.PoolDraining {
		return nil
	}
	policy = pi.pool.Policy(policy)
	out := pi.free.Upcoming(pi.cursor, n)
	out = append(out, pi.freed.Upcoming(n-len(out))...)
	pi.rested(func(l *ipam.Lease) bool {
		ends := len(out) >= n || now.Since(l.Since) < policy.CooldownMin
		if !ends && l.PrefixLen == 0 {
			out = append(out, l.Addr)
		}
		return ends
	})
	return out
}

// giving is the pool of uid, unless nothing can be given from it.
func (x *tables) giving(uid string) (*poolIndex, error) {
	pi := x.pools[uid]
	if pi == nil {
		return nil, fmt.Errorf("pick from pool %s: %w", uid, ipam.ErrNotFound)
	}
	if pi.pool.State == ipam.PoolDraining {
		return nil, fmt.Errorf("pick from pool %s: %w", pi.pool.Name, ipam.ErrDraining)
	}
	return pi, nil
}

// leastRest is how long an address cools at least before another owner gets it.
func leastRest(p ipam.Policy) time.Duration {
	if p.Strict {
		return p.Cooldown
	}
	return p.CooldownMin
}

// Cooled returns up to n cooling rows of a pool whose cooldown is over, the one
// released longest ago first, also those outside. The pool's own cooldown goes before
// the daemon's. after is the last row that the caller has looked at, nil at first. The cost
// does not depend on how many leases there are.
func (x *Offers) Cooled(poolUID string, cooldown time.Duration, after *ipam.Lease, n int) []*ipam.Lease {
	now := x.now()
	x.of.mu.RLock()
	defer x.of.mu.RUnlock()
	pi := x.of.is.pools[poolUID]
	if pi == nil {
		return nil
	}
	cooldown = pi.pool.Policy(ipam.Policy{Cooldown: cooldown}).Cooldown
	next := int64(0)
	if after != nil {
		next = after.CooledAt() + 1
	}
	var out []*ipam.Lease
	for _, queue := range []*btree.Map[int64, *ipam.Lease]{pi.cooling, pi.spent} {
		most := len(out) + n
		queue.Ascend(next, func(_ int64, l *ipam.Lease) bool {
			if len(out) == most || now.Since(l.Since) < cooldown {
				return false
			}
			out = append(out, l)
			return true
		})
	}
	slices.SortFunc(out, func(x, y *ipam.Lease) int { return cmp.Compare(x.CooledAt(), y.CooledAt()) })
	return out[:min(n, len(out))]
}

// Offered reports whether a caller is offered the address of a row, or one of its prefix.
func (x *Offers) Offered(l *ipam.Lease) bool {
	x.of.mu.RLock()
	defer x.of.mu.RUnlock()
	pi := x.of.is.pools[l.PoolUID]
	return pi != nil && pi.offeredRange(l.Range())
}
