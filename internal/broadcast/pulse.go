package broadcast

import (
	"context"
	"fmt"
)

// A Pulse is a channel without a slot, on which a loop answers that it goes on: in its
// own select while it waits, and with Beat between the steps of something long.
type Pulse chan struct{}

// Beat answers what is in Wait just now, and waits for nothing.
func (p Pulse) Beat() { Wake(p) }

// Wait returns nil as soon as the loop answers. Otherwise it returns an error that wraps
// ctx's and says what was waited for.
func (p Pulse) Wait(ctx context.Context, what string) error {
	select {
	case <-p:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for %s to go on: %w", what, ctx.Err())
	}
}
