package remains

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

const (
	// besideWithin bounds one reading of what is beside the bridges: of a namespace with the most
	// addresses that are read it takes a few milliseconds.
	besideWithin = 5 * time.Second
	// mostInside bounds the addresses that are read of one namespace: a guest decides how many there are.
	mostInside = 4096
)

// A Watch returns the ids of the namespaces that witnesses read, as they are when a reading of the others begins.
type Watch func(context.Context) (map[int]bool, error)

// A beside is what namespaces have that no witness reads.
type beside struct {
	at  map[netip.Addr][]farEnd
	err error // not all could be looked at
}

// A farEnd is a link in a namespace.
type farEnd struct{ nsid, index int }

// Beside says in a sentence where an address is that is asked for, in a namespace that no witness
// reads: a bridge that was deleted leaves the sandboxes that were on it, and
// so does a link that was made anew, unplugged or moved. It is "" where no such namespace has it. What
// is on a link to another bridge is another network's, and so is what is on an inner link of a
// namespace that a link of the host leads to, for there its guest chooses.
//
// Calls at the same time share one reading, begun after each of them.
func (m *Machine) Beside(ctx context.Context, watched Watch, has func(netip.Addr) bool) (string, error) {
	found, err := m.besides.Do(ctx, watched)
	if err != nil {
		return "", err
	}
	for a, ends := range found.at {
		if !has(a) {
			continue
		}
		if says, err := m.placeOf(ctx, a, ends); says != "" || err != nil {
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
func (m *Machine) readBeside(ctx context.Context, of []Watch) (found beside) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), besideWithin)
	defer cancel()
	watched, err := of[0](ctx)
	if err != nil {
		return beside{err: err}
	}
	k, err := m.socket(ctx)
	if err != nil {
		return beside{err: err}
	}
	defer k.Close()
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
		case err == nil, got.Full, rtnl.IsVanishing(k, id, err):
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
func (m *Machine) placeOf(ctx context.Context, a netip.Addr, ends []farEnd) (string, error) {
	k, err := m.socket(ctx)
	if err != nil {
		return "", err
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
