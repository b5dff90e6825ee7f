package netdb

import (
	"context"
	"fmt"
	"slices"

	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb/sqlite"
)

// slots are the verbs of warm slots.
type slots struct{ w *writer }

// A Claim asks for one slot.
type Claim struct {
	LeaseID   string // the slot's
	Sandbox   string
	UID       string
	Interface string
	Attempt   int64
	Labels    map[string]string
	Profile   ipam.Profile
	SpecHash  string // the only one that will do; "": any that the pool allows
}

// Check returns an [ipam.FieldError] for the first argument that cannot be stored.
func (c *Claim) Check() error {
	if ipam.IsSlotUID(c.UID) {
		return ipam.Invalid("uid", "%.80q begins as those of ipamd's own leases do: choose another", c.UID)
	}
	r := Reservation{Sandbox: c.Sandbox, UID: c.UID, Interface: c.Interface, Attempt: c.Attempt, BindWithin: 1, Labels: c.Labels}
	return r.Check()
}

// ClaimSlot gives a ready slot to a sandbox, under a new lease id. The slot's spec is
// compared with that of the pool in the transaction that gives it: once a change of the pool
// is acknowledged, no earlier slot is given under [ipam.SlotsRecreate]. stale says that
// it was given although the pool wants others by now.
//
// Errors: [ipam.OwnedError] (the owner has a lease), [ipam.ErrCancelled], [ipam.ErrSlotStale],
// [ipam.ErrSlotTaken], [ipam.FieldError], and those of the file.
func (b slots) ClaimSlot(ctx context.Context, who ipam.Who, c Claim) (l *ipam.Lease, stale bool, err error) {
	if err := c.Check(); err != nil {
		return nil, false, err
	}
	l, err = change(ctx, b.w, func(t *tx) (l *ipam.Lease, err error) {
		l, stale, err = t.claim(who, c)
		return l, err
	})
	return l, stale, err
}

func (t *tx) claim(who ipam.Who, c Claim) (*ipam.Lease, bool, error) {
	old, slot := t.Lease(c.LeaseID), t.Slot(c.LeaseID)
	if t.cancelled(c.UID, c.Attempt) {
		return nil, false, fmt.Errorf("sandbox %q, attempt %d: %w", c.Sandbox, c.Attempt, ipam.ErrCancelled)
	}
	if !slot.Ready(old) || old.Interface != c.Interface {
		return nil, false, fmt.Errorf("claim %.40s: %w", c.LeaseID, ipam.ErrSlotTaken)
	}
	pool := t.Pool(old.PoolUID)
	if pool == nil || pool.State == ipam.PoolDraining || pool.Outside(old) != "" || pool.Warm == nil {
		return nil, false, fmt.Errorf("claim %s: %w", old.Addr, ipam.ErrSlotStale)
	}
	now := *old
	now.ID, now.Sandbox, now.UID, now.Attempt, now.Labels = newID(), c.Sandbox, c.UID, c.Attempt, c.Labels
	now.Created, now.Since = t.now, t.now
	if held := t.Open(now.Owner()); held != nil {
		return nil, false, &ipam.OwnedError{Lease: held}
	}
	stale, err := slot.Stale(pool, c.Interface, c.Profile)
	switch {
	case err != nil:
		return nil, false, fmt.Errorf("claim %s: %w: %w", old.Addr, ipam.ErrSlotStale, err)
	case stale && pool.Warm.Strategy != ipam.SlotsOnReplenish, c.SpecHash != "" && c.SpecHash != slot.SpecHash:
		return nil, false, fmt.Errorf("claim %s: %w", old.Addr, ipam.ErrSlotStale)
	}
	if slices.ContainsFunc(pool.Kept, func(k ipam.Kept) bool { return k.Sandbox == c.Sandbox }) {
		return nil, false, fmt.Errorf("claim %s: %w: the pool keeps an address for sandbox %q", old.Addr, ipam.ErrSlotStale, c.Sandbox)
	}
	if err := checkKept(pool, now.Range(), c.Sandbox); err != nil { // another slot may do
		return nil, false, fmt.Errorf("claim %s: %w: %w", old.Addr, ipam.ErrSlotStale, err)
	}
	l, err := t.move(who, old, now, nil)
	if err != nil {
		return nil, false, err
	}
	given := *slot
	given.LeaseID, given.Claimed = l.ID, true
	t.SetSlot(given)
	return l, stale, nil
}

// BreakSlot records why an unclaimed slot is never given, and has its lease
// released. One that was claimed, or is released already, stays as it is.
func (b slots) BreakSlot(ctx context.Context, who ipam.Who, leaseID, why string) (*ipam.Lease, error) {
	return b.w.changeLease(ctx, leaseID, func(t *tx, l *ipam.Lease) (*ipam.Lease, error) {
		slot := t.Slot(leaseID)
		if slot == nil || slot.Claimed || !l.State.Open() {
			return l, nil
		}
		now, err := t.setState(who, l, ipam.Releasing, nil)
		if err == nil {
			broken := *slot
			broken.Broken = why
			t.SetSlot(broken)
		}
		return now, err
	})
}

// reserveSlot records with a reservation that was just staged that it is a slot's.
func (t *tx) reserveSlot(l *ipam.Lease, n *ipam.NewSlot) error {
	p := t.Pool(l.PoolUID).Plumbing(l.Interface, n.Profile)
	for s := range t.Slots() {
		if s.ID == n.ID {
			return fmt.Errorf("reserve a warm slot: %w: its id %.40q is that of lease %s", ipam.ErrTaken, n.ID, s.LeaseID)
		}
	}
	t.SetSlot(ipam.Slot{LeaseID: l.ID, ID: n.ID, Netns: n.Netns, SpecHash: p.Hash(), Spec: p.Text()})
	return nil
}

// followSlot has a slot's row end with its lease. It stays while that is releasing: its
// namespace is still to be taken down.
func (t *tx) followSlot(old, now *ipam.Lease) {
	if old == nil || t.Slot(old.ID) == nil || now.ID == old.ID && (now.State.Open() || now.State == ipam.Releasing) {
		return
	}
	t.EndSlot(old.ID)
}

const (
	slotColumns = `lease_id, rev, slot, netns, spec_hash, spec, claimed, broken`
	upsertSlot  = `INSERT INTO slots (` + slotColumns + `) VALUES (?1,?2,?3,?4,?5,?6,?7,?8)
		ON CONFLICT (lease_id) DO UPDATE SET (` + slotColumns + `) = (?1,?2,?3,?4,?5,?6,?7,?8)`
	deleteSlot = `DELETE FROM slots WHERE lease_id = ?1`
	readSlots  = `SELECT ` + slotColumns + ` FROM slots`
)

func slotRow(s *ipam.Slot) []any {
	return []any{s.LeaseID, s.Rev, s.ID, s.Netns, s.SpecHash, s.Spec, s.Claimed, s.Broken}
}

func scanSlot(r sqlite.Scanner) (*ipam.Slot, error) {
	s := new(ipam.Slot)
	return s, r.Scan(&s.LeaseID, &s.Rev, &s.ID, &s.Netns, &s.SpecHash, &s.Spec, &s.Claimed, &s.Broken)
}
