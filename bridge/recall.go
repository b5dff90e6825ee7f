package bridge

import (
	"context"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ipamd/ipamd/bridge/rtnl"
)

// mostNames bounds how many former names of a port are remembered.
const mostNames = 8

// recall is [Bridge.Plugged] from memory, with the news so far taken in. None
// says nothing: the memory may be of no use just now.
func (b *Bridge) recall(ctx context.Context, hostInterface string, since time.Time, netns string) (out []string) {
	fd := -1
	if netns != "" {
		var err error
		if fd, err = b.paths.open(ctx, netns); err != nil {
			return nil
		}
		if fd >= 0 {
			defer unix.Close(fd)
		}
	}
	_ = b.locked(ctx, func() error {
		b.drain()
		if err := b.settle(ctx, nil); err != nil || !b.isThere() {
			return err
		}
		id := rtnl.NoNetns
		if fd >= 0 {
			var err error
			if id, err = b.kernel.NetnsID(fd); err != nil {
				id = rtnl.NoNetns
			}
		}
		out = b.pluggedPorts(hostInterface, since, netns, id)
		return nil
	})
	return out
}

// pluggedPorts goes through the ports that are known.
func (b *Bridge) pluggedPorts(hostInterface string, since time.Time, netns string, id int) []string {
	var found []*port
	for _, p := range b.ports {
		if hostInterface != "" && (p.link.Name == hostInterface || p.had(hostInterface, since)) || id != rtnl.NoNetns && p.link.Behind == id {
			found = append(found, p)
		}
	}
	slices.SortFunc(found, func(x, y *port) int { return x.link.Index - y.link.Index })
	var out []string
	for _, p := range found {
		switch {
		case p.link.Name == hostInterface:
			out = append(out, isPort(p.link, b.link.Name))
		case id != rtnl.NoNetns && p.link.Behind == id:
			out = append(out, leadsInto(p.link, b.link.Name, netns))
		default:
			out = append(out, fmt.Sprintf("%s, which was %s, is a port of %s", p.link.Name, hostInterface, b.link.Name))
		}
	}
	return out
}

// PortNames returns the names of the bridge's ports, as [Bridge.Changed] has
// told of them; the map is not to be changed. It reads memory and never waits.
func (b *Bridge) PortNames() map[string]bool { return b.moves.ports() }

// PortMACs returns the MACs of the ports themselves, the host's ends, by their
// names, otherwise as [Bridge.PortNames] does.
func (b *Bridge) PortMACs() map[string]string { return b.moves.portMACs() }
