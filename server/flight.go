package server

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"runtime/debug"
	"sync"
	"time"
)

// longestRest bounds how long a reading waits after the one before it.
const longestRest = time.Second

// A flight makes one reading for all callers that wait for it: however many ask,
// one is under way, and the next one serves all that came meanwhile. A caller is
// never given a reading that began before it asked. Between two readings there is
// as much time as the last one took, so that endless asking takes half of one
// processor at the most.
type flight struct {
	read   func(context.Context) ([]byte, error)
	within time.Duration // of one reading

	mu     sync.Mutex
	flying bool
	next   *trip     // that has not begun; nil: nobody waits
	rest   time.Time // until then none begins
}

// A trip is one reading.
type trip struct {
	waiting int // callers; without any the reading is cancelled
	cancel  context.CancelFunc

	done     chan struct{} // then:
	body     []byte
	err      error
	panicked *panicked
}

// panicked is a panic of a reading, as it goes on in a caller.
type panicked struct {
	with  any
	stack []byte
}

// join returns the next reading. The bytes are shared. A reading that panics
// panics in each of its callers.
func (f *flight) join(ctx context.Context) ([]byte, error) {
	f.mu.Lock()
	t := f.next
	if t == nil {
		t = &trip{done: make(chan struct{})}
		f.next = t
	}
	t.waiting++
	if !f.flying {
		f.flying = true
		go f.fly() // ends with the last trip, which ends with its deadline or its last caller
	}
	f.mu.Unlock()
	select {
	case <-t.done:
	case <-ctx.Done():
		f.mu.Lock()
		defer f.mu.Unlock()
		if t.waiting--; t.waiting == 0 && t.cancel != nil {
			t.cancel()
		}
		return nil, fmt.Errorf("wait for a reading: %w", context.Cause(ctx))
	}
	if t.panicked != nil {
		panic(t.panicked)
	}
	return t.body, t.err
}

func (f *flight) fly() {
	for {
		f.mu.Lock()
		wait := time.Until(f.rest)
		f.mu.Unlock()
		if wait > 0 {
			time.Sleep(wait) // a second at the most
		}
		f.mu.Lock()
		t := f.next
		if t == nil {
			f.flying = false
			f.mu.Unlock()
			return
		}
		f.next = nil
		if t.waiting == 0 {
			f.mu.Unlock()
			continue
		}
		var ctx context.Context
		ctx, t.cancel = context.WithTimeout(context.Background(), f.within)
		f.mu.Unlock()
		began := time.Now()
		f.make(ctx, t)
		t.cancel()
		f.mu.Lock()
		f.rest = time.Now().Add(min(time.Since(began), longestRest))
		f.mu.Unlock()
		close(t.done)
	}
}

// make keeps a panic for the callers: here it would end the daemon.
func (f *flight) make(ctx context.Context, t *trip) {
	defer func() {
		if p := recover(); p != nil {
			t.panicked = &panicked{p, debug.Stack()}
		}
	}()
	t.body, t.err = f.read(ctx)
}

// flight is one whose reading is an answer, encoded once for all.
func (s *Server) flight(read func(context.Context) (any, error)) *flight {
	return &flight{within: s.cfg.Deadline, read: func(ctx context.Context) ([]byte, error) {
		leave, err := s.costly.enter(ctx, nobody)
		if err != nil {
			return nil, err
		}
		defer leave()
		reply, err := read(ctx)
		if err != nil {
			return nil, err
		}
		var buf bytes.Buffer
		err = encodeInto(&buf, reply)
		return buf.Bytes(), err
	}}
}

// read answers with the next reading.
func (s *Server) read(c *call, f *flight) (int, any, error) {
	if err := c.plain(); err != nil {
		return 0, nil, err
	}
	s.pass(c) // it waits for what others ask, too
	ctx, cancel := c.context()
	defer cancel()
	body, err := f.join(ctx)
	if err != nil {
		return 0, nil, err
	}
	return http.StatusOK, encoded(body), nil
}
