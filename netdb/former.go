package netdb

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/google/uuid"

	"github.com/ipamd/ipamd/internal/ranges"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb/index"
)

// QuarantineFormer is [Book.Quarantine] of the address of a lease that another
// book had, held by an operator where who.Note says why. The row keeps id, owner
// and plumbing, as far as they can be stored; an id that this book knows as
// another's is left out. What no pool could give stays a row of the lease's own pool,
// outside of it, where this book has that pool, too; else the answer is [ipam.ErrNotInPool], and
// [Book.WithholdFormer] has it withheld.
func (b formers) QuarantineFormer(ctx context.Context, who ipam.Who, l *ipam.Lease, evidence json.RawMessage) (*ipam.Lease, error) {
	err := ipam.CheckEvidence(evidence)
	if who.Note != "" {
		err = cmp.Or(ipam.CheckNote(who.Note), ipam.CheckSeen(evidence))
	}
	if err != nil {
		return nil, err
	}
	former := ipam.Lease{Addr: l.Addr, PrefixLen: l.PrefixLen, ID: l.ID, PoolUID: l.PoolUID, Sandbox: l.Sandbox, UID: l.UID, Interface: l.Interface, Attempt: max(l.Attempt, 1),
		Containers: l.Containers, Netns: l.Netns, HostInterface: l.HostInterface, MAC: l.MAC, Plug: l.Plug, Labels: l.Labels, Created: l.Created}
	if id, err := uuid.Parse(l.ID); err != nil || id.String() != l.ID {
		former.ID = ""
	}
	use := ipam.Binding{Containers: l.Containers, Netns: l.Netns, HostInterface: l.HostInterface, MAC: l.MAC}
	if use.Check() != nil {
		former.Containers, former.Netns, former.HostInterface, former.MAC, former.Plug = nil, "", "", "", ipam.Plug{}
	}
	if cmp.Or(ipam.CheckName("sandbox", l.Sandbox), ipam.CheckName("uid", l.UID), ipam.CheckInterface(l.Interface)) != nil {
		former = ipam.Lease{Addr: l.Addr, PrefixLen: l.PrefixLen, PoolUID: l.PoolUID}
	}
	return b.w.quarantine(ctx, who, former, who.Note, evidence, anyRev)
}

// WithholdFormer has an address withheld that another book knew and that is in no pool of
// this one, so that the pool that comes to contain it takes it over and does not give it.
// One that cools begins its cooldown anew. One that is withheld already stays as it is. A pool's gateway
// can be one, which no pool gives: once the pool has another gateway it takes the address over.
//
// Errors: [ipam.ErrGives], [ipam.ErrTaken] (a row has it, or a part of it is withheld), [ipam.FieldError],
// and those of the file.
func (b formers) WithholdFormer(ctx context.Context, who ipam.Who, w ipam.Withheld) error {
	if w.State != ipam.Cooling && w.State != ipam.Quarantined {
		return ipam.Invalid("state", "%.40q is neither %s nor %s", w.State, ipam.Cooling, ipam.Quarantined)
	}
	if w.State == ipam.Quarantined && w.Hold == "" || len(w.Evidence) > 0 {
		if err := ipam.CheckEvidence(w.Evidence); err != nil {
			return err
		}
	}
	if id, err := uuid.Parse(w.LeaseID); err != nil || id.String() != w.LeaseID {
		w.LeaseID = ""
	}
	if cmp.Or(ipam.CheckName("sandbox", w.Sandbox), ipam.CheckName("uid", w.UID), ipam.CheckInterface(w.Interface)) != nil {
		w.Sandbox, w.UID, w.Interface = "", "", ""
	}
	return b.w.update(ctx, func(t *tx) error { return t.withholdFormer(who, w) })
}

func (t *tx) withholdFormer(who ipam.Who, w ipam.Withheld) error {
	in := ipam.RangeOf(w.Addr, w.PrefixLen)
	if rows := t.Overlapping(in); len(rows) > 0 {
		return fmt.Errorf("withhold %s: %w: %s is %s", ipam.TextOf(w.Addr, w.PrefixLen), ipam.ErrTaken, rows[0].Text(), rows[0].State)
	}
	for _, p := range t.Pools() {
		if index.Gives(&p.PoolSpec, in) || w.PrefixLen != 0 && in.Contains(p.Gateway) {
			return fmt.Errorf("withhold %s: %w: pool %s (%s)", ipam.TextOf(w.Addr, w.PrefixLen), ipam.ErrGives, p.Name, p.Prefix)
		}
	}
	others := t.Withheld
	if w.PrefixLen == 0 {
		others = func() (at []ipam.Withheld) {
			if other := t.WithheldAt(w.Addr); other != nil {
				at = append(at, *other)
			}
			return at
		}
	}
	for _, other := range others() {
		switch is := ipam.RangeOf(other.Addr, other.PrefixLen); {
		case is == in:
			return nil
		case is.Overlaps(in):
			return fmt.Errorf("withhold %s: %w: %s is withheld", ipam.TextOf(w.Addr, w.PrefixLen), ipam.ErrTaken, ipam.TextOf(other.Addr, other.PrefixLen))
		}
	}
	if w.Rev = t.Rev() + 1; w.State == ipam.Cooling || w.Since.IsZero() {
		w.Since = t.now
	}
	// It is no lease's move, and yet it ends the lease's id, and has a place in the history
	// of its address.
	t.Stage(index.Step{Withheld: &w, Change: &ipam.Change{
		Rev: w.Rev, At: t.now, Subject: ipam.OfBook, Addr: w.Addr, PrefixLen: w.PrefixLen, LeaseID: w.LeaseID, PoolUID: w.PoolUID, Pool: w.Pool,
		Sandbox: w.Sandbox, UID: w.UID, Interface: w.Interface, From: ipam.Free, To: ipam.Free, Who: who, Evidence: w.Evidence,
	}})
	return nil
}

// checkFormer refuses a delegated prefix that this book cannot have as one.
func checkFormer(v *index.View, p *ipam.Pool, l *ipam.Lease) error {
	if !wasOutside(v, l) {
		if _, err := p.CheckPrefixLength(l.PrefixLen); err != nil {
			return err
		}
		if note := p.Outside(l); note != "" {
			return fmt.Errorf("%w %s: it, or an address of it, is %s", ipam.ErrNotInPool, p.Name, note)
		}
	}
	for _, other := range v.Overlapping(l.Range()) {
		if other.Addr != l.Addr || other.PrefixLen != l.PrefixLen {
			return fmt.Errorf("%w: %s of it is %s by sandbox %q", ipam.ErrTaken, other.Text(), other.State, other.Sandbox)
		}
	}
	return nil
}

// poolOfFormer is [index.View.PoolFor] of what a lease of another book had.
func poolOfFormer(v *index.View, l *ipam.Lease) (*ipam.Pool, error) {
	if v.At(l.Addr) == nil && wasOutside(v, l) {
		return v.Pool(l.PoolUID), nil
	}
	return v.PoolFor(l.Addr)
}

// wasOutside reports that a lease of another book can be a row of its own pool, which is in
// this book, too, outside of it: as it was. On the gateway, which the host has, it cannot.
func wasOutside(v *index.View, l *ipam.Lease) bool {
	own := v.Pool(l.PoolUID)
	return own != nil && own.Outside(l) != "" && !l.Covers(own.Gateway) && !slices.ContainsFunc(v.Pools(), func(p *ipam.Pool) bool {
		return p.UID != own.UID && ranges.Of(p.Prefix).Overlaps(l.Range())
	})
}

// KeepPools makes the pools of another book in one that has none, as they were: uid, spec,
// state and generation, and has it remember their names. So what was sent to them before
// stays old, a removed pool's too, and a configuration that has not changed changes
// nothing. It returns why a pool is left out: it overlaps one before it, or is none.
func (b formers) KeepPools(ctx context.Context, who ipam.Who, pools []*ipam.Pool, names []ipam.PoolName) (leftOut []error, err error) {
	who.Reason = ipam.PoolCreated
	err = b.w.update(ctx, func(t *tx) error {
		leftOut = nil
		known := make(map[index.PoolKey]*ipam.PoolName)
		for _, n := range names {
			if n.Generation >= 0 && (n.Family == 4 || n.Family == 6) {
				known[index.PoolKeyOfName(&n)] = &n
			}
		}
		for _, p := range pools {
			n := known[index.PoolKeyOf(&p.PoolSpec)]
			if err := canKeep(&t.View, p); err != nil {
				leftOut = append(leftOut, fmt.Errorf("pool %s (%s, uid %s): %w", p.Name, p.Prefix, p.UID, err))
				if n == nil && p.Check() == nil && poolNamed(&t.View, &p.PoolSpec) == nil {
					n = &ipam.PoolName{Name: p.Name, Family: p.Family()}
					known[index.PoolKeyOfName(n)] = n
				}
				if n != nil { // what was sent to it stays old, and the configuration may make it
					n.Generation, n.Configured = max(n.Generation, p.Generation), ""
				}
				continue
			}
			delete(known, index.PoolKeyOf(&p.PoolSpec))
			t.Stage(index.Step{Pool: p, PoolName: n, Change: t.poolChange(who, p)})
		}
		for _, n := range known {
			t.stageName(who, n)
		}
		return nil
	})
	return leftOut, err
}

func canKeep(v *index.View, p *ipam.Pool) error {
	id, err := uuid.Parse(p.UID)
	switch {
	case err != nil || id.String() != p.UID || v.Pool(p.UID) != nil:
		return ipam.Invalid("pool.uid", "%.80q is no id of its own", p.UID)
	case p.State != ipam.PoolActive && p.State != ipam.PoolDraining:
		return ipam.Invalid("pool.state", "%.40q is neither active nor draining", p.State)
	case p.Generation < 1:
		return ipam.Invalid("generation", "%d is below 1", p.Generation)
	case poolNamed(v, &p.PoolSpec) != nil:
		return ipam.Invalid("pool.name", "another one has it")
	}
	if err := p.Check(); err != nil {
		return err
	}
	for _, other := range v.Pools() {
		if other.Prefix.Overlaps(p.Prefix) {
			return &ipam.OverlapError{Spec: p.PoolSpec, Other: other}
		}
	}
	return nil
}

// KeepHostName gives a host interface name that another book had leased to an interface of
// a sandbox to that interface, beside the row by which it holds it here: a lease, or an
// address that is quarantined for it. who.Reason and who.Note are not recorded; those of the
// row stay. Errors: [ipam.ErrNotFound] (it has no row), [ipam.ErrNameTaken], [ipam.ErrState] (it has
// another name), [ipam.FieldError].
func (b formers) KeepHostName(ctx context.Context, who ipam.Who, n ipam.HostName) error {
	if err := cmp.Or(ipam.CheckName("uid", n.UID), ipam.CheckInterface(n.Interface), ipam.CheckHostName(n.Name)); err != nil {
		return err
	}
	_, err := change(ctx, b.w, func(t *tx) (*ipam.Lease, error) {
		rows := t.RowsOfInterface(index.InterfaceOf(&n))
		if len(rows) == 0 {
			return nil, fmt.Errorf("host interface name %s: %w: sandbox uid %q has no address for %s", n.Name, ipam.ErrNotFound, n.UID, n.Interface)
		}
		l := rows[0]
		given, err := nameLink(&t.View, l, Naming{Want: n.Name, Name: n.Name})
		if given == nil || err != nil {
			return l, err
		}
		var evidence json.RawMessage
		if who.Actor, who.Reason, who.Note = ipam.ByReconciler, l.Reason, ""; l.State == ipam.Quarantined {
			who.Actor, who.Note, evidence = ipam.ByOperator, l.Hold, l.Evidence // a salvage of the changes has only this one
		}
		now, err := t.move(who, l, *l, evidence)
		if err == nil {
			t.SetHostNames(given, nil)
		}
		return now, err
	})
	return err
}
