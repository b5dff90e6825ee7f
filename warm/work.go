package warm

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/ipamd/ipamd/ipam"
)

// list reads which namespaces there are.
func (k *Keeper) list(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, workWithin)
	defer cancel()
	before := k.cfg.Book.Slots()
	paths, err := k.cfg.Helper.List(ctx)
	k.done(func() {
		k.listing = false
		for _, path := range paths {
			k.spaces[path] = true
		}
		for _, s := range before {
			if err == nil && !slices.Contains(paths, s.Netns) {
				delete(k.checked, s.Netns) // it went, or is not made yet
			}
		}
	})
	if err != nil && ctx.Err() == nil && !errors.Is(err, k.cfg.NoHelper) {
		k.cfg.Log.Warn("the namespaces of warm slots are not known", "err", err)
	}
}

func (k *Keeper) end(ctx context.Context, l *ipam.Lease, why string) error {
	who := ipam.Who{Actor: ipam.ByReconciler, Reason: ipam.SlotBroken}
	if k.cfg.Book.Slot(l.ID) != nil {
		_, err := k.cfg.Book.BreakSlot(ctx, who, l.ID, why)
		if errors.Is(err, ipam.ErrGone) { // it has ended, or was claimed: a claim gives the lease another id
			return nil
		}
		return err
	}
	_, err := k.cfg.Book.Release(ctx, who, l.ID, "", l.Rev)
	if errors.Is(err, ipam.ErrGone) || errors.Is(err, ipam.ErrStale) {
		return nil
	}
	return err
}

// stays reports whether a namespace of which the book knows no slot is kept, and says so once.
func (k *Keeper) stays(ctx context.Context, path string) bool {
	ctx, cancel := context.WithTimeout(ctx, lookEvery)
	defer cancel()
	why := k.cfg.keeps(ctx, path)
	if why == "" {
		return false
	}
	k.mu.Lock()
	known := k.reported[path]
	k.reported[path], k.takenDown[path] = true, time.Now()
	k.mu.Unlock()
	if !known {
		k.cfg.Log.Warn("a namespace of no known warm slot stays", "netns", path, "reason", why)
	}
	return true
}

// takeDown has a namespace removed. The watchdog confirms then that its lease ends.
func (k *Keeper) takeDown(ctx context.Context, path string) {
	// A book that was adopted may name namespaces of its former runner: they are not here.
	if !k.isOurs(path) {
		k.done(func() { k.takenDown[path] = time.Now(); delete(k.spaces, path) })
		return
	}
	ctx, cancel := context.WithTimeout(ctx, workWithin)
	defer cancel()
	err := k.cfg.Helper.Remove(ctx, path)
	k.done(func() {
		k.takenDown[path] = time.Now()
		if err == nil {
			delete(k.spaces, path)
		}
	})
	if err != nil && ctx.Err() == nil && !errors.Is(err, k.cfg.NoHelper) {
		k.cfg.Log.Warn("the namespace of a warm slot could not be taken down", "netns", path, "err", err)
	}
}

// check compares slots that an earlier Keeper had made with their specs, each once; k.mu is held.
func (k *Keeper) check(ctx context.Context, works *sync.WaitGroup, v View) {
	pools := make(map[string]*ipam.Pool)
	for i := range v.Pools {
		pools[v.Pools[i].Pool.UID] = &v.Pools[i].Pool
	}
	for _, l := range v.Leases {
		slot := v.Slots[l.ID]
		if k.working >= maxWork || !slot.Ready(l) || k.checked[slot.Netns] || k.busy[slot.Netns] || pools[l.PoolUID] == nil {
			continue
		}
		k.work(works, slot.Netns, func() { k.checkOne(ctx, l, slot, pools[l.PoolUID]) }, nil)
	}
}

func (k *Keeper) checkOne(ctx context.Context, l *ipam.Lease, slot *ipam.Slot, p *ipam.Pool) {
	within, cancel := context.WithTimeout(ctx, workWithin)
	defer cancel()
	diffs, err := k.cfg.Helper.Check(within, l, slot, p)
	switch {
	case ctx.Err() != nil || errors.Is(err, k.cfg.NoHelper):
		return
	case err != nil: // that says nothing about the slot, which is checked once more when it is claimed
		k.cfg.Log.Warn("a warm slot could not be checked", "addr", l.Addr, "netns", slot.Netns, "err", err)
	case len(diffs) > 0:
		k.cfg.Log.Warn("a warm slot is not as it was made, and is never given", "addr", l.Addr, "netns", slot.Netns, "reason", diffs[0])
		if err := k.end(ctx, l, diffs[0]); err != nil {
			return // the next step asks again
		}
	}
	k.mu.Lock()
	k.checked[slot.Netns] = true
	k.mu.Unlock()
}

// makeNew reserves an address, and makes a slot with it.
func (k *Keeper) makeNew(ctx context.Context, p *ipam.Pool, s ipam.NewSlot) {
	within, cancel := context.WithTimeout(ctx, workWithin)
	defer cancel()
	l, err := k.reserve(within, p, s)
	k.done(func() { k.begun[p.UID]-- })
	if err != nil {
		if ctx.Err() == nil {
			k.failed(p, fmt.Errorf("reserve an address: %w", err))
		}
		return
	}
	k.make(ctx, l)
}

// make makes the slot of a lease. Where it cannot be made the lease ends, so that others get its
// address.
func (k *Keeper) make(ctx context.Context, l *ipam.Lease) {
	slot, p := k.cfg.Book.Slot(l.ID), k.pool(l.PoolUID)
	if slot == nil || slot.Claimed || p == nil {
		return
	}
	// The pool may have changed since the slot's spec was recorded: a slot that is made by another
	// spec than it records would be given as what it is not.
	if stale, err := slot.Stale(p, l.Interface, k.cfg.Profile(p.Bridge)); err != nil || stale {
		_ = k.end(ctx, l, "the pool's spec changed before it was made") // the next step asks again
		return
	}
	began := time.Now()
	within, cancel := context.WithTimeout(ctx, workWithin)
	defer cancel()
	k.mu.Lock()
	k.spaces[slot.Netns], k.checked[slot.Netns] = true, true
	delete(k.takenDown, slot.Netns)
	k.mu.Unlock()
	err := k.cfg.Helper.Make(within, ipam.Who{Actor: ipam.ByReconciler, Reason: ipam.SlotReady}, l, slot, p)
	switch {
	case err == nil:
		k.made(p, time.Since(began))
	case ctx.Err() != nil || errors.Is(err, k.cfg.NoHelper): // it is finished when one is there
	default:
		if now, gone := k.cfg.Book.Lease(l.ID); gone != nil || !now.State.Open() {
			return // it was ended meanwhile, and is taken down
		}
		k.failed(p, err)
		if err := k.end(ctx, l, err.Error()); err != nil && ctx.Err() == nil {
			k.cfg.Log.Warn("a warm slot that is not to be given could not be ended", "addr", l.Addr, "lease", l.ID, "reason", "it could not be made", "err", err)
		}
	}
}

func (k *Keeper) pool(uid string) *ipam.Pool {
	usage, _ := k.cfg.Book.Usage()
	for i := range usage {
		if usage[i].Pool.UID == uid {
			return &usage[i].Pool
		}
	}
	return nil
}
