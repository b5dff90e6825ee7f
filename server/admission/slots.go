package admission

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
)

// How many calls of one holder run at once; the others wait for one of those to end. A
// commit takes all that wait for one, so a holder by itself needs many for its
// throughput, and another one beside it needs few of them ahead of its own call: with
// four hundred, a lone call takes a hundred times as long as with none.
const (
	runAlone  = 64
	runBeside = 8
	// ListingSlots is how many slots a listing takes: a holder by itself runs eight
	// listings at once, and one beside another holder runs one.
	ListingSlots = runBeside
	// slotTime is how long a slot is held at the most. A call that needs longer
	// waits for a disk, for the book's lock or for containerd, and takes no processor
	// meanwhile. Its peer's others would all be late for that.
	slotTime = 50 * time.Millisecond
	// besideFor is how long a holder counts as asking after a call of it has begun:
	// what a client does between two calls is mostly shorter.
	besideFor = 100 * time.Millisecond
)

// A lastCall is when a holder began its last call.
type lastCall struct {
	by Holder
	at time.Time
}

// Slot waits until a call that Enter booked on the holder, and that takes n slots, may run, first come, first
// served: no holder waits here for another one's calls. end gives the slots back, once or
// more; after Limits.Slot they are given back by themselves.
func (c *Control) Slot(ctx context.Context, h Holder, n int) (end func(), err error) {
	now := c.now()
	c.mu.Lock()
	if c.recent[0].by != h {
		c.recent[1] = c.recent[0]
	}
	c.recent[0] = lastCall{h, now}
	if now.Sub(c.recent[1].at) < besideFor {
		n *= runAlone / runBeside
	}
	acc := c.account(h, now)
	c.mu.Unlock()
	weight := int64(min(n, runAlone))
	if acc.slots.Acquire(ctx, weight) != nil {
		return nil, context.Cause(ctx)
	}
	return c.held(acc.slots, weight), nil
}

// Heavy waits until a step of a costly call may run: a listing, the history, a
// diagnosis. So many steps run at once that half of the processors are left to calls
// that give and end leases: when each of a reader's calls runs at once, sixty-four of
// them make an allocation take three hundred times as long. Of each holder one step
// waits behind those of the others, so that no holder waits for more than one step of
// each other. end ends the step as it does a slot.
func (c *Control) Heavy(ctx context.Context, h Holder) (end func(), err error) {
	c.mu.Lock()
	acc := c.account(h, c.now())
	c.mu.Unlock()
	if acc.heavy.Acquire(ctx, 1) != nil {
		return nil, context.Cause(ctx)
	}
	defer acc.heavy.Release(1)
	if c.heavy.Acquire(ctx, 1) != nil {
		return nil, context.Cause(ctx)
	}
	return c.held(c.heavy, 1), nil
}

// held releases what was acquired once, at the latest after Limits.Slot.
func (c *Control) held(sem *semaphore.Weighted, n int64) (end func()) {
	over := sync.OnceFunc(func() { sem.Release(n) })
	limit := time.AfterFunc(c.limits.Slot, over)
	return func() { limit.Stop(); over() }
}
