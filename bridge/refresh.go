package bridge

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/ipamd/ipamd/bridge/rtnl"
)

// Refresh reads everything anew, repairs the bridge first if it manages it, and
// posts what it finds. It returns an error when the kernel could not be asked
// about something; the witness concerned is then silent. A bridge that is
// missing or wrong is no error: see [Bridge.Ready].
//
// With a thousand ports it takes tens of milliseconds, but an allocation that
// settles meanwhile waits for a small part of that only.
func (b *Bridge) Refresh(ctx context.Context) error {
	b.refreshing.Lock()
	defer b.refreshing.Unlock()
	addrs, spaces, err := b.overview(ctx)
	if err != nil {
		return err
	}
	_ = b.nameSpaces(ctx)
	if err := inPieces(ctx, b, spaces, b.netns.read); err != nil {
		return err
	}
	if err := inPieces(ctx, b, addrs, b.neighbour.read); err != nil {
		return err
	}
	if err := b.searchStacked(ctx); err != nil {
		return err
	}
	for _, id := range b.crowded(true) {
		if err := b.readCrowd(ctx, id); err != nil {
			return err
		}
	}
	return b.locked(ctx, func() error {
		if !b.isKnown() {
			return b.settle(ctx, nil) // it became another bridge, or none, meanwhile
		}
		b.complete()
		return errors.Join(b.settle(ctx, nil), b.post(true))
	})
}

// overview reads all but what is behind the ports, and returns the neighbours
// and the namespaces that are to be read.
//
// The long lists are read without the lock while memory is worth something:
// with a thousand ports an allocation would wait 22 ms for them. They may be old when
// they are compared, so nothing in them is believed: they say at which parts to look again.
func (b *Bridge) overview(ctx context.Context) (addrs []netip.Addr, spaces []int, err error) {
	var bridge *rtnl.Link // that memory is about
	err = b.locked(ctx, func() error {
		b.lock.drain()
		b.drain()
		if !b.lost && b.lookLink() == nil && b.isKnown() {
			b.host.again = b.device.setGateways(b.kernel) || b.host.again
			b.device.judge()
			bridge, b.neighbour.lost = b.device.link, false
		}
		return nil
	})
	if err != nil {
		return nil, nil, err
	}
	var l *listing
	if bridge != nil {
		if l, err = b.list(ctx, bridge); err != nil {
			return nil, nil, b.locked(ctx, func() error { return b.fail(err) })
		}
	}
	err = b.locked(ctx, func() (err error) {
		if bridge != nil && b.isKnown() && b.device.link.Index == bridge.Index {
			addrs = b.compare(l)
		} else if addrs, err = b.survey(); err != nil {
			return err
		}
		for id := range b.netns.spaces {
			spaces = append(spaces, id)
		}
		return nil
	})
	return addrs, spaces, err
}

// list reads what is long on a socket of its own and without the lock.
func (b *Bridge) list(ctx context.Context, bridge *rtnl.Link) (*listing, error) {
	k, err := b.dial(ctx, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, err
	}
	defer k.Close()
	l, err := listBridge(k, bridge)
	if err != nil {
		return nil, err
	}
	if l.hosts, err = k.Addresses(rtnl.NoNetns); err != nil {
		return nil, fmt.Errorf("list the host's addresses: %w", err)
	}
	return l, nil
}

// compare has everything looked up of which a listing and memory do not agree, and
// returns the neighbours to be read: those of either.
func (b *Bridge) compare(l *listing) []netip.Addr {
	b.netns.comparePorts(l.ports)
	b.host.again = b.host.again || !slices.Equal(b.host.all, l.hosts)
	b.forgetOthers()
	return b.neighbour.compare(l.neighbours)
}

// inPieces does the pieces of a whole reading, unless ctx ends or the bridge
// goes meanwhile. A reading that was cut short counts for nothing.
func inPieces[T any](ctx context.Context, b *Bridge, all []T, read func(wire, T)) error {
	for _, one := range all {
		err := b.locked(ctx, func() error {
			if err := ctx.Err(); err != nil {
				b.lost = b.lost || b.netns.whole != nil
				return err
			}
			if b.isKnown() {
				read(b.wire(), one)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// recountNeighbours lists the neighbours without the lock and looks each up
// again, as a whole reading does.
func (b *Bridge) recountNeighbours(ctx context.Context) error {
	var bridge *rtnl.Link
	err := b.locked(ctx, func() error {
		if b.isKnown() {
			bridge, b.neighbour.lost = b.device.link, false
		}
		return nil
	})
	if err != nil || bridge == nil {
		return err
	}
	var all map[netip.Addr]bool
	err = b.tables.Ask(ctx, func(k *rtnl.Socket) (err error) {
		all, err = listNeighbours(k, bridge)
		return err
	})
	var addrs []netip.Addr
	if err := b.locked(ctx, func() error {
		switch {
		case err != nil:
			b.neighbour.lost = true
		case b.device.isThere() && b.device.link.Index == bridge.Index:
			addrs = b.neighbour.compare(all)
		}
		return err
	}); err != nil {
		return err
	}
	return inPieces(ctx, b, addrs, b.neighbour.read)
}

func (b *Bridge) crowded(all bool) []int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.netns.crowded(all)
}
