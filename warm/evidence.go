package warm

import (
	"context"
	"errors"
	"slices"

	"github.com/ipamd/ipamd/allocator"
	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/plumb"
	"github.com/ipamd/ipamd/watchdog"
	"github.com/ipamd/ipamd/workload"
)

// An Allocator gives slots their addresses, as it gives sandboxes theirs: no witness sees them.
type Allocator interface {
	Allocate(ctx context.Context, r allocator.Request) (*allocator.Result, error)
}

// A Board says what witnesses see; *census.Board is one.
type Board interface {
	workload.Board
	By(census.Witness) []census.Sighting
}

// A Watchdog says what a release waits for; *watchdog.Watchdog does.
type Watchdog interface {
	Blockers(l *ipam.Lease) []watchdog.Blocker
}

// reserve takes an address of the pool for a slot, but none whose cooldown would be cut short:
// these are for sandboxes.
func (k *Keeper) reserve(ctx context.Context, p *ipam.Pool, s ipam.NewSlot) (*ipam.Lease, error) {
	family, uid := allocator.V6, ipam.SlotUID(s.ID)
	if p.Prefix.Addr().Is4() {
		family = allocator.V4
	}
	r, err := k.cfg.Allocator.Allocate(ctx, allocator.Request{Sandbox: uid, UID: uid, Pool: p.Name, Family: family, Slot: &s})
	if err != nil {
		return nil, err
	}
	l := r.Leases[0]
	if r.EarlyReuse {
		_, err := k.cfg.Book.BreakSlot(ctx, ipam.Who{Actor: ipam.ByReconciler, Reason: ipam.SlotBroken}, l.ID, "the cooldown of its address is not over")
		return nil, errors.Join(errors.New("no address of the pool has cooled for long enough"), err)
	}
	return l, nil
}

// isOurs says whether a path is one that a slot of this runner has.
func (k *Keeper) isOurs(netns string) bool {
	return plumb.IsSlotPath(k.cfg.Book.Identity().RunnerUID, netns)
}

// inUse reports whether the port of a namespace shows an address that a sandbox's lease has, or that
// is quarantined or withheld, and not as a slot's.
func (k *Keeper) inUse(netns string) bool {
	port, withheld := plumb.HostName(ipam.SlotPort(netns)), k.cfg.Book.Withheld()
	return slices.ContainsFunc(k.cfg.Board.By(census.Netns), func(s census.Sighting) bool {
		if s.Port != port {
			return false
		}
		if l, has := k.cfg.Book.At(s.Addr); has {
			return !ipam.IsSlotUID(l.UID)
		}
		return slices.ContainsFunc(withheld, func(w ipam.Withheld) bool { return w.Addr == s.Addr && !ipam.IsSlotUID(w.UID) })
	})
}

// holdsOnlyItsPort reports whether the release of a sandbox's lease waits for nothing but its port,
// which ipamd made, and no container of it is known to the runtime any more.
func (k *Keeper) holdsOnlyItsPort(l *ipam.Lease) bool {
	blockers := k.cfg.Watchdog.Blockers(l)
	runs := slices.ContainsFunc(workload.About(k.cfg.Board, l).Seen, func(s census.Sighting) bool { return s.Witness == census.Runtime })
	return !runs && len(blockers) > 0 && !slices.ContainsFunc(blockers, func(b watchdog.Blocker) bool { return b.Kind != watchdog.KindPort })
}
