package bridge

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/ipamd/ipamd/census"
)

// own is the daemon's own bridge, which is always open. It is asked what is about the network
// namespace and not about one bridge.
func (g *Group) own() *Bridge { return g.now.Load().all[0].Bridge }

// each calls f for all bridges that are open.
func (g *Group) each(f func(*Bridge) error) error {
	var errs []error
	for _, m := range g.now.Load().all {
		if m.Bridge != nil {
			errs = append(errs, f(m.Bridge))
		}
	}
	return errors.Join(errs...)
}

// Settle is [Bridge.Settle] of the bridges that the addresses are on. The error says, as
// [census.ErrorAbout] reads it, which addresses it is about: those on a bridge that could not be read, or
// be opened. About one that is on no bridge, all bridges are asked.
//
// Without addresses it is that of all bridges that are open. One that cannot be read is then no error,
// as long as another can: its witnesses are silent on the board.
func (g *Group) Settle(ctx context.Context, about ...netip.Addr) error {
	ms := g.now.Load()
	if len(ms.all) == 1 {
		return ms.all[0].Settle(ctx, about...)
	}
	if len(about) == 0 {
		good := 0
		err := g.each(func(b *Bridge) error {
			err := b.Settle(ctx)
			if err == nil {
				good++
			}
			return err
		})
		if good > 0 && ctx.Err() == nil {
			return nil
		}
		return err
	}
	return ms.ask(about, func(b *Bridge, addrs []netip.Addr) error { return b.Settle(ctx, addrs...) })
}

// Refresh is [Bridge.Refresh] of all that are open.
func (g *Group) Refresh(ctx context.Context) error {
	return g.each(func(b *Bridge) error { return b.Refresh(ctx) })
}

// Probe is [Bridge.Probe] on the bridge that the address is on.
func (g *Group) Probe(ctx context.Context, addr netip.Addr) error {
	var errs []error
	for m := range g.now.Load().asked([]netip.Addr{addr}) {
		if m.Bridge == nil {
			errs = append(errs, fmt.Errorf("probe %v: %w: %w", addr, ErrNotReady, m.err))
			continue
		}
		errs = append(errs, m.Probe(ctx, addr))
	}
	return errors.Join(errs...)
}

// MissedSince reports whether [Bridge.MissedSince] does of any bridge.
func (g *Group) MissedSince(t time.Time) (missed bool) {
	_ = g.each(func(b *Bridge) error { missed = missed || b.MissedSince(t); return nil })
	return missed
}

// SeenWithin reports whether [Bridge.SeenWithin] does of any bridge.
func (g *Group) SeenWithin(of netip.Prefix, d time.Duration) (seen bool) {
	_ = g.each(func(b *Bridge) error { seen = seen || b.SeenWithin(of, d); return nil })
	return seen
}

// Changed is [Bridge.Changed] of all bridges in one: the channel is closed when it is of any, and when
// a bridge leaves the group.
func (g *Group) Changed() <-chan struct{} { return g.changed.Next() }

// PortNames is [Bridge.PortNames] of all.
func (g *Group) PortNames() map[string]bool {
	return joined(g, (*Bridge).PortNames)
}

// PortMACs is [Bridge.PortMACs] of all.
func (g *Group) PortMACs() map[string]string {
	return joined(g, (*Bridge).PortMACs)
}

func joined[V any](g *Group, of func(*Bridge) map[string]V) map[string]V {
	if ms := g.now.Load(); len(ms.all) == 1 {
		return of(ms.all[0].Bridge)
	}
	out := make(map[string]V)
	_ = g.each(func(b *Bridge) error { maps.Copy(out, of(b)); return nil })
	return out
}

// Plugged is [Bridge.Plugged] of all that are open. That a bridge is missing is an error only where
// no other bridge answers: a lease on another bridge need not wait for it. A lease on the missing one
// is kept by the witnesses of its address, which are silent; so is one on a bridge that is not open.
func (g *Group) Plugged(ctx context.Context, hostInterface string, since time.Time, netns string, inode uint64) (out []census.Plugged, err error) {
	var errs, absent []error
	answered := false
	_ = g.each(func(b *Bridge) error {
		plugged, err := b.Plugged(ctx, hostInterface, since, netns, inode)
		switch {
		case errors.Is(err, census.ErrNoBridge):
			absent = append(absent, err)
		case err != nil:
			errs = append(errs, err)
		default:
			answered = true
			out = append(out, plugged...)
		}
		return nil
	})
	if !answered {
		errs = append(errs, absent...)
	}
	return out, errors.Join(errs...)
}

// Home is [Bridge.Home], with the ports of all open bridges that lead to the namespace of that process.
func (g *Group) Home(ctx context.Context, pid uint32) (home census.Home, err error) {
	var ports []*census.Ports
	err = g.each(func(b *Bridge) error {
		h, err := b.Home(ctx, pid)
		if err == nil {
			home = h
			ports = append(ports, h.Ports)
		}
		return err
	})
	if err != nil {
		return census.Home{}, err
	}
	if len(ports) > 1 {
		home.Ports = census.JoinPorts(ports...)
	}
	return home, nil
}

// Forget is [Bridge.Forget] on the bridges that the prefixes are on. The error says which it is
// about, by their first addresses, as that of [Group.Settle] does: no two of them have the same. One on a bridge that
// is not open is among them: what its table has stays.
func (g *Group) Forget(ctx context.Context, of ...netip.Prefix) error {
	first := make([]netip.Addr, len(of))
	byFirst := make(map[netip.Addr]netip.Prefix, len(of))
	for i, p := range of {
		first[i] = p.Addr()
		byFirst[p.Addr()] = p
	}
	return g.now.Load().ask(first, func(b *Bridge, on []netip.Addr) error {
		there := make([]netip.Prefix, len(on))
		for i, a := range on {
			there[i] = byFirst[a]
		}
		return b.Forget(ctx, there...)
	})
}

// HasLink is [Bridge.HasLink].
func (g *Group) HasLink(ctx context.Context, name string) (bool, error) {
	return g.own().HasLink(ctx, name)
}

// CheckNetns is [Bridge.CheckNetns].
func (g *Group) CheckNetns(ctx context.Context, path string) error {
	return g.own().CheckNetns(ctx, path)
}

// NetnsID is [Bridge.NetnsID].
func (g *Group) NetnsID(ctx context.Context, path string) (int, error) {
	return g.own().NetnsID(ctx, path)
}

// PlugOf is [Bridge.PlugOf].
func (g *Group) PlugOf(ctx context.Context, hostInterface, netns string) (index int, inode uint64, err error) {
	return g.own().PlugOf(ctx, hostInterface, netns)
}

// Inode is that of the network namespace at a path; 0: there is none. An error means that it is not known.
func (g *Group) Inode(ctx context.Context, path string) (uint64, error) {
	_, inode, err := g.PlugOf(ctx, "", path)
	return inode, err
}

// Ports are those of all bridges that are open.
func (g *Group) Ports() (out []census.Port) {
	_ = g.each(func(b *Bridge) error { out = slices.AppendSeq(out, maps.Values(b.PortLinks())); return nil })
	return out
}

// PortNamed returns the port with a name, on whichever bridge.
func (g *Group) PortNamed(name string) (port census.Port, is bool) {
	_ = g.each(func(b *Bridge) error {
		if p, has := b.PortLinks()[name]; has {
			port, is = p, true
		}
		return nil
	})
	return port, is
}

// PortIndexes are the indexes of the ports' links, by their names.
func (g *Group) PortIndexes() map[string]int {
	out := make(map[string]int)
	for _, p := range g.Ports() {
		out[p.Name] = p.Index
	}
	return out
}

// SetGroups is [Bridge.SetGroups].
func (g *Group) SetGroups(ctx context.Context, index int, on bool) error {
	return g.own().SetGroups(ctx, index, on)
}

// Bridges are [Bridge.Own] of all that are open and not missing.
func (g *Group) Bridges() (out []census.Bridge) {
	_ = g.each(func(b *Bridge) error {
		if own := b.Own(); own.Index != 0 {
			out = append(out, own)
		}
		return nil
	})
	return out
}

// LearnNoGroups is [Bridge.LearnNoGroups].
func (g *Group) LearnNoGroups(ctx context.Context, index int) error {
	return g.own().LearnNoGroups(ctx, index)
}

// Unlearn is [Bridge.Unlearn].
func (g *Group) Unlearn(ctx context.Context, index int) error { return g.own().Unlearn(ctx, index) }

// Inside is [Bridge.Inside].
func (g *Group) Inside(f func() error) error { return g.own().Inside(f) }
