package warm

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ipamd/ipamd/ipam"
)

// vacateWithin bounds how long a change of a pool waits for the slots in its way.
const vacateWithin = 15 * time.Second

// Vacate makes a change of a pool. Where only unclaimed slots are in its way, it ends them, and
// makes the change once they have gone; meanwhile the pool gets no new ones. Where a sandbox's lease
// is in the way, also one of a slot that is claimed meanwhile, the error is the change's own, and no
// slot ends for it.
func (k *Keeper) Vacate(ctx context.Context, change func() error) error {
	ctx, cancel := context.WithTimeout(ctx, vacateWithin)
	defer cancel()
	held := ""
	for {
		changed := k.cfg.Book.Changed()
		err := change()
		full, is := errors.AsType[*ipam.PoolNotEmptyError](err)
		if !is {
			return err
		}
		others := slices.DeleteFunc(slices.Clone(full.Effects), func(e ipam.LeaseEffect) bool { return ipam.IsSlotUID(e.Lease.UID) })
		switch {
		case len(others) > 0:
			return &ipam.PoolNotEmptyError{Pool: full.Pool, Effects: others}
		case !k.cfg.Helper.Present():
			return fmt.Errorf("%w; they are warm slots that no sandbox has, which cannot be taken down: %w", err, k.cfg.NoHelper)
		case held == "":
			held = full.Pool.UID
			k.done(func() { k.vacating[held]++ })
			defer k.done(func() {
				if k.vacating[held]--; k.vacating[held] == 0 {
					delete(k.vacating, held)
				}
			})
		}
		for _, e := range full.Effects {
			if slot := k.cfg.Book.Slot(e.Lease.ID); e.Lease.State == ipam.Releasing || slot != nil && k.worksOn(slot.Netns) {
				continue // one that is being made cannot be taken down yet
			}
			if err := k.end(ctx, e.Lease, "the pool is changed, and has no place for it then"); err != nil {
				return err
			}
		}
		select {
		case <-changed:
		case <-time.After(giveLook): // a helper that leaves changes nothing in the book
		case <-ctx.Done():
			return fmt.Errorf("%w; they are warm slots that no sandbox has, which were not taken down in time: %w", err, ctx.Err())
		}
	}
}
