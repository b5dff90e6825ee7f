package main

import "context"

// oneCaller is goal 1: what a caller waits for an address that is durable and
// checked on the wire, and for its release.
func oneCaller(ctx context.Context, b *bench) (rows []row, err error) {
	d, err := b.startDaemon(ctx, "one")
	if err != nil {
		return nil, err
	}
	defer func() { err = first(err, d.stop()) }()
	c := d.caller()
	if err := c.churn(ctx, b.calls, new(sample), new(sample)); err != nil { // warm, and the log as long as it gets
		return nil, err
	}
	half := row{goal: 1, what: "allocate, p50 / (F + R)", most: 1.5}
	tail := row{goal: 1, what: "allocate, p99 / (F + R)", most: 3}
	back := row{goal: 1, what: "release, p50 / (F + R)", most: 1.5}
	backTail := row{goal: 1, what: "release, p99 / (F + R)", most: 3}
	used := row{goal: 1, what: "release of one that was bound, until it cools, p50 / (F + R)"}
	floor := row{goal: 1, what: "an echo that syncs, p50 / (F + R)"}
	above := row{goal: 1, what: "allocate / an echo that syncs, p50"}
	weather := row{goal: 1, what: "the yardsticks' own p99 / (F + R)"}
	err = b.each(ctx, func() error {
		var files, echoes, durables, allocates, releases, retired sample
		if err := b.turns(func() error {
			return first(
				files.repeat(turn, b.file.write),
				echoes.repeat(turn, func() error { return b.echo.call(ctx) }),
				durables.repeat(turn, func() error { return b.durable.call(ctx) }),
				c.churn(ctx, turn, &allocates, &releases),
				c.retire(ctx, turn/5, &retired))
		}); err != nil {
			return err
		}
		f, r := files.p50(), echoes.p50()
		half.add(allocates.p50(), f+r)
		tail.add(allocates.p99(), f+r)
		back.add(releases.p50(), f+r)
		backTail.add(releases.p99(), f+r)
		used.add(retired.p50(), f+r)
		floor.add(durables.p50(), f+r)
		above.add(allocates.p50(), durables.p50())
		weather.add(files.p99()+echoes.p99(), f+r)
		return nil
	})
	return []row{half, tail, back, backTail, used, floor, above, weather}, err
}

// bookAlone is goal 2: a full record, lease and change, in this process. Its
// other half, exactly one sync a batch, is counted by strace in netdb's
// TestOneSyncPerCommit.
func bookAlone(ctx context.Context, b *bench) (rows []row, err error) {
	book, pool, err := b.openBook(ctx, "book")
	if err != nil {
		return nil, err
	}
	defer func() { err = first(err, book.Close()) }()
	c := &bookCaller{book: book, pool: pool}
	half := row{goal: 2, what: "reserve in process, p50 / F", most: 1.6}
	err = b.each(ctx, func() error {
		var files, reserves sample
		if err := b.turns(func() error {
			return first(
				files.repeat(turn, b.file.write),
				reserves.repeat(turn, func() error { return c.allocate(ctx) }, func() error { return c.release(ctx) }))
		}); err != nil {
			return err
		}
		half.add(reserves.p50(), files.p50())
		return nil
	})
	return []row{half}, err
}

// liveCheck is goal 5: what it adds that every witness is asked.
func liveCheck(ctx context.Context, b *bench) (rows []row, err error) {
	book, pool, err := b.openBook(ctx, "unchecked")
	if err != nil {
		return nil, err
	}
	defer func() { err = first(err, book.Close()) }()
	blind := &bookCaller{book: book, pool: pool}
	checked, err := b.openChecked(ctx, "checked")
	if err != nil {
		return nil, err
	}
	defer func() { err = first(err, checked.stop()) }()
	added := row{goal: 5, what: "(allocate with the live check - without), p50 / F", most: 0.25}
	err = b.each(ctx, func() error {
		var files, without, with sample
		if err := b.turns(func() error {
			return first(
				files.repeat(turn, b.file.write),
				without.repeat(turn, func() error { return blind.allocate(ctx) }, func() error { return blind.release(ctx) }),
				with.repeat(turn, func() error { return checked.allocate(ctx) }, func() error { return checked.release(ctx) }))
		}); err != nil {
			return err
		}
		added.add(with.p50()-without.p50(), files.p50())
		return nil
	})
	return []row{added}, err
}

func first(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
