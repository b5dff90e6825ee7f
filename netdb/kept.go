package netdb

import (
	"fmt"
	"net/netip"
)

// A Kept address is given to one sandbox only, by its name, and to no other also while
// that sandbox is away or everything else is exhausted.
type Kept struct {
	Sandbox string     `json:"sandbox"`
	Address netip.Addr `json:"address"`
}

// checkKept returns a [FieldError] for the first kept address that the pool cannot
// give, or that is kept twice.
func (s *PoolSpec) checkKept() error {
	addrs, sandboxes := make(map[netip.Addr]string), make(map[string]netip.Addr)
	for _, k := range s.Kept {
		if err := checkName("pool.reservation", k.Sandbox); err != nil {
			return invalid("pool.reservation", "the sandbox of %s %s", AddrText(k.Address), err.(*FieldError).Reason)
		}
		if usable, note := s.usable(k.Address); !usable {
			return invalid("pool.reservation", "%q cannot have %s: it is %s", k.Sandbox, AddrText(k.Address), note)
		}
		if other, is := addrs[k.Address]; is {
			return invalid("pool.reservation", "%s is for both %q and %q", k.Address, other, k.Sandbox)
		}
		if other, is := sandboxes[k.Sandbox]; is {
			return invalid("pool.reservation", "%q has both %s and %s", k.Sandbox, other, k.Address)
		}
		addrs[k.Address], sandboxes[k.Sandbox] = k.Sandbox, k.Address
	}
	return nil
}

// KeptFor is the sandbox that a pool keeps an address for, "" for none.
func (s *PoolSpec) KeptFor(a netip.Addr) string {
	for _, k := range s.Kept {
		if k.Address == a {
			return k.Sandbox
		}
	}
	return ""
}

// A KeptError refuses an address that its pool keeps for another sandbox. It is
// [ErrTaken].
type KeptError struct {
	Addr    netip.Addr
	Pool    string
	Sandbox string // whose it is
}

func (e *KeptError) Error() string {
	return fmt.Sprintf("address %s: %v: pool %s keeps it for sandbox %q", e.Addr, ErrTaken, e.Pool, e.Sandbox)
}

func (e *KeptError) Unwrap() error { return ErrTaken }

// keep takes what a new pool keeps out of what it may give to anyone.
func (pi *poolIndex) keep() {
	for _, k := range pi.pool.Kept {
		pi.free.Remove(k.Address)
		pi.keptFor[k.Address], pi.keptOf[k.Sandbox], pi.kept[k.Address] = k.Sandbox, k.Address, 0
	}
}

// refuses returns a [KeptError] when a pool, as this batch leaves it, keeps an address of
// a range for another than a sandbox, or one of a delegated prefix for any.
func (t *tx) refuses(poolUID string, r Range, sandbox string) error {
	pi := t.idx.pools[poolUID]
	if pi == nil {
		return nil
	}
	spec := &pi.pool.PoolSpec
	for _, s := range t.staged.steps {
		if s.pool != nil && s.pool.UID == poolUID {
			spec = &s.pool.PoolSpec
		}
	}
	for _, k := range spec.Kept {
		if r.Contains(k.Address) && (k.Sandbox != sandbox || r.From != r.To) {
			return &KeptError{k.Address, spec.Name, k.Sandbox}
		}
	}
	return nil
}

// PickKept returns the address that a pool keeps for a sandbox; kept is false when it
// keeps none, or when another interface of the same sandbox and uid has it. The address
// is not offered as [Book.Pick] does it, for no other sandbox can be offered it: two
// calls of one sandbox may have it at once, and the first that reserves it gets it.
//
// A rest after the sandbox itself is cut short: its own stale neighbours cannot hurt
// it. Errors: [ErrTaken] (another holds it, or it cools after another or in a
// delegated prefix), [ErrQuarantined].
func (m *memory) PickKept(o Owner, sandbox string, policy Policy) (c Candidate, kept bool, err error) {
	now := m.clock.Now()
	m.mu.RLock()
	defer m.mu.RUnlock()
	pi := m.idx.pools[o.PoolUID]
	if pi == nil {
		return Candidate{}, false, fmt.Errorf("pick from pool %s: %w", o.PoolUID, ErrNotFound)
	}
	a, kept := pi.keptOf[sandbox]
	if !kept || pi.pool.State == PoolDraining {
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
		return Candidate{}, true, fmt.Errorf("address %s: %w by a call under way", a, ErrTaken)
	}
	if l.coolsWithPrefix() {
		return Candidate{}, true, fmt.Errorf("address %s: %w: it cools with the delegated prefix %s", a, ErrTaken, l.Text())
	}
	cut, err := l.rests(a, l != nil && l.Sandbox == sandbox, now, policy)
	if err != nil {
		return Candidate{}, true, err
	}
	return Candidate{Addr: a, Pool: pi.pool, cut: cut, rev: revOf(l)}, true, nil
}

// coolsWithPrefix reports that a row, which may be nil, leaves none of its addresses to a
// caller alone: they become free together, when the cooldown of their prefix is over.
func (l *Lease) coolsWithPrefix() bool { return l != nil && l.PrefixLen != 0 && l.State == Cooling }

// rests returns nil when the row of an address, which may be nil, leaves it to the
// caller, and how the cooldown is cut for that. own says that it cools after the
// caller itself.
func (l *Lease) rests(a netip.Addr, own bool, now Stamp, policy Policy) (Cut, error) {
	if l == nil {
		return "", nil
	}
	switch rest := now.Since(l.Since); {
	case l.State == Quarantined:
		return "", fmt.Errorf("address %s: %w", a, ErrQuarantined)
	case l.State != Cooling:
		return "", fmt.Errorf("address %s: %w: %s by sandbox %q", a, ErrTaken, l.State, l.Sandbox)
	case rest >= policy.Cooldown:
		return "", nil
	case own:
		return CutOwn, nil
	default:
		return "", fmt.Errorf("address %s: %w: it cools for another %v", a, ErrTaken, policy.Cooldown-rest)
	}
}
