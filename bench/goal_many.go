package main

import (
	"context"
	"fmt"
	"time"
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
	work := row{goal: 4, what: fmt.Sprintf("processor time of a call of %d callers / of the echo's server", b.callers)}
	err = b.each(ctx, func() (err error) {
		var alone, echoes, many crowded
		if alone, err = ask(one); err != nil {
			return err
		}
		theirs, err := onProcessor(b.echo.server.Process.Pid, func() (err error) {
			echoes, err = crowd(ctx, b.callers, b.crowd, func(int) func(context.Context) error { return b.echo.call })
			return err
		})
		if err != nil {
			return err
		}
		ours, err := onProcessor(d.cmd.Process.Pid, func() (err error) {
			many, err = ask(all)
			return err
		})
		if err != nil {
			return err
		}
		faster.addRates(many.rate, alone.rate)
		share.addRates(many.rate, echoes.rate)
		tail.add(many.p99(), echoes.p99())
		work.add(ours/time.Duration(len(many.sample)), theirs/time.Duration(len(echoes.sample)))
		return nil
	})
	return []row{faster, share, tail, work}, err
}
