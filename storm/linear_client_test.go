package storm_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"time"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/client"
)

// A caller lives one sandbox after the other, by itself, and writes down every
// try.
type caller struct {
	*trial
	id int
	r  *rand.Rand
}

func (c *caller) run() {
	for n := range c.cycles {
		for c.ebb > 0 && c.id >= c.ebb && c.rec.now()%tide > tide/2 && !closed(c.calm) {
			c.rest(c.r, 10*time.Millisecond, 100*time.Millisecond)
		}
		if c.ctx.Err() != nil || closed(c.calm) {
			return
		}
		c.round(n)
	}
}

// tide is how often the callers, but for a few, are still, for half of it: only
// then addresses rest as long as they should.
const tide = 6 * time.Second

// round allocates and releases once. Some rounds use a name of their own, some
// the caller's, and some one that other callers use at the same time.
func (c *caller) round(n int) {
	name := fmt.Sprint("own-", c.id)
	switch {
	case c.r.Float64() < c.shared:
		name = fmt.Sprint("shared-", c.r.IntN(c.names))
	case c.r.IntN(2) == 0:
		name = fmt.Sprintf("new-%d-%d", c.id, n)
	}
	l, ok := c.allocate(name)
	if !ok {
		return
	}
	c.turned.Add(1)
	if c.r.IntN(8) == 0 { // as if the answer had been lost on the way
		c.allocate(name)
	}
	if c.r.IntN(2) == 0 {
		c.bind(l)
	}
	c.rest(c.r, time.Millisecond, c.stay)
	if closed(c.calm) && c.r.IntN(2) == 0 {
		return // held to the end
	}
	c.release(l)
	if c.r.IntN(8) == 0 {
		c.release(l)
	}
}

// allocate returns the call with the answer.
func (c *caller) allocate(name string) (call, bool) {
	got := call{Client: c.id, Verb: allocating, UID: name}
	err := c.try(&got, func(ctx context.Context) error { return c.give(ctx, &got) })
	if err != nil && c.ctx.Err() == nil {
		c.rec.strange("%s: %v", name, err)
	}
	return got, err == nil
}

// give asks for an allocation once.
func (t *trial) give(ctx context.Context, got *call) error {
	reply, err := t.client.Allocate(ctx, api.AllocateRequest{Sandbox: got.UID})
	if err != nil {
		return err
	}
	l := reply.Leases[0]
	got.Lease, got.Addr = l.ID, netip.MustParseAddr(l.Address)
	got.Existing, got.Early, got.Bound = reply.Existing, reply.EarlyReuse, l.State == api.Bound
	return nil
}

// bind names a namespace and a port that are not there: to ipamd the sandbox is
// one that has ended, once its lease is released.
func (c *caller) bind(l call) {
	b := call{Client: c.id, Verb: binding, UID: l.UID, Lease: l.Lease, Addr: l.Addr}
	err := c.try(&b, func(ctx context.Context) error {
		_, err := c.client.Bind(ctx, l.Lease, api.BindRequest{Netns: "/run/netns/" + l.UID, HostInterface: fmt.Sprint("veth", c.id)})
		return b.gone(err)
	})
	if err != nil && c.ctx.Err() == nil {
		c.rec.strange("%s: %v", l, err)
	}
}

func (c *caller) release(l call) {
	r := call{Client: c.id, Verb: releasing, UID: l.UID, Lease: l.Lease, Addr: l.Addr}
	err := c.try(&r, func(ctx context.Context) error {
		reply, err := c.client.Release(ctx, l.Lease, api.ReleaseRequest{})
		if err == nil { // a bind without an answer shows here
			r.Bound = reply.Lease.HostInterface != ""
		}
		return r.gone(err)
	})
	if err != nil && c.ctx.Err() == nil {
		c.rec.strange("%s: %v", l, err)
	}
}

// gone takes the word that a lease is not its owner's any more for an answer.
// Whether it may be so, others judge.
func (c *call) gone(err error) error {
	c.Gone = errors.Is(err, client.ErrLeaseGone) || errors.Is(err, client.ErrNotFound) || errors.Is(err, client.ErrStateNotAllowed)
	if c.Gone {
		return nil
	}
	return err
}

// try asks until there is an answer, and writes down each time. One in twenty
// times the caller hangs up early and asks again.
func (c *caller) try(what *call, ask func(context.Context) error) error {
	return c.persist(c.r, string(what.Verb), func(ctx context.Context) error {
		if c.r.IntN(20) == 0 {
			hasty, cancel := context.WithTimeout(ctx, between(c.r, 100*time.Microsecond, 10*time.Millisecond))
			defer cancel()
			ctx = hasty
		}
		return c.once(what, func() error {
			err := ask(ctx)
			if err == nil {
				c.shoot()
			}
			return err
		})
	})
}

// once asks, and writes down what was asked and what came of it.
func (t *trial) once(what *call, ask func() error) error {
	what.Asked = t.rec.now()
	err := ask()
	what.Answered = t.rec.now()
	done := *what
	switch refused := new(api.Error); {
	case err == nil:
	case errors.Is(err, client.ErrNotRunning):
		return err // nothing was asked
	case errors.As(err, &refused) && refused.Code != api.Internal:
		if done.Refused = refused.Code; done.Refused == api.BookReadonly {
			t.rec.counted(notWritten)
		}
	default:
		done.Left, done.Answered = done.Answered, never
	}
	t.write(done)
	return err
}

// list writes down what the book lists, several times a second.
func (t *trial) list(r *rand.Rand) {
	for t.ctx.Err() == nil && !closed(t.calm) {
		if _, err := t.listOnce(r); err != nil && t.ctx.Err() == nil {
			t.rec.strange("list: %v", err)
		}
		t.world.rest(r, 50*time.Millisecond, 250*time.Millisecond)
	}
}

// listOnce lists until there is an answer, and returns it.
func (t *trial) listOnce(r *rand.Rand) (call, error) {
	all := call{Client: t.callers, Verb: listingAll}
	err := t.persist(r, "list", func(ctx context.Context) error {
		return t.once(&all, func() error {
			reply, err := t.client.Leases(ctx, client.LeaseFilter{})
			if err != nil {
				return err
			}
			all.Open, all.Ending = make(map[netip.Addr]ownership), nil
			for _, l := range reply.Leases {
				addr := netip.MustParseAddr(l.Address)
				switch {
				case isHeld(l):
					all.Open[addr] = ownership{l.ID, l.UID, l.State == api.Bound}
				case l.State != api.Cooling:
					all.Ending = append(all.Ending, addr)
				}
			}
			return nil
		})
	})
	return all, err
}
