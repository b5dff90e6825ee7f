package main

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/ipamd/ipamd/client"
)

// oneCaller is goal 1: what a caller waits for an address that is durable and
// checked on the wire, and for its release.
func oneCaller(r *run) func() []ratio {
	c := r.start(setup{ports: r.ports}).caller()
	byTurns(r.calls, c.call()) // warm, and the log as long as it gets
	return func() []ratio {
		t := byTurns(r.calls, r.yardF(), r.yardR(), c.call())
		both := t[0].do.p50() + t[1].do.p50()
		return []ratio{
			took(t[2].do.p50(), both), took(t[2].do.p99(), both), took(t[2].undo.p50(), both), took(t[2].undo.p99(), both),
			took(t[0].do.p99()+t[1].do.p99(), both),
		}
	}
}

// flat is goal 3: the same calls on an empty book and on a full one.
func flat(r *run) func() []ratio {
	empty, full := r.start(setup{ports: r.ports}).caller(), r.start(setup{ports: r.ports, book: r.full()}).caller()
	byTurns(r.calls, empty.call(), full.call()) // warm
	return func() []ratio {
		t := byTurns(r.calls, empty.call(), full.call())
		return []ratio{took(t[1].do.p50(), t[0].do.p50()), took(t[1].undo.p50(), t[0].undo.p50())}
	}
}

// manyCallers is goal 4: callers that allocate and release by turns, all at
// once, against one such caller and against as many callers of the echo.
func manyCallers(r *run) func() []ratio {
	d := r.start(setup{ports: r.ports})
	one, all := d.callers(1), d.callers(r.callers)
	echoes := slices.Repeat([]func() error{r.yardR().do}, r.callers)
	return func() []ratio {
		_, alone := crowd(r.crowd, one...)
		theirs, e64 := crowd(r.crowd, echoes...)
		var ours sample
		var rate float64
		busy := onProcessor(d.pid(), func() { ours, rate = crowd(r.crowd, all...) })
		return []ratio{rates(rate, alone), rates(rate, e64), took(ours.p99(), theirs.p99()),
			took(busy/time.Duration(len(ours)), 80*time.Microsecond)}
	}
}

// besideReaders is goal 16: what allocations and releases wait for beside readers that
// go through the whole history, or list a full book.
func besideReaders(r *run) func() []ratio {
	d := r.start(setup{ports: r.ports, book: r.full()})
	c := d.caller()
	byTurns(r.calls, c.call()) // warm
	history := func(ctx context.Context) error {
		_, err := d.client.History(ctx, client.HistoryFilter{LeaseID: "01890a5d-ac96-774b-bcce-b302099a8057"})
		return err
	}
	listing := func(ctx context.Context) error {
		_, err := d.client.Leases(ctx, client.LeaseFilter{})
		return err
	}
	kinds := []func(context.Context) error{nil, history, listing}
	return func() []ratio {
		ours, echoes := make([]sample, len(kinds)), make([]sample, len(kinds))
		for range 4 {
			for i, reader := range kinds {
				stop := func() {}
				if reader != nil {
					stop = r.loop(reader, reader)
				}
				t := during(r.crowd/4, c.call(), r.yardBoth())
				stop()
				ours[i], echoes[i] = append(append(ours[i], t[0].do...), t[0].undo...), append(echoes[i], t[1].do...)
			}
		}
		return []ratio{took(ours[1].p99(), ours[0].p99()), took(ours[2].p99(), ours[0].p99()), took(echoes[2].p99(), echoes[0].p99())}
	}
}

// loop calls each function again and again, all at once, until stop, which ends the
// goal with their error if there is one.
func (r *run) loop(each ...func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(r.ctx)
	var loops sync.WaitGroup
	errs := make([]error, len(each))
	for i, fn := range each {
		loops.Go(func() {
			for ctx.Err() == nil && errs[i] == nil {
				if err := fn(ctx); ctx.Err() == nil {
					errs[i] = err
				}
			}
		})
	}
	stop = sync.OnceFunc(func() {
		cancel()
		loops.Wait()
		check(errs...)
	})
	r.Cleanup(stop)
	return stop
}
