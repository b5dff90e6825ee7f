package bridge

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync/atomic"

	"go4.org/netipx"

	"github.com/ipamd/ipamd/bridge/rtnl"
	"github.com/ipamd/ipamd/internal/share"
)

// Forget deletes what the bridge's namespace remembers of all addresses of the prefixes: their
// entries in the bridge's neighbour table, and the connection tracking entries
// that have one of them at either end, in either direction. What is not there
// is no error, nor is a bridge that is missing, which took its neighbours with
// it, nor a kernel without connection tracking. When it returns nil the board
// no longer has the entries either that the neighbour table had; what other witnesses see stands.
//
// It is for what is in use no more, before the next one gets it:
// the old owner's entries would send the next one's traffic to a dead MAC, or
// its replies to a dead connection's. What other sandboxes remember is theirs
// and stays: only the next owner may announce itself to them (RFC 5227,
// section 2.3; RFC 4861, section 7.2.6).
//
// Connection tracking has no index by address, so a call walks all of its
// entries, in both families, once for all the addresses; calls at the same time
// share a walk. One that began is finished whatever becomes of ctx. For a prefix of more than
// one address the neighbour table is listed too. Forget is safe for concurrent use and
// holds up no other call meanwhile.
func (b *Bridge) Forget(ctx context.Context, of ...netip.Prefix) error {
	what, err := newTargets(of)
	if err != nil {
		return fmt.Errorf("forget %v: %w", of, err)
	}
	if len(what.single) == 0 && !what.longer {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := b.Settle(ctx); err != nil { // whose table it is
		return err
	}
	forgotten, err := b.forgetNeighbours(ctx, what)
	if err != nil {
		return fmt.Errorf("forget neighbours on %s: %w", b.cfg.Name, err)
	}
	if err := b.Settle(ctx, forgotten...); err != nil { // the kernel's news of it is there already
		return err
	}
	failed, err := b.connections.walks.Do(ctx, what)
	if err := cmp.Or(err, failed); err != nil {
		return fmt.Errorf("forget tracked connections: %w", err)
	}
	return nil
}

// targets are the addresses whose entries are to be forgotten.
type targets struct {
	*netipx.IPSet
	single []netip.Addr // those that are not in a longer prefix
	longer bool         // there are prefixes of more than one address
}

func newTargets(of []netip.Prefix) (t targets, err error) {
	var set netipx.IPSetBuilder
	for _, p := range of {
		switch a := p.Addr().Unmap().WithZone(""); {
		case !p.IsSingleIP():
			t.longer = true
			set.AddPrefix(p)
		case rtnl.Assignable(a):
			t.single = append(t.single, a)
			set.Add(a)
		}
	}
	t.IPSet, err = set.IPSet()
	return t, err
}

// forgetNeighbours goes by the index that was last known. When the bridge is
// another by now, its table went with the old one. It returns which addresses may have had an entry.
func (b *Bridge) forgetNeighbours(ctx context.Context, what targets) ([]netip.Addr, error) {
	all := slices.Clone(what.single)
	bridge := b.device.shown.Load()
	if bridge == nil || bridge.Kind != "bridge" {
		return all, nil
	}
	err := b.tables.Within(ctx, func(k *rtnl.Socket) error {
		if what.longer {
			there, err := listNeighbours(k, bridge)
			if err != nil {
				return err
			}
			for addr := range there {
				if what.Contains(addr) && !slices.Contains(what.single, addr) {
					all = append(all, addr)
				}
			}
		}
		for _, addr := range all {
			if err := k.DeleteNeighbour(bridge.Index, addr); err != nil && !rtnl.IsGone(err) {
				return fmt.Errorf("delete neighbour %v: %w", addr, err)
			}
		}
		return nil
	}, func() {})
	if err != nil {
		return nil, err // the question may go on, and all with it
	}
	return all, nil
}

// connections are the tracked ones. They are asked about without the Bridge's lock.
type connections struct {
	*rtnl.Cached
	walks  *share.Run[targets, error] // fifty releases at once, each with a walk of its own, take 17 s where there are 100 000 connections
	answer atomic.Bool                // the kernel answered about them, or may
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

// walk deletes those that have an address of the targets. It serves all calls that share it, and so goes
// by the ctx of none.
func (c *connections) walk(_ context.Context, calls []targets) error {
	var set netipx.IPSetBuilder
	for _, one := range calls {
		set.AddSet(one.IPSet)
	}
	all, err := set.IPSet()
	if err != nil {
		return err
	}
	err = c.Ask(context.Background(), func(k *rtnl.Socket) error {
		found, err := k.Connections(all.Contains)
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
