package watchdog

import (
	"context"
	"fmt"
)

// Alive returns nil as soon as Run shows that it goes on, which is when it has
// begun what was due and waits for more. Otherwise it returns an error that
// wraps ctx's. Attempts under way are not waited for: each has its deadline.
func (w *Watchdog) Alive(ctx context.Context) error {
	select {
	case <-w.pulse:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for the confirmation of releases to go on: %w", ctx.Err())
	}
}
