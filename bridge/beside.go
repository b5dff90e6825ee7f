package bridge

import (
	"context"
	"maps"
	"net/netip"

	"github.com/ipamd/ipamd/bridge/remains"
	"github.com/ipamd/ipamd/bridge/rtnl"
	"github.com/ipamd/ipamd/census"
)

// Remains looks where a sandbox was last known to be: see [remains.Machine.Of]. It is safe for concurrent
// use.
func (s *lookups) Remains(ctx context.Context, at census.LastKnown, has func(netip.Addr) bool) (census.Remains, error) {
	return s.machine.Of(ctx, at, has, func(name string) bool { return name == s.bridge })
}

// Remains is [Bridge.Remains] of all.
func (g *Group) Remains(ctx context.Context, at census.LastKnown, has func(netip.Addr) bool) (census.Remains, error) {
	return g.own().machine.Of(ctx, at, has, g.watches)
}

// Moved says in a sentence which namespace a link is in that was the host's: see [remains.Machine.Moved].
func (g *Group) Moved(ctx context.Context, index int, name string) (string, error) {
	return g.own().machine.Moved(ctx, index, name)
}

// Moved is that of a bridge alone. It is safe for concurrent use.
func (s *lookups) Moved(ctx context.Context, index int, name string) (string, error) {
	return s.machine.Moved(ctx, index, name)
}

// watches reports whether a bridge is one of those that are open.
func (g *Group) watches(bridge string) bool {
	m := g.now.Load().named(bridge)
	return m != nil && m.Bridge != nil
}

// Elsewhere returns the name of a bridge that is not looked after, where a link is a port of one: nothing
// behind it is seen, and that is no proof that nothing is. It is "" of a link that is not
// there, or is a port of none, or of one of these.
func (g *Group) Elsewhere(ctx context.Context, hostInterface string) (bridge string, err error) {
	if bridge, err = g.own().machine.PortOf(ctx, hostInterface, 0); g.now.Load().named(bridge) != nil {
		bridge = "" // that it is not open yet is for a while
	}
	return bridge, err
}

// IsPort reports whether the link of an index, or the one named hostInterface where index is 0, is
// a port of one of the bridges, as the kernel has it now: for who cannot wait until a
// [Bridge.Settle] has no error.
func (g *Group) IsPort(ctx context.Context, hostInterface string, index int) (bool, error) {
	of, err := g.own().machine.PortOf(ctx, hostInterface, index)
	return of != "" && g.now.Load().named(of) != nil, err
}

// Beside says in a sentence where each address is that is sought, in a namespace that no witness of
// this bridge reads: see [remains.Machine.Beside]. To be asked after the board:
// what a witness read until then is left out. It is safe for concurrent use.
func (b *Bridge) Beside(ctx context.Context, sought census.Sought) (map[netip.Addr]string, error) {
	return b.machine.Beside(ctx, func(ctx context.Context) (remains.Watched, error) { return watched(ctx, b) }, sought)
}

// Beside is that of all: it leaves out what a witness of any of them reads.
func (g *Group) Beside(ctx context.Context, sought census.Sought) (map[netip.Addr]string, error) {
	return g.own().machine.Beside(ctx, func(ctx context.Context) (remains.Watched, error) {
		all := remains.Watched{Spaces: make(map[int]bool), Bridges: make(map[int]bool)}
		err := g.each(func(b *Bridge) error {
			its, err := watched(ctx, b)
			for id, is := range its.Spaces {
				all.Spaces[id] = all.Spaces[id] || is
			}
			maps.Copy(all.Bridges, its.Bridges)
			return err
		})
		return all, err
	}, sought)
}

// watched are the ids of the namespaces that the netns witness reads, and of the bridge's own, where
// it knows itself by one: the host witness reads that.
func watched(ctx context.Context, b *Bridge) (remains.Watched, error) {
	w := remains.Watched{Spaces: make(map[int]bool), Bridges: make(map[int]bool)}
	err := b.locked(ctx, func() error {
		for id, s := range b.netns.spaces {
			w.Spaces[id] = !s.dying
		}
		for id := range b.netns.stacked.nests {
			w.Spaces[id] = w.Spaces[id] || id != rtnl.NoNetns
		}
		if id, err := b.kernel.NetnsID(int(b.inside.ns)); err == nil {
			w.Spaces[id] = true
		}
		if b.device.isThere() {
			w.Bridges[b.device.link.Index] = true
		}
		return nil
	})
	return w, err
}
