package main

import (
	"context"
	"fmt"
	"strconv"
	"sync/atomic"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/client"
)

// A caller allocates and releases by turns.
type caller struct {
	client *client.Client
	name   string
	calls  int
	tally  *tally
	held   *api.Lease
}

// caller returns one whose sandboxes nobody else names.
func (d *daemon) caller() *caller {
	d.calls++
	return &caller{client: d.client, name: "sandbox-" + strconv.Itoa(d.calls), tally: d.tally}
}

func (c *caller) allocate(ctx context.Context) error {
	c.calls++
	reply, err := c.client.Allocate(ctx, api.AllocateRequest{Sandbox: c.name + "-" + strconv.Itoa(c.calls)})
	if err == nil {
		c.held = &reply.Leases[0]
	}
	return err
}

// release lets the lease go, and its address is free at once: it was never
// bound and nobody sees it. That is the cheapest of releases; see retire.
//
// On a machine that stands still ipamd may not come to see so in the time that
// it has for it, and answers that the address cools or is being released: a true
// answer of another, dearer call. It is timed like the rest, and tallied.
func (c *caller) release(ctx context.Context) error {
	reply, err := c.client.Release(ctx, c.held.ID, api.ReleaseRequest{})
	if err == nil {
		err = c.tally.note(reply)
	}
	c.held = nil
	return err
}

// retire takes n leases, binds each, and times its release, until the removal
// is confirmed: its address cools, and is not given again here. What it was
// bound to is not there: nothing but the asking is timed.
func (c *caller) retire(ctx context.Context, n int, releases *sample) error {
	for range n {
		if err := c.allocate(ctx); err != nil {
			return err
		}
		id := c.held.ID
		c.held = nil
		if _, err := c.client.Bind(ctx, id, api.BindRequest{HostInterface: "gone0"}); err != nil {
			return err
		}
		if err := releases.timed(func() error {
			reply, err := c.client.Release(ctx, id, api.ReleaseRequest{Wait: api.Lasting(patience)})
			if err == nil && reply.Lease.State != api.Cooling {
				err = fmt.Errorf("address %s is %s after its release: %v", reply.Lease.Address, reply.Lease.State, reply.Blockers)
			}
			return err
		}); err != nil {
			return err
		}
	}
	return nil
}

// turn is one call of either kind.
func (c *caller) turn(ctx context.Context) error {
	if c.held == nil {
		return c.allocate(ctx)
	}
	return c.release(ctx)
}

// churn times n allocations, each followed by a release.
func (c *caller) churn(ctx context.Context, n int, allocates, releases *sample) error {
	for range n {
		if err := allocates.timed(func() error { return c.allocate(ctx) }); err != nil {
			return err
		}
		if err := releases.timed(func() error { return c.release(ctx) }); err != nil {
			return err
		}
	}
	return nil
}

// A tally counts the releases of all callers, and those of them whose address
// was not free at once. Safe for concurrent use.
type tally struct{ released, rested atomic.Int64 }

// note counts an answer, or says why it is none.
func (t *tally) note(reply *api.LeaseReply) error {
	switch reply.Lease.State {
	case api.Cooling, api.Releasing:
		t.rested.Add(1)
	case api.Free:
	default:
		return fmt.Errorf("address %s is %s after its release: %v", reply.Lease.Address, reply.Lease.State, reply.Blockers)
	}
	t.released.Add(1)
	return nil
}

// take returns a row of what was counted since the last time, if an address
// rested at all.
func (t *tally) take(goal int) []row {
	released, rested := t.released.Swap(0), t.rested.Swap(0)
	if rested == 0 {
		return nil
	}
	r := row{goal: goal, what: "releases of all callers whose address was not free at once / all", unit: "releases"}
	r.round(float64(rested), float64(released))
	return []row{r}
}
