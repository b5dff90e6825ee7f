package bridge

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"
)

// A listing is what the kernel lists of a bridge while nobody is kept waiting.
// It may be old when it is compared, so nothing of it is believed: it says at
// which parts to look again.
type listing struct {
	ports      map[int]*link
	neighbours map[netip.Addr]bool
	hosts      []address
}

// list reads a listing, on a socket of its own and without the lock.
func (b *Bridge) list(ctx context.Context, bridge int) (*listing, error) {
	kernel, err := b.dial(ctx, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, err
	}
	defer kernel.close()
	l := &listing{ports: make(map[int]*link), neighbours: make(map[netip.Addr]bool)}
	err = steady(func() error {
		return kernel.portsOf(bridge, func(p *link) { l.ports[p.index] = p })
	})
	// Where ports come and go faster than they can be listed, each of these
	// changes is also news, and what the list lacks is looked up one by one.
	if err != nil && !errors.Is(err, errInterrupted) {
		return nil, fmt.Errorf("list the ports of %s: %w", b.cfg.Name, err)
	}
	err = kernel.neighbours(bridge, func(e entry) {
		if counts(e.addr) {
			l.neighbours[e.addr] = true
		}
	})
	if err != nil {
		return nil, fmt.Errorf("list the neighbours of %s: %w", b.cfg.Name, err)
	}
	if l.hosts, err = kernel.addresses(noSpace); err != nil {
		return nil, fmt.Errorf("list the host's addresses: %w", err)
	}
	return l, nil
}

// compare notes everything that a listing and memory do not agree about as to
// be looked up, and returns the neighbours to be read: those of either.
func (b *Bridge) compare(l *listing) []netip.Addr {
	for index, p := range b.ports {
		if found := l.ports[index]; found == nil || !p.link.same(found) || !p.frozen.IsZero() {
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
