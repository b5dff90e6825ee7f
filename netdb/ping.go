package netdb

import (
	"context"
	"fmt"
)

// Ping goes the way of every change: it waits in the line, takes the file's
// write lock, and changes nothing. It returns nil when that was possible
// before ctx ended. An error that wraps ctx's means that a change would not
// have come through either; [ErrBusy] beside it, that another process holds
// the lock. Any other error is an answer of the file. Nothing is synced.
func (b *Book) Ping(ctx context.Context) error {
	if err := b.update(ctx, func(*tx) error { return nil }); err != nil {
		return fmt.Errorf("ping %s: %w", b.path, err)
	}
	return nil
}
