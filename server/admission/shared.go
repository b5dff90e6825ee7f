package admission

import (
	"context"
	"fmt"
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
	readings *share.Run[struct{}, reading]
}

// A reading is what callers wait for.
type reading struct {
	body []byte
	err  error
}

// NewShared makes one; each reading ends within timeout, and with the last of its callers.
func NewShared(timeout time.Duration, read func(context.Context) ([]byte, error)) *Shared {
	s := &Shared{share.New(func(ctx context.Context, _ []struct{}) (r reading) {
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		r.body, r.err = read(ctx)
		return r
	})}
	s.readings.Rest = func(took time.Duration) time.Duration { return min(took, maxRest) }
	return s
}

// Join returns the next reading. The bytes are shared. A reading that panics panics with a
// *[share.Panic] in each of its callers.
func (s *Shared) Join(ctx context.Context) ([]byte, error) {
	r, err := s.readings.Do(ctx, struct{}{})
	if err != nil {
		return nil, fmt.Errorf("wait for a reading: %w", context.Cause(ctx))
	}
	return r.body, r.err
}
