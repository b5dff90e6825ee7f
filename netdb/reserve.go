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
		if err := ipam.CheckHostName(r.Naming.Want); err != nil {
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
func (b leases) Reserve(ctx context.Context, who ipam.Who, rs ...Reservation) ([]*ipam.Lease, error) {
	for i := range rs {
		if err := rs[i].Check(); err != nil {
			return nil, err
		}
	}
	return change(ctx, b.w, func(t *tx) ([]*ipam.Lease, error) {
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
		BindWithin: r.BindWithin, Labels: r.Labels, Evidence: r.Evidence, Cut: r.Candidate.Cut,
	}
	if t.cancelled(r.UID, r.Attempt) {
		return nil, fmt.Errorf("sandbox %q, attempt %d: %w", r.Sandbox, r.Attempt, ipam.ErrCancelled)
	}
	p := t.Pool(pool.UID)
	if p == nil || p.State == ipam.PoolDraining || p.Outside(&now) != "" || !reachesLike(&p.PoolSpec, pool) {
		return nil, fmt.Errorf("address %s: %w", now.Text(), ipam.ErrPoolChanged)
	}
	if held := t.Open(now.Owner()); held != nil {
		return nil, &ipam.OwnedError{Lease: held}
	}
	old, ends, err := t.RowsFor(r.Candidate)
	if err != nil {
		return nil, err
	}
	rested := who
	rested.Reason = ipam.Rested
	for _, l := range ends {
		if _, err := t.setState(rested, l, ipam.Free, nil); err != nil {
			return nil, err
		}
	}
	if err := checkKept(p, now.Range(), r.Sandbox); err != nil {
		return nil, err
	}
	if r.Unseen != nil {
		if err := r.Unseen(); err != nil {
			return nil, err
		}
	}
	given, err := nameLink(&t.View, &now, r.Naming)
	if err != nil {
		return nil, err
	}
	l, err := t.move(who, old, now, r.Evidence)
	if err == nil && given != nil {
		t.SetHostNames(given, nil)
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

// checkKept returns an [ipam.KeptError] when a pool keeps an address of
// a range for another than a sandbox, or one of a delegated prefix for any.
func checkKept(p *ipam.Pool, r ipam.Range, sandbox string) error {
	for _, k := range p.Kept {
		if r.Contains(k.Address) && (k.Sandbox != sandbox || r.From != r.To) {
			return &ipam.KeptError{Addr: k.Address, Pool: p.Name, Sandbox: k.Sandbox}
		}
	}
	return nil
}
