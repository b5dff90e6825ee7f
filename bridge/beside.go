package bridge

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/ipamd/ipamd/bridge/rtnl"
)

// A beside is what namespaces have to which no port of a watched bridge leads, so that no
// witness reads them: a bridge that was deleted leaves the sandboxes that were on it, and so does a
// link that was made anew, unplugged or moved.
type beside struct {
	at  map[netip.Addr]string // where each address is, in words
	err error                 // not all could be looked at
}

// readBeside lists the addresses in each namespace that the kernel has an id for, but for those
// that a witness reads, and those on the far end of another bridge's port, which is another
// network. Of a namespace that does not stand still, or has more than [mostInside] addresses,
// it has those that could be listed: a guest off the bridge may not hold up the end of others.
func (b *lookups) readBeside(ctx context.Context, watched []func(bridge string) bool) (found beside) {
	found.at = make(map[netip.Addr]string)
	k, err := b.dialRoute(ctx)
	if err != nil {
		return beside{err: err}
	}
	defer k.Close()
	var links []*rtnl.Link
	name := make(map[int]string) // of each link
	err = rtnl.Steady(func() error {
		links = links[:0]
		return k.Links(rtnl.NoNetns, func(l *rtnl.Link) error {
			name[l.Index] = l.Name
			if l.Behind != rtnl.NoNetns {
				links = append(links, l)
			}
			return nil
		})
	})
	if err != nil {
		return beside{err: fmt.Errorf("list the links: %w", err)}
	}
	type end struct{ id, link int }
	seen, at := make(map[int]bool), make(map[end]*rtnl.Link) // ids that a witness reads; far ends
	for _, l := range links {
		at[end{l.Behind, l.Peer}] = l
		if l.Master != 0 && isWatched(name[l.Master], watched) {
			seen[l.Behind] = true
		}
	}
	ids, err := k.NetnsIDs() // the list of links has given an id to each that had none
	if err != nil {
		return beside{err: fmt.Errorf("list the namespaces: %w", err)}
	}
	for _, id := range ids {
		if seen[id] {
			continue
		}
		got, err := k.AddressesOf(id, mostInside, outsideTries, outsideWithin)
		if isVanishing(k, id, err) || errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM) {
			continue // no witness can read the latter either
		}
		if err != nil && !got.Full {
			found.err = fmt.Errorf("list the addresses of nsid %d: %w", id, err)
			continue
		}
		for _, a := range got.Addrs {
			l := at[end{id, a.Index}]
			if l != nil && l.Master != 0 {
				continue
			}
			says := fmt.Sprintf("namespace nsid:%d has %s, behind no port of a bridge", id, a.Prefix.Addr())
			if l != nil {
				says = fmt.Sprintf("%s is a port of no bridge, and leads to a namespace with %s", l.Name, a.Prefix.Addr())
			}
			found.at[a.Prefix.Addr().Unmap()] = says
		}
	}
	return found
}

func isWatched(bridge string, by []func(string) bool) bool {
	for _, watched := range by {
		if !watched(bridge) {
			return false
		}
	}
	return true
}

// besideHas says in a sentence where beside the watched bridges an address is that is asked for;
// "" where it is not. Calls at the same time share one reading, begun after each of them.
func (b *lookups) besideHas(ctx context.Context, watched func(bridge string) bool, has func(netip.Addr) bool) (string, error) {
	found, err := b.besides.Do(ctx, watched)
	if err != nil {
		return "", err
	}
	for a, says := range found.at {
		if has(a) {
			return says, nil
		}
	}
	if found.err != nil {
		return "", fmt.Errorf("look beside the bridges: %w", found.err)
	}
	return "", nil
}

// linkOf looks up the link of an index, or the one of a name where no link has that index any
// more: a tap that its machine opens again, or a pair that was made anew, has the old name. It is nil
// where there is none.
func linkOf(k *rtnl.Socket, index int, name string) (*rtnl.Link, error) {
	if index != 0 {
		l, err := k.Link(rtnl.NoNetns, index)
		switch {
		case err == nil:
			return l, nil
		case !rtnl.IsGone(err):
			return nil, fmt.Errorf("look for link %d: %w", index, err)
		}
	}
	if name == "" || len(name) >= unix.IFNAMSIZ {
		return nil, nil
	}
	l, err := k.LinkByName(name)
	if rtnl.IsGone(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look for link %s: %w", name, err)
	}
	return l, nil
}
