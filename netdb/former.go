package netdb

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/google/uuid"

	"github.com/ipamd/ipamd/internal/ranges"
)

// ErrGives means that an address cannot be withheld beside the pools, because one of them
// gives it, or could: it has to be a row of that pool.
var ErrGives = errors.New("a pool gives it")

// QuarantineFormer is [Book.Quarantine] of the address of a lease that another
// book had, held by an operator where who.Note says why. The row keeps id, owner
// and plumbing, as far as they can be stored; an id that this book knows as
// another's is left out. What no pool could give stays a row of the lease's own pool,
// outside of it, where this book has that pool, too; else the answer is [ErrNotInPool], and
// [Book.WithholdFormer] has it withheld.
func (b *Book) QuarantineFormer(ctx context.Context, who Who, l *Lease, evidence json.RawMessage) (*Lease, error) {
	err := checkEvidence(evidence)
	if who.Note != "" {
		err = cmp.Or(checkNote(who.Note), checkSeen(evidence))
	}
	if err != nil {
		return nil, err
	}
	former := Lease{Addr: l.Addr, PrefixLen: l.PrefixLen, ID: l.ID, PoolUID: l.PoolUID, Sandbox: l.Sandbox, UID: l.UID, Interface: l.Interface, Attempt: max(l.Attempt, 1),
		Containers: l.Containers, Netns: l.Netns, HostInterface: l.HostInterface, MAC: l.MAC, Plug: l.Plug, Labels: l.Labels, Created: l.Created}
	if id, err := uuid.Parse(l.ID); err != nil || id.String() != l.ID {
		former.ID = ""
	}
	use := Binding{Containers: l.Containers, Netns: l.Netns, HostInterface: l.HostInterface, MAC: l.MAC}
	if use.Check() != nil {
		former.Containers, former.Netns, former.HostInterface, former.MAC, former.Plug = nil, "", "", "", Plug{}
	}
	if cmp.Or(checkName("sandbox", l.Sandbox), checkName("uid", l.UID), checkInterface(l.Interface)) != nil {
		former = Lease{Addr: l.Addr, PrefixLen: l.PrefixLen, PoolUID: l.PoolUID}
	}
	return b.quarantine(ctx, who, former, who.Note, evidence, anyRev)
}

// WithholdFormer has an address withheld that another book knew and that is in no pool of
// this one, so that the pool that comes to contain it takes it over and does not give it.
// One that cools rests from now on. One that is withheld already stays as it is. A pool's gateway
// can be one, which no pool gives: once the pool has another gateway it takes the address over.
//
// Errors: [ErrGives], [ErrTaken] (a row has it, or a part of it is withheld), [FieldError],
// and those of the file.
func (b *Book) WithholdFormer(ctx context.Context, who Who, w Withheld) error {
	if w.State != Cooling && w.State != Quarantined {
		return invalid("state", "%.40q is neither %s nor %s", w.State, Cooling, Quarantined)
	}
	if w.State == Quarantined && w.Hold == "" || len(w.Evidence) > 0 {
		if err := checkEvidence(w.Evidence); err != nil {
			return err
		}
	}
	if id, err := uuid.Parse(w.LeaseID); err != nil || id.String() != w.LeaseID {
		w.LeaseID = ""
	}
	if cmp.Or(checkName("sandbox", w.Sandbox), checkName("uid", w.UID), checkInterface(w.Interface)) != nil {
		w.Sandbox, w.UID, w.Interface = "", "", ""
	}
	return b.writer.update(ctx, func(t *tx) error { return t.withholdFormer(who, w) })
}

func (t *tx) withholdFormer(who Who, w Withheld) error {
	in := rangeOf(w.Addr, w.PrefixLen)
	if rows := t.overlapping(in); len(rows) > 0 {
		return fmt.Errorf("withhold %s: %w: %s is %s", placeText(w.Addr, w.PrefixLen), ErrTaken, rows[0].Text(), rows[0].State)
	}
	for _, p := range t.pools() {
		if p.gives(in) || w.PrefixLen != 0 && in.Contains(p.Gateway) {
			return fmt.Errorf("withhold %s: %w: pool %s (%s)", placeText(w.Addr, w.PrefixLen), ErrGives, p.Name, p.Prefix)
		}
	}
	others := t.withheld
	if w.PrefixLen == 0 {
		others = func() (at []Withheld) {
			if other := t.withheldAt(w.Addr); other != nil {
				at = append(at, *other)
			}
			return at
		}
	}
	for _, other := range others() {
		switch is := rangeOf(other.Addr, other.PrefixLen); {
		case is == in:
			return nil
		case is.Overlaps(in):
			return fmt.Errorf("withhold %s: %w: %s is withheld", placeText(w.Addr, w.PrefixLen), ErrTaken, placeText(other.Addr, other.PrefixLen))
		}
	}
	if w.Rev = t.staged.rev + 1; w.State == Cooling || w.Since.IsZero() {
		w.Since = t.now
	}
	// It is no lease's move, and yet it ends the lease's id, and has a place in the history
	// of its address.
	t.staged.stage(step{withheld: &w, change: &Change{
		Rev: w.Rev, At: t.now, Subject: OfBook, Addr: w.Addr, PrefixLen: w.PrefixLen, LeaseID: w.LeaseID, PoolUID: w.PoolUID, Pool: w.Pool,
		Sandbox: w.Sandbox, UID: w.UID, Interface: w.Interface, From: Free, To: Free, Who: who, Evidence: w.Evidence,
	}})
	return nil
}

// checkFormer refuses a delegated prefix that this book cannot have as one.
func (t *tx) checkFormer(p *Pool, l *Lease) error {
	if !t.wasOutside(l) {
		if _, err := p.CheckPrefixLength(l.PrefixLen); err != nil {
			return err
		}
		if note := p.Outside(l); note != "" {
			return fmt.Errorf("%w %s: it, or an address of it, is %s", ErrNotInPool, p.Name, note)
		}
	}
	for _, other := range t.overlapping(l.Range()) {
		if other.Addr != l.Addr || other.PrefixLen != l.PrefixLen {
			return fmt.Errorf("%w: %s of it is %s by sandbox %q", ErrTaken, other.Text(), other.State, other.Sandbox)
		}
	}
	return nil
}

// poolOfFormer is poolFor of what a lease of another book had.
func (t *tx) poolOfFormer(l *Lease) (*Pool, error) {
	if t.at(l.Addr) == nil && t.wasOutside(l) {
		return t.pool(l.PoolUID), nil
	}
	return t.poolFor(l.Addr)
}

// wasOutside reports that a lease of another book can be a row of its own pool, which is in
// this book, too, outside of it: as it was. On the gateway, which the host has, it cannot.
func (t *tx) wasOutside(l *Lease) bool {
	own := t.pool(l.PoolUID)
	return own != nil && own.Outside(l) != "" && !l.Covers(own.Gateway) && !slices.ContainsFunc(t.pools(), func(p *Pool) bool {
		return p.UID != own.UID && ranges.Of(p.Prefix).Overlaps(l.Range())
	})
}

// KeepPools makes the pools of another book in one that has none, as they were: uid, spec,
// state and generation, and has it remember their names. So what was sent to them before
// stays old, a removed pool's too, and a configuration that has not changed changes
// nothing. It returns why a pool is left out: it overlaps one before it, or is none.
func (b *Book) KeepPools(ctx context.Context, who Who, pools []*Pool, names []PoolName) (leftOut []error, err error) {
	who.Reason = PoolCreated
	err = b.writer.update(ctx, func(t *tx) error {
		leftOut = nil
		known := make(map[nameKey]*PoolName)
		for _, n := range names {
			if n.Generation >= 0 && (n.Family == 4 || n.Family == 6) {
				known[n.key()] = &n
			}
		}
		for _, p := range pools {
			n := known[p.key()]
			if err := t.canKeep(p); err != nil {
				leftOut = append(leftOut, fmt.Errorf("pool %s (%s, uid %s): %w", p.Name, p.Prefix, p.UID, err))
				if n == nil && p.Check() == nil && t.poolNamed(&p.PoolSpec) == nil {
					n = &PoolName{Name: p.Name, Family: p.family()}
					known[n.key()] = n
				}
				if n != nil { // what was sent to it stays old, and the configuration may make it
					n.Generation, n.Configured = max(n.Generation, p.Generation), ""
				}
				continue
			}
			delete(known, p.key())
			t.staged.stage(step{pool: p, name: n, change: t.poolChange(who, p)})
		}
		for _, n := range known {
			t.stageName(who, n)
		}
		return nil
	})
	return leftOut, err
}

func (t *tx) canKeep(p *Pool) error {
	id, err := uuid.Parse(p.UID)
	switch {
	case err != nil || id.String() != p.UID || t.pool(p.UID) != nil:
		return invalid("pool.uid", "%.80q is no id of its own", p.UID)
	case p.State != PoolActive && p.State != PoolDraining:
		return invalid("pool.state", "%.40q is neither active nor draining", p.State)
	case p.Generation < 1:
		return invalid("generation", "%d is below 1", p.Generation)
	case t.poolNamed(&p.PoolSpec) != nil:
		return invalid("pool.name", "another one has it")
	}
	if err := p.Check(); err != nil {
		return err
	}
	for _, other := range t.pools() {
		if other.Prefix.Overlaps(p.Prefix) {
			return &OverlapError{Spec: p.PoolSpec, Other: other}
		}
	}
	return nil
}

// KeepHostName gives a host interface name that another book had leased to an interface of
// a sandbox to that interface, beside the row by which it holds it here: a lease, or an
// address that is quarantined for it. who.Reason and who.Note are not recorded; those of the
// row stay. Errors: [ErrNotFound] (it has no row), [ErrNameTaken], [ErrState] (it has
// another name), [FieldError].
func (b *Book) KeepHostName(ctx context.Context, who Who, n HostName) error {
	if err := cmp.Or(checkName("uid", n.UID), checkInterface(n.Interface), checkHostName(n.Name)); err != nil {
		return err
	}
	_, err := change(ctx, b.writer, func(t *tx) (*Lease, error) {
		rows := t.rowsOf(n.link())
		if len(rows) == 0 {
			return nil, fmt.Errorf("host interface name %s: %w: sandbox uid %q has no address for %s", n.Name, ErrNotFound, n.UID, n.Interface)
		}
		l := rows[0]
		given, err := t.nameLink(l, Naming{Want: n.Name, Name: n.Name})
		if given == nil || err != nil {
			return l, err
		}
		var evidence json.RawMessage
		if who.Actor, who.Reason, who.Note = ByReconciler, l.Reason, ""; l.State == Quarantined {
			who.Actor, who.Note, evidence = ByOperator, l.Hold, l.Evidence // a salvage of the changes has only this one
		}
		now, err := t.move(who, l, *l, evidence)
		if err == nil {
			t.staged.rename(given, nil)
		}
		return now, err
	})
	return err
}
