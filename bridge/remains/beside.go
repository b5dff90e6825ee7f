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
	"github.com/ipamd/ipamd/census"
)

const (
	// besideWithin bounds one reading of what is beside the bridges: of a namespace with the most
	// addresses that are read it takes a few milliseconds.
	besideWithin = 5 * time.Second
	// mostInside bounds the addresses that are read of one namespace: a guest decides how many there are.
	mostInside = 4096
)

// Watched is what witnesses read.
type Watched struct {
	Spaces  map[int]bool // ids of namespaces
	Bridges map[int]bool // indexes of bridges, whose ports' namespaces they read
}

// A Watch returns what witnesses read, as it is when a reading of the rest begins.
type Watch func(context.Context) (Watched, error)

// A beside is what namespaces have that no witness reads.
type beside struct {
	at      map[netip.Addr][]farEnd
	bridges map[int]bool // that are watched
	err     error        // not all could be looked at
}

// A farEnd is a link in a namespace.
type farEnd struct{ nsid, index int }

// Beside says in a sentence where each address is that is sought, in a namespace that no witness
// reads: a bridge that was deleted leaves the sandboxes that were on it, and
// so does a link that was made anew, unplugged or moved. Where each link of the host that leads to a namespace
// is a port of a bridge that is not watched, the namespace is another network's, and its guests choose which addresses
// they have: those do not count. But a sandbox may have a second link on such a bridge, while the host's end of its own
// was moved: with [census.Sought.Sandbox] an inner link counts that has the sandbox's MAC or, where that
// is not known, is a veth whose other end is in a third namespace.
//
// Calls at the same time share one reading, begun after each of them. An error means that not all
// could be looked at; what was found by then is returned with it.
func (m *Machine) Beside(ctx context.Context, watched Watch, sought census.Sought) (map[netip.Addr]string, error) {
	found, err := m.besides.Do(ctx, watched)
	if err != nil {
		return nil, err
	}
	says := make(map[netip.Addr]string)
	var h *host
	for a, ends := range found.at {
		if !sought.Has(a) {
			continue
		}
		if h == nil {
			if h, err = m.host(ctx); err != nil {
				return nil, err
			}
			defer h.k.Close()
		}
		at, err := h.placeOf(a, ends, found.bridges, sought)
		if err != nil {
			return says, err
		}
		if at != "" {
			says[a] = at
		}
	}
	if found.err != nil {
		return says, fmt.Errorf("look beside the bridges: %w", found.err)
	}
	return says, nil
}

// readBeside lists the addresses in each namespace that the kernel has an id for, but for those
// that witnesses read. Of one that does not stand still, or has more than [mostInside] addresses,
// it has those that could be listed: a guest off the bridge may not hold up the end of others.
func (m *Machine) readBeside(ctx context.Context, of []Watch) (found beside) {
	ctx, cancel := context.WithTimeout(ctx, besideWithin)
	defer cancel()
	watched, err := of[0](ctx)
	if err != nil {
		return beside{err: err}
	}
	var ids []int
	err = m.ids.Ask(ctx, func(k *rtnl.Socket) (err error) {
		ids, err = k.NetnsIDs()
		return err
	})
	if err != nil {
		return beside{err: fmt.Errorf("list the namespaces: %w", err)}
	}
	ids = slices.DeleteFunc(ids, func(id int) bool { return watched.Spaces[id] })
	if len(ids) == 0 {
		return found
	}
	k, err := m.socket(ctx)
	if err != nil {
		return beside{err: err}
	}
	defer k.Close()
	found.at, found.bridges = make(map[netip.Addr][]farEnd), watched.Bridges
	for _, id := range ids {
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

// A host has the links of the host that lead to other namespaces.
type host struct {
	k     *rtnl.Socket
	links []*rtnl.Link
}

// host lists them. The caller closes the socket.
func (m *Machine) host(ctx context.Context) (*host, error) {
	k, err := m.socket(ctx)
	if err != nil {
		return nil, err
	}
	h := &host{k: k}
	err = rtnl.Steady(func() error {
		h.links = h.links[:0]
		return k.Links(rtnl.NoNetns, func(l *rtnl.Link) error {
			if l.Behind != rtnl.NoNetns {
				h.links = append(h.links, l)
			}
			return nil
		})
	})
	if err != nil {
		k.Close()
		return nil, fmt.Errorf("list the links: %w", err)
	}
	return h, nil
}

// placeOf says in a sentence where an address is that some namespaces have; "" where it is of
// another network.
func (h *host) placeOf(a netip.Addr, ends []farEnd, bridges map[int]bool, sought census.Sought) (string, error) {
	for _, end := range ends {
		leads, farEnd := false, false
		for _, l := range h.links {
			if l.Behind != end.nsid {
				continue
			}
			leads, farEnd = true, farEnd || l.Peer == end.index
			switch {
			case l.Master == 0:
				return fmt.Sprintf("%s is a port of no bridge, and leads to a namespace with %s", l.Name, a), nil
			case bridges[l.Master]: // since the board was read
				return fmt.Sprintf("%s was plugged just now, and leads to a namespace with %s", l.Name, a), nil
			}
		}
		switch {
		case !leads:
			return fmt.Sprintf("namespace nsid:%d has %s, and no link of the host leads there", end.nsid, a), nil
		case farEnd || !sought.Sandbox:
			continue
		}
		inner, err := h.k.Link(end.nsid, end.index)
		switch {
		case rtnl.IsGone(err), rtnl.IsVanishing(h.k, end.nsid, err):
		case err != nil:
			return "", fmt.Errorf("look up link %d of nsid %d: %w", end.index, end.nsid, err)
		case sought.MAC != "" && inner.MAC.String() == sought.MAC,
			sought.MAC == "" && inner.Kind == "veth" && inner.Behind != rtnl.NoNetns:
			return fmt.Sprintf("%s in namespace nsid:%d has %s, and its other end is not on the host", inner.Name, end.nsid, a), nil
		}
	}
	return "", nil
}
