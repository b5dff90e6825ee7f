package main

import (
	"context"
	"fmt"
)

// manyCallers is goal 4: callers that allocate and release by turns, all at
// once, against one such caller and against as many callers of the echo.
func manyCallers(ctx context.Context, b *bench) (rows []row, err error) {
	d, err := b.startDaemon(ctx, "many")
	if err != nil {
		return nil, err
	}
	defer func() { err = first(err, d.stop()) }()
	one, all := []*caller{d.caller()}, make([]*caller, b.callers)
	for i := range all {
		all[i] = d.caller()
	}
	ask := func(of []*caller) (crowded, error) {
		return crowd(ctx, len(of), b.crowd, func(i int) func(context.Context) error { return of[i].turn })
	}
	faster := row{goal: 4, what: fmt.Sprintf("calls/s of %d callers / of 1", b.callers), least: 4}
	share := row{goal: 4, what: fmt.Sprintf("calls/s of %d callers / E%d", b.callers, b.callers), least: 0.35}
	tail := row{goal: 4, what: fmt.Sprintf("p99 of %d callers / the echo's own", b.callers), most: 2}
	err = b.each(ctx, func() error {
		alone, err := ask(one)
		if err != nil {
			return err
		}
		echoes, err := crowd(ctx, b.callers, b.crowd, func(int) func(context.Context) error { return b.echo.call })
		if err != nil {
			return err
		}
		many, err := ask(all)
		if err != nil {
			return err
		}
		faster.addRates(many.rate, alone.rate)
		share.addRates(many.rate, echoes.rate)
		tail.add(many.p99(), echoes.p99())
		return nil
	})
	return []row{faster, share, tail}, err
}
