package main

import (
	"context"
	"fmt"
	"slices"
)

// undo has the reverse of each step done so far.
type undo []func(context.Context) error

func (u *undo) add(step func(context.Context) error) { *u = append(*u, step) }

// run undoes the steps, the last one first, and stops at the first that it
// cannot undo: what the earlier steps made, the lease above all, is still in
// use. ipamd frees the address by itself once the rest is gone.
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
