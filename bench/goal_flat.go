package main

import (
	"context"
	"fmt"
	"sync"
)

// flat is goal 3: the same calls on an empty book and on one with most of a
// /16 taken, by turns.
func flat(ctx context.Context, b *bench) (rows []row, err error) {
	filled, err := b.filledBook(ctx)
	if err != nil {
		return nil, err
	}
	empty, err := b.startDaemon(ctx, "empty")
	if err != nil {
		return nil, err
	}
	defer func() { err = first(err, empty.stop()) }()
	full, err := b.resume(ctx, filled, b.ports)
	if err != nil {
		return nil, err
	}
	defer func() { err = first(err, full.stop()) }()
	callers := [2]*caller{empty.caller(), full.caller()}
	callers[1].name = "later-" + callers[1].name // than those that filled it
	for _, c := range callers {
		if err := c.churn(ctx, b.calls, new(sample), new(sample)); err != nil { // warm
			return nil, err
		}
	}
	give := row{goal: 3, what: fmt.Sprintf("allocate at %d leases / at 0, p50", b.leases), most: 1.15}
	back := row{goal: 3, what: fmt.Sprintf("release at %d leases / at 0, p50", b.leases), most: 1.15}
	err = b.each(ctx, func() error {
		var allocates, releases [2]sample
		if err := b.turns(func() error {
			return first(
				callers[0].churn(ctx, turn, &allocates[0], &releases[0]),
				callers[1].churn(ctx, turn, &allocates[1], &releases[1]))
		}); err != nil {
			return err
		}
		give.add(allocates[1].p50(), allocates[0].p50())
		back.add(releases[1].p50(), releases[0].p50())
		return nil
	})
	return []row{give, back}, err
}

// fill takes leases with many callers.
func (d *daemon) fill(ctx context.Context, leases, callers int) error {
	var (
		wg   sync.WaitGroup
		errs = make([]error, callers)
	)
	for i := range callers {
		c := d.caller()
		wg.Go(func() {
			for n := i; n < leases && errs[i] == nil; n += callers {
				errs[i] = c.allocate(ctx)
			}
		})
	}
	wg.Wait()
	return first(errs...)
}
