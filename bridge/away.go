package bridge

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/ipamd/ipamd/bridge/rtnl"
	"github.com/ipamd/ipamd/census"
)

// Away says in a sentence that a sandbox lives where it was last known to be, or beside the
// bridges, though no port is named by it and no witness sees it there: the namespace behind a link that is a port of no
// bridge, or the one at the path, or another that no witness reads, has one of its addresses, a machine has
// the link, a tap, open, or the link is a port under another name. A
// bridge that was deleted leaves such links, and made again it has no ports. The port that it was last
// seen behind, while that leads to a namespace, is one that it names. It is "" where nothing of
// that is so; what cannot be looked at is an error. It asks the kernel on a socket of its own, and
// is safe for concurrent use.
func (b *lookups) Away(ctx context.Context, at census.LastKnown, has func(netip.Addr) bool) (string, error) {
	return b.away(ctx, at, has, func(bridge string) bool { return bridge == b.bridge })
}

// Away is that of all: it looks beside each of them.
func (g *Group) Away(ctx context.Context, at census.LastKnown, has func(netip.Addr) bool) (string, error) {
	return g.own().away(ctx, at, has, g.watches)
}

func (b *lookups) away(ctx context.Context, at census.LastKnown, has func(netip.Addr) bool, watched func(bridge string) bool) (string, error) {
	k, err := b.dialRoute(ctx)
	if err != nil {
		return "", fmt.Errorf("look beside the bridges: %w", err)
	}
	defer k.Close()
	for _, look := range []func() (string, error){
		func() (string, error) { return awayBehind(k, at, has) },
		func() (string, error) { return awayAt(k, at, has) },
		func() (string, error) { return b.awayIn(ctx, k, at, has) },
	} {
		if says, err := look(); says != "" || err != nil {
			return says, err
		}
	}
	return b.besideHas(ctx, watched, has)
}

// awayBehind looks behind the port that a sandbox was last seen behind.
func awayBehind(k *rtnl.Socket, at census.LastKnown, has func(netip.Addr) bool) (string, error) {
	l, err := linkOf(k, at.Behind, "")
	if l == nil || err != nil {
		return "", err
	}
	if l.Master == 0 || l.Behind == rtnl.NoNetns {
		return unpluggedHas(k, l, has)
	}
	if at.Over && at.MAC != "" {
		switch end, err := k.Link(l.Behind, l.Peer); {
		case rtnl.IsGone(err) || err == nil && end.MAC.String() != at.MAC:
			return "", nil
		case err != nil && !isVanishing(k, l.Behind, err):
			return "", fmt.Errorf("look behind %s: %w", l.Name, err)
		}
	}
	return l.Name + ", which it was last seen behind, is a port", nil
}

// awayAt looks at the link that a sandbox names. That of a bridge is found by its name, while
// it has that.
func awayAt(k *rtnl.Socket, at census.LastKnown, has func(netip.Addr) bool) (string, error) {
	l, err := linkOf(k, at.Link, at.Name)
	switch {
	case l == nil || err != nil:
		return "", err
	case l.Master == 0:
		return unpluggedHas(k, l, has)
	case l.Index == at.Link && l.Name != at.Name:
		return l.Name + ", which has another name since it was recorded, is a port", nil
	}
	return "", nil
}

// unpluggedHas says that a sandbox lives behind a link that is a port of no bridge.
func unpluggedHas(k *rtnl.Socket, l *rtnl.Link, has func(netip.Addr) bool) (string, error) {
	switch {
	case l.Master != 0:
		return "", nil
	case l.Behind == rtnl.Unassigned:
		return "", fmt.Errorf("look behind %s: the kernel does not name the namespace", l.Name)
	case l.Behind == rtnl.NoNetns && l.Kind == "tun" && l.Flags&unix.IFF_LOWER_UP != 0:
		return l.Name + " is a port of no bridge, and is open", nil
	case l.Behind == rtnl.NoNetns:
		return "", nil
	}
	a, err := addressIn(k, l.Behind, has)
	if err != nil || !a.IsValid() {
		return "", err
	}
	return fmt.Sprintf("%s is a port of no bridge, and leads to a namespace with %s", l.Name, a), nil
}

func (b *lookups) awayIn(ctx context.Context, k *rtnl.Socket, at census.LastKnown, has func(netip.Addr) bool) (string, error) {
	if at.Netns == "" || at.Inode == 0 {
		return "", nil
	}
	fd, err := b.paths.open(ctx, at.Netns)
	if err != nil {
		return "", fmt.Errorf("open network namespace: %w", err)
	}
	if fd < 0 {
		return "", nil
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return "", fmt.Errorf("look at network namespace %s: %w", at.Netns, err)
	}
	if st.Ino != at.Inode {
		return "", nil
	}
	id, err := k.NetnsID(fd)
	if errors.Is(err, ErrNoNetnsID) {
		if err = k.AssignID(fd); err == nil {
			id, err = k.NetnsID(fd)
		}
	}
	if err != nil {
		return "", fmt.Errorf("look up the id of network namespace %s: %w", at.Netns, err)
	}
	a, err := addressIn(k, id, has)
	if err != nil || !a.IsValid() {
		return "", err
	}
	return fmt.Sprintf("namespace %s has %s, behind no port of a bridge", at.Netns, a), nil
}

// addressIn returns an address of a namespace that is asked for; the zero one where it has none.
func addressIn(k *rtnl.Socket, nsid int, has func(netip.Addr) bool) (netip.Addr, error) {
	all, err := k.Addresses(nsid)
	if rtnl.IsGone(err) {
		return netip.Addr{}, nil // it has ended just now
	}
	if err != nil {
		return netip.Addr{}, fmt.Errorf("read the addresses of network namespace %d: %w", nsid, err)
	}
	for _, a := range all {
		if has(a.Prefix.Addr().Unmap()) {
			return a.Prefix.Addr(), nil
		}
	}
	return netip.Addr{}, nil
}
