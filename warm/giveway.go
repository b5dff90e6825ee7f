package warm

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/ipamd/ipamd/ipam"
)

// giveWithin bounds how long a sandbox waits for the address of a slot.
const giveWithin = 5 * time.Second

// giveLook is between two looks of one that waits.
const giveLook = 500 * time.Millisecond

// GiveWay ends one of a pool's unclaimed slots, so that a sandbox can have its address. It returns
// true once a slot's lease has ended: the caller may ask for an address again. Of n callers at the
// same time each gets a slot ended. false means that no slot has an address of the pool; an error
// means that one has and cannot be taken down.
func (k *Keeper) GiveWay(ctx context.Context, pool string) (bool, error) {
	k.mu.Lock()
	k.giving[pool]++
	k.mu.Unlock()
	defer func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		if k.giving[pool]--; k.giving[pool] == 0 {
			delete(k.giving, pool)
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, giveWithin)
	defer cancel()
	first := -1
	for {
		changed := k.cfg.Book.Changed()
		k.mu.Lock()
		calls := k.giving[pool]
		k.mu.Unlock()
		n, ending := 0, 0
		var next *ipam.Lease
		for l, slot := range k.unclaimed(pool) {
			n++
			switch {
			case l.State == ipam.Releasing:
				ending++
			case next == nil && !k.worksOn(slot.Netns): // one that is being made cannot be taken down yet
				next = l
			}
		}
		if first < 0 {
			first = n
		}
		switch {
		case n == 0 && first == 0:
			return false, nil
		case n < first:
			return true, nil
		case !k.cfg.Helper.Present():
			return false, fmt.Errorf("%d of its addresses are those of warm slots, which cannot be taken down: %w", n, k.cfg.NoHelper)
		case ending < calls && next != nil:
			if err := k.end(ctx, next, "a sandbox needs its address"); err != nil {
				return false, err
			}
			continue
		}
		select {
		case <-changed:
		case <-time.After(giveLook): // a helper that leaves changes nothing in the book
		case <-ctx.Done():
			return false, fmt.Errorf("%d of its addresses are those of warm slots, which were not taken down in time: %w", n, ctx.Err())
		}
	}
}

// GiveAddress ends the unclaimed slot that has an address, and returns true once its lease has
// ended. false means that no such slot has the address; an error, that the slot cannot be taken down.
func (k *Keeper) GiveAddress(ctx context.Context, addr netip.Addr) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, giveWithin)
	defer cancel()
	id, netns := "", ""
	for _, slot := range k.cfg.Book.Slots() {
		if l, err := k.cfg.Book.Lease(slot.LeaseID); err == nil && !slot.Claimed && l.Addr == addr {
			id, netns = l.ID, slot.Netns
		}
	}
	if id == "" {
		return false, nil
	}
	for {
		changed := k.cfg.Book.Changed()
		l, err := k.cfg.Book.Lease(id)
		switch {
		case err != nil: // it has ended, or was claimed: a claim gives the lease another id
			return true, nil
		case l.State != ipam.Releasing && !l.State.Open(): // quarantined or cooling
			return false, nil
		case l.State == ipam.Releasing, k.worksOn(netns): // one that is being made cannot be taken down yet; its lease has no namespace so far
		case !k.cfg.Helper.Present():
			return false, fmt.Errorf("%s is the address of a warm slot, which cannot be taken down: %w", addr, k.cfg.NoHelper)
		default:
			if err := k.end(ctx, l, "a sandbox wishes for its address"); err != nil {
				return false, err
			}
			continue
		}
		select {
		case <-changed:
		case <-time.After(giveLook):
		case <-ctx.Done():
			return false, fmt.Errorf("%s is the address of a warm slot, which was not taken down in time: %w", addr, ctx.Err())
		}
	}
}

func (k *Keeper) worksOn(netns string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.busy[netns]
}
