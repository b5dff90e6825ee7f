package bridge

import (
	"context"

	"golang.org/x/sync/semaphore"
)

// A fairMutex is a mutex that its waiters get in the order in which they came,
// and that a waiter stops waiting for when its context ends: a call's deadline
// holds whatever the lock holder does.
//
// A [sync.Mutex] is free for whichever goroutine runs. A whole reading, which
// unlocks after each small piece, takes that back before an allocation that waits
// to settle is scheduled, and the allocation waits 1.4 ms longer.
type fairMutex struct{ slot *semaphore.Weighted }

func newFairMutex() fairMutex { return fairMutex{semaphore.NewWeighted(1)} }

// Lock is for those without a deadline: loops and Close.
func (m fairMutex) Lock() { _ = m.LockContext(context.Background()) } // which never ends

// LockContext returns ctx's error when that ended first; the caller then does not
// hold the lock.
func (m fairMutex) LockContext(ctx context.Context) error { return m.slot.Acquire(ctx, 1) }

func (m fairMutex) Unlock() { m.slot.Release(1) }
