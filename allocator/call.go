package allocator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"

	"github.com/ipamd/ipamd/netdb"
)

// A call is one allocation under way.
type call struct {
	*Allocator
	req     Request
	who     netdb.Who
	parts   []part
	skipped []Skipped
}

// A part is one address of the answer: a lease that was there, or a candidate.
type part struct {
	pool      *netdb.Pool
	lease     *netdb.Lease
	candidate netdb.Candidate
	probed    bool
}

func (c *call) drop() {
	for _, p := range c.parts {
		if p.candidate.Pool != nil {
			c.Book.Drop(p.candidate)
		}
	}
}

func (c *call) owner(p *netdb.Pool) netdb.Owner {
	return netdb.Owner{PoolUID: p.UID, UID: c.req.UID, Interface: c.req.Interface}
}

// plan finds the lease or the candidate for one pool.
func (c *call) plan(ctx context.Context, p *netdb.Pool) error {
	held, err := c.held(ctx, p)
	if err != nil {
		return err
	}
	if held != nil {
		c.parts = append(c.parts, part{pool: p, lease: held})
		return nil
	}
	candidate, probed, err := c.candidate(ctx, p, c.req.Address)
	if err != nil {
		return err
	}
	c.parts = append(c.parts, part{pool: p, candidate: candidate, probed: probed})
	return nil
}

// held returns the owner's open lease, unless the wire shows its address
// under somebody else. A reserved one is then let go, so that a retry gets
// another address and not the conflicted one again; a bound one is held and
// reported: taking it from a sandbox that may be running is nobody's to guess.
func (c *call) held(ctx context.Context, p *netdb.Pool) (*netdb.Lease, error) {
	l, ok := c.Book.Held(c.owner(p))
	if !ok {
		return nil, nil
	}
	if c.req.Address.IsValid() && c.req.Address != l.Addr {
		return nil, fmt.Errorf("address %s: %w: sandbox %q holds %s on %s", c.req.Address, netdb.ErrState, l.Sandbox, l.Addr, l.Interface)
	}
	if strangers := Strangers(l, c.Board.About(l.Addr).Seen); len(strangers) > 0 {
		c.Log.Warn("address of a lease is in use by somebody else", "addr", l.Addr, "sandbox", l.Sandbox, "lease", l.ID, "witness", strangers[0].Witness)
		if l.State != netdb.Reserved {
			return nil, fmt.Errorf("address %s of lease %s: %w: the %s witness sees it under somebody else; see whois %s",
				l.Addr, l.ID, netdb.ErrTaken, strangers[0].Witness, l.Addr)
		}
		if _, err := c.Book.Release(ctx, netdb.Who{Actor: netdb.ByClient, Peer: c.req.Peer, Reason: "conflict_on_retry"}, l.ID, ""); err != nil {
			return nil, err
		}
		c.skip(Skipped{l.Addr, strangers})
		return nil, nil
	}
	if c.req.Attempt <= l.Attempt {
		return l, nil
	}
	return c.Book.Renew(ctx, netdb.Who{Actor: netdb.ByAllocator, Peer: c.req.Peer, Reason: "attempt_raised"}, l.ID, c.req.Attempt)
}

func (c *call) skip(s Skipped) {
	c.skipped = append(c.skipped, s)
}

// candidate offers addresses of a pool until one is dark.
func (c *call) candidate(ctx context.Context, p *netdb.Pool, wish netip.Addr) (netdb.Candidate, bool, error) {
	own := true
	for len(c.skipped) < c.MaxConflicts {
		candidate, ok := netdb.Candidate{}, false
		var err error
		if wish.IsValid() {
			candidate, err = c.Book.PickAddr(c.owner(p), wish, c.Policy)
		} else {
			if own {
				candidate, ok = c.Book.PickOwn(c.owner(p))
				own = false
			}
			if !ok {
				candidate, err = c.Book.Pick(p.UID, c.Policy)
			}
		}
		if err != nil {
			if errors.Is(err, netdb.ErrExhausted) && len(c.skipped) > 0 {
				return candidate, false, fmt.Errorf("%w; and %w", err, &ConflictError{c.skipped})
			}
			return candidate, false, err
		}
		probed := c.vet.take(candidate.Addr)
		err = c.ask(candidate.Addr)
		var seen *seenError
		if !errors.As(err, &seen) {
			if err != nil {
				c.Book.Drop(candidate)
			}
			return candidate, probed, err
		}
		if err := c.conflict(ctx, candidate, seen.Skipped); err != nil {
			return candidate, false, err
		}
		if wish.IsValid() {
			return candidate, false, fmt.Errorf("address %s: %w: the %s witness sees it; it is quarantined", wish, netdb.ErrTaken, seen.Seen[0].Witness)
		}
	}
	return netdb.Candidate{}, false, &ConflictError{c.skipped}
}

// conflict quarantines a candidate with its evidence.
func (c *call) conflict(ctx context.Context, candidate netdb.Candidate, s Skipped) error {
	defer c.Book.Drop(candidate)
	c.skip(s)
	evidence, err := json.Marshal(s.Seen)
	if err != nil {
		return fmt.Errorf("write the evidence about %s: %w", s.Addr, err)
	}
	who := c.who
	who.Reason = "seen_on_wire"
	_, err = c.Book.Quarantine(ctx, who, s.Addr, evidence)
	switch {
	case errors.Is(err, netdb.ErrQuarantineFull):
		// The address is not given, but neither may strangers on the wire
		// make all of a pool unusable for as long as a quarantine lasts.
		if !c.aside.add(s.Addr) {
			return nil
		}
		c.Log.Warn("address in use on the wire is not quarantined: the share is used up", "addr", s.Addr, "witness", s.Seen[0].Witness)
	case err != nil:
		return err
	default:
		c.Log.Warn("address in use on the wire is quarantined", "addr", s.Addr, "witness", s.Seen[0].Witness,
			"port", s.Seen[0].Port, "container", s.Seen[0].Container, "mac", s.Seen[0].MAC)
	}
	if c.OnConflict != nil {
		c.OnConflict(s)
	}
	return nil
}

// commit takes every candidate or none. A candidate that is seen at the last
// moment is replaced and all is tried again.
func (c *call) commit(ctx context.Context) (*Result, error) {
	for {
		var rs []netdb.Reservation
		for i := range c.parts {
			if c.parts[i].lease == nil {
				rs = append(rs, c.reservation(&c.parts[i]))
			}
		}
		if len(rs) == 0 {
			return c.result(nil), nil
		}
		taken, err := c.Book.Reserve(ctx, c.who, rs...)
		if err == nil {
			return c.result(taken), nil
		}
		if err := c.again(ctx, err); err != nil {
			return nil, err
		}
	}
}

// again mends what made a Reserve fail, if it can be mended.
func (c *call) again(ctx context.Context, err error) error {
	var seen *seenError
	var owned *netdb.OwnedError
	for i := range c.parts {
		p := &c.parts[i]
		switch {
		case p.lease != nil:
		case errors.As(err, &seen) && seen.Addr == p.candidate.Addr:
			if err := c.conflict(ctx, p.candidate, seen.Skipped); err != nil {
				return err
			}
			if c.req.Address.IsValid() {
				return fmt.Errorf("address %s: %w: the %s witness sees it; it is quarantined", seen.Addr, netdb.ErrTaken, seen.Seen[0].Witness)
			}
			var err error
			p.candidate, p.probed, err = c.candidate(ctx, p.pool, netip.Addr{})
			return err
		case errors.As(err, &owned) && owned.Lease.PoolUID == p.pool.UID:
			// The same request came twice at once; the other one won.
			c.Book.Drop(p.candidate)
			p.candidate, p.lease = netdb.Candidate{}, owned.Lease
			return nil
		}
	}
	return err
}

func (c *call) reservation(p *part) netdb.Reservation {
	addr := p.candidate.Addr
	return netdb.Reservation{
		Candidate: p.candidate, Sandbox: c.req.Sandbox, UID: c.req.UID, Interface: c.req.Interface,
		Attempt: c.req.Attempt, BindWithin: c.req.BindWithin, Labels: c.req.Labels,
		Unseen: func() error { return c.ask(addr) },
	}
}

func (c *call) result(taken []*netdb.Lease) *Result {
	r := &Result{Existing: len(taken) == 0, Skipped: c.skipped}
	for _, p := range c.parts {
		l := p.lease
		if l == nil {
			l, taken = taken[0], taken[1:]
			r.EarlyReuse = r.EarlyReuse || p.candidate.Early
			if !p.probed {
				r.Unprobed = append(r.Unprobed, l.Addr)
			}
		}
		r.Leases = append(r.Leases, l)
		r.Pools = append(r.Pools, p.pool)
	}
	return r
}
