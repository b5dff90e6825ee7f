package netdb

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"

	"github.com/google/uuid"
)

// A tx is what one request sees and does inside a commit: the committed index,
// and on top what was staged by the requests before it in the batch and by
// itself.
type tx struct {
	now    Stamp
	idx    *index // read only
	staged *overlay
}

// at returns the row of an address, or nil.
func (t *tx) at(a netip.Addr) *Lease {
	if l, ok := t.staged.leases[a]; ok {
		return l
	}
	return t.idx.byAddr.at(a)
}

// lease returns the row with an id, or nil.
func (t *tx) lease(id string) *Lease { return look(id, t.staged.ids, t.idx.byID) }

// open returns the owner's open lease, or nil.
func (t *tx) open(o Owner) *Lease {
	if l, ok := t.staged.owners[o]; ok {
		return l
	}
	return t.idx.open(o)
}

func (t *tx) tomb(uid string) tombstone {
	return look(uid, t.staged.tombs, t.idx.tombs)
}

// removed reports whether this batch took the row with an id away.
func (t *tx) removed(id string) bool {
	l, ok := t.staged.ids[id]
	return ok && l == nil
}

// poolFor returns the pool of an address that could be handed out.
func (t *tx) poolFor(a netip.Addr) (*poolIndex, error) {
	pi := t.idx.poolOf(a)
	if pi == nil {
		return nil, fmt.Errorf("%w: no pool contains it", ErrNotInPool)
	}
	if usable, note := pi.pool.usable(a); !usable {
		return nil, fmt.Errorf("%w %s: it is %s", ErrNotInPool, pi.pool.Name, note)
	}
	if _, walled := pi.walled[a]; walled {
		return nil, fmt.Errorf("%w by a row that cannot be read; see doctor", ErrTaken)
	}
	return pi, nil
}

// revOf returns the revision of a row, 0 for none.
func revOf(l *Lease) int64 {
	if l == nil {
		return 0
	}
	return l.Rev
}

// look finds what is staged under a key, or else what is committed.
func look[K comparable, V any](k K, staged, committed map[K]V) V {
	if v, ok := staged[k]; ok {
		return v
	}
	return committed[k]
}

func (t *tx) countOf(pool string, s State) int {
	return t.idx.pools[pool].count[s] + t.staged.count[poolState{pool, s}]
}

// move stages the change of one row, if the table of moves allows it. now is
// completed here: revision, times of its state, reason. Nothing else in this
// package writes a lease.
func (t *tx) move(who Who, old *Lease, now Lease, evidence json.RawMessage) (*Lease, error) {
	if evidence != nil {
		now.Evidence = evidence
	}
	return t.record(who, old, now, evidence)
}

// record is move with evidence that the change keeps, and the lease does not.
func (t *tx) record(who Who, old *Lease, now Lease, evidence json.RawMessage) (*Lease, error) {
	from := Free
	if old != nil {
		from = old.State
	}
	if err := Legal(who.Actor, from, now.State); err != nil {
		return nil, err
	}
	if old != nil && old.Hold != "" && who.Actor != ByOperator {
		return nil, fmt.Errorf("move %s to %s: %w: an operator holds it back: %s", old.Addr, now.State, ErrState, old.Hold)
	}
	if other := t.lease(now.ID); other != nil && other != old {
		return nil, fmt.Errorf("move %s to %s: %w: its id %s is that of %s", now.Addr, now.State, ErrTaken, now.ID, other.Addr)
	}
	now.Rev, now.Reason = t.staged.rev+1, who.Reason
	if old != nil && old.Former() && now.State == Quarantined {
		now.Reason = old.Reason // a hold takes no claim away
	}
	if now.State != from {
		now.Since = t.now
	}
	if now.Created.IsZero() {
		now.Created = t.now
	}
	if now.State == Cooling || now.State == Quarantined {
		now.Cut = "" // its rest begins anew
	}
	if now.State == Free || now.State == Cooling || now.State == Quarantined {
		now.Conflict = nil // it ends with the lease
	}
	if now.State != Quarantined {
		now.Hold = ""
	}
	s := step{old: old, now: &now, change: &Change{
		Rev: now.Rev, At: t.now, Subject: OfLease, Addr: now.Addr, LeaseID: now.ID, PoolUID: now.PoolUID, Pool: now.Pool,
		Sandbox: now.Sandbox, UID: now.UID, Interface: now.Interface, Attempt: now.Attempt,
		From: from, To: now.State, Who: who, Evidence: evidence,
	}}
	if now.State == Free {
		s.now = nil
	}
	t.staged.stage(s)
	return &now, nil
}

// newID returns a lease id: time-ordered, because random keys in a unique
// index cost more than the driver.
func newID() string { return uuid.Must(uuid.NewV7()).String() }

// openOf returns every open lease of a sandbox uid, in address order.
func (t *tx) openOf(uid string) []*Lease {
	found := slices.Clone(t.idx.byUID[uid])
	for a, l := range t.staged.leases {
		found = slices.DeleteFunc(found, func(f *Lease) bool { return f.Addr == a })
		if l != nil && l.UID == uid && l.State.Open() {
			found = append(found, l)
		}
	}
	slices.SortFunc(found, func(x, y *Lease) int { return x.Addr.Compare(y.Addr) })
	return found
}
