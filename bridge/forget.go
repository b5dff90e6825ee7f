package bridge

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync/atomic"

	"github.com/ipamd/ipamd/bridge/rtnl"
	"github.com/ipamd/ipamd/internal/share"
)

// Forget deletes what the bridge's namespace remembers of addresses: their
// entries in the bridge's neighbour table, and the connection tracking entries
// that have one of them at either end, in either direction. What is not there
// is no error, nor is a bridge that is missing, which took its neighbours with
// it, nor a kernel without connection tracking. When it returns nil the board
// no longer has the neighbour entries either; what other witnesses see stands.
//
// It is for an address that is in use no more, before the next one gets it:
// the old owner's entries would send the next one's traffic to a dead MAC, or
// its replies to a dead connection's. What other sandboxes remember is theirs
// and stays: only the next owner may announce itself to them (RFC 5227,
// section 2.3; RFC 4861, section 7.2.6).
//
// Connection tracking has no index by address, so a call walks all of its
// entries, in both families, once for all the addresses; calls at the same time
// share a walk. One that began is finished whatever becomes of ctx. Forget is
// safe for concurrent use and holds up no other call meanwhile.
func (b *Bridge) Forget(ctx context.Context, addrs ...netip.Addr) error {
	of := make(map[netip.Addr]bool, len(addrs))
	for _, a := range addrs {
		if a = a.Unmap().WithZone(""); rtnl.Assignable(a) {
			of[a] = true
		}
	}
	if len(of) == 0 {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := b.Settle(ctx); err != nil { // whose table it is
		return err
	}
	if err := b.forgetNeighbours(ctx, of); err != nil {
		return fmt.Errorf("forget neighbours on %s: %w", b.cfg.Name, err)
	}
	if err := b.Settle(ctx, slices.Collect(maps.Keys(of))...); err != nil { // the kernel's news of it is there already
		return err
	}
	failed, err := b.connections.walks.Do(ctx, of)
	if err := cmp.Or(err, failed); err != nil {
		return fmt.Errorf("forget tracked connections: %w", err)
	}
	return nil
}

// forgetNeighbours goes by the index that was last known. When the bridge is
// another by now, its table went with the old one.
func (b *Bridge) forgetNeighbours(ctx context.Context, of map[netip.Addr]bool) error {
	bridge := b.device.shown.Load()
	if bridge == nil || bridge.Kind != "bridge" {
		return nil
	}
	return b.tables.Within(ctx, func(k *rtnl.Socket) error {
		for addr := range of {
			if err := k.DeleteNeighbour(bridge.Index, addr); err != nil && !rtnl.IsGone(err) {
				return fmt.Errorf("delete neighbour %v: %w", addr, err)
			}
		}
		return nil
	}, func() {})
}

// connections are the tracked ones. They are asked about without the Bridge's lock.
type connections struct {
	*rtnl.Kept
	walks  *share.Run[map[netip.Addr]bool, error] // fifty releases at once, each with a walk of its own, take 17 s where there are 100 000 connections
	answer atomic.Bool                            // the kernel answered about them, or may
}

// find asks once whether the kernel tracks connections. Any answer but
// that it does not is taken for one that does.
func (c *connections) find() error {
	err := c.Ask(context.Background(), func(k *rtnl.Socket) error {
		_, err := k.CountConnections()
		return err
	})
	c.answer.Store(!rtnl.IsUntracked(err))
	return err
}

// walk deletes those of some addresses. It serves all calls that share it, and so goes
// by the ctx of none.
func (c *connections) walk(_ context.Context, calls []map[netip.Addr]bool) error {
	of := make(map[netip.Addr]bool)
	for _, one := range calls {
		maps.Copy(of, one)
	}
	err := c.Ask(context.Background(), func(k *rtnl.Socket) error {
		found, err := k.Connections(of)
		if err != nil {
			return fmt.Errorf("list: %w", err)
		}
		c.answer.Store(true) // its module may have come since
		for _, one := range found {
			if err := k.DeleteConnection(one); err != nil && !rtnl.IsGone(err) {
				return fmt.Errorf("delete %v to %v: %w", one.Ends[0], one.Ends[1], err)
			}
		}
		return nil
	})
	if rtnl.IsUntracked(err) && !c.answer.Load() {
		return nil
	}
	return err
}
