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
// bridge, or the one at the path, has one of its addresses, a machine has a tap open there or
// has the link, a tap, open, or the link is a port under another name. A
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
	k.Redial = func() (*rtnl.Socket, error) { return b.dialRoute(ctx) } // behind a list that was cut short
	for _, look := range []func() (string, error){
		func() (string, error) { return awayBehind(k, at, has) },
		func() (string, error) { return awayAt(k, at, has) },
		func() (string, error) { return b.awayIn(ctx, k, at, has) },
	} {
		if says, err := look(); says != "" || err != nil {
			return says, err
		}
	}
	return "", nil
}

// Away is that of one bridge: it looks beside all of them.
func (g *Group) Away(ctx context.Context, at census.LastKnown, has func(netip.Addr) bool) (string, error) {
	return g.own().Away(ctx, at, has)
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
	if another, err := isAnothers(k, l, at, at.Over); another || err != nil {
		return "", err
	}
	return l.Name + ", which it was last seen behind, is a port", nil
}

// awayAt looks at the link that a sandbox names. That of a bridge is found by its name, while
// it has that.
func awayAt(k *rtnl.Socket, at census.LastKnown, has func(netip.Addr) bool) (string, error) {
	l, err := namedLink(k, at)
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

// namedLink looks up the link that a sandbox names: by its index, and where that is no link's, or
// another sandbox's, by its name. A tap that its machine opens again, or a pair of links that is made
// anew, has the old name; and the kernel gives an index to a later link that comes from
// another namespace with it. It is nil where there is none.
func namedLink(k *rtnl.Socket, at census.LastKnown) (*rtnl.Link, error) {
	l, err := linkOf(k, at.Link, "")
	if err != nil {
		return nil, err
	}
	if l != nil && l.Name != at.Name {
		another, err := isAnothers(k, l, at, true)
		if err != nil {
			return nil, err
		}
		if another {
			l = nil
		}
	}
	if l != nil {
		return l, nil
	}
	return linkOf(k, 0, at.Name)
}

// isAnothers reports that a link which has a recorded index is another sandbox's: what is on its far
// end has another MAC than the sandbox, or that is not known, and another's lease records the link.
// With strict, a MAC that is another says so; else a guest may have changed it.
func isAnothers(k *rtnl.Socket, l *rtnl.Link, at census.LastKnown, strict bool) (bool, error) {
	taken := func() bool { return at.Taken != nil && at.Taken(l.Index) } // looks through all leases
	if at.MAC == "" || l.Behind == rtnl.NoNetns && l.Kind == "tun" {
		return taken(), nil
	}
	if l.Behind == rtnl.NoNetns {
		return strict, nil
	}
	switch end, err := k.Link(l.Behind, l.Peer); {
	case err == nil:
		return end.MAC.String() != at.MAC && (strict || taken()), nil
	case rtnl.IsGone(err):
		return strict || taken(), nil
	case isVanishing(k, l.Behind, err):
		return false, nil
	default:
		return false, fmt.Errorf("look behind %s: %w", l.Name, err)
	}
}

// unpluggedHas says that a sandbox lives behind a link that is a port of no bridge.
func unpluggedHas(k *rtnl.Socket, l *rtnl.Link, has func(netip.Addr) bool) (string, error) {
	switch {
	case l.Master != 0:
		return "", nil
	case l.Behind == rtnl.Unassigned:
		return "", fmt.Errorf("look behind %s: the kernel does not name the namespace", l.Name)
	case l.IsOpenTap():
		return l.Name + " is a port of no bridge, and is open", nil
	case l.Behind == rtnl.NoNetns:
		return "", nil
	}
	says, err := livesIn(k, l.Behind, has)
	if says != "" {
		says = fmt.Sprintf("%s is a port of no bridge, and leads to a namespace with %s", l.Name, says)
	}
	return says, err
}

// livesIn names what a sandbox has in a namespace: one of its addresses, or a tap that is open,
// behind which a machine is whose addresses nothing shows. It is "" where there is neither.
func livesIn(k *rtnl.Socket, nsid int, has func(netip.Addr) bool) (string, error) {
	a, err := addressIn(k, nsid, has)
	if err != nil || a.IsValid() {
		return addrText(a), err
	}
	tap := ""
	err = rtnl.Steady(func() error {
		there := 0 // as many as its guest likes
		return k.Links(nsid, func(l *rtnl.Link) error {
			if l.IsOpenTap() {
				tap = "a tap that is open, " + l.Name
			}
			if there++; there > mostLinks {
				return rtnl.ErrCutShort
			}
			return nil
		})
	})
	if rtnl.IsGone(err) || isVanishing(k, nsid, err) {
		return "", nil
	}
	if err != nil && tap == "" {
		return "", fmt.Errorf("list the links of network namespace %d: %w", nsid, err)
	}
	return tap, nil
}

func (b *lookups) awayIn(ctx context.Context, k *rtnl.Socket, at census.LastKnown, has func(netip.Addr) bool) (string, error) {
	if at.Netns == "" || at.Inode == 0 {
		return "", nil
	}
	fd, err := b.openRecorded(ctx, at)
	if fd < 0 || err != nil {
		return "", err
	}
	defer unix.Close(fd)
	id, err := k.NetnsID(fd)
	if errors.Is(err, ErrNoNetnsID) {
		if err = k.AssignID(fd); err == nil {
			id, err = k.NetnsID(fd)
		}
	}
	if err != nil {
		return "", fmt.Errorf("look up the id of network namespace %s: %w", at.Netns, err)
	}
	says, err := livesIn(k, id, has)
	if says != "" {
		says = fmt.Sprintf("namespace %s has %s, behind no port of a bridge", at.Netns, says)
	}
	return says, err
}

// openRecorded opens the namespace that was recorded, where its path still leads to it; else the
// descriptor is below 0.
func (b *lookups) openRecorded(ctx context.Context, at census.LastKnown) (fd int, err error) {
	if fd, err = b.paths.open(ctx, at.Netns); err != nil {
		return -1, fmt.Errorf("open network namespace: %w", err)
	}
	if fd < 0 {
		return -1, nil
	}
	var st unix.Stat_t
	if err = unix.Fstat(fd, &st); err != nil {
		err = fmt.Errorf("look at network namespace %s: %w", at.Netns, err)
	} else if st.Ino == at.Inode {
		return fd, nil
	}
	_ = unix.Close(fd)
	return -1, err
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

func addrText(a netip.Addr) string {
	if !a.IsValid() {
		return ""
	}
	return a.String()
}

// linkOf looks up the link of an index, or the one of a name where the index is 0. It is nil where
// there is none.
func linkOf(k *rtnl.Socket, index int, name string) (l *rtnl.Link, err error) {
	switch {
	case index != 0:
		l, err = k.Link(rtnl.NoNetns, index)
	case name != "" && len(name) < unix.IFNAMSIZ:
		l, err = k.LinkByName(name)
	}
	if rtnl.IsGone(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look for link %d %s: %w", index, name, err)
	}
	return l, nil
}
