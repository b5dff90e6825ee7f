package bridge

import (
	"context"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"
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
		id := noSpace
		if fd >= 0 {
			var err error
			if id, err = b.kernel.netnsID(fd); err != nil {
				id = noSpace
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
		if hostInterface != "" && (p.link.name == hostInterface || p.had(hostInterface, since)) || id != noSpace && p.link.behind == id {
			found = append(found, p)
		}
	}
	slices.SortFunc(found, func(x, y *port) int { return x.link.index - y.link.index })
	var out []string
	for _, p := range found {
		switch {
		case p.link.name == hostInterface:
			out = append(out, isPort(p.link, b.link.name))
		case id != noSpace && p.link.behind == id:
			out = append(out, leadsInto(p.link, b.link.name, netns))
		default:
			out = append(out, fmt.Sprintf("%s, which was %s, is a port of %s", p.link.name, hostInterface, b.link.name))
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
