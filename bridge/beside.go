package bridge

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ipamd/ipamd/bridge/rtnl"
)

// besideWithin bounds one reading of what is beside the bridges: of a namespace with the most
// addresses that are read it takes a few milliseconds.
const besideWithin = 5 * time.Second

// A watch is which namespaces witnesses read, when a reading of the others begins.
type watch func(context.Context) (map[int]bool, error)

// A beside is what namespaces have that no witness reads.
type beside struct {
	at  map[netip.Addr][]farEnd
	err error // not all could be looked at
}

// A farEnd is a link in a namespace.
type farEnd struct{ nsid, index int }

// Beside says in a sentence where an address is that is asked for, in a namespace that no port of
// a watched bridge leads to: a bridge that was deleted leaves the sandboxes that were on it, and
// so does a link that was made anew, unplugged or moved. It is "" where no such namespace has it. What
// is on a link to another bridge is another network's, and so is what is on an inner link of a
// namespace that a link of the host leads to, for there its guest chooses.
//
// Calls at the same time share one reading, begun after each of them. To be asked after the board:
// what a witness read until then is left out. It is safe for concurrent use.
func (b *Bridge) Beside(ctx context.Context, has func(netip.Addr) bool) (string, error) {
	return b.beside(ctx, func(ctx context.Context) (map[int]bool, error) { return watched(ctx, b) }, has)
}

// Beside is that of all: it leaves out what a witness of any of them reads.
func (g *Group) Beside(ctx context.Context, has func(netip.Addr) bool) (string, error) {
	return g.own().beside(ctx, func(ctx context.Context) (map[int]bool, error) {
		all := make(map[int]bool)
		err := g.each(func(b *Bridge) error {
			ids, err := watched(ctx, b)
			for id, is := range ids {
				all[id] = all[id] || is
			}
			return err
		})
		return all, err
	}, has)
}

// watched are the ids of the namespaces that the netns witness reads, and of the bridge's own, where
// it knows itself by one: the host witness reads that.
func watched(ctx context.Context, b *Bridge) (map[int]bool, error) {
	ids := make(map[int]bool)
	err := b.locked(ctx, func() error {
		for id, s := range b.netns.spaces {
			ids[id] = !s.frozen
		}
		for id, n := range b.netns.stacked.nests {
			ids[id] = ids[id] || !n.ended && id != rtnl.NoNetns
		}
		if id, err := b.kernel.NetnsID(int(b.place.ns)); err == nil {
			ids[id] = true
		}
		return nil
	})
	return ids, err
}

func (b *lookups) beside(ctx context.Context, watched watch, has func(netip.Addr) bool) (string, error) {
	found, err := b.besides.Do(ctx, watched)
	if err != nil {
		return "", err
	}
	for a, ends := range found.at {
		if !has(a) {
			continue
		}
		if says, err := b.placeOf(ctx, a, ends); says != "" || err != nil {
			return says, err
		}
	}
	if found.err != nil {
		return "", fmt.Errorf("look beside the bridges: %w", found.err)
	}
	return "", nil
}

// readBeside lists the addresses in each namespace that the kernel has an id for, but for those
// that witnesses read. Of one that does not stand still, or has more than [mostInside] addresses,
// it has those that could be listed: a guest off the bridge may not hold up the end of others. The
// caller whose call makes it may give up, and the others have their answer.
func (b *lookups) readBeside(ctx context.Context, of []watch) (found beside) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), besideWithin)
	defer cancel()
	watched, err := of[0](ctx)
	if err != nil {
		return beside{err: err}
	}
	k, err := b.dialRoute(ctx)
	if err != nil {
		return beside{err: err}
	}
	defer k.Close()
	k.Redial = func() (*rtnl.Socket, error) { return b.dialRoute(ctx) }
	ids, err := k.NetnsIDs()
	if err != nil {
		return beside{err: fmt.Errorf("list the namespaces: %w", err)}
	}
	found.at = make(map[netip.Addr][]farEnd)
	for _, id := range ids {
		if watched[id] {
			continue
		}
		if err := ctx.Err(); err != nil {
			found.err = err
			return found
		}
		got, err := k.AddressesOf(id, mostInside, 1, 0)
		switch {
		case err == nil, got.Full, isVanishing(k, id, err):
		case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM): // no witness could read it either
		default:
			found.err = fmt.Errorf("list the addresses of nsid %d: %w", id, err)
		}
		for _, a := range got.Addrs {
			addr := a.Prefix.Addr().Unmap()
			found.at[addr] = append(found.at[addr], farEnd{id, a.Index})
		}
	}
	return found
}

// placeOf says in a sentence where an address is that some namespaces have; "" where it is of
// another network.
func (b *lookups) placeOf(ctx context.Context, a netip.Addr, ends []farEnd) (string, error) {
	k, err := b.dialRoute(ctx)
	if err != nil {
		return "", fmt.Errorf("look beside the bridges: %w", err)
	}
	defer k.Close()
	var links []*rtnl.Link
	err = rtnl.Steady(func() error {
		links = links[:0]
		return k.Links(rtnl.NoNetns, func(l *rtnl.Link) error {
			if l.Behind != rtnl.NoNetns {
				links = append(links, l)
			}
			return nil
		})
	})
	if err != nil {
		return "", fmt.Errorf("list the links: %w", err)
	}
	for _, end := range ends {
		leads := func(l *rtnl.Link) bool { return l.Behind == end.nsid }
		at := slices.IndexFunc(links, func(l *rtnl.Link) bool { return leads(l) && l.Peer == end.index })
		switch {
		case at >= 0 && links[at].Master == 0:
			return fmt.Sprintf("%s is a port of no bridge, and leads to a namespace with %s", links[at].Name, a), nil
		case at < 0 && !slices.ContainsFunc(links, leads):
			return fmt.Sprintf("namespace nsid:%d has %s, and no link of the host leads there", end.nsid, a), nil
		}
	}
	return "", nil
}
