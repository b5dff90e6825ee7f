// Package allocation is what a request for an address meets before the allocator and after it:
// it waits for the first census and for bridges that follow the pools, and where the pool is
// exhausted, or the address that it names taken, warm slots that no sandbox has give theirs up.
//
// It guarantees that slots alone are never why a sandbox is refused, and that a refusal with
// slots in its way names what keeps them. It gives no address itself.
package allocation

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/ipamd/ipamd/allocator"
	"github.com/ipamd/ipamd/ipam"
)

// Gives hands out addresses; *allocator.Allocator does.
type Gives interface {
	Allocate(ctx context.Context, r allocator.Request) (*allocator.Result, error)
	Ready(ctx context.Context, r *allocator.Request) ([]*ipam.Pool, error)
}

// Slots give up addresses; *warm.Keeper has them do so.
type Slots interface {
	// GiveWay has a slot of the pool give its address up, and returns true once it has. false: no
	// slot has one; an error: one that has cannot be taken down.
	GiveWay(ctx context.Context, pool string) (bool, error)
	// GiveAddress is GiveWay of the slot with that address.
	GiveAddress(ctx context.Context, addr netip.Addr) (bool, error)
}

// Bridges follow the pools; *gateways.Follower has them do so.
type Bridges interface {
	Current() bool // they follow the pools as they are now
	Follow(ctx context.Context) error
}

// A Book knows the pools; *netdb.Book is one.
type Book interface {
	Usage() ([]ipam.Usage, int64)
	PoolsChanged() <-chan struct{}
}

// Config has what an [Allocator] needs.
type Config struct {
	Gives   Gives
	Slots   Slots
	Bridges Bridges
	Book    Book
	Pool    string                    // of requests that name none
	Await   func(ctx context.Context) // for the first census: see readiness.Await
	// OnAnswer takes note of each answer, but of those that their caller gave up: these are
	// neither given nor refused.
	OnAnswer func(given *allocator.Result, err error, took time.Duration)
}

// An Allocator hands out addresses. It is safe for concurrent use.
type Allocator struct{ cfg Config }

// New returns one.
func New(c Config) Allocator { return Allocator{c} }

// A request that is refused although an address of a pool with slots is free is tried again: the
// last slot's came free between the refusal and the look, or others are about to be given it.
const (
	mostTries    = 20
	betweenTries = 5 * time.Millisecond
)

// Ready is [allocator.Allocator.Ready], once the daemon may give.
func (a Allocator) Ready(ctx context.Context, r *allocator.Request) (pools []*ipam.Pool, err error) {
	err = a.onCurrentBridges(ctx, func() (err error) { pools, err = a.cfg.Gives.Ready(ctx, r); return err })
	return pools, err
}

// Allocate is [allocator.Allocator.Allocate], for which warm slots give way.
func (a Allocator) Allocate(ctx context.Context, r allocator.Request) (*allocator.Result, error) {
	began := time.Now()
	given, err := a.once(ctx, r)
	for try := 0; errors.Is(err, ipam.ErrExhausted); try++ {
		if err = a.makeRoom(ctx, r, try, err); err != nil {
			break
		}
		given, err = a.once(ctx, r)
	}
	if r.Address.IsValid() && errors.Is(err, ipam.ErrTaken) {
		switch gone, failed := a.cfg.Slots.GiveAddress(ctx, r.Address); {
		case gone:
			given, err = a.once(ctx, r)
		case failed != nil:
			err = fmt.Errorf("%w; %w", err, failed)
		}
	}
	if !errors.Is(err, context.Canceled) {
		a.cfg.OnAnswer(given, err, time.Since(began))
	}
	return given, err
}

// once is one try of the allocator's.
func (a Allocator) once(ctx context.Context, r allocator.Request) (given *allocator.Result, err error) {
	err = a.onCurrentBridges(ctx, func() (err error) { given, err = a.cfg.Gives.Allocate(ctx, r); return err })
	return given, err
}

// onCurrentBridges calls do when the first census is over and the bridges follow the pools, and
// again where do met a bridge that did not follow a pool which was changed meanwhile.
func (a Allocator) onCurrentBridges(ctx context.Context, do func() error) error {
	a.cfg.Await(ctx)
	for {
		changed := a.cfg.Book.PoolsChanged()
		if !a.cfg.Bridges.Current() { // a pool that was just changed gives once its bridge follows
			_ = a.cfg.Bridges.Follow(ctx) // an error is what the allocator's gate says
		}
		err := do()
		if !errors.Is(err, allocator.ErrBridge) || ctx.Err() != nil {
			return err
		}
		select {
		case <-changed:
		default:
			return err
		}
	}
}

// makeRoom has a slot of the pools that a request draws from give its address up, or waits where
// one is free by now: then it returns nil, and the request is worth another try. An error is the
// refusal, with what keeps slots in their place.
func (a Allocator) makeRoom(ctx context.Context, r allocator.Request, try int, refusal error) error {
	for _, u := range a.drawnFrom(r) {
		gone, err := a.cfg.Slots.GiveWay(ctx, u.Pool.UID)
		switch {
		case gone:
			return nil
		case err != nil:
			return fmt.Errorf("%w; %w", refusal, err)
		case r.PrefixLen == 0 && try < mostTries && a.free(u.Pool.UID) > 0:
			time.Sleep(betweenTries)
			return nil
		}
	}
	return refusal
}

// drawnFrom are the pools with warm slots that a request may get an address of.
func (a Allocator) drawnFrom(r allocator.Request) (out []ipam.Usage) {
	name := cmp.Or(r.Pool, a.cfg.Pool)
	all, _ := a.cfg.Book.Usage()
	for _, u := range all {
		v4 := u.Pool.Prefix.Addr().Is4()
		if u.Pool.Warm != nil && u.Pool.Name == name && (v4 || r.Family != allocator.V4) && (!v4 || r.Family != allocator.V6) {
			out = append(out, u)
		}
	}
	return out
}

// free is how many addresses of a pool have no lease.
func (a Allocator) free(pool string) uint64 {
	all, _ := a.cfg.Book.Usage()
	for _, u := range all {
		if u.Pool.UID == pool {
			return u.Free
		}
	}
	return 0
}
