package admission

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"
	"time"
)

// maxRest bounds how long a reading waits after the one before it.
const maxRest = time.Second

// A Flight makes one reading for all callers that wait for it: one is under way, and
// the next one serves all that came meanwhile. A caller is never given a reading that
// began before it asked, which is why x/sync's singleflight does not fit. Between two
// readings there is as much time as the last one took, so that endless asking takes
// half of one processor at the most.
//
// internal/share does the same for calls of our own, and is no help here: a run of it is made by
// one of its calls, with that call's context, so it would end with the first peer that hangs up;
// and it does not rest. Its other half, what each call asks about, has no use here.
type Flight struct {
	read    func(context.Context) ([]byte, error)
	timeout time.Duration // of one reading

	running chan struct{} // has one while a reading is under way, and for its rest

	mu   sync.Mutex
	next *reading // that has not begun; nil: no caller waits
}

// A reading is one that callers wait for.
type reading struct {
	waiting int // callers; without any the reading is cancelled
	cancel  context.CancelFunc

	done     chan struct{} // then:
	body     []byte
	err      error
	panicked *Panic
}

// A Panic is a panic of a reading, as it goes on in a caller.
type Panic struct {
	With  any
	Stack []byte
}

// NewFlight makes a flight; each reading ends within timeout.
func NewFlight(timeout time.Duration, read func(context.Context) ([]byte, error)) *Flight {
	return &Flight{read: read, timeout: timeout, running: make(chan struct{}, 1)}
}

// Join returns the next reading. The bytes are shared. A reading that panics
// panics with a *[Panic] in each of its callers.
func (f *Flight) Join(ctx context.Context) ([]byte, error) {
	f.mu.Lock()
	r := f.next
	if r == nil {
		r = &reading{done: make(chan struct{})}
		f.next = r
		go f.run(r) // ends with the reading, which ends with its deadline or its last caller
	}
	r.waiting++
	f.mu.Unlock()
	select {
	case <-r.done:
	case <-ctx.Done():
		f.mu.Lock()
		defer f.mu.Unlock()
		if r.waiting--; r.waiting == 0 && r.cancel != nil {
			r.cancel()
		}
		return nil, fmt.Errorf("wait for a reading: %w", context.Cause(ctx))
	}
	if r.panicked != nil {
		panic(r.panicked)
	}
	return r.body, r.err
}

func (f *Flight) run(r *reading) {
	f.running <- struct{}{}
	defer func() { <-f.running }()
	f.mu.Lock()
	f.next = nil // a caller that asks from now on gets another one
	wanted := r.waiting > 0
	var ctx context.Context
	ctx, r.cancel = context.WithTimeout(context.Background(), f.timeout)
	f.mu.Unlock()
	defer r.cancel()
	if !wanted {
		return
	}
	began := time.Now()
	f.make(ctx, r)
	close(r.done)
	time.Sleep(min(time.Since(began), maxRest))
}

// make keeps a panic for the callers: here it would end the daemon.
func (f *Flight) make(ctx context.Context, r *reading) {
	defer func() {
		if p := recover(); p != nil {
			r.panicked = &Panic{p, debug.Stack()}
		}
	}()
	r.body, r.err = f.read(ctx)
}
