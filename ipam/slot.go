package ipam

import (
	"fmt"
	"path"
	"strings"
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

// Ready reports that a slot may be given, as far as the book knows.
func (s *Slot) Ready(l *Lease) bool {
	return s != nil && l != nil && !s.Claimed && s.Broken == "" && l.State == Bound && l.HostInterface != "" && l.Netns == s.Netns && l.Conflict == nil
}

// Stale reports that the slot is not as the pool wants it. An error means that it cannot be known.
func (s *Slot) Stale(pool *Pool, iface string, p Profile) (bool, error) {
	return pool.Staleness(p)(s, iface)
}

// SlotPort is the same of a slot's namespace.
func SlotPort(netns string) string { return path.Base(netns) }

// SlotUID is the uid that the lease of an unclaimed slot has. No sandbox's begins so.
func SlotUID(id string) string { return slotUID + id }

const slotUID = "ipamd-slot:"

// IsSlotUID reports that a uid is one of a slot, which no sandbox may have.
func IsSlotUID(uid string) bool { return strings.HasPrefix(uid, slotUID) }

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

// Fresh reports that slots of another spec than the pool's are never given.
func (w *Warm) Fresh() bool { return w == nil || w.Strategy != SlotsOnReplenish }

// Most is how many slots there may be at once, in whatever state but claimed.
func (w *Warm) Most() int {
	if w.Max == 0 {
		return w.Size
	}
	return w.Max
}

// MaxSlots bounds the slots of a pool: each is a namespace of the kernel.
const MaxSlots = 4096

func (w *Warm) check() error {
	switch {
	case w == nil:
	case w.Size < 0 || w.Size > MaxSlots:
		return Invalid("pool.warm.size", "%d is not 0 to %d", w.Size, MaxSlots)
	case w.Max != 0 && (w.Max < w.Size || w.Max > MaxSlots):
		return Invalid("pool.warm.max", "%d is not from size, which is %d, to %d", w.Max, w.Size, MaxSlots)
	case w.Strategy != "" && w.Strategy != SlotsRecreate && w.Strategy != SlotsOnReplenish:
		return Invalid("pool.warm.strategy", "%.40q is neither recreate nor on_replenish", w.Strategy)
	}
	return nil
}

// A NewSlot makes a reservation one of a slot.
type NewSlot struct {
	ID      string
	Netns   string
	Profile Profile
}

var (
	// ErrSlotStale means that a slot is not as its pool wants it now. Another one may be.
	ErrSlotStale = fmt.Errorf("%w: the warm slot was made by another spec", ErrState)
	// ErrSlotTaken means that a slot is not ready, or is another's by now. Try another one.
	ErrSlotTaken = fmt.Errorf("%w: the warm slot", ErrTaken)
)
