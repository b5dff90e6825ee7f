package main

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/ipamd/ipamd/allocator"
	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/netdb"
	"github.com/ipamd/ipamd/plumb"
	"github.com/ipamd/ipamd/server"
	"github.com/ipamd/ipamd/warm"
	"github.com/ipamd/ipamd/watchdog"
	"github.com/ipamd/ipamd/workload"
)

// openWarm makes the keeper of warm slots, which has helper make them.
func (p *program) openWarm(helper server.SlotHelper) {
	runner := func() string { return p.book.Holding().RunnerUID }
	p.warm = warm.New(warm.Config{
		Book: p.book, Helper: helper, Profile: p.slotProfile, Reserve: p.reserveSlot,
		Path: func(slot string) string { return plumb.SlotPath(runner(), slot) },
		Ours: func(netns string) bool { // asked of every lease: most are set apart without a hash
			return strings.HasPrefix(netns, plumb.SlotFolder+"/ipamd-") && plumb.IsSlotPath(runner(), netns)
		},
		Unplug: p.unplug, InUse: p.slotInUse, NoHelper: server.ErrNoWarmHelper, Log: p.log,
		OnMade: p.metrics.SlotMade, OnFailed: p.metrics.SlotFailed,
	})
}

// slotProfile is what slots of a bridge's pools are made by, beside these.
func (p *program) slotProfile(bridge string) netdb.Profile {
	out := p.cfg.SlotProfile()
	out.BridgeMTU = p.bridge.MTU(bridge)
	return out
}

// reserveSlot takes an address for a slot, as for a sandbox: no witness sees it. One whose rest
// would be cut short for it is for sandboxes alone.
func (p *program) reserveSlot(ctx context.Context, pool *netdb.Pool, uid string, s netdb.NewSlot) (*netdb.Lease, error) {
	family := allocator.V6
	if pool.Prefix.Addr().Is4() {
		family = allocator.V4
	}
	r, err := p.allocator.Allocate(ctx, allocator.Request{Sandbox: uid, UID: uid, Pool: pool.Name, Family: family, Slot: &s})
	if err != nil {
		return nil, err
	}
	if l := r.Leases[0]; r.EarlyReuse {
		_, err := p.book.BreakSlot(ctx, netdb.Who{Actor: netdb.ByReconciler, Reason: netdb.SlotBroken}, l.ID, "its address has not rested")
		return nil, errors.Join(errors.New("no address of the pool has rested"), err)
	}
	return r.Leases[0], nil
}

// slotInUse says whether an address is seen behind the port of a namespace that a sandbox has, or
// that is quarantined or withheld.
func (p *program) slotInUse(netns string) bool {
	port, withheld := plumb.HostName(netdb.SlotPort(netns)), p.book.Withheld()
	return slices.ContainsFunc(p.board.By(census.Netns), func(s census.Sighting) bool {
		if s.Port != port {
			return false
		}
		if l, has := p.book.At(s.Addr); has {
			return !netdb.IsSlotUID(l.UID)
		}
		return slices.ContainsFunc(withheld, func(w netdb.Withheld) bool { return w.Addr == s.Addr && !netdb.IsSlotUID(w.UID) })
	})
}

// unplug says whether nothing but its port keeps a sandbox's release from its end. The port is
// ipamd's own, and the sandbox has no process any more that the runtime knows.
func (p *program) unplug(l *netdb.Lease) bool {
	blockers := p.watchdog.Blockers(l)
	runs := slices.ContainsFunc(workload.About(p.board, l).Seen, func(s census.Sighting) bool { return s.Witness == census.Runtime })
	return !runs && len(blockers) > 0 && !slices.ContainsFunc(blockers, func(b watchdog.Blocker) bool { return b.Kind != watchdog.KindPort })
}

// slots counts a pool's slots, as the socket shows them.
func (p *program) slots(u netdb.Usage) *api.PoolSlots {
	s := p.warm.Status(u)
	if u.Pool.Warm == nil && s == (warm.Status{}) {
		return nil
	}
	return &api.PoolSlots{Ready: s.Ready, Making: s.Making, Ending: s.Ending, Wanted: s.Wanted, Why: s.Why}
}
