package index

import (
	"fmt"
	"net/netip"

	"github.com/ipamd/ipamd/ipam"
)

// PickOwn offers an owner its own last address while that is still cooling:
// its own stale neighbours cannot hurt it. No other owner is offered it before
// the cooldown is over. bits is the length of the delegated prefix that is wanted, 0 for an
// address.
func (x *Offers) PickOwn(o ipam.Owner, bits int) (Candidate, bool) {
	x.of.mu.Lock()
	defer x.of.mu.Unlock()
	pi := x.of.is.pools[o.PoolUID]
	if pi == nil || pi.pool.State == ipam.PoolDraining {
		return Candidate{}, false
	}
	l := pi.own[o]
	if l == nil || l.PrefixLen != bits || pi.offeredRange(l.Range()) || pi.keepsOf(l.Range()) {
		return Candidate{}, false
	}
	if bits != 0 {
		pi.offerPrefix(l.Prefix())
		return Candidate{Addr: l.Addr, PrefixLen: bits, Pool: pi.pool, Cut: ipam.CutOwn, cooled: []*ipam.Lease{l}}, true
	}
	pi.offers[l.Addr] = 0
	return Candidate{Addr: l.Addr, Pool: pi.pool, Cut: ipam.CutOwn, rev: l.Rev}, true
}

// PickAddr offers one wished address, if its owner-to-be may have it:
// [ipam.ErrNotInPool], [ipam.ErrTaken] (also while another call is offered it, or while
// it cools after another owner, and [ipam.KeptError] for one that is kept: see
// [Offers.PickKept]) or [ipam.ErrQuarantined].
func (x *Offers) PickAddr(o ipam.Owner, a netip.Addr, policy ipam.Policy) (Candidate, error) {
	now := x.now()
	x.of.mu.Lock()
	defer x.of.mu.Unlock()
	pi, err := x.of.is.giving(o.PoolUID)
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
	l := x.of.is.byAddr.at(a)
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
	return Candidate{Addr: a, Pool: pi.pool, Cut: cut, rev: RevOf(l)}, nil
}

// PickKept returns the address that a pool keeps for a sandbox; kept is false when it
// keeps none, or when another interface of the same sandbox and uid has it. The address
// is not offered as [Offers.Pick] does it, for no other sandbox can be offered it: two
// calls of one sandbox may have it at once, and the first that reserves it gets it.
//
// A cooldown after the sandbox itself is cut short: its own stale neighbours cannot hurt
// it. Errors: [ipam.ErrTaken] (another holds it, or it cools after another or in a
// delegated prefix), [ipam.ErrQuarantined].
func (x *Offers) PickKept(o ipam.Owner, sandbox string, policy ipam.Policy) (c Candidate, kept bool, err error) {
	now := x.now()
	x.of.mu.RLock()
	defer x.of.mu.RUnlock()
	pi := x.of.is.pools[o.PoolUID]
	if pi == nil {
		return Candidate{}, false, fmt.Errorf("pick from pool %s: %w", o.PoolUID, ipam.ErrNotFound)
	}
	a, kept := pi.keptOf[sandbox]
	if !kept || pi.pool.State == ipam.PoolDraining {
		return Candidate{}, false, nil
	}
	policy = pi.pool.Policy(policy)
	l := x.of.is.byAddr.at(a)
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
	return Candidate{Addr: a, Pool: pi.pool, Cut: cut, rev: RevOf(l)}, true, nil
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
