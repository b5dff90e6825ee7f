// Package share has calls at the same time share one run of what is costly, or take turns at
// what has a key. A call that comes while a run is under way shares the next one: what it asks
// about may be behind that run already. This is the difference to x/sync's singleflight.
package share

import (
	"context"
	"sync"
	"time"
)

// A Run makes one run for all calls that wait for one. It is safe for concurrent use.
type Run[T, R any] struct {
	// Rest is how long the next run waits behind one that took so long; nil: not at all.
	Rest func(took time.Duration) time.Duration

	do   func(ctx context.Context, of []T) R
	slot chan struct{} // one slot, held by the call that makes the run

	mu   sync.Mutex
	next *round[T, R] // has not begun; nil when no call waits for one
}

// A round is one run, and what its calls ask about.
type round[T, R any] struct {
	of     []T
	done   chan struct{} // closed when result is final
	result R
}

// New returns a Run that calls do. One of the waiting calls calls it for all, with its own ctx: where the
// others must not depend on how long that one waits, do detaches from it ([context.WithoutCancel]).
func New[T, R any](do func(ctx context.Context, of []T) R) *Run[T, R] {
	return &Run[T, R]{do: do, slot: make(chan struct{}, 1)}
}

// Do returns the result of a run that began after the call and that was given of. A call that gives up
// waiting, with ctx's error, holds up no other; what it asks about is done by the others.
func (r *Run[T, R]) Do(ctx context.Context, of T) (result R, err error) {
	mine := r.join(of)
	select {
	case <-mine.done:
		return mine.result, nil
	case <-ctx.Done():
		return result, ctx.Err()
	case r.slot <- struct{}{}:
	}
	if !r.begin(mine) {
		<-r.slot
		return mine.result, nil // the call that held the slot before made it
	}
	defer r.end(time.Now())
	defer close(mine.done)
	mine.result = r.do(ctx, mine.of)
	return mine.result, nil
}

// end gives the slot back behind a run, once that has rested. No call waits for the rest of its own.
func (r *Run[T, R]) end(began time.Time) {
	if r.Rest == nil {
		<-r.slot
		return
	}
	time.AfterFunc(r.Rest(time.Since(began)), func() { <-r.slot })
}

func (r *Run[T, R]) join(of T) *round[T, R] {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.next == nil {
		r.next = &round[T, R]{done: make(chan struct{})}
	}
	r.next.of = append(r.next.of, of)
	return r.next
}

// begin closes a round to the calls that come from now on; false when it was made
// already. The caller holds the slot.
func (r *Run[T, R]) begin(mine *round[T, R]) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.next != mine {
		return false
	}
	r.next = nil
	return true
}
