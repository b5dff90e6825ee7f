package watchdog

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// ownerPause is how long an owner that left a question unanswered is not asked
// again. So a pass that asks about a hundred sandboxes waits for its timeout once,
// and not a hundred times: nothing else is repaired meanwhile, and at the start
// no address is given.
const ownerPause = 5 * time.Second

// errPaused means that the owner was not asked.
var errPaused = errors.New("it left a question unanswered a moment ago")

// An OwnerBackoff asks an owner, unless that owner has just left a question
// unanswered. Its zero value works. It is safe for concurrent use.
type OwnerBackoff struct {
	mu    sync.Mutex
	until time.Time
}

// Look asks about one sandbox. An error means that nothing is known: see [Owner].
func (r *OwnerBackoff) Look(ctx context.Context, owner Owner, sandbox string) (Verdict, error) {
	r.mu.Lock()
	paused := time.Now().Before(r.until)
	r.mu.Unlock()
	if paused {
		return Unknown, fmt.Errorf("ask the owner about sandbox %q: %w", sandbox, errPaused)
	}
	v, err := owner.Look(ctx, sandbox)
	if errors.Is(err, context.DeadlineExceeded) {
		r.mu.Lock()
		r.until = time.Now().Add(ownerPause)
		r.mu.Unlock()
	}
	return v, err
}
