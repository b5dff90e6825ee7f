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

// A Candidate is an address, or a delegated prefix, that is offered to one caller: no other is offered
// it at the same time. An offer is in memory only. It ends when a row leases the address, and with
// [Offers.Drop].
type Candidate struct {
	Addr      netip.Addr
	PrefixLen int // as of an [ipam.Lease]
	Pool      *ipam.Pool
	Early     bool // its cooldown was cut short, because nothing else is left
	Cut       ipam.Cut

	rowRev      int64         // of an address: the revision of the cooling row that the new lease replaces; 0: none
	coolingRows []*ipam.Lease // of a delegated prefix: the cooling rows in it
}

// Offers chooses addresses for callers that are about to reserve them, and offers each to one caller
// only. Its methods are safe for concurrent use.
type Offers struct {
	index *Index
	now   func() ipam.Stamp
}

// Offers returns the offers of an index. now says what the time is, for cooldowns.
func (x *Index) Offers(now func() ipam.Stamp) *Offers { return &Offers{x, now} }

// Range returns the first and the last address that are offered.
func (c *Candidate) Range() ipam.Range { return ipam.RangeOf(c.Addr, c.PrefixLen) }

// Text is the address or the delegated prefix.
func (c *Candidate) Text() string { return ipam.TextOf(c.Addr, c.PrefixLen) }

// Pick offers the address that the pool gives next, which is the first of these that there is:
//
//   - the next one in address order that was never given, behind the last one that was offered;
//   - the one that became free longest ago;
//   - the one with a cooling row that was released longest ago, if its cooldown is over or, unless
//     the policy is strict, its CooldownMin.
//
// The cost does not depend on how many leases there are.
//
// Nothing to offer is [ipam.ErrExhausted]; an unknown pool is [ipam.ErrNotFound].
func (x *Offers) Pick(poolUID string, policy ipam.Policy) (Candidate, error) {
	x.index.mu.Lock()
	defer x.index.mu.Unlock()
	pi, err := x.index.tables.poolToGiveFrom(poolUID)
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
	l := pi.oldestCooling(func(l *ipam.Lease) bool { return l.PrefixLen == 0 && !pi.offered(l.Addr) })
	if l == nil {
		exhausted.Next = pi.untilPrefixCooled(now, policy)
		return Candidate{}, exhausted
	}
	cooled := now.Since(l.Since)
	if cooled < minCooldown(policy) {
		exhausted.Next = minCooldown(policy) - cooled
		return Candidate{}, exhausted
	}
	c := Candidate{Addr: l.Addr, Pool: pi.pool, Early: cooled < policy.Cooldown, rowRev: l.Rev}
	if c.Early {
		c.Cut = ipam.CutEarly
	}
	pi.offers[l.Addr] = 0
	return c, nil
}

// oldestCooling returns the cooling row that was released longest ago, of those inside the pool that a
// function wants and that are not kept for a sandbox; nil if there is none. Revisions order them,
// not clocks.
func (pi *poolIndex) oldestCooling(wanted func(*ipam.Lease) bool) (found *ipam.Lease) {
	pi.coolingByRev.Scan(func(_ int64, l *ipam.Lease) bool {
		if _, kept := pi.keptFor[l.Addr]; !kept && wanted(l) {
			found = l
		}
		return found == nil
	})
	return found
}

// untilPrefixCooled is how long until the cooldown of the first delegated prefix is over: its addresses
// become free together then. It is 0 if no prefix cools, and a second at least if one does.
func (pi *poolIndex) untilPrefixCooled(now ipam.Stamp, policy ipam.Policy) time.Duration {
	l := pi.oldestCooling(func(l *ipam.Lease) bool { return l.PrefixLen != 0 })
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

// Available counts the addresses of a pool that can be given now: those without a row, and those
// that have cooled for as long as the policy wants at exhaustion. If there is none, next is how long
// until the one that was released longest ago can be given; 0 if none cools. Addresses that are kept
// for a sandbox do not count. The cost does not depend on how many leases there are.
func (x *Offers) Available(poolUID string, policy ipam.Policy) (n uint64, next time.Duration) {
	now := x.now()
	x.index.mu.RLock()
	defer x.index.mu.RUnlock()
	pi := x.index.tables.poolByUID[poolUID]
	if pi == nil || pi.pool.State == ipam.PoolDraining {
		return 0, 0
	}
	policy = pi.pool.Policy(policy)
	n = saturatingAdd(pi.free.Count(), pi.freed.Count())
	switch oldest := pi.oldestCooling(func(l *ipam.Lease) bool { return l.PrefixLen == 0 }); {
	case oldest == nil && n == 0:
		return 0, pi.untilPrefixCooled(now, policy)
	case oldest == nil:
		return n, 0
	case n == 0 && now.Since(oldest.Since) < minCooldown(policy):
		return 0, minCooldown(policy) - now.Since(oldest.Since)
	}
	cooled := sort.Search(pi.coolingByRev.Len(), func(at int) bool {
		_, l, _ := pi.coolingByRev.GetAt(at)
		return now.Since(l.Since) < minCooldown(policy)
	})
	for a := range pi.keptFor {
		if l := x.index.tables.rowByAddr.at(a); l != nil && l.PrefixLen == 0 && l.State == ipam.Cooling && now.Since(l.Since) >= minCooldown(policy) {
			cooled--
		}
	}
	for _, l := range pi.prefixRows {
		if l.State == ipam.Cooling && now.Since(l.Since) >= minCooldown(policy) {
			cooled--
		}
	}
	return saturatingAdd(n, uint64(max(cooled, 0))), 0
}

// Drop ends the offer of a candidate. It may be called twice, and also after the candidate was
// reserved: then it does nothing.
func (x *Offers) Drop(c Candidate) {
	x.index.mu.Lock()
	defer x.index.mu.Unlock()
	pi := x.index.tables.poolByUID[c.Pool.UID]
	if pi == nil {
		return
	}
	if c.PrefixLen != 0 {
		p := netip.PrefixFrom(c.Addr, c.PrefixLen)
		pieces := pi.offeredPrefixes[p]
		delete(pi.offeredPrefixes, p)
		for _, f := range pieces {
			x.index.tables.vacate(pi, f.Range, f.Rev)
		}
		return
	}
	if rev, offered := pi.offers[c.Addr]; offered {
		delete(pi.offers, c.Addr)
		x.index.tables.vacate(pi, ranges.Between(c.Addr, c.Addr), rev)
	}
}

// Upcoming lists up to n addresses that [Offers.Pick] would offer next, so that they can be probed
// ahead. It offers none of them.
func (x *Offers) Upcoming(poolUID string, n int, policy ipam.Policy) []netip.Addr {
	now := x.now()
	x.index.mu.RLock()
	defer x.index.mu.RUnlock()
	pi := x.index.tables.poolByUID[poolUID]
	if pi == nil || pi.pool.State == ipam.PoolDraining {
		return nil
	}
	policy = pi.pool.Policy(policy)
	out := pi.free.Upcoming(pi.cursor, n)
	out = append(out, pi.freed.Upcoming(n-len(out))...)
	pi.oldestCooling(func(l *ipam.Lease) bool {
		ends := len(out) >= n || now.Since(l.Since) < policy.CooldownMin
		if !ends && l.PrefixLen == 0 {
			out = append(out, l.Addr)
		}
		return ends
	})
	return out
}

// poolToGiveFrom returns a pool by its uid, unless it is unknown, or draining and gives nothing.
func (x *tables) poolToGiveFrom(uid string) (*poolIndex, error) {
	pi := x.poolByUID[uid]
	if pi == nil {
		return nil, fmt.Errorf("pick from pool %s: %w", uid, ipam.ErrNotFound)
	}
	if pi.pool.State == ipam.PoolDraining {
		return nil, fmt.Errorf("pick from pool %s: %w", pi.pool.Name, ipam.ErrDraining)
	}
	return pi, nil
}

// minCooldown is how long an address cools at least before another owner may get it.
func minCooldown(p ipam.Policy) time.Duration {
	if p.Strict {
		return p.Cooldown
	}
	return p.CooldownMin
}

// Cooled returns up to n cooling rows of a pool whose cooldown is over, inside the pool and outside,
// the one released longest ago first. cooldown is the daemon's; the pool's own goes before it. after is
// the last row that the caller has seen, nil at first. The cost does not depend on how many leases
// there are.
func (x *Offers) Cooled(poolUID string, cooldown time.Duration, after *ipam.Lease, n int) []*ipam.Lease {
	now := x.now()
	x.index.mu.RLock()
	defer x.index.mu.RUnlock()
	pi := x.index.tables.poolByUID[poolUID]
	if pi == nil {
		return nil
	}
	cooldown = pi.pool.Policy(ipam.Policy{Cooldown: cooldown}).Cooldown
	next := int64(0)
	if after != nil {
		next = after.CoolingRev() + 1
	}
	var out []*ipam.Lease
	for _, queue := range []*btree.Map[int64, *ipam.Lease]{pi.coolingByRev, pi.coolingOutside} {
		most := len(out) + n
		queue.Ascend(next, func(_ int64, l *ipam.Lease) bool {
			if len(out) == most || now.Since(l.Since) < cooldown {
				return false
			}
			out = append(out, l)
			return true
		})
	}
	slices.SortFunc(out, func(x, y *ipam.Lease) int { return cmp.Compare(x.CoolingRev(), y.CoolingRev()) })
	return out[:min(n, len(out))]
}

// Offered reports whether an address of a row is offered to a caller.
func (x *Offers) Offered(l *ipam.Lease) bool {
	x.index.mu.RLock()
	defer x.index.mu.RUnlock()
	pi := x.index.tables.poolByUID[l.PoolUID]
	return pi != nil && pi.offeredRange(l.Range())
}
