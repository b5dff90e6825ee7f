package allocator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"

	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb"
)

// choose offers addresses to a part that has neither a candidate nor a lease, until
// one is not seen.
func (c *call) choose(ctx context.Context, p *part) error {
	own := true
	for len(c.skipped) < c.MaxConflicts {
		candidate, only, err := c.pick(p.pool, own)
		own = false
		if err != nil {
			if errors.Is(err, ipam.ErrExhausted) && len(c.skipped) > 0 {
				return fmt.Errorf("%w; and %w", err, &ConflictError{c.skipped})
			}
			return err
		}
		if p.pool != candidate.Pool { // it changed since the request came: its bridge may be another, and not ready
			p.pool = candidate.Pool
			if err := c.Gate(p.pool); err != nil {
				c.Book.Drop(candidate)
				return err
			}
		}
		var probed bool
		if addr := candidate.Addr; only || candidate.PrefixLen != 0 { // no prefix is probed ahead
			probed = c.vet.wait(ctx, addr, func() bool { return len(c.about(candidate).Seen) > 0 })
		} else {
			probed = c.vet.take(ctx, addr)
		}
		err = c.ask(candidate)
		var seen *seenError
		switch {
		case err == nil:
			p.candidate, p.only, p.probed = candidate, only, probed
			return nil
		case !errors.As(err, &seen):
			c.Book.Drop(candidate)
			return err
		}
		if err := c.conflict(ctx, candidate, seen.Skipped); err != nil {
			return err
		}
		if only {
			return onlySeen(seen.Skipped)
		}
	}
	return &ConflictError{c.skipped}
}

// pick offers the address of a pool that the caller wishes for, that is kept for its
// sandbox, that it had last (if own), or that is next. only says that it is this one or
// an error.
func (c *call) pick(p *ipam.Pool, own bool) (candidate netdb.Candidate, only bool, err error) {
	wish := c.req.Address
	if bits := c.req.PrefixLen; bits != 0 {
		return c.pickPrefix(p, bits, own)
	}
	candidate, only, err = c.Book.PickKept(c.owner(p), c.req.Sandbox, c.Policy)
	if wish.IsValid() && !(only && p.KeptFor(wish) == c.req.Sandbox) {
		candidate, err = c.Book.PickAddr(c.owner(p), wish, c.Policy)
		return candidate, true, err
	}
	if only || err != nil {
		return candidate, only, err
	}
	if own {
		if candidate, own = c.Book.PickOwn(c.owner(p), 0); own {
			return candidate, false, nil
		}
	}
	candidate, err = c.Book.Pick(p.UID, c.Policy)
	return candidate, false, err
}

// pickPrefix is pick of a delegated prefix. None is kept for a sandbox.
func (c *call) pickPrefix(p *ipam.Pool, bits int, own bool) (candidate netdb.Candidate, only bool, err error) {
	if wish := c.req.Address; wish.IsValid() {
		candidate, err = c.Book.PickPrefixAt(c.owner(p), netip.PrefixFrom(wish, bits), c.Policy)
		return candidate, true, err
	}
	if own {
		if candidate, own = c.Book.PickOwn(c.owner(p), bits); own {
			return candidate, false, nil
		}
	}
	candidate, err = c.Book.PickPrefix(p.UID, bits, c.Policy)
	return candidate, false, err
}

// wanted is what a request asks for.
func wanted(bits int) string {
	if bits == 0 {
		return "an address"
	}
	return fmt.Sprintf("a /%d", bits)
}

// conflict quarantines a candidate with its evidence.
func (c *call) conflict(ctx context.Context, candidate netdb.Candidate, s Skipped) error {
	c.skipped = append(c.skipped, s)
	evidence, err := json.Marshal(s.Seen)
	if err != nil {
		return fmt.Errorf("write the evidence about %s: %w", s.Addr, err)
	}
	who := c.who
	who.Reason = ipam.SeenOnWire
	_, err = c.Book.Quarantine(ctx, who, s.Addr, evidence)
	if !errors.Is(err, ipam.ErrQuarantineFull) {
		c.Book.Drop(candidate)
	}
	switch {
	case errors.Is(err, ipam.ErrQuarantineFull):
		// The address is not given, but neither may strangers on the wire
		// make all of a pool unusable for as long as a quarantine lasts. It
		// stays held, so that this call is offered others.
		c.beyond = append(c.beyond, candidate)
		if !c.reported.add(s.Addr) {
			return nil
		}
		c.Log.Warn("address in use on the wire is not quarantined: the share is used up", "addr", s.Addr,
			"witness", s.Seen[0].Witness, "port", s.Seen[0].Port, "mac", s.Seen[0].MAC)
	case errors.Is(err, ipam.ErrState):
		// A pass gave it back to its owner between the choice and now: it is not
		// this call's.
		return nil
	case err != nil:
		return err
	}
	if c.OnConflict != nil {
		c.OnConflict(s)
	}
	return nil
}

// forgo gives a part's candidate back.
func (c *call) forgo(p *part) {
	c.Book.Drop(p.candidate)
	p.candidate = netdb.Candidate{}
}

// onlySeen refuses a wished or kept address that is in use.
func onlySeen(s Skipped) error {
	return fmt.Errorf("address %s: %w: the %s witness sees it", s.Addr, ipam.ErrTaken, s.Seen[0].Witness)
}
