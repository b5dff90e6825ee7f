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

// Away says in a sentence that a sandbox lives where it was last known to be, though no port is
// named by it and no witness sees it there: the namespace behind a link that is a port of no
// bridge, or the one at the path, has one of its addresses, or a machine has the link, a tap, open. A
// bridge that was deleted leaves such links, and made again it has no ports. The port that it was last
// seen behind, while that leads to a namespace, is one that it names. It is "" where nothing of
// that is so; what cannot be looked at is an error. It asks the kernel on a socket of its own, and
// is safe for concurrent use.
func (b *lookups) Away(ctx context.Context, at census.LastKnown, has func(netip.Addr) bool) (string, error) {
	k, err := b.dialRoute(ctx)
	if err != nil {
		return "", fmt.Errorf("look beside the bridges: %w", err)
	}
	defer k.Close()
	for _, index := range []int{at.Link, at.Behind} {
		if index == 0 {
			continue
		}
		if says, err := awayAt(k, index, index == at.Behind, has); says != "" || err != nil {
			return says, err
		}
	}
	if at.Netns == "" || at.Inode == 0 {
		return "", nil
	}
	return b.awayIn(ctx, k, at, has)
}

func awayAt(k *rtnl.Socket, index int, seen bool, has func(netip.Addr) bool) (string, error) {
	l, err := k.Link(rtnl.NoNetns, index)
	switch {
	case rtnl.IsGone(err):
		return "", nil
	case err != nil:
		return "", fmt.Errorf("look for link %d: %w", index, err)
	case l.Master != 0 && seen && l.Behind != rtnl.NoNetns:
		return l.Name + ", which it was last seen behind, is a port", nil
	case l.Master != 0:
		return "", nil // that of a bridge is found by its name
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

// Away is that of one bridge: it looks beside all of them.
func (g *Group) Away(ctx context.Context, at census.LastKnown, has func(netip.Addr) bool) (string, error) {
	return g.own().Away(ctx, at, has)
}
