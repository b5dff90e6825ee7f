package admission

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/ipamd/ipamd/internal/share"
)

// maxRest bounds how long a reading waits after the one before it.
const maxRest = time.Second

// A Shared makes one reading for all callers that wait for it: one is under way, and
// the next one serves all that came meanwhile. A caller is never given a reading that
// began before it asked. Between two readings there is as much time as the last one
// took, so that endless asking takes half of one processor at the most.
type Shared struct {
	readings *share.Run[context.Context, reading] // a call's context is what it asks about
}

// A reading is what callers wait for.
type reading struct {
	body     []byte
	err      error
	panicked *Panic
}

// A Panic is a panic of a reading, as it goes on in a caller.
type Panic struct {
	With  any
	Stack []byte
}

// NewShared makes one; each reading ends within timeout, and with the last of its callers.
func NewShared(timeout time.Duration, read func(context.Context) ([]byte, error)) *Shared {
	s := &Shared{share.New(func(_ context.Context, callers []context.Context) (r reading) {
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		var waiting atomic.Int64
		waiting.Store(int64(len(callers)))
		for _, caller := range callers {
			defer context.AfterFunc(caller, func() {
				if waiting.Add(-1) == 0 {
					cancel()
				}
			})()
		}
		defer func() {
			if p := recover(); p != nil { // for all callers, and not only for the one that makes it
				r.panicked = &Panic{p, debug.Stack()}
			}
		}()
		r.body, r.err = read(ctx)
		return r
	})}
	s.readings.Rest = func(took time.Duration) time.Duration { return min(took, maxRest) }
	return s
}

// Join returns the next reading. The bytes are shared. A reading that panics panics with a
// *[Panic] in each of its callers.
func (s *Shared) Join(ctx context.Context) ([]byte, error) {
	r, err := s.readings.Do(ctx, ctx)
	if err != nil {
		return nil, fmt.Errorf("wait for a reading: %w", context.Cause(ctx))
	}
	if r.panicked != nil {
		panic(r.panicked)
	}
	return r.body, r.err
}
