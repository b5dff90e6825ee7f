package main

import (
	"context"
	"fmt"
)

// beside is goal 14: what an allocation waits longer while a pass is made, in
// commits: one that finds that all agree, and one that ends reservations past
// their deadline, in commits that may sit before an allocation's.
//
// The unit is an allocation in this process, a commit and little else. An echo
// that syncs is asked beside the same passes: it knows of no book, so what it
// waits longer is the two processors' part.
func beside(ctx context.Context, b *bench) (rows []row, err error) {
	r, err := b.crowdedRunner(ctx)
	if err != nil {
		return nil, err
	}
	book, pool, err := b.openBook(ctx, "commits")
	if err != nil {
		return nil, err
	}
	defer func() { err = first(err, book.Close()) }()
	unit := &bookCaller{book: book, pool: pool}
	c := r.caller()
	if err := c.churn(ctx, b.calls, new(sample), new(sample)); err != nil { // warm
		return nil, err
	}
	for _, steps := range []int{0, b.steps} {
		more, err := r.besidePasses(ctx, b, unit, c, steps)
		if err != nil {
			return nil, err
		}
		rows = append(rows, more...)
	}
	return rows, nil
}

// besidePasses measures beside passes that end so many reservations each.
func (r *runner) besidePasses(ctx context.Context, b *bench, unit *bookCaller, c *caller, steps int) (rows []row, err error) {
	beside := fmt.Sprintf("beside a pass of %d steps - without", steps)
	half := row{goal: 14, what: "(allocate " + beside + "), p50 / a commit", most: 1}
	tail := row{goal: 14, what: "(allocate " + beside + "), p99 / a commit's p99", most: 1}
	worst := row{goal: 14, what: "(allocate " + beside + "), worst / a commit's worst"}
	other := row{goal: 14, what: "(an echo that syncs " + beside + "), p50 / a commit"}
	otherTail := row{goal: 14, what: "(an echo that syncs " + beside + "), p99 / a commit's p99"}
	own := row{goal: 14, what: fmt.Sprintf("commits of a pass of %d steps / 1", steps)}
	calls := b.calls / 2 // of each kind a round: a call has a pass beside it, and waits for it
	err = b.each(ctx, func() error {
		var commits, alone, with, echoAlone, echoWith sample
		var extra, passes float64
		for range blocks {
			if err := commits.repeat(calls/blocks, func() error { return unit.allocate(ctx) }, func() error { return unit.release(ctx) }); err != nil {
				return err
			}
			for range calls / blocks / turn {
				if err := first(c.churn(ctx, turn, &alone, new(sample)),
					echoAlone.repeat(turn, func() error { return b.durable.call(ctx) })); err != nil {
					return err
				}
			}
			for full := len(with) + calls/blocks; len(with) < full; passes++ {
				more, err := r.besidePass(ctx, b, steps, c, &with, &echoWith)
				if err != nil {
					return err
				}
				extra += more
			}
		}
		half.add(with.p50()-alone.p50(), commits.p50())
		tail.add(with.p99()-alone.p99(), commits.p99())
		worst.add(with.at(1)-alone.at(1), commits.at(1))
		other.add(echoWith.p50()-echoAlone.p50(), commits.p50())
		otherTail.add(echoWith.p99()-echoAlone.p99(), commits.p99())
		own.addRates(extra/passes, 1)
		own.unit = "commits"
		return nil
	})
	return []row{half, tail, worst, other, otherTail, own}, err
}

// blocks is how often a round changes between with and without a pass.
const blocks = 4

// besidePass has a pass made that ends reservations, calls meanwhile, and
// returns how many commits were made beyond the calls' own.
func (r *runner) besidePass(ctx context.Context, b *bench, steps int, c *caller, allocates, echoes *sample) (float64, error) {
	if err := r.late(ctx, steps); err != nil {
		return 0, err
	}
	before, err := r.commits(ctx)
	if err != nil {
		return 0, err
	}
	ended := make(chan error, 1)
	go func() { ended <- r.endLate(ctx, steps) }() // waited for below
	calls := 0
	for {
		select {
		case err := <-ended:
			after, counting := r.commits(ctx)
			if err = first(err, counting); err != nil {
				return 0, err
			}
			return after - before - float64(calls), nil
		default:
			if err := first(c.churn(ctx, 1, allocates, new(sample)),
				echoes.timed(func() error { return b.durable.call(ctx) })); err != nil {
				return 0, err
			}
			calls += 2
		}
	}
}
