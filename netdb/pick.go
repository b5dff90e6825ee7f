package netdb

import (
	"fmt"
	"net/netip"
	"sort"
	"time"

	"github.com/ipamd/ipamd/internal/ranges"
	"github.com/ipamd/ipamd/ipam"
)

// A Candidate is an address that is offered to one caller, and to no other
// meanwhile. An offer is in memory only: it ends with [Book.Reserve],
// [Book.Quarantine] or [Book.Drop].
type Candidate struct {
	Addr      netip.Addr
	PrefixLen int // as of an [ipam.Lease]
	Pool      *ipam.Pool
	Early     bool // its cooldown was cut short, because nothing else is left

	cut    ipam.Cut
	rev    int64         // of the cooling row that was found cooled; 0: there was none
	cooled []*ipam.Lease // the same of a delegated prefix, which may be in the place of many
}

// Range returns the first and the last address that are offered.
func (c *Candidate) Range() ipam.Range { return ipam.RangeOf(c.Addr, c.PrefixLen) }

// Pick offers the address that the pool gives next: never
// used first, in address order, walking on from the last one given; then the
// one that became free longest ago; then the one released longest ago whose
// cooldown is over and whose row is still there; at exhaustion, unless the
// policy is strict, the one released longest ago whose CooldownMin is over.
// The cost does not depend on how many leases there are.
//
// Nothing to offer is [ipam.ErrExhausted]; an unknown pool is [ipam.ErrNotFound].
func (m *memory) Pick(poolUID string, policy ipam.Policy) (Candidate, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	pi, err := m.idx.giving(poolUID)
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
	now := m.clock.Now()
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
		c.cut = ipam.CutEarly
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
func (m *memory) Available(poolUID string, policy ipam.Policy) (n uint64, next time.Duration) {
	now := m.clock.Now()
	m.mu.RLock()
	defer m.mu.RUnlock()
	pi := m.idx.pools[poolUID]
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
		if l := m.idx.byAddr.at(a); l != nil && l.PrefixLen == 0 && l.State == ipam.Cooling && now.Since(l.Since) >= leastRest(policy) {
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

// PickOwn offers an owner its own last address while that is still cooling:
// its own stale neighbours cannot hurt it. No other owner is offered it before
// the cooldown is over. bits is the length of the delegated prefix that is wanted, 0 for an
// address.
func (m *memory) PickOwn(o ipam.Owner, bits int) (Candidate, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	pi := m.idx.pools[o.PoolUID]
	if pi == nil || pi.pool.State == ipam.PoolDraining {
		return Candidate{}, false
	}
	l := pi.own[o]
	if l == nil || l.PrefixLen != bits || pi.offeredRange(l.Range()) || pi.keepsOf(l.Range()) {
		return Candidate{}, false
	}
	if bits != 0 {
		pi.offerPrefix(l.Prefix())
		return Candidate{Addr: l.Addr, PrefixLen: bits, Pool: pi.pool, cut: ipam.CutOwn, cooled: []*ipam.Lease{l}}, true
	}
	pi.offers[l.Addr] = 0
	return Candidate{Addr: l.Addr, Pool: pi.pool, cut: ipam.CutOwn, rev: l.Rev}, true
}

// PickAddr offers one wished address, if its owner-to-be may have it:
// [ipam.ErrNotInPool], [ipam.ErrTaken] (also while another call is offered it, or while
// it cools after another owner, and [ipam.KeptError] for one that is kept: see
// [Book.PickKept]) or [ipam.ErrQuarantined].
func (m *memory) PickAddr(o ipam.Owner, a netip.Addr, policy ipam.Policy) (Candidate, error) {
	now := m.clock.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	pi, err := m.idx.giving(o.PoolUID)
	if err != nil {
		return Candidate{}, err
	}
	policy = pi.pool.Policy(policy)
	if err := pi.mayGive(a); err != nil {
		return Candidate{}, fmt.Errorf("address %s: %w", a, err)
	}
	if pi.offered(a) {
		return Candidate{}, fmt.Errorf("address %s: %w by a call under way", a, ipam.ErrTaken)
	}
	l := m.idx.byAddr.at(a)
	if coolsWithPrefix(l) {
		return Candidate{}, fmt.Errorf("address %s: %w: it cools with the delegated prefix %s", a, ipam.ErrTaken, l.Text())
	}
	cut, err := restOf(l, a, l != nil && l.Owner() == o, now, policy)
	if err != nil {
		return Candidate{}, err
	}
	if owner, kept := pi.keptFor[a]; kept {
		return Candidate{}, &ipam.KeptError{Addr: a, Pool: pi.pool.Name, Sandbox: owner}
	}
	pi.offers[a] = pi.take(a)
	return Candidate{Addr: a, Pool: pi.pool, cut: cut, rev: revOf(l)}, nil
}

// Drop ends the offer of a candidate that was not taken. It may be called
// after [Book.Reserve] too, and twice.
func (m *memory) Drop(c Candidate) {
	m.mu.Lock()
	defer m.mu.Unlock()
	pi := m.idx.pools[c.Pool.UID]
	if pi == nil {
		return
	}
	if c.PrefixLen != 0 {
		p := netip.PrefixFrom(c.Addr, c.PrefixLen)
		pieces := pi.offeredPrefixes[p]
		delete(pi.offeredPrefixes, p)
		for _, f := range pieces {
			m.idx.vacate(pi, f.Range, f.Rev)
		}
		return
	}
	if rev, offered := pi.offers[c.Addr]; offered {
		delete(pi.offers, c.Addr)
		m.idx.vacate(pi, ranges.Between(c.Addr, c.Addr), rev)
	}
}

// Upcoming lists up to n addresses that [Book.Pick] would offer next, for
// those who look ahead. It offers none of them.
func (m *memory) Upcoming(poolUID string, n int, policy ipam.Policy) []netip.Addr {
	now := m.clock.Now()
	m.mu.RLock()
	defer m.mu.RUnlock()
	pi := m.idx.pools[poolUID]
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
func (x *index) giving(uid string) (*poolIndex, error) {
	pi := x.pools[uid]
	if pi == nil {
		return nil, fmt.Errorf("pick from pool %s: %w", uid, ipam.ErrNotFound)
	}
	if pi.pool.State == ipam.PoolDraining {
		return nil, fmt.Errorf("pick from pool %s: %w", pi.pool.Name, ipam.ErrDraining)
	}
	return pi, nil
}

// PickKept returns the address that a pool keeps for a sandbox; kept is false when it
// keeps none, or when another interface of the same sandbox and uid has it. The address
// is not offered as [Book.Pick] does it, for no other sandbox can be offered it: two
// calls of one sandbox may have it at once, and the first that reserves it gets it.
//
// A cooldown after the sandbox itself is cut short: its own stale neighbours cannot hurt
// it. Errors: [ipam.ErrTaken] (another holds it, or it cools after another or in a
// delegated prefix), [ipam.ErrQuarantined].
func (m *memory) PickKept(o ipam.Owner, sandbox string, policy ipam.Policy) (c Candidate, kept bool, err error) {
	now := m.clock.Now()
	m.mu.RLock()
	defer m.mu.RUnlock()
	pi := m.idx.pools[o.PoolUID]
	if pi == nil {
		return Candidate{}, false, fmt.Errorf("pick from pool %s: %w", o.PoolUID, ipam.ErrNotFound)
	}
	a, kept := pi.keptOf[sandbox]
	if !kept || pi.pool.State == ipam.PoolDraining {
		return Candidate{}, false, nil
	}
	policy = pi.pool.Policy(policy)
	l := m.idx.byAddr.at(a)
	if l != nil && l.State.Open() && l.Sandbox == sandbox && l.UID == o.UID {
		return Candidate{}, false, nil
	}
	if err := pi.mayGive(a); err != nil {
		return Candidate{}, true, fmt.Errorf("address %s: %w", a, err)
	}
	if pi.offered(a) { // since before it was kept
		return Candidate{}, true, fmt.Errorf("address %s: %w by a call under way", a, ipam.ErrTaken)
	}
	if coolsWithPrefix(l) {
		return Candidate{}, true, fmt.Errorf("address %s: %w: it cools with the delegated prefix %s", a, ipam.ErrTaken, l.Text())
	}
	cut, err := restOf(l, a, l != nil && l.Sandbox == sandbox, now, policy)
	if err != nil {
		return Candidate{}, true, err
	}
	return Candidate{Addr: a, Pool: pi.pool, cut: cut, rev: revOf(l)}, true, nil
}

// coolsWithPrefix reports that a row, which may be nil, leaves none of its addresses to a
// caller alone: they become free together, when the cooldown of their prefix is over.
func coolsWithPrefix(l *ipam.Lease) bool {
	return l != nil && l.PrefixLen != 0 && l.State == ipam.Cooling
}

// restOf returns nil when the row of an address, which may be nil, leaves it to the
// caller, and how the cooldown is cut for that. own says that it cools after the
// caller itself.
func restOf(l *ipam.Lease, a netip.Addr, own bool, now ipam.Stamp, policy ipam.Policy) (ipam.Cut, error) {
	if l == nil {
		return "", nil
	}
	switch rest := now.Since(l.Since); {
	case l.State == ipam.Quarantined:
		return "", fmt.Errorf("address %s: %w", a, ipam.ErrQuarantined)
	case l.State != ipam.Cooling:
		return "", fmt.Errorf("address %s: %w: %s by sandbox %q", a, ipam.ErrTaken, l.State, l.Sandbox)
	case rest >= policy.Cooldown:
		return "", nil
	case own:
		return ipam.CutOwn, nil
	default:
		return "", fmt.Errorf("address %s: %w: it cools for another %v", a, ipam.ErrTaken, policy.Cooldown-rest)
	}
}

// leastRest is how long an address cools at least before another owner gets it.
func leastRest(p ipam.Policy) time.Duration {
	if p.Strict {
		return p.Cooldown
	}
	return p.CooldownMin
}
