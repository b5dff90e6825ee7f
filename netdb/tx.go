package netdb

import (
	"encoding/json"
	"fmt"

	"github.com/google/uuid"

	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb/index"
)

// A tx is what one request sees and does inside a commit. It sees the batch's view, and stages
// changes, each of a row in the end by [tx.recordWith]; what leads there is in the file of its
// noun. What only reads is a function of the view.
type tx struct {
	*index.Batch
	opts  *Options
	store *store
	now   ipam.Stamp
}

// move stages the change of one row, if the table of moves allows it. now is
// completed here: revision, times of its state, reason. Nothing else in this
// package writes a lease.
func (t *tx) move(who ipam.Who, old *ipam.Lease, now ipam.Lease, evidence json.RawMessage) (*ipam.Lease, error) {
	if evidence != nil {
		now.Evidence = evidence
	}
	return t.record(who, old, now, evidence)
}

// setState is move of a lease to another state.
func (t *tx) setState(who ipam.Who, l *ipam.Lease, to ipam.State, evidence json.RawMessage) (*ipam.Lease, error) {
	now := *l
	now.State = to
	return t.move(who, l, now, evidence)
}

// record is move with evidence that the change keeps, and the lease does not.
func (t *tx) record(who ipam.Who, old *ipam.Lease, now ipam.Lease, evidence json.RawMessage) (*ipam.Lease, error) {
	return t.recordWith(who, old, now, evidence, nil)
}

// recordWith is record of a row that goes and leaves its address withheld, or that takes
// a withheld one over.
func (t *tx) recordWith(who ipam.Who, old *ipam.Lease, now ipam.Lease, evidence json.RawMessage, w *ipam.Withheld) (*ipam.Lease, error) {
	from := ipam.Free
	if old != nil {
		from = old.State
	}
	if err := ipam.Legal(who.Actor, from, now.State); err != nil {
		return nil, err
	}
	if old != nil && old.Hold != "" && who.Actor != ipam.ByOperator {
		return nil, fmt.Errorf("move %s to %s: %w: an operator holds it back: %s", old.Addr, now.State, ipam.ErrState, old.Hold)
	}
	if other := t.Lease(now.ID); other != nil && other != old {
		return nil, fmt.Errorf("move %s to %s: %w: its id %s is that of %s", now.Addr, now.State, ipam.ErrTaken, now.ID, other.Addr)
	}
	now.Rev, now.Reason = t.Rev()+1, who.Reason
	if old != nil && old.Former() && now.State == ipam.Quarantined {
		now.Reason = old.Reason // a hold takes no claim away
	}
	if now.State != from {
		now.Since, now.Cooled = t.now, 0
	}
	if now.Created.IsZero() {
		now.Created = t.now
	}
	if now.State == ipam.Cooling || now.State == ipam.Quarantined {
		now.Cut = "" // its cooldown begins anew
	}
	if now.State == ipam.Free || now.State == ipam.Cooling || now.State == ipam.Quarantined {
		now.Conflict = nil // it ends with the lease
	}
	if now.State != ipam.Quarantined {
		now.Hold = ""
	}
	if evidence == nil && from == ipam.Paused && now.State == ipam.Bound {
		evidence = took(t.Sleep(old.ID), &now, t.now)
	}
	s := index.Step{Old: old, Now: &now, Withheld: w, Change: &ipam.Change{
		Rev: now.Rev, At: t.now, Subject: ipam.OfLease, Addr: now.Addr, PrefixLen: now.PrefixLen, LeaseID: now.ID, PoolUID: now.PoolUID, Pool: now.Pool,
		Sandbox: now.Sandbox, UID: now.UID, Interface: now.Interface, Attempt: now.Attempt,
		From: from, To: now.State, Who: who, Evidence: evidence,
	}}
	if now.State == ipam.Free {
		s.Now = nil
	}
	t.Stage(s)
	if last := t.HostNameEndedBy(old); last != nil {
		t.SetHostNames(nil, last)
	}
	t.followSleep(old, &now)
	t.followSlot(old, &now)
	return &now, nil
}

// change is the record of a step that is staged next.
func (t *tx) change(of ipam.Subject, who ipam.Who) *ipam.Change {
	return &ipam.Change{Rev: t.Rev() + 1, At: t.now, Subject: of, Who: who}
}

// newID returns a lease id: time-ordered, because random keys in a unique
// index cost more than the driver.
func newID() string { return uuid.Must(uuid.NewV7()).String() }
