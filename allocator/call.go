package allocator

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"time"

	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb"
	"github.com/ipamd/ipamd/workload"
)

// A call is one allocation under way.
type call struct {
	*Allocator
	req      Request
	pools    []*ipam.Pool // that it draws from
	who      ipam.Who
	parts    []part
	skipped  []Skipped
	claimed  []Skipped    // addresses of leases that were there, which others claim
	unprobed []netip.Addr // addresses of leases from before a rebuild that could not be probed
	naming   netdb.Naming
	beyond   []netdb.Candidate // in use beyond the share of quarantines: kept, so that this call is offered others
}

// A part is one address of the answer: a lease that was there, or a candidate.
type part struct {
	pool      *ipam.Pool
	lease     *ipam.Lease
	given     bool // by this call
	candidate netdb.Candidate
	only      bool // this candidate or an error: it is wished for, or kept for the sandbox
	probed    bool
}

func (c *call) drop() {
	for _, p := range c.parts {
		if p.candidate.Pool != nil {
			c.Book.Drop(p.candidate)
		}
	}
	for _, candidate := range c.beyond {
		c.Book.Drop(candidate)
	}
}

func (c *call) owner(p *ipam.Pool) ipam.Owner {
	return ipam.Owner{PoolUID: p.UID, UID: c.req.UID, Interface: c.req.Interface}
}

// plan finds the lease or the candidate for one pool.
func (c *call) plan(ctx context.Context, p *ipam.Pool) error {
	held, err := c.held(ctx, p)
	if held == nil && err == nil {
		held, err = c.reclaim(ctx, p)
	}
	if err != nil {
		return err
	}
	if held != nil {
		held, err = c.nameOf(ctx, held)
		c.parts = append(c.parts, part{pool: p, lease: held})
		return err
	}
	c.parts = append(c.parts, part{pool: p})
	return c.choose(ctx, &c.parts[len(c.parts)-1])
}

// answers says that a lease will be answered.
func (c *call) answers(l *ipam.Lease) {
	if c.OnAnswer != nil {
		c.OnAnswer(l, c.req.BindWithin)
	}
}

// commit takes every candidate or none. A candidate that is seen at the last
// moment is replaced and all is tried again.
func (c *call) commit(ctx context.Context) (r *Result, err error) {
	defer func() {
		if err != nil {
			c.takeBack(ctx)
		}
	}()
	for {
		var rs []netdb.Reservation
		var addrs []netip.Addr
		for i := range c.parts {
			if p := &c.parts[i]; p.lease == nil {
				rs = append(rs, c.reservation(p))
				addrs = append(addrs, p.candidate.Addr)
				for _, s := range c.about(p.candidate).Seen {
					addrs = append(addrs, s.Addr)
				}
			}
		}
		if len(rs) == 0 {
			return c.result(), nil
		}
		// Each candidate was probed when it was chosen, and what answers at
		// once has done so by now.
		if err := c.settle(ctx, addrs...); err != nil {
			return nil, err
		}
		if err := c.findName(ctx); err != nil {
			return nil, err
		}
		for i := range rs {
			rs[i].Naming = c.naming
		}
		taken, err := c.Book.Reserve(ctx, c.who, rs...)
		if err == nil {
			err = c.given(ctx, taken)
		} else {
			err = c.again(ctx, err)
		}
		if err != nil {
			return nil, err
		}
	}
}

// given notes what the book has given, and looks for answers that came while
// it was committed. An address that is answered for is not given to the
// caller: its lease is released, and another is found.
//
// Only an answer to a probe counts, for that was sent before the commit: a
// retry of the same request may have been given the lease since, and the
// sandbox may have the address already.
func (c *call) given(ctx context.Context, taken []*ipam.Lease) error {
	// What the board had was enough to commit; where it cannot be read again
	// this is no reason to refuse.
	_ = c.Settle(ctx)
	for i := range c.parts {
		p := &c.parts[i]
		if p.lease == nil {
			c.forgo(p)
			p.lease, taken, p.given = taken[0], taken[1:], true
		}
	}
	for i := range c.parts {
		p := &c.parts[i]
		answers := slices.DeleteFunc(workload.About(c.Board, p.lease).Seen, func(s census.Sighting) bool { return s.Witness != census.Probe })
		if !p.given || len(answers) == 0 {
			continue
		}
		late := Skipped{answers[0].Addr, answers}
		if err := c.release(ctx, p); err != nil {
			return err
		}
		c.Log.Warn("a probe of the address was answered while it was given: it is taken back", "addr", late.Addr, "port", answers[0].Port, "mac", answers[0].MAC)
		c.skipped = append(c.skipped, late)
		if c.OnConflict != nil {
			c.OnConflict(late)
		}
		if p.only {
			return onlySeen(late)
		}
		if err := c.choose(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

// undoWithin bounds a release that nobody waits for: another process may have the book's lock.
const undoWithin = 5 * time.Second

// release ends a part's lease, which no caller was answered with, also where the caller has hung up. The part
// has it until that is done: where it fails, takeBack tries again and logs what stays.
func (c *call) release(ctx context.Context, p *part) error {
	who := ipam.Who{Actor: ipam.ByClient, Peer: c.req.Peer, Reason: "seen_before_answer"}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoWithin)
	defer cancel()
	if _, err := c.Book.Release(ctx, who, p.lease.ID, "", p.lease.Rev); err != nil {
		return err
	}
	p.lease, p.given = nil, false
	return nil
}

// takeBack releases what a call that fails was given.
func (c *call) takeBack(ctx context.Context) {
	for i := range c.parts {
		if p := &c.parts[i]; p.given {
			addr := p.lease.Addr
			if err := c.release(ctx, p); err != nil {
				c.Log.Warn("address that was not answered stays reserved", "addr", addr, "err", err)
			}
		}
	}
}

// again lets a Reserve that failed be tried once more, if it can be.
func (c *call) again(ctx context.Context, err error) error {
	// Between the choice and the commit a pass may have quarantined a candidate, or given
	// it back to its owner: a request that wishes for no address then gets another. Where the
	// pool has changed and cannot give the candidate any more, it is asked for one again.
	taken := errors.Is(err, ipam.ErrPoolChanged) || errors.Is(err, ipam.ErrTaken) && !c.req.Address.IsValid()
	if c.otherName(err) {
		return nil
	}
	var seen *seenError
	var owned *ipam.OwnedError
	for i := range c.parts {
		p := &c.parts[i]
		switch {
		case p.lease != nil:
		case taken:
			c.forgo(p)
			if err := c.choose(ctx, p); err != nil {
				return err
			}
		case errors.As(err, &seen) && p.candidate.Range().Contains(seen.Addr):
			lost := p.candidate
			p.candidate = netdb.Candidate{}
			if err := c.conflict(ctx, lost, seen.Skipped); err != nil {
				return err
			}
			if p.only {
				return onlySeen(seen.Skipped)
			}
			return c.choose(ctx, p)
		case errors.As(err, &owned) && owned.Lease.PoolUID == p.pool.UID:
			// The same owner called twice at once, and the other call won. What
			// it got is answered only after all that any held lease must pass.
			c.forgo(p)
			held, err := c.held(ctx, p.pool)
			if held != nil && err == nil {
				held, err = c.nameOf(ctx, held)
			}
			if err != nil || held != nil {
				p.lease = held
				return err
			}
			return c.choose(ctx, p)
		}
	}
	if taken {
		return nil
	}
	return err
}

// settle reads the kernel's news so far, and what it knows of addresses.
func (c *call) settle(ctx context.Context, about ...netip.Addr) error {
	if err := c.Settle(ctx, about...); err != nil {
		return c.refused(ctx, err, c.pools...)
	}
	return nil
}

func (c *call) reservation(p *part) netdb.Reservation {
	candidate := p.candidate
	return netdb.Reservation{
		Candidate: p.candidate, Sandbox: c.req.Sandbox, UID: c.req.UID, Interface: c.req.Interface,
		Attempt: c.req.Attempt, BindWithin: c.req.BindWithin, Labels: c.req.Labels,
		Unseen:  func() error { return c.ask(candidate) },
		Binding: c.req.Binding, BoundBy: ipam.Who{Actor: ipam.ByClient, Peer: c.req.Peer, Reason: "bound"},
		Slot: c.req.Slot,
	}
}

func (c *call) result() *Result {
	r := &Result{Existing: true, Skipped: c.skipped, Claimed: c.claimed, Unprobed: c.unprobed}
	for _, p := range c.parts {
		if p.given {
			r.Existing = false
			c.answers(p.lease)
			if !p.probed {
				r.Unprobed = append(r.Unprobed, p.lease.Addr)
			}
		}
		r.EarlyReuse = r.EarlyReuse || p.lease.Cut == ipam.CutEarly
		r.Leases = append(r.Leases, p.lease)
		r.Pools = append(r.Pools, p.pool)
		r.Fresh = append(r.Fresh, p.given)
	}
	return r
}
