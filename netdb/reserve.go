package netdb

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/ipamd/ipamd/ipam"
)

// A Reservation asks for one address that was picked before.
type Reservation struct {
	Candidate  Candidate
	Sandbox    string
	UID        string
	Interface  string
	Attempt    int64
	BindWithin time.Duration
	Labels     map[string]string
	Evidence   json.RawMessage // what the witnesses reported, when there is something to store
	// Unseen is called in the transaction, last of all: an error ends the
	// whole request and nothing is written. It runs inside the commit and
	// must not wait.
	Unseen func() error
	Naming Naming // of the link on the host
	// Binding is where the lease is used already: it is bound in the same transaction, by
	// BoundBy. nil leaves it reserved.
	Binding *ipam.Binding
	BoundBy ipam.Who
	Slot    *ipam.NewSlot // nil: of a sandbox
}

// Check returns an [ipam.FieldError] for the first argument that cannot be stored.
func (r *Reservation) Check() error {
	err := cmp.Or(ipam.CheckName("sandbox", r.Sandbox), ipam.CheckName("uid", r.UID), ipam.CheckInterface(r.Interface))
	switch {
	case err != nil:
		return err
	case r.Attempt < 1:
		return ipam.Invalid("attempt", "%d is below 1", r.Attempt)
	case r.BindWithin <= 0 || r.BindWithin > ipam.MaxBindWait:
		return ipam.Invalid("bind_within", "%v is not above 0 and up to %v", r.BindWithin, ipam.MaxBindWait)
	}
	if ipam.IsSlotUID(r.UID) != (r.Slot != nil) {
		return ipam.Invalid("uid", "%.80q begins as those of ipamd's own leases do: choose another", r.UID)
	}
	if r.Naming.Want != "" {
		if err := checkHostName(r.Naming.Want); err != nil {
			return err
		}
	}
	if r.Binding != nil {
		if err := r.Binding.Check(); err != nil {
			return err
		}
	}
	return ipam.CheckLabels(r.Labels)
}

// Reserve takes every candidate for its sandbox, or none. It returns once
// that is durable.
//
// Errors: [ipam.OwnedError] (the owner has a lease), [ipam.ErrCancelled], [ipam.ErrTaken],
// [ipam.FieldError], whatever Unseen returned, and those of the file.
func (b *Book) Reserve(ctx context.Context, who ipam.Who, rs ...Reservation) ([]*ipam.Lease, error) {
	for i := range rs {
		if err := rs[i].Check(); err != nil {
			return nil, err
		}
	}
	return change(ctx, b.writer, func(t *tx) ([]*ipam.Lease, error) {
		out := make([]*ipam.Lease, len(rs))
		for i, r := range rs {
			l, err := t.reserve(who, r)
			if err == nil && r.Binding != nil {
				l, err = t.bind(r.BoundBy, l, 0, *r.Binding)
			}
			if err != nil {
				return nil, err
			}
			out[i] = l
		}
		return out, nil
	})
}

func (t *tx) reserve(who ipam.Who, r Reservation) (*ipam.Lease, error) {
	pool := r.Candidate.Pool
	now := ipam.Lease{
		Addr: r.Candidate.Addr, PrefixLen: r.Candidate.PrefixLen, ID: newID(), PoolUID: pool.UID, Pool: pool.Name, State: ipam.Reserved,
		Sandbox: r.Sandbox, UID: r.UID, Interface: r.Interface, Attempt: r.Attempt,
		BindWithin: r.BindWithin, Labels: r.Labels, Evidence: r.Evidence, Cut: r.Candidate.cut,
	}
	if t.cancelled(r.UID, r.Attempt) {
		return nil, fmt.Errorf("sandbox %q, attempt %d: %w", r.Sandbox, r.Attempt, ipam.ErrCancelled)
	}
	if p := t.pool(pool.UID); p == nil || p.State == ipam.PoolDraining || p.Outside(&now) != "" || !reachesLike(&p.PoolSpec, pool) {
		return nil, fmt.Errorf("address %s: %w", now.Text(), ipam.ErrPoolChanged)
	}
	if held := t.open(now.Owner()); held != nil {
		return nil, &ipam.OwnedError{Lease: held}
	}
	old := t.at(now.Addr)
	if now.PrefixLen != 0 {
		var err error
		if old, err = t.reservePrefix(who, r.Candidate); err != nil {
			return nil, err
		}
	} else if revOf(old) != r.Candidate.rev || old != nil && old.PrefixLen != 0 { // it was free or rested as it was picked, alone, and is so still
		return nil, fmt.Errorf("address %s: %w", now.Addr, ipam.ErrTaken)
	}
	if err := t.refuses(now.PoolUID, now.Range(), r.Sandbox); err != nil {
		return nil, err
	}
	if r.Unseen != nil {
		if err := r.Unseen(); err != nil {
			return nil, err
		}
	}
	given, err := t.nameLink(&now, r.Naming)
	if err != nil {
		return nil, err
	}
	l, err := t.move(who, old, now, r.Evidence)
	if err == nil && given != nil {
		t.staged.rename(given, nil)
	}
	if err == nil && r.Slot != nil {
		err = t.reserveSlot(l, r.Slot)
	}
	return l, err
}

// reachesLike reports that a sandbox of the pool is on the same wire as when the pool was p:
// nothing was seen of an address on another bridge, and what was the gateway may be another's.
func reachesLike(s *ipam.PoolSpec, p *ipam.Pool) bool {
	return s.Bridge == p.Bridge && s.Gateway == p.Gateway && s.Prefix == p.Prefix
}

// Name leases a host interface name beside an open lease that has none. Where it has one
// that fits, nothing is written. Errors: [ipam.ErrState] (it has another one, or was released),
// [ipam.ErrNameTaken], [ipam.FieldError].
func (b *Book) Name(ctx context.Context, who ipam.Who, id string, n Naming) (*ipam.Lease, error) {
	if err := checkHostName(n.Want); err != nil {
		return nil, err
	}
	return b.changeLease(ctx, id, func(t *tx, l *ipam.Lease) (*ipam.Lease, error) {
		if !l.State.Open() {
			return nil, fmt.Errorf("name a link of %s: %w: it is %s", l.Addr, ipam.ErrState, l.State)
		}
		given, err := t.nameLink(l, n)
		if given == nil || err != nil {
			return l, err
		}
		now, err := t.move(who, l, *l, nil)
		if err == nil {
			t.staged.rename(given, nil)
		}
		return now, err
	})
}

// Renew notes that a sandbox asks for its lease again, and will bind it within
// a time. A reserved one has at least half of that left afterwards: the answer
// would be worth nothing if it ended a moment later. A higher attempt is noted,
// so that a late cancel of a lower one leaves the lease alone. Where there is
// nothing to note nothing is written, and the lease comes back as every change
// before has left it. One that was released is [ipam.ErrState].
func (b *Book) Renew(ctx context.Context, who ipam.Who, id string, attempt int64, within time.Duration) (*ipam.Lease, error) {
	return b.changeLease(ctx, id, func(t *tx, l *ipam.Lease) (*ipam.Lease, error) {
		if t.cancelled(l.UID, attempt) {
			return nil, fmt.Errorf("sandbox %q, attempt %d: %w", l.Sandbox, attempt, ipam.ErrCancelled)
		}
		if !l.State.Open() {
			return nil, fmt.Errorf("renew %s: %w: it is %s", l.Addr, ipam.ErrState, l.State)
		}
		now := *l
		now.Attempt = max(attempt, l.Attempt)
		if past := t.now.Since(l.Since); l.State == ipam.Reserved && l.BindWithin-past < within/2 {
			now.BindWithin = past + within
		}
		if now.Attempt == l.Attempt && now.BindWithin == l.BindWithin {
			return l, nil
		}
		return t.move(who, l, now, nil)
	})
}

// refuses returns an [ipam.KeptError] when a pool, as this batch leaves it, keeps an address of
// a range for another than a sandbox, or one of a delegated prefix for any.
func (t *tx) refuses(poolUID string, r ipam.Range, sandbox string) error {
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
			return &ipam.KeptError{Addr: k.Address, Pool: spec.Name, Sandbox: k.Sandbox}
		}
	}
	return nil
}
