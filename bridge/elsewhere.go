package bridge

import (
	"context"
	"fmt"

	"github.com/ipamd/ipamd/bridge/rtnl"
	"github.com/ipamd/ipamd/census"
)

// Elsewhere says that a sandbox's port is one of a bridge that is not looked after: the link
// of that index, whatever its name is now, or the one named hostInterface where no link has it.
// Nothing behind it is seen, and that is no proof that nothing is. It is "" of a link that is
// not there, is a port of no bridge, or of this one: [Bridge.Plugged] is about that.
func (s *lookups) Elsewhere(ctx context.Context, hostInterface string, index int) (string, error) {
	return s.elsewhere(ctx, hostInterface, index, func(name string) bool { return name == s.bridge })
}

// Elsewhere is [Bridge.Elsewhere] of all.
func (g *Group) Elsewhere(ctx context.Context, hostInterface string, index int) (string, error) {
	return g.now.Load().all[0].elsewhere(ctx, hostInterface, index, g.watches)
}

// watches reports whether a bridge is one of those that are open.
func (g *Group) watches(bridge string) bool {
	m := g.now.Load().named(bridge)
	return m != nil && m.Bridge != nil
}

func (s *lookups) elsewhere(ctx context.Context, hostInterface string, index int, watched func(bridge string) bool) (string, error) {
	l, of, err := s.master(ctx, hostInterface, index)
	if err == nil && of == nil && index != 0 && s.hasEnded(ctx, index) {
		l, of, err = s.master(ctx, hostInterface, 0)
	}
	if err != nil || of == nil || watched(of.Name) {
		return "", err
	}
	return fmt.Sprintf("%s is a port of %s, which is not looked after", l.Name, of.Name), nil
}

// master looks up the link of an index, or the one named hostInterface where index is 0, and the
// link that is its master. Both are nil of a link that is not there, or has none.
func (s *lookups) master(ctx context.Context, hostInterface string, index int) (l, of *rtnl.Link, err error) {
	if hostInterface == "" {
		return nil, nil, nil
	}
	k, err := s.dialRoute(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("look for the bridge of %s: %w", hostInterface, err)
	}
	defer k.Close()
	if index != 0 {
		hostInterface = ""
	}
	l, err = linkOf(k, index, hostInterface)
	if l == nil || err != nil || l.Master == 0 {
		return nil, nil, err
	}
	of, err = k.Link(rtnl.NoNetns, l.Master)
	if rtnl.IsGone(err) { // it ended just now, and its ports are on none
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("look up the bridge of %s: %w", l.Name, err)
	}
	return l, of, nil
}

// hasEnded reports that the kernel says that no link has an index.
func (s *lookups) hasEnded(ctx context.Context, index int) bool {
	k, err := s.dialRoute(ctx)
	if err != nil {
		return false
	}
	defer k.Close()
	_, err = k.Link(rtnl.NoNetns, index)
	return rtnl.IsGone(err)
}

// IsPort reports whether the link of an index, or the one named hostInterface where index is 0, is
// a port of one of the bridges, as the kernel has it now: for who cannot wait until a
// [Bridge.Settle] has no error.
func (g *Group) IsPort(ctx context.Context, hostInterface string, index int) (bool, error) {
	ms := g.now.Load()
	_, of, err := ms.all[0].master(ctx, hostInterface, index)
	return of != nil && ms.named(of.Name) != nil, err
}

// Unplugged says that the link which a sandbox names, or the one that it was last seen behind, is
// there, and a port of no bridge: the sandbox lives, as far as can be known, and no witness sees
// it. It is "" of a link that is gone, or is a port.
func (s *lookups) Unplugged(ctx context.Context, at census.LastKnown) (string, error) {
	k, err := s.dialRoute(ctx)
	if err != nil {
		return "", fmt.Errorf("look for unplugged links: %w", err)
	}
	defer k.Close()
	l, err := namedLink(k, at)
	if err == nil && l == nil {
		l, err = linkOf(k, at.Behind, "")
	}
	if l == nil || err != nil || l.Master != 0 {
		return "", err
	}
	return fmt.Sprintf("%s is there, and is a port of no bridge", l.Name), nil
}

// Unplugged is [Bridge.Unplugged].
func (g *Group) Unplugged(ctx context.Context, at census.LastKnown) (string, error) {
	return g.own().Unplugged(ctx, at)
}
