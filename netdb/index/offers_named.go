package index

import (
	"fmt"
	"net/netip"

	"github.com/ipamd/ipamd/ipam"
)

// PickOwn offers an owner its own last address while that is cooling: stale neighbour entries of the
// address, because of which others wait for the cooldown, are of this very owner. bits is the length of the delegated prefix that is wanted, 0 for
// an address.
func (x *Offers) PickOwn(o ipam.Owner, bits int) (Candidate, bool) {
	x.index.mu.Lock()
	defer x.index.mu.Unlock()
	pi := x.index.tables.poolByUID[o.PoolUID]
	if pi == nil || pi.pool.State == ipam.PoolDraining {
		return Candidate{}, false
	}
	l := pi.coolingByOwner[o]
	if l == nil || l.PrefixLen != bits || pi.offeredRange(l.Range()) || pi.keepsAnyOf(l.Range()) {
		return Candidate{}, false
	}
	if bits != 0 {
		pi.offerPrefix(l.Prefix())
		return Candidate{Addr: l.Addr, PrefixLen: bits, Pool: pi.pool, Cut: ipam.CutOwn, coolingRows: []*ipam.Lease{l}}, true
	}
	pi.offers[l.Addr] = 0
	return Candidate{Addr: l.Addr, Pool: pi.pool, Cut: ipam.CutOwn, rowRev: l.Rev}, true
}

// PickAddr offers the address that a request names, if its owner may have it. Errors: [ipam.ErrNotInPool];
// [ipam.ErrTaken], also while it is offered to another call, or cools after another owner;
// [ipam.KeptError] if it is kept for a sandbox, see [Offers.PickKept]; [ipam.ErrQuarantined].
func (x *Offers) PickAddr(o ipam.Owner, a netip.Addr, policy ipam.Policy) (Candidate, error) {
	now := x.now()
	x.index.mu.Lock()
	defer x.index.mu.Unlock()
	pi, err := x.index.tables.poolToGiveFrom(o.PoolUID)
	if err != nil {
		return Candidate{}, err
	}
	policy = pi.pool.Policy(policy)
	if err := pi.checkGivable(a); err != nil {
		return Candidate{}, fmt.Errorf("address %s: %w", a, err)
	}
	if pi.offered(a) {
		return Candidate{}, fmt.Errorf("address %s: %w by a call under way", a, ipam.ErrTaken)
	}
	l := x.index.tables.rowByAddr.at(a)
	if coolsWithPrefix(l) {
		return Candidate{}, fmt.Errorf("address %s: %w: it cools with the delegated prefix %s", a, ipam.ErrTaken, l.Text())
	}
	cut, err := checkReuse(l, a, l != nil && l.Owner() == o, now, policy)
	if err != nil {
		return Candidate{}, err
	}
	if owner, kept := pi.keptFor[a]; kept {
		return Candidate{}, &ipam.KeptError{Addr: a, Pool: pi.pool.Name, Sandbox: owner}
	}
	pi.offers[a] = pi.take(a)
	return Candidate{Addr: a, Pool: pi.pool, Cut: cut, rowRev: RevOf(l)}, nil
}

// PickKept returns the address that a pool keeps for a sandbox. kept is false if it keeps none, or if
// another interface of the same sandbox and uid has it. No offer is noted, because no other sandbox is
// offered the address: two calls of one sandbox may get the same candidate, and the first that reserves
// it gets the address.
//
// A cooldown after the sandbox itself is cut short, as with [Offers.PickOwn]. Errors: [ipam.ErrTaken] if
// another sandbox has the address, or it cools after another or with a delegated prefix;
// [ipam.ErrQuarantined].
func (x *Offers) PickKept(o ipam.Owner, sandbox string, policy ipam.Policy) (c Candidate, kept bool, err error) {
	now := x.now()
	x.index.mu.RLock()
	defer x.index.mu.RUnlock()
	pi := x.index.tables.poolByUID[o.PoolUID]
	if pi == nil {
		return Candidate{}, false, fmt.Errorf("pick from pool %s: %w", o.PoolUID, ipam.ErrNotFound)
	}
	a, kept := pi.keptAddr[sandbox]
	if !kept || pi.pool.State == ipam.PoolDraining {
		return Candidate{}, false, nil
	}
	policy = pi.pool.Policy(policy)
	l := x.index.tables.rowByAddr.at(a)
	if l != nil && l.State.Open() && l.Sandbox == sandbox && l.UID == o.UID {
		return Candidate{}, false, nil
	}
	if err := pi.checkGivable(a); err != nil {
		return Candidate{}, true, fmt.Errorf("address %s: %w", a, err)
	}
	if pi.offered(a) { // an offer that began before the pool kept it
		return Candidate{}, true, fmt.Errorf("address %s: %w by a call under way", a, ipam.ErrTaken)
	}
	if coolsWithPrefix(l) {
		return Candidate{}, true, fmt.Errorf("address %s: %w: it cools with the delegated prefix %s", a, ipam.ErrTaken, l.Text())
	}
	cut, err := checkReuse(l, a, l != nil && l.Sandbox == sandbox, now, policy)
	if err != nil {
		return Candidate{}, true, err
	}
	return Candidate{Addr: a, Pool: pi.pool, Cut: cut, rowRev: RevOf(l)}, true, nil
}

// coolsWithPrefix reports whether a row, which may be nil, is a delegated prefix that cools. No address
// of it is given alone: they become free together, when the cooldown is over.
func coolsWithPrefix(l *ipam.Lease) bool {
	return l != nil && l.PrefixLen != 0 && l.State == ipam.Cooling
}

// checkReuse returns why the row of an address, nil if it has none, keeps the caller from getting the
// address; or else how its cooldown is cut short for the caller. own says that the row was the caller's.
func checkReuse(l *ipam.Lease, a netip.Addr, own bool, now ipam.Stamp, policy ipam.Policy) (ipam.Cut, error) {
	if l == nil {
		return "", nil
	}
	switch cooled := now.Since(l.Since); {
	case l.State == ipam.Quarantined:
		return "", fmt.Errorf("address %s: %w", a, ipam.ErrQuarantined)
	case l.State != ipam.Cooling:
		return "", fmt.Errorf("address %s: %w: %s by sandbox %q", a, ipam.ErrTaken, l.State, l.Sandbox)
	case cooled >= policy.Cooldown:
		return "", nil
	case own:
		return ipam.CutOwn, nil
	default:
		return "", fmt.Errorf("address %s: %w: it cools for another %v", a, ipam.ErrTaken, policy.Cooldown-cooled)
	}
}
