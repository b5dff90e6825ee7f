package binding

import (
	"context"
	"time"

	"github.com/ipamd/ipamd/allocator"
	"github.com/ipamd/ipamd/ipam"
)

// Allocator hands out addresses; *allocation.Allocation is one, in front of *allocator.Allocator.
type Allocator interface {
	Allocate(ctx context.Context, r allocator.Request) (*allocator.Result, error)
	Ready(ctx context.Context, r *allocator.Request) ([]*ipam.Pool, error)
}

// A OneCallAllocator hands out addresses in one call with the bind, where there is something to bind: the request
// names the plumbing, because the caller has made it already, or it asks for a warm slot.
type OneCallAllocator struct {
	Allocator
	Book    *Book
	Profile func(bridge string) ipam.Profile // which the slots of a bridge are made by
	// Check compares a slot with its spec, also inside its namespace, and returns a sentence for
	// each difference. After an error the slot is judged by what can be seen from outside its
	// namespace. May be nil.
	Check     func(ctx context.Context, l *ipam.Lease, s *ipam.Slot, p *ipam.Pool) ([]string, error)
	OnClaimed func(pool string) // a slot was given. May be nil.
}

// Allocate commits a new lease together with its bind, checked as [Book.Bind] checks one, and
// returns when the kernel has the lease's rules. A lease that the owner has already is bound too if
// it is reserved, or if it records the names of the request. One that records other names is returned
// as it is: the port and the namespace of those names may be in use.
//
// An error after the commit leaves the lease bound. The same request, made again, waits for the
// rules again.
func (a OneCallAllocator) Allocate(ctx context.Context, r allocator.Request) (*allocator.Result, error) {
	if r.Warm != nil {
		given, err := a.claim(ctx, r)
		if err != nil {
			return nil, err
		}
		if given != nil {
			return a.withSlot(ctx, given)
		}
		r.Warm = nil
	}
	if r.Binding == nil {
		given, err := a.Allocator.Allocate(ctx, r)
		if err != nil {
			return nil, err
		}
		return a.withSlot(ctx, given)
	}
	where := *r.Binding
	if err := a.Book.checkBinding(ctx, where); err != nil {
		return nil, err
	}
	if err := where.Check(); err != nil {
		return nil, err
	}
	where = resolved(ctx, a.Book.Kernel, where)
	r.Binding = &where
	began := time.Now()
	given, err := a.Allocator.Allocate(ctx, r)
	if err != nil {
		return nil, err
	}
	for i, l := range given.Leases {
		if given.Fresh[i] {
			a.Book.Watchdog.Bound(new(ipam.Lease), l, began)
			err = awaitRules(ctx, a.Book.Rules, l)
		} else if l.State == ipam.Reserved || l.Names(where) {
			who := ipam.Who{Actor: ipam.ByClient, Peer: r.Peer, Reason: "bound"}
			given.Leases[i], err = a.Book.Bind(ctx, who, l.ID, 0, where)
		}
		if err != nil {
			return nil, err
		}
	}
	return given, nil
}
