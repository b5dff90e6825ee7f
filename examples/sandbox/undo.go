package main

import (
	"context"
	"fmt"
	"slices"
)

// undo is what takes back the steps done so far.
type undo []func(context.Context) error

func (u *undo) add(step func(context.Context) error) { *u = append(*u, step) }

// run takes the steps back, the last one first, and stops at the first that
// cannot be: the steps before it, and the lease first of all, are still in
// use. ipamd gives the address back by itself once the rest is gone.
func (u undo) run(ctx context.Context) error {
	ctx, cancel := cleaning(ctx)
	defer cancel()
	for _, step := range slices.Backward(u) {
		if err := step(ctx); err != nil {
			return fmt.Errorf("undo: %w", err)
		}
	}
	return nil
}

// cleaning is a context for cleaning up: it has its own deadline, because the
// other one's end may be the very reason.
func cleaning(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), patience)
}
