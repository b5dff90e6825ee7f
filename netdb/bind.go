package netdb

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
)

// Check returns a [FieldError] for the first part that cannot be stored, and
// spells the MAC as the kernel does.
func (n *Binding) Check() error {
	if len(n.Containers) == 0 && n.Netns == "" && n.HostInterface == "" && n.MAC == "" {
		return invalid("containers", "nothing to bind to: name a container, a netns, a host interface or a MAC")
	}
	if len(n.Containers) > 256 {
		return invalid("containers", "%d are more than 256", len(n.Containers))
	}
	for _, c := range n.Containers {
		if c.Namespace == "" || c.ID == "" || len(c.Namespace) > MaxName || len(c.ID) > MaxName {
			return invalid("containers", "namespace %.40q and id %.40q must each have 1 to %d bytes", c.Namespace, c.ID, MaxName)
		}
	}
	if n.Netns != "" && (!strings.HasPrefix(n.Netns, "/") || len(n.Netns) > 4095) {
		return invalid("netns", "%.80q is no absolute path", n.Netns)
	}
	if n.HostInterface != "" {
		if err := checkInterface(n.HostInterface); err != nil {
			return invalid("host_interface", "%.40q is no interface name", n.HostInterface)
		}
	}
	if n.MAC != "" {
		mac, err := net.ParseMAC(n.MAC)
		if err != nil || len(mac) != 6 {
			return invalid("mac", "%.40q is no Ethernet address", n.MAC)
		}
		if mac[0]&1 != 0 || [6]byte(mac) == ([6]byte{}) {
			return invalid("mac", "%s is no interface's own address: want a unicast one", mac)
		}
		n.MAC = mac.String()
	}
	return nil
}

// Bind records where an open lease is used. The same content again changes
// nothing; other content replaces it. A lease that was let go is [ErrState].
func (b *Book) Bind(ctx context.Context, who Who, id string, n Binding) (*Lease, error) {
	if err := n.Check(); err != nil {
		return nil, err
	}
	return b.updateLease(ctx, id, func(t *tx, l *Lease) (*Lease, error) {
		now := *l
		now.Containers, now.Netns, now.HostInterface, now.MAC = n.Containers, n.Netns, n.HostInterface, n.MAC
		if l.State == Reserved {
			now.State = Bound
		} else if l.State.Open() && slices.Equal(l.Containers, n.Containers) && l.Netns == n.Netns &&
			l.HostInterface == n.HostInterface && l.MAC == n.MAC {
			return l, nil
		}
		if !l.State.Open() {
			return nil, fmt.Errorf("bind %s: %w: it is %s", l.Addr, ErrState, l.State)
		}
		return t.move(who, l, now, nil)
	})
}

// Pause marks a bound lease as paused: its address stays its own without
// limit. A paused one stays as it is.
func (b *Book) Pause(ctx context.Context, who Who, id string) (*Lease, error) {
	return b.setState(ctx, who, id, Paused)
}

// Resume marks a paused lease as bound again.
func (b *Book) Resume(ctx context.Context, who Who, id string) (*Lease, error) {
	return b.setState(ctx, who, id, Bound)
}

func (b *Book) setState(ctx context.Context, who Who, id string, want State) (*Lease, error) {
	return b.updateLease(ctx, id, func(t *tx, l *Lease) (*Lease, error) {
		if l.State == want {
			return l, nil
		}
		if l.State != Bound && l.State != Paused {
			return nil, fmt.Errorf("move %s to %s: %w: it is %s", l.Addr, want, ErrState, l.State)
		}
		now := *l
		now.State = want
		return t.move(who, l, now, nil)
	})
}
