package bridge

import (
	"context"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/ipamd/ipamd/bridge/rtnl"
)

// Elsewhere says that a sandbox's port is one of a bridge that is not looked after: the link
// of that index, whatever its name is now, or the one named hostInterface where index is 0.
// Nothing behind it is seen, and that is no proof that nothing is. It is "" of a link that is
// not there, is a port of no bridge, or of this one: [Bridge.Plugged] is about that.
func (b *Bridge) Elsewhere(ctx context.Context, hostInterface string, index int) (string, error) {
	return b.elsewhere(ctx, hostInterface, index, func(name string) bool { return name == b.cfg.Name })
}

// Elsewhere is [Bridge.Elsewhere] of all.
func (g *Group) Elsewhere(ctx context.Context, hostInterface string, index int) (string, error) {
	ms := g.now.Load()
	return ms.all[0].elsewhere(ctx, hostInterface, index, func(name string) bool {
		m := ms.named(name)
		return m != nil && m.Bridge != nil
	})
}

func (b *Bridge) elsewhere(ctx context.Context, hostInterface string, index int, watched func(bridge string) bool) (string, error) {
	if hostInterface == "" {
		return "", nil
	}
	k, err := b.dial(ctx, unix.NETLINK_ROUTE)
	if err != nil {
		return "", fmt.Errorf("look for %s on other bridges: %w", hostInterface, err)
	}
	defer k.Close()
	var l *rtnl.Link
	switch {
	case index != 0:
		l, err = k.Link(rtnl.NoNetns, index)
	case len(hostInterface) < unix.IFNAMSIZ:
		l, err = k.LinkByName(hostInterface)
	}
	if rtnl.IsGone(err) || err == nil && (l == nil || l.Master == 0) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("look for %s on other bridges: %w", hostInterface, err)
	}
	of, err := k.Link(rtnl.NoNetns, l.Master)
	if rtnl.IsGone(err) { // it ended just now, and its ports are on none
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("look up the bridge of %s: %w", l.Name, err)
	}
	if watched(of.Name) {
		return "", nil
	}
	return fmt.Sprintf("%s is a port of %s, which is not looked after", l.Name, of.Name), nil
}

// Unplugged says that the link of an index is there, and a port of no bridge: its sandbox lives,
// as far as can be known, and no witness sees it. It is "" of a link that is gone, or is a port.
// An index is of one link within a boot of the machine, unlike its name.
func (b *Bridge) Unplugged(ctx context.Context, index int) (string, error) {
	if index == 0 {
		return "", nil
	}
	k, err := b.dial(ctx, unix.NETLINK_ROUTE)
	if err != nil {
		return "", fmt.Errorf("look for link %d: %w", index, err)
	}
	defer k.Close()
	switch l, err := k.Link(rtnl.NoNetns, index); {
	case rtnl.IsGone(err):
		return "", nil
	case err != nil:
		return "", fmt.Errorf("look for link %d: %w", index, err)
	case l.Master != 0:
		return "", nil
	default:
		return fmt.Sprintf("%s is there, and is a port of no bridge", l.Name), nil
	}
}

// Unplugged is [Bridge.Unplugged].
func (g *Group) Unplugged(ctx context.Context, index int) (string, error) {
	return g.own().Unplugged(ctx, index)
}
