package netdb

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/ipamd/ipamd/netdb/sqlite"
)

// A Slot is a network namespace with a port that was made before a sandbox asks for one.
// It is a lease of its own, which its pool owns until a sandbox claims it; the claim gives
// the lease another id, and the sandbox's name. A *Slot that netdb returns is shared and
// immutable.
type Slot struct {
	LeaseID  string
	Rev      int64  // of the change of the lease with which it was recorded last
	ID       string // names the namespace and the port, also once it is claimed
	Netns    string // path
	SpecHash string
	Spec     string // what it was plumbed by: a [Plumbing] as JSON
	Claimed  bool
	Broken   string // why it is never given; "" while it may be
}

// Port names the owner that the slot's port is marked by, also once it is claimed. No two
// slots have one, whatever runner of the machine they are of.
func (s *Slot) Port() string { return SlotPort(s.Netns) }

// SlotPort is the same of a slot's namespace.
func SlotPort(netns string) string { return path.Base(netns) }

// SlotUID is the uid that the lease of an unclaimed slot has. No sandbox's begins so.
func SlotUID(id string) string { return slotUID + id }

const slotUID = "ipamd-slot:"

// IsSlotUID reports that a uid is one of a slot, which no sandbox may have.
func IsSlotUID(uid string) bool { return strings.HasPrefix(uid, slotUID) }

// Reasons of changes of slots.
const (
	SlotReserved = "slot_reserved"
	SlotReady    = "slot_ready"
	SlotClaimed  = "slot_claimed"
	SlotBroken   = "slot_broken"
	SlotUnused   = "slot_unused" // its address is free at once: no sandbox ever had it
)

var (
	// ErrSlotStale means that a slot is not as its pool wants it now. Another one may be.
	ErrSlotStale = fmt.Errorf("%w: the warm slot was made by another spec", ErrState)
	// ErrSlotTaken means that a slot is not ready, or is another's by now. Try another one.
	ErrSlotTaken = fmt.Errorf("%w: the warm slot", ErrTaken)
)

// Strategies of a pool's warm slots whose spec changes.
const (
	SlotsRecreate    = "recreate"     // those of another spec are never given, and made anew
	SlotsOnReplenish = "on_replenish" // they may be given, and only new ones are of the new spec
)

// A Warm says how many slots of a pool are kept ready.
type Warm struct {
	Size     int    `json:"size"`               // ready ones
	Max      int    `json:"max,omitempty"`      // with those that are being made and taken down; 0: Size
	Strategy string `json:"strategy,omitempty"` // "": recreate
}

// MaxSlots bounds the slots of a pool: each is a namespace of the kernel.
const MaxSlots = 4096

// Fresh reports that slots of another spec than the pool's are never given.
func (w *Warm) Fresh() bool { return w == nil || w.Strategy != SlotsOnReplenish }

// Most is how many slots there may be at once, in whatever state but claimed.
func (w *Warm) Most() int {
	if w.Max == 0 {
		return w.Size
	}
	return w.Max
}

func (w *Warm) check() error {
	switch {
	case w == nil:
	case w.Size < 0 || w.Size > MaxSlots:
		return invalid("pool.warm.size", "%d is not 0 to %d", w.Size, MaxSlots)
	case w.Max != 0 && (w.Max < w.Size || w.Max > MaxSlots):
		return invalid("pool.warm.max", "%d is not from size, which is %d, to %d", w.Max, w.Size, MaxSlots)
	case w.Strategy != "" && w.Strategy != SlotsRecreate && w.Strategy != SlotsOnReplenish:
		return invalid("pool.warm.strategy", "%.40q is neither recreate nor on_replenish", w.Strategy)
	}
	return nil
}

// A NewSlot makes a reservation one of a slot.
type NewSlot struct {
	ID      string
	Netns   string
	Profile Profile
}

// Slot returns the slot of a lease, nil of a lease that is none.
func (m *memory) Slot(leaseID string) *Slot {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.idx.slots[leaseID]
}

// Slots returns every slot, in the order of the leases' ids: the oldest first.
func (m *memory) Slots() []*Slot {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return byLease(m.idx.slots)
}

// Ready reports that a slot may be given, as far as the book knows.
func (s *Slot) Ready(l *Lease) bool {
	return s != nil && l != nil && !s.Claimed && s.Broken == "" && l.State == Bound && l.HostInterface != "" && l.Netns == s.Netns && l.Conflict == nil
}

// Stale reports that the slot is not as the pool wants it. An error means that it cannot be known.
func (s *Slot) Stale(pool *Pool, iface string, p Profile) (bool, error) {
	return pool.Staleness(p)(s, iface)
}

// Staleness returns [Slot.Stale] for many slots of a pool as it is now: how they would be made
// is worked out once, and not for each.
func (s *PoolSpec) Staleness(p Profile) func(slot *Slot, iface string) (bool, error) {
	known := make(map[string]wish)
	return func(slot *Slot, iface string) (bool, error) {
		want, ok := known[iface]
		if !ok {
			want = s.wish(iface, p)
			known[iface] = want
		}
		return want.differs(slot.SpecHash, slot.Spec)
	}
}

// A Claim asks for one slot.
type Claim struct {
	LeaseID   string // the slot's
	Sandbox   string
	UID       string
	Interface string
	Attempt   int64
	Labels    map[string]string
	Profile   Profile
	SpecHash  string // the only one that will do; "": any that the pool allows
}

// Check returns a [FieldError] for the first argument that cannot be stored.
func (c *Claim) Check() error {
	if IsSlotUID(c.UID) {
		return invalid("uid", "%.80q begins as those of ipamd's own leases do: choose another", c.UID)
	}
	r := Reservation{Sandbox: c.Sandbox, UID: c.UID, Interface: c.Interface, Attempt: c.Attempt, BindWithin: 1, Labels: c.Labels}
	return r.Check()
}

// ClaimSlot gives a ready slot to a sandbox, under a new lease id. The slot's spec is
// compared with that of the pool in the transaction that gives it: once a change of the pool
// is acknowledged, no slot of before is given under [SlotsRecreate]. stale says that
// it was given although the pool wants others by now.
//
// Errors: [OwnedError] (the owner has a lease), [ErrCancelled], [ErrSlotStale],
// [ErrSlotTaken], [FieldError], and those of the file.
func (b *Book) ClaimSlot(ctx context.Context, who Who, c Claim) (l *Lease, stale bool, err error) {
	if err := c.Check(); err != nil {
		return nil, false, err
	}
	l, err = change(ctx, b.writer, func(t *tx) (l *Lease, err error) {
		l, stale, err = t.claim(who, c)
		return l, err
	})
	return l, stale, err
}

func (t *tx) claim(who Who, c Claim) (*Lease, bool, error) {
	old, slot := t.lease(c.LeaseID), t.slot(c.LeaseID)
	if t.cancelled(c.UID, c.Attempt) {
		return nil, false, fmt.Errorf("sandbox %q, attempt %d: %w", c.Sandbox, c.Attempt, ErrCancelled)
	}
	if !slot.Ready(old) || old.Interface != c.Interface {
		return nil, false, fmt.Errorf("claim %.40s: %w", c.LeaseID, ErrSlotTaken)
	}
	pool := t.pool(old.PoolUID)
	if pool == nil || pool.State == PoolDraining || pool.Outside(old) != "" || pool.Warm == nil {
		return nil, false, fmt.Errorf("claim %s: %w", old.Addr, ErrSlotStale)
	}
	now := *old
	now.ID, now.Sandbox, now.UID, now.Attempt, now.Labels = newID(), c.Sandbox, c.UID, c.Attempt, c.Labels
	now.Created, now.Since = t.now, t.now
	if held := t.open(now.Owner()); held != nil {
		return nil, false, &OwnedError{held}
	}
	stale, err := slot.Stale(pool, c.Interface, c.Profile)
	switch {
	case err != nil:
		return nil, false, fmt.Errorf("claim %s: %w: %w", old.Addr, ErrSlotStale, err)
	case stale && pool.Warm.Strategy != SlotsOnReplenish, c.SpecHash != "" && c.SpecHash != slot.SpecHash:
		return nil, false, fmt.Errorf("claim %s: %w", old.Addr, ErrSlotStale)
	}
	if slices.ContainsFunc(pool.Kept, func(k Kept) bool { return k.Sandbox == c.Sandbox }) {
		return nil, false, fmt.Errorf("claim %s: %w: the pool keeps an address for sandbox %q", old.Addr, ErrSlotStale, c.Sandbox)
	}
	if err := t.refuses(now.PoolUID, now.Range(), c.Sandbox); err != nil { // another slot may do
		return nil, false, fmt.Errorf("claim %s: %w: %w", old.Addr, ErrSlotStale, err)
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
func (b *Book) BreakSlot(ctx context.Context, who Who, leaseID, why string) (*Lease, error) {
	return b.changeLease(ctx, leaseID, func(t *tx, l *Lease) (*Lease, error) {
		slot := t.slot(leaseID)
		if slot == nil || slot.Claimed || !l.State.Open() {
			return l, nil
		}
		now, err := t.setState(who, l, Releasing, nil)
		if err == nil {
			broken := *slot
			broken.Broken = why
			t.setSlot(broken)
		}
		return now, err
	})
}

// reserveSlot records with a reservation that was just staged that it is a slot's.
func (t *tx) reserveSlot(l *Lease, n *NewSlot) error {
	p := t.pool(l.PoolUID).Plumbing(l.Interface, n.Profile)
	for s := range t.slots() {
		if s.ID == n.ID {
			return fmt.Errorf("reserve a warm slot: %w: its id %.40q is that of lease %s", ErrTaken, n.ID, s.LeaseID)
		}
	}
	t.setSlot(Slot{LeaseID: l.ID, ID: n.ID, Netns: n.Netns, SpecHash: p.Hash(), Spec: p.text()})
	return nil
}

// slot returns the slot of a lease, or nil.
func (t *tx) slot(id string) *Slot { return look(id, t.staged.slots, t.idx.slots) }

// slots yields every slot as the batch leaves it.
func (t *tx) slots() func(func(*Slot) bool) {
	return func(yield func(*Slot) bool) {
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
func (t *tx) setSlot(s Slot) {
	last := t.staged.last()
	s.Rev = last.change.Rev
	last.slot.lease, last.slot.row = s.LeaseID, &s
	last.slot.stage(t.staged.slots)
}

// followSlot has a slot's row end with its lease. It stays while that is releasing: its
// namespace is still to be taken down.
func (t *tx) followSlot(old, now *Lease) {
	if old == nil || t.slot(old.ID) == nil || now.ID == old.ID && (now.State.Open() || now.State == Releasing) {
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

func (s *Slot) row() []any {
	return []any{s.LeaseID, s.Rev, s.ID, s.Netns, s.SpecHash, s.Spec, s.Claimed, s.Broken}
}

// readSlot reads a row. One that means nothing to this build is reported and skipped.
func (x *index) readSlot(r sqlite.Scanner) error {
	s, err := scanSlot(r)
	if err != nil {
		return err
	}
	if l := x.byID[s.LeaseID]; l == nil || !l.State.Open() && l.State != Releasing {
		x.unreadable(naming{text: "slot of " + s.LeaseID}, "", errors.New("no lease that is held has that id"))
		return nil
	}
	x.slots[s.LeaseID] = s
	return nil
}

func scanSlot(r sqlite.Scanner) (*Slot, error) {
	s := new(Slot)
	return s, r.Scan(&s.LeaseID, &s.Rev, &s.ID, &s.Netns, &s.SpecHash, &s.Spec, &s.Claimed, &s.Broken)
}
