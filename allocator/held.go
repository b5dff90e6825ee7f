package allocator

import (
	"context"
	"errors"
	"fmt"

	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/workload"
)

// looksMost is how often a call looks at a lease that changes under it each time.
const looksMost = 8

// held returns the owner's open lease, unless the wire shows its address
// under another. A reserved one is then released, so that a retry gets
// another address and not the conflicted one again; a bound one is held and
// reported: it is not taken from a sandbox that may be running on a guess.
//
// Each is done to the lease as it was looked at. One that changed in between is looked at again: a bind may have
// been committed, and its sandbox runs.
func (c *call) held(ctx context.Context, p *ipam.Pool) (l *ipam.Lease, err error) {
	for range looksMost {
		var changed bool
		if l, changed, err = c.look(ctx, p); !changed {
			break
		}
	}
	return l, err
}

// look is held, once. changed says that err is of a lease which changed meanwhile.
func (c *call) look(ctx context.Context, p *ipam.Pool) (l *ipam.Lease, changed bool, err error) {
	l, ok := c.Book.OpenLease(c.owner(p))
	if !ok {
		return nil, false, nil
	}
	if c.req.Address.IsValid() && c.req.Address != l.Addr {
		return nil, false, fmt.Errorf("address %s: %w: sandbox %q holds %s on %s", c.req.Address, ipam.ErrState, l.Sandbox, l.Text(), l.Interface)
	}
	if c.req.PrefixLen != l.PrefixLen {
		return nil, false, fmt.Errorf("%w: sandbox %q holds %s on %s, and not %s: release that, or name another interface",
			ipam.ErrState, l.Sandbox, l.Text(), l.Interface, wanted(c.req.PrefixLen))
	}
	if err := c.settle(ctx, l.Addr); err != nil {
		return nil, false, err
	}
	strangers, claims := new(workload.Leases).Contradicted(l, workload.About(c.Board, l).Seen)
	if len(claims) > 0 {
		c.Log.Warn("address of a lease is claimed by another, and its owner is answered", "addr", l.Addr, "sandbox", l.Sandbox,
			"lease", l.ID, "witness", claims[0].Witness, "port", claims[0].Port, "mac", claims[0].MAC)
	}
	if len(strangers) > 0 {
		c.Log.Warn("address of a lease is in use by another", "addr", l.Addr, "sandbox", l.Sandbox, "lease", l.ID, "witness", strangers[0].Witness)
		if l.State != ipam.Reserved {
			return nil, false, fmt.Errorf("address %s of lease %s: %w: the %s witness sees it under another owner; see whois %s",
				l.Addr, l.ID, ipam.ErrTaken, strangers[0].Witness, l.Addr)
		}
		if _, err := c.Book.Release(ctx, ipam.Who{Actor: ipam.ByClient, Peer: c.req.Peer, Reason: "conflict_on_retry"}, l.ID, "", l.Rev); err != nil {
			return nil, changedSince(err), err
		}
		c.skipped = append(c.skipped, Skipped{l.Addr, strangers})
		return nil, false, nil
	}
	// Renew is committed after every change that is under way, for one of them may end
	// the lease. A change that begins later finds that the owner has been answered.
	c.answers(l)
	addr := l.Addr
	l, err = c.Book.Renew(ctx, ipam.Who{Actor: ipam.ByAllocator, Peer: c.req.Peer, Reason: "asked_again"}, l.ID, c.req.Attempt, c.req.BindWithin)
	if err == nil && len(claims) > 0 {
		c.claimed = append(c.claimed, Skipped{addr, claims})
	}
	return l, changedSince(err), err
}

// changedSince reports whether the book refused because a lease changed since it was read.
func changedSince(err error) bool {
	return errors.Is(err, ipam.ErrStale) || errors.Is(err, ipam.ErrState) || errors.Is(err, ipam.ErrGone)
}
