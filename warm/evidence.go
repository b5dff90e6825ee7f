package warm

import (
	"context"
	"errors"
	"fmt"
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
	Silent() []census.Silence
}

// A Watchdog says what a release waits for; *watchdog.Watchdog does.
type Watchdog interface {
	Blockers(l *ipam.Lease) []watchdog.Blocker
}

// reserve takes an address of the pool for a slot, but none whose cooldown would be cut short:
// these are for sandboxes.
func (k *Keeper) reserve(ctx context.Context, p *ipam.Pool, s ipam.NewSlot) (*ipam.Lease, error) {
	uid := ipam.SlotUID(s.ID)
	r, err := k.cfg.Allocator.Allocate(ctx, allocator.Request{Sandbox: uid, UID: uid, Pool: p.Name, Family: allocator.Family(p.FamilyName()), Slot: &s})
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

// Owner names the owner that the port of a runner's slot is marked by, by what a lease records of it; "": it is
// the port of no slot. The book may not have the slot any more: its row ends as the lease is quarantined,
// and a rebuilt book has none.
func Owner(runner, netns, host string) string {
	if owner := ipam.SlotPort(netns); plumb.IsSlotPath(runner, netns) && host == plumb.HostName(owner) { // a second interface in there has a port of its own
		return owner
	}
	return ""
}

// keeps says why a namespace of which the book knows no slot is not taken down; "": it is. A book that
// was lost, or a row that cannot be read, has such namespaces, and sandboxes run in them: what
// cannot be seen now is no proof that none does, and an address in there is a slot's own only where the
// book says so.
func (c *Config) keeps(ctx context.Context, netns string) string {
	port := plumb.HostName(ipam.SlotPort(netns))
	elsewhere, err := c.Ports.Elsewhere(ctx, port)
	is := false
	if err == nil && elsewhere == "" {
		is, err = c.Ports.IsPort(ctx, port, 0)
	}
	switch {
	case err != nil:
		return fmt.Sprintf("whether its port %s is on a bridge is not known: %v", port, err)
	case elsewhere != "":
		return fmt.Sprintf("its port %s is on %s, which is not looked after", port, elsewhere)
	case !is: // it is half made, or was: whoever is in there is on no bridge
		return ""
	}
	if err := c.Ports.Settle(ctx); err != nil {
		return fmt.Sprintf("the kernel's news could not be read: %v", err)
	}
	if c.Ports.PortIndexes()[port] == 0 {
		return fmt.Sprintf("its port %s has not been read", port)
	}
	for _, silent := range c.Board.Silent() {
		if silent.Witness == census.Netns {
			return "the netns witness cannot answer: " + silent.Reason
		}
	}
	withheld := c.Book.Withheld()
	for _, s := range c.Board.By(census.Netns) {
		if !s.Behind(port) || !s.Addr.IsValid() {
			continue
		}
		own := slices.ContainsFunc(withheld, func(w ipam.Withheld) bool { return w.Addr == s.Addr && ipam.IsSlotUID(w.UID) })
		if l, has := c.Book.At(s.Addr); has {
			own = ipam.IsSlotUID(l.UID)
		}
		if !own {
			return fmt.Sprintf("%s is in use there", s.Addr)
		}
	}
	return ""
}

// holdsOnlyItsPort reports whether the release of a sandbox's lease waits for nothing but its port,
// which ipamd made, and no container of it is known to the runtime any more.
func (k *Keeper) holdsOnlyItsPort(l *ipam.Lease) bool {
	blockers := k.cfg.Watchdog.Blockers(l)
	runs := slices.ContainsFunc(workload.About(k.cfg.Board, l).Seen, func(s census.Sighting) bool { return s.Witness == census.Runtime })
	return !runs && len(blockers) > 0 && !slices.ContainsFunc(blockers, func(b watchdog.Blocker) bool { return b.Kind != watchdog.KindPort })
}
