// Package share has calls at the same time share one run of what is costly, or take turns at
// what has a key. A call that comes while a run is under way shares the next one: what it asks
// about may be behind that run already. This is the difference to x/sync's singleflight.
package share

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"
	"time"
)

// A Run makes one run for all calls that wait for one. It is safe for concurrent use.
type Run[T, R any] struct {
	// Rest is how long the next run waits behind one that took so long; nil: not at all.
	Rest func(took time.Duration) time.Duration

	do   func(ctx context.Context, of []T) R
	slot chan struct{} // one slot, held while a run is made

	mu   sync.Mutex
	next *round[T, R] // has not begun; nil when no call has come for it
}

// A round is one run, and what its calls ask about.
type round[T, R any] struct {
	of      []T
	waiting int                // calls
	cancel  context.CancelFunc // ends the run; nil when it has not begun
	done    chan struct{}      // closed when what do returned is final, or its panic
	result  R
	panic   *Panic
}

// A Panic is a panic of a run, as it goes on in its calls.
type Panic struct {
	With  any
	Stack []byte
}

// Error is what the runtime prints where no call recovers from it.
func (p *Panic) Error() string { return fmt.Sprintf("%v\n\n%s", p.With, p.Stack) }

// New returns a Run that calls do. The ctx of a run has the values of one of its calls and the
// deadline of none: it ends when the last call that waits for the run gives up.
func New[T, R any](do func(ctx context.Context, of []T) R) *Run[T, R] {
	return &Run[T, R]{do: do, slot: make(chan struct{}, 1)}
}

// Do returns the result of a run that began after the call and that was given of. A call that gives up
// waiting, with ctx's error, returns at once and holds up no other; what it asks about is done by
// the others. A run that panics panics with a *[Panic] in each call that waits for it, so that
// of one that no call waits for is not known.
func (r *Run[T, R]) Do(ctx context.Context, of T) (result R, err error) {
	mine := r.join(of)
	defer r.leave(mine)
	select {
	case r.slot <- struct{}{}:
		r.begin(ctx, mine)
	case <-mine.done:
	case <-ctx.Done():
	}
	select {
	case <-mine.done:
	case <-ctx.Done():
	}
	select {
	case <-mine.done: // whatever has become of ctx
	default:
		return result, ctx.Err()
	}
	if mine.panic != nil {
		panic(mine.panic)
	}
	return mine.result, nil
}

func (r *Run[T, R]) join(of T) *round[T, R] {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.next == nil {
		r.next = &round[T, R]{done: make(chan struct{})}
	}
	r.next.of = append(r.next.of, of)
	r.next.waiting++
	return r.next
}

func (r *Run[T, R]) leave(mine *round[T, R]) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if mine.waiting--; mine.waiting == 0 && mine.cancel != nil {
		mine.cancel()
	}
}

// begin closes a round to the calls that come from now on and makes its run, unless that was made
// already. The caller holds the slot, which the run gives back.
func (r *Run[T, R]) begin(ctx context.Context, mine *round[T, R]) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.next != mine {
		<-r.slot
		return
	}
	r.next = nil
	ctx, mine.cancel = context.WithCancel(context.WithoutCancel(ctx))
	go r.make(ctx, mine)
}

// make makes a run in a goroutine of its own: no call waits for it longer than it has time.
func (r *Run[T, R]) make(ctx context.Context, mine *round[T, R]) {
	defer r.end(time.Now())
	defer close(mine.done)
	defer func() {
		if p := recover(); p != nil {
			mine.panic = &Panic{p, debug.Stack()}
		}
	}()
	mine.result = r.do(ctx, mine.of)
}

// end gives the slot back behind a run, once that has rested. No call waits for the rest of its own.
func (r *Run[T, R]) end(began time.Time) {
	if r.Rest == nil {
		<-r.slot
		return
	}
	time.AfterFunc(r.Rest(time.Since(began)), func() { <-r.slot })
}
