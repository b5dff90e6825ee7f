package main

import (
	"fmt"
	"time"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/internal/ctrdtest"
	"github.com/ipamd/ipamd/internal/nstest"
	"github.com/ipamd/ipamd/internal/realtest"
)

// A runner is a daemon with a containerd.
type runner struct {
	*caller
	ctrd *ctrdtest.Daemon
}

func (r *run) runner() *runner {
	ctrd := ctrdtest.Start(r, ctrdtest.V2)
	return &runner{r.start(setup{runtime: ctrd.Address}).caller(), ctrd}
}

// full is the runner that goals share: as many ports, containers and bound leases as
// the plan has, which all agree. The containers are records without a task: a thousand
// shims are more than a small machine holds, and what is measured, the list, asks none.
func (r *run) fullRunner() *runner {
	if r.crowded == nil {
		n := r.shared.runner()
		n.boxes(r.sandboxes, false)
		n.agree(r.sandboxes)
		r.crowded = n
	}
	return r.crowded
}

// A box is one sandbox: a lease, a port with its address, and a container of its name.
type box struct {
	lease api.Lease
	port  *nstest.Port
}

// boxes makes n sandboxes whose containers are records without a task, or run
// in their network namespaces.
func (n *runner) boxes(count int, running bool) []box {
	all := make([]box, count)
	for i := range all {
		check(n.allocate())
		b := box{*n.held, n.ns.Port(bridgeName, n.held.Address+"/16")}
		n.held = nil
		spec := ctrdtest.Spec{ID: b.lease.Sandbox,
			Labels: map[string]string{"runtime.computer/entity-id": b.lease.Sandbox, "runtime.computer/ip": b.lease.Address}}
		where := api.BindRequest{Containers: []api.Container{{Namespace: "default", ID: spec.ID}}, HostInterface: b.port.HostName}
		if running {
			spec.Netns, where.Netns = b.port.NS.Path(), b.port.NS.Path()
			n.ctrd.Run(n, spec)
		} else {
			n.ctrd.Create(n, spec)
			b.port.NS.Hide() // of a thousand names none is of use
		}
		must(n.client.Bind(n.ctx, b.lease.ID, where))
		all[i] = b
	}
	return all
}

// agree waits until book, wire and runtime do, about so many sandboxes.
func (n *runner) agree(sandboxes int) {
	realtest.Eventually(n, patience, "book, wire and runtime agree", func() bool {
		report := must(n.client.Reconcile(n.ctx, api.ReconcileRequest{})).Report
		return report.Complete && len(report.Actions) == 0 && report.Seen >= sandboxes
	})
}

// pass has a whole pass made, which must end so many reservations.
func (n *runner) pass(ends int) error {
	reply, err := n.client.Reconcile(n.ctx, api.ReconcileRequest{Confirm: true})
	if err != nil {
		return err
	}
	done := 0
	for _, a := range reply.Report.Actions {
		if a.Kind == "expire" && a.Result == "done" {
			done++
		}
	}
	if !reply.Report.Complete || reply.Report.Held != nil || done != ends {
		return fmt.Errorf("a pass ended %d reservations of %d: %+v", done, ends, reply.Report)
	}
	return nil
}

// late makes reservations that are past their deadline at once.
func (n *runner) late(count int) {
	for range count {
		n.calls++
		must(n.client.Allocate(n.ctx, api.AllocateRequest{Sandbox: fmt.Sprint(n.name, "late-", n.calls), BindWithin: "1ms"}))
	}
}

// besidePass is the timed half of goal 14: how much longer an allocation takes beside a
// pass, and how much longer an echo that syncs, which knows of no book: what that waits
// is the machine's part. One pass finds that all agree, the other ends reservations.
func besidePass(r *run) func() []ratio {
	const steps = 32
	n := r.fullRunner()
	c := n.daemon.caller()
	byTurns(r.calls, c.call(), r.yardBoth()) // warm
	beside := func(ends, calls int, met []timing) []timing {
		for len(met) == 0 || len(met[0].do) < calls {
			n.late(ends)
			over := make(chan error, 1)
			go func() { over <- n.pass(ends) }() // waited for below
			for passing := true; passing; {
				select {
				case err := <-over:
					check(err)
					passing = false
				default:
					met = join(met, byTurns(1, c.call(), r.yardBoth()))
				}
			}
		}
		return met
	}
	return func() []ratio {
		var alone, quiet, ending []timing
		for block := range 4 { // with and without a pass by turns
			alone = join(alone, byTurns(r.calls/8, c.call(), r.yardBoth()))
			quiet = beside(0, (block+1)*r.calls/8, quiet)
			ending = beside(steps, (block+1)*r.calls/8, ending)
		}
		longer := func(t []timing) ratio {
			return took(t[0].do.p50()-alone[0].do.p50(), t[1].do.p50()-alone[1].do.p50())
		}
		busy := onProcessor(n.pid(), func() { check(n.pass(0)) })
		return []ratio{took(busy, 400*time.Millisecond), longer(quiet), longer(ending)}
	}
}
