package reconciler

import (
	"context"
	"fmt"
)

// Alive returns nil as soon as Run shows that it goes on: it is between two
// passes, or has ended a step of one. Otherwise it returns an error that wraps
// ctx's. A pass may be long, but each of its steps has a deadline.
func (r *Reconciler) Alive(ctx context.Context) error {
	select {
	case <-r.pulse:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for the passes to go on: %w", ctx.Err())
	}
}

// beat answers what waits in Alive, and waits for nothing.
func (r *Reconciler) beat() {
	select {
	case r.pulse <- struct{}{}:
	default:
	}
}
