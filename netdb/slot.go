package netdb

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb/sqlite"
)

// Slot returns the slot of a lease, nil of a lease that is none.
func (m *memory) Slot(leaseID string) *ipam.Slot {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.idx.slots[leaseID]
}

// Slots returns every slot, in the order of the leases' ids: the oldest first.
func (m *memory) Slots() []*ipam.Slot {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return byLease(m.idx.slots)
}

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
func (b *Book) ClaimSlot(ctx context.Context, who ipam.Who, c Claim) (l *ipam.Lease, stale bool, err error) {
	if err := c.Check(); err != nil {
		return nil, false, err
	}
	l, err = change(ctx, b.writer, func(t *tx) (l *ipam.Lease, err error) {
		l, stale, err = t.claim(who, c)
		return l, err
	})
	return l, stale, err
}

func (t *tx) claim(who ipam.Who, c Claim) (*ipam.Lease, bool, error) {
	old, slot := t.lease(c.LeaseID), t.slot(c.LeaseID)
	if t.cancelled(c.UID, c.Attempt) {
		return nil, false, fmt.Errorf("sandbox %q, attempt %d: %w", c.Sandbox, c.Attempt, ipam.ErrCancelled)
	}
	if !slot.Ready(old) || old.Interface != c.Interface {
		return nil, false, fmt.Errorf("claim %.40s: %w", c.LeaseID, ipam.ErrSlotTaken)
	}
	pool := t.pool(old.PoolUID)
	if pool == nil || pool.State == ipam.PoolDraining || pool.Outside(old) != "" || pool.Warm == nil {
		return nil, false, fmt.Errorf("claim %s: %w", old.Addr, ipam.ErrSlotStale)
	}
	now := *old
	now.ID, now.Sandbox, now.UID, now.Attempt, now.Labels = newID(), c.Sandbox, c.UID, c.Attempt, c.Labels
	now.Created, now.Since = t.now, t.now
	if held := t.open(now.Owner()); held != nil {
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
	if err := t.refuses(now.PoolUID, now.Range(), c.Sandbox); err != nil { // another slot may do
		return nil, false, fmt.Errorf("claim %s: %w: %w", old.Addr, ipam.ErrSlotStale, err)
	}
	l, err := t.move(who, old, now, nil)
	if err != nil {
		return nil, false, err
	}
	given := *slot
	given.LeaseID, given.Claimed = l.ID, true
	t.setSlot(given)
	return l, stale, nil
}

// BreakSlot records why an unclaimed slot is never given, and has its lease
// released. One that was claimed, or is released already, stays as it is.
func (b *Book) BreakSlot(ctx context.Context, who ipam.Who, leaseID, why string) (*ipam.Lease, error) {
	return b.changeLease(ctx, leaseID, func(t *tx, l *ipam.Lease) (*ipam.Lease, error) {
		slot := t.slot(leaseID)
		if slot == nil || slot.Claimed || !l.State.Open() {
			return l, nil
		}
		now, err := t.setState(who, l, ipam.Releasing, nil)
		if err == nil {
			broken := *slot
			broken.Broken = why
			t.setSlot(broken)
		}
		return now, err
	})
}

// reserveSlot records with a reservation that was just staged that it is a slot's.
func (t *tx) reserveSlot(l *ipam.Lease, n *ipam.NewSlot) error {
	p := t.pool(l.PoolUID).Plumbing(l.Interface, n.Profile)
	for s := range t.slots() {
		if s.ID == n.ID {
			return fmt.Errorf("reserve a warm slot: %w: its id %.40q is that of lease %s", ipam.ErrTaken, n.ID, s.LeaseID)
		}
	}
	t.setSlot(ipam.Slot{LeaseID: l.ID, ID: n.ID, Netns: n.Netns, SpecHash: p.Hash(), Spec: p.Text()})
	return nil
}

// slot returns the slot of a lease, or nil.
func (t *tx) slot(id string) *ipam.Slot { return look(id, t.staged.slots, t.idx.slots) }

// slots yields every slot as the batch leaves it.
func (t *tx) slots() func(func(*ipam.Slot) bool) {
	return func(yield func(*ipam.Slot) bool) {
		for id, s := range t.idx.slots {
			if _, staged := t.staged.slots[id]; !staged && !yield(s) {
				return
			}
		}
		for _, s := range t.staged.slots {
			if s != nil && !yield(s) {
				return
			}
		}
	}
}

// setSlot adds a slot to the last step, which changed its lease.
func (t *tx) setSlot(s ipam.Slot) {
	last := t.staged.last()
	s.Rev = last.change.Rev
	last.slot.lease, last.slot.row = s.LeaseID, &s
	last.slot.stage(t.staged.slots)
}

// followSlot has a slot's row end with its lease. It stays while that is releasing: its
// namespace is still to be taken down.
func (t *tx) followSlot(old, now *ipam.Lease) {
	if old == nil || t.slot(old.ID) == nil || now.ID == old.ID && (now.State.Open() || now.State == ipam.Releasing) {
		return
	}
	last := t.staged.last()
	last.slot.ended = old.ID
	last.slot.stage(t.staged.slots)
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

// readSlot reads a row. One that means nothing to this build is reported and skipped.
func (x *index) readSlot(r sqlite.Scanner) error {
	s, err := scanSlot(r)
	if err != nil {
		return err
	}
	if l := x.byID[s.LeaseID]; l == nil || !l.State.Open() && l.State != ipam.Releasing {
		x.unreadable(naming{text: "slot of " + s.LeaseID}, "", errors.New("no lease that is held has that id"))
		return nil
	}
	x.slots[s.LeaseID] = s
	return nil
}

func scanSlot(r sqlite.Scanner) (*ipam.Slot, error) {
	s := new(ipam.Slot)
	return s, r.Scan(&s.LeaseID, &s.Rev, &s.ID, &s.Netns, &s.SpecHash, &s.Spec, &s.Claimed, &s.Broken)
}
