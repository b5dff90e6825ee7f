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

// A listing is what the kernel lists of a bridge while nobody is kept waiting.
// It may be old when it is compared, so nothing of it is believed: it says at
// which parts to look again.
type listing struct {
	ports      map[int]*rtnl.Link
	neighbours map[netip.Addr]bool
	hosts      []rtnl.Address
}

// list reads a listing, on a socket of its own and without the lock.
func (b *Bridge) list(ctx context.Context, bridge int) (*listing, error) {
	kernel, err := b.dial(ctx, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, err
	}
	defer kernel.Close()
	l := &listing{ports: make(map[int]*rtnl.Link), neighbours: make(map[netip.Addr]bool)}
	err = rtnl.Steady(func() error {
		return kernel.PortsOf(bridge, func(p *rtnl.Link) { l.ports[p.Index] = p })
	})
	// Where ports come and go faster than they can be listed, each of these
	// changes is also news, and what the list lacks is looked up one by one.
	if err != nil && !errors.Is(err, rtnl.ErrInterrupted) {
		return nil, fmt.Errorf("list the ports of %s: %w", b.cfg.Name, err)
	}
	err = kernel.Neighbours(bridge, func(e rtnl.Entry) {
		if rtnl.Assignable(e.Addr) {
			l.neighbours[e.Addr] = true
		}
	})
	if err != nil {
		return nil, fmt.Errorf("list the neighbours of %s: %w", b.cfg.Name, err)
	}
	if l.hosts, err = kernel.Addresses(rtnl.NoNetns); err != nil {
		return nil, fmt.Errorf("list the host's addresses: %w", err)
	}
	return l, nil
}

// compare notes everything that a listing and memory do not agree about as to
// be looked up, and returns the neighbours to be read: those of either.
func (b *Bridge) compare(l *listing) []netip.Addr {
	for index, p := range b.ports {
		if found := l.ports[index]; found == nil || !p.link.Same(found) || !p.frozen.IsZero() {
			b.linksAgain[index] = true
		}
	}
	for index := range l.ports {
		if b.ports[index] == nil {
			b.linksAgain[index] = true
		}
	}
	b.hostAgain = b.hostAgain || !slices.Equal(b.hosts, l.hosts)
	b.forgetOthers()
	return b.toRead(l.neighbours)
}
