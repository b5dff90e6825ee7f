package binding

import (
	"context"
	"time"

	"github.com/ipamd/ipamd/allocator"
	"github.com/ipamd/ipamd/ipam"
)

// Allocates hands out addresses; *allocator.Allocator does.
type Allocates interface {
	Allocate(ctx context.Context, r allocator.Request) (*allocator.Result, error)
	Ready(ctx context.Context, r *allocator.Request) ([]*ipam.Pool, error)
}

// A Giver hands out addresses that are bound with the allocation, where the request says
// what is plugged in already, or asks for a warm slot.
type Giver struct {
	Allocates
	Book    *Book
	Profile func(bridge string) ipam.Profile // that slots are made by
	// Check compares a slot with what it was made as, inside its namespace, too: a sentence for each
	// difference. Where it cannot, the slot is given by what shows from outside. May be nil.
	Check     func(ctx context.Context, l *ipam.Lease, s *ipam.Slot, p *ipam.Pool) ([]string, error)
	OnClaimed func(pool string) // a slot was given. May be nil.
}

// Allocate commits a new lease and its bind at once, checked as [Book.Bind] checks one, and
// returns when its rules hold. A lease that was there is bound where it was reserved, or
// records the same names. One that records others is returned as it is: they may be plugged in.
//
// An error after the commit leaves the lease bound: the same request asked again waits for its
// rules again.
func (g Giver) Allocate(ctx context.Context, r allocator.Request) (*allocator.Result, error) {
	if r.Warm != nil {
		given, err := g.claim(ctx, r)
		if err != nil {
			return nil, err
		}
		if given != nil {
			return g.withSlot(ctx, given)
		}
		r.Warm = nil
	}
	if r.Binding == nil {
		given, err := g.Allocates.Allocate(ctx, r)
		if err != nil {
			return nil, err
		}
		return g.withSlot(ctx, given)
	}
	where := *r.Binding
	if err := g.Book.checkBinding(ctx, where); err != nil {
		return nil, err
	}
	if err := where.Check(); err != nil {
		return nil, err
	}
	where = plugged(ctx, g.Book.Kernel, where)
	r.Binding = &where
	began := time.Now()
	given, err := g.Allocates.Allocate(ctx, r)
	if err != nil {
		return nil, err
	}
	for i, l := range given.Leases {
		if given.Fresh[i] {
			g.Book.Watchdog.Bound(new(ipam.Lease), l, began)
			err = hold(ctx, g.Book.Rules, l)
		} else if l.State == ipam.Reserved || l.Names(where) {
			who := ipam.Who{Actor: ipam.ByClient, Peer: r.Peer, Reason: "bound"}
			given.Leases[i], err = g.Book.Bind(ctx, who, l.ID, 0, where)
		}
		if err != nil {
			return nil, err
		}
	}
	return given, nil
}
