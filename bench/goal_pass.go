package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/ipamd/ipamd/api"
)

// Of a pass, and of the way back to a containerd that was away.
const (
	passLimit   = 400 * time.Millisecond
	relistLimit = time.Second
	// away is long enough for ipamd to have slowed down to its slowest.
	away = 2 * time.Second
)

// crowdedRunner returns the runner that goals 13 and 14 share: as many ports,
// containers and bound leases as the plan says, which all agree. The containers
// are records without a task: a thousand shims are more than a small machine
// holds, and what is measured, the list, asks none. It stops with the bench.
func (b *bench) crowdedRunner(ctx context.Context) (*runner, error) {
	if b.crowded != nil {
		return b.crowded, nil
	}
	b.crowds++
	r, err := b.startRunner(ctx, fmt.Sprintf("crowded-%d", b.crowds))
	if err != nil {
		return nil, err
	}
	if _, err = r.boxes(ctx, b.sandboxes, false); err == nil {
		err = r.agree(ctx, b.sandboxes)
	}
	if err != nil {
		return nil, errors.Join(err, r.stop())
	}
	b.crowded = r
	return r, nil
}

// disperse stops that runner, if there is one. What asks for it next gets a new
// one: a goal that broke may have left it in any state.
func (b *bench) disperse() (err error) {
	if b.crowded != nil {
		err, b.crowded = b.crowded.stop(), nil
	}
	return err
}

// agree waits until book, wire and runtime do, about so many sandboxes.
func (r *runner) agree(ctx context.Context, sandboxes int) error {
	return until("book, wire and runtime agree", patience, func() (bool, error) {
		report, err := r.pass(ctx, api.ReconcileRequest{})
		if errors.Is(err, errIncomplete) {
			return false, nil
		}
		return err == nil && len(report.Actions) == 0 && report.Seen >= sandboxes, err
	})
}

// errIncomplete means that a pass did less than a whole one does.
var errIncomplete = errors.New("a pass was not complete")

// pass has a whole and complete pass made.
func (r *runner) pass(ctx context.Context, ask api.ReconcileRequest) (*api.Report, error) {
	reply, err := r.client.Reconcile(ctx, ask)
	if err != nil {
		return nil, err
	}
	if !reply.Report.Complete || reply.Report.Held != nil {
		return nil, fmt.Errorf("%w: %+v, held: %+v", errIncomplete, reply.Report.Silent, reply.Report.Held)
	}
	return &reply.Report, nil
}

// late makes reservations that are past their deadline at once.
func (r *runner) late(ctx context.Context, n int) error {
	for range n {
		r.calls.calls++
		ask := api.AllocateRequest{Sandbox: fmt.Sprintf("%s-late-%d", r.calls.name, r.calls.calls), BindWithin: "1ms"}
		if _, err := r.client.Allocate(ctx, ask); err != nil {
			return err
		}
	}
	return nil
}

// endLate has a pass made that ends n of those.
func (r *runner) endLate(ctx context.Context, n int) error {
	report, err := r.pass(ctx, api.ReconcileRequest{Confirm: true})
	if err != nil {
		return err
	}
	ended := 0
	for _, a := range report.Actions {
		if a.Kind == "expire" && a.Result == "done" {
			ended++
		}
	}
	if ended != n {
		return fmt.Errorf("a pass ended %d reservations of %d: %+v", ended, n, report.Actions)
	}
	return nil
}

// passes is goal 13: what a pass costs that finds that all agree, and how soon
// containerd is listed whole after it is back.
func passes(ctx context.Context, b *bench) (rows []row, err error) {
	r, err := b.crowdedRunner(ctx)
	if err != nil {
		return nil, err
	}
	of := fmt.Sprintf("a pass over %d ports and containers, ", b.sandboxes)
	busy := row{goal: 13, what: of + "processor time / 400 ms", most: 1}
	wall := row{goal: 13, what: of + "wall / 400 ms"}
	theirs := row{goal: 13, what: of + "containerd's own processor time / 400 ms"}
	steps := row{goal: 13, what: fmt.Sprintf("one that ends %d reservations, processor time / 400 ms", b.steps)}
	err = b.each(ctx, func() error {
		if err := r.late(ctx, b.steps); err != nil {
			return err
		}
		ending, err := onProcessor(r.cmd.Process.Pid, func() error { return r.endLate(ctx, b.steps) })
		if err != nil {
			return err
		}
		steps.add(ending, passLimit)
		var took sample
		var other time.Duration
		mine, err := onProcessor(r.cmd.Process.Pid, func() (err error) {
			other, err = onProcessor(r.ctrd.PID, func() error {
				return took.timed(func() error {
					report, err := r.pass(ctx, api.ReconcileRequest{})
					if err == nil && (len(report.Actions) > 0 || report.Seen < b.sandboxes) {
						err = fmt.Errorf("a pass saw %d addresses and did %+v", report.Seen, report.Actions)
					}
					return err
				})
			})
			return err
		})
		if err != nil {
			return err
		}
		busy.add(mine, passLimit)
		wall.add(took.p50(), passLimit)
		theirs.add(other, passLimit)
		return nil
	})
	back := row{goal: 13, what: "containerd's socket accepts to all listed / 1 s", most: 1}
	for range b.restarts {
		if err != nil {
			break
		}
		var took time.Duration
		if took, err = r.relist(ctx); err == nil {
			back.add(took, relistLimit)
		}
	}
	return []row{busy, wall, theirs, steps, back}, err
}

// relist kills containerd, starts it again after a while, and returns how long
// after its socket accepts the runtime witness speaks again, for which it has
// listed everything. That the list begins cannot be seen from outside, and is
// sooner.
func (r *runner) relist(ctx context.Context) (time.Duration, error) {
	r.ctrd.Kill9()
	if err := until("ipamd misses containerd", patience, func() (bool, error) {
		silent, err := r.silent(ctx)
		return silent, err
	}); err != nil {
		return 0, err
	}
	select {
	case <-ctx.Done():
		return 0, ctx.Err()
	case <-time.After(away):
	}
	type end struct {
		at  time.Time
		err error
	}
	accepts, speaks := make(chan end, 1), make(chan end, 1)
	go func() { // the answers below are waited for
		err := until("containerd's socket accepts", patience, func() (bool, error) {
			c, err := new(net.Dialer).DialContext(ctx, "unix", r.ctrd.Address)
			if err != nil {
				return false, ctx.Err()
			}
			return true, c.Close()
		})
		accepts <- end{time.Now(), err}
		err = errors.Join(err, until("ipamd lists containerd", patience, func() (bool, error) {
			silent, err := r.silent(ctx)
			return !silent, err
		}))
		speaks <- end{time.Now(), err}
	}()
	err := r.ctrd.do(r.ctrd.Restart)
	from, to := <-accepts, <-speaks
	return to.at.Sub(from.at), errors.Join(err, to.err)
}

// silent reports whether the runtime witness is.
func (r *runner) silent(ctx context.Context) (bool, error) {
	st, err := r.client.Status(ctx)
	if err != nil {
		return false, err
	}
	for _, s := range st.Silent {
		if s.Witness == "runtime" {
			return true, nil
		}
	}
	return false, nil
}
