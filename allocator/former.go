package allocator

import (
	"context"
	"errors"
	"fmt"

	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb"
	"github.com/ipamd/ipamd/workload"
)

// formers finds the leases that were open in the book before a rebuild, by their
// owners. A rebuild is over before the daemon starts, so none comes later. An entry
// whose row has left quarantine since does no harm: reclaim checks it.
func formers(b *netdb.Book) map[ipam.Owner]string {
	out := make(map[ipam.Owner]string)
	for _, l := range b.InState(ipam.Quarantined) {
		if l.Former() {
			out[l.Owner()] = l.ID
		}
	}
	return out
}

// Reclaim gives a quarantined address back to the lease that had it in the book
// before a rebuild, on the word of its owner: with allocate, or with bind, which
// names the lease and adds where it is used now. What the lease recorded comes
// back with it. It is probed first, which takes the ProbeWindow. The error is
// [ipam.ErrTaken] when a witness sees the address and nothing that the lease
// records shows that it is its own workload, an [EvidenceError] when one that must
// answer cannot, and [ipam.ErrState] for every other lease.
func (a *Allocator) Reclaim(ctx context.Context, who ipam.Who, id string, where ipam.Binding) (*ipam.Lease, error) {
	l, err := a.Book.Lease(id)
	if err != nil {
		return nil, err
	}
	if !l.Former() {
		return nil, fmt.Errorf("reclaim %s: %w: it is %s", l.Addr, ipam.ErrState, l.State)
	}
	back, _, err := a.restore(ctx, who, l, where)
	return back, err
}

// restore also reports whether the address could be probed.
func (a *Allocator) restore(ctx context.Context, who ipam.Who, l *ipam.Lease, where ipam.Binding) (back *ipam.Lease, probed bool, err error) {
	now := *l
	if where.Netns != "" {
		now.Netns = where.Netns
	}
	if where.HostInterface != "" {
		now.HostInterface = where.HostInterface
	}
	if where.MAC != "" {
		now.MAC = where.MAC
	}
	its := func(seen []census.Sighting) bool { return new(workload.Leases).Recognized(&now, seen) }
	probed = a.vet.wait(ctx, l.Addr, func() bool { return !its(workload.About(a.Board, l).Seen) })
	if err := a.Settle(ctx, l.Addr); err != nil {
		return nil, false, a.refused(ctx, err)
	}
	answer := workload.About(a.Board, l)
	if missing := a.missing(answer); len(missing) > 0 {
		return nil, false, &EvidenceError{missing}
	}
	if !its(answer.Seen) {
		return nil, false, fmt.Errorf("reclaim %s for sandbox %q: %w: the %s witness sees it, and nothing that the lease records shows that it is this sandbox; "+
			"see whois %s; an operator gives it back with ipamctl quarantine adopt",
			l.Addr, l.Sandbox, ipam.ErrTaken, answer.Seen[0].Witness, l.Addr)
	}
	b := ipam.Binding{Containers: l.Containers, Netns: l.Netns, HostInterface: l.HostInterface, MAC: l.MAC}
	if l.Plug.OfBoot(ipam.Now().BootID) {
		b.Plug = l.Plug // whether anything of it was ever seen, too
	}
	if len(b.Containers) == 0 && b.Netns == "" && b.HostInterface == "" && b.MAC == "" {
		if b = where; b.HostInterface == "" && b.MAC == "" {
			b.HostInterface, b.MAC = plug(answer.Seen)
		}
	}
	b.Gone = nil
	if len(b.Containers) == 0 && b.Netns == "" && b.HostInterface == "" && b.MAC == "" {
		return nil, false, errPlaceless
	}
	back, err = a.Book.Adopt(ctx, who, ipam.Adoption{Addr: l.Addr, Rev: l.Rev, ID: l.ID, Sandbox: l.Sandbox, UID: l.UID,
		Interface: l.Interface, Binding: b})
	if owned := new(ipam.OwnedError); errors.As(err, &owned) {
		return nil, false, fmt.Errorf("reclaim %s: %w: the sandbox holds %s on %s by now", l.Addr, ipam.ErrState, owned.Lease.Addr, l.Interface)
	}
	return back, probed, err
}

// errPlaceless means that a lease of before a rebuild records nothing of its workload, as one that was never bound,
// and that the call names nothing either. What quarantine gives back is bound, so there is nothing to bind it to: a
// bind that names the lease and a place gives it back.
var errPlaceless = errors.New("nothing says where it is used")

// plug is the port and the MAC of the one namespace that has an address.
func plug(seen []census.Sighting) (port, mac string) {
	for _, s := range seen {
		if s.Witness == census.Netns {
			return s.Port, s.MAC
		}
	}
	return "", ""
}

// reclaim returns the lease that the caller's owner had before a rebuild, bound
// again; nil when there is none, or when it cannot be had: the request goes on to
// another address then, unless it wished for that one.
func (c *call) reclaim(ctx context.Context, p *ipam.Pool) (*ipam.Lease, error) {
	id, known := c.former[c.owner(p)]
	if !known {
		return nil, nil
	}
	l, err := c.Book.Lease(id)
	if err != nil || !l.Former() || l.Sandbox != c.req.Sandbox || l.PrefixLen != c.req.PrefixLen || c.req.Address.IsValid() && c.req.Address != l.Addr {
		return nil, nil
	}
	c.answers(l)
	back, probed, err := c.restore(ctx, ipam.Who{Actor: ipam.ByAllocator, Peer: c.req.Peer, Reason: "reclaimed"}, l, ipam.Binding{})
	switch {
	case err == nil:
		if !probed {
			c.unprobed = append(c.unprobed, l.Addr)
		}
		c.Log.Info("the owner has its address of the former book again", "addr", l.Addr, "sandbox", l.Sandbox, "lease", l.ID)
		return back, nil
	case errors.Is(err, ipam.ErrState) || errors.Is(err, ipam.ErrStale):
		return c.held(ctx, p) // called twice at once
	case errors.Is(err, errPlaceless):
		return nil, nil // it stays in quarantine
	case errors.Is(err, ipam.ErrTaken) && !c.req.Address.IsValid(), errors.Is(err, ipam.ErrInvalid):
		c.Log.Warn("the owner does not get its address of the former book back", "addr", l.Addr, "sandbox", l.Sandbox, "lease", l.ID, "err", err)
		return nil, nil
	}
	return nil, err
}
