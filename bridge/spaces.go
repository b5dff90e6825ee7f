package bridge

import (
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/ipamd/ipamd/bridge/rtnl"
	"github.com/ipamd/ipamd/census"
)

// A space is a network namespace behind one or more ports.
type space struct {
	id     int // nsid, as the bridge's namespace knows it
	serial int // of all that were ever met: an id is given again
	// frozen: the kernel takes it down, and its id may be another's by now. What
	// was seen there stands until its ports go.
	frozen bool
	name   spaceName // under /run/netns; zero when none is known
	ports  map[int]*port
	leads  *census.Ports  // names of ports, where there are several; nil is to be made
	macs   map[int]string // by link index; nil after news about links there
	inside
}

// scope names the namespace on the board: what is in it is told once, however many
// ports lead there.
func (s *space) scope() string { return fmt.Sprintf("netns %d", s.serial) }

func (s *space) label() string {
	if s.name.file == "" {
		return fmt.Sprintf("nsid:%d", s.id)
	}
	return fmt.Sprintf("nsid:%d (%s)", s.id, s.name.file)
}

// holds reports whether a link of the namespace has the MAC, and whether one
// has the address.
func (s *space) holds(mac string, addr netip.Addr) (hasMAC, hasAddr bool) {
	for _, m := range s.macs {
		hasMAC = hasMAC || m == mac
	}
	return hasMAC, s.knows(addr)
}

// readSpace lists the addresses in a namespace, on whatever link they are,
// once for all ports that lead there. One with too many of them, or where they do not
// stand still, is left to Run.
func (b *Bridge) readSpace(id int) {
	s := b.spaces[id]
	if s == nil {
		return
	}
	if b.leaveCrowd(id) {
		delete(b.spacesAgain, id)
		return
	}
	got, err := b.listInside(id, &s.inside)
	if b.isVanishing(id, err) {
		// The namespace, or the port to it, went while we asked. Looking at
		// the ports again tells; if one still leads there, ask once more.
		for index := range s.ports {
			b.readPort(index)
		}
		if b.spaces[id] != s {
			return
		}
		got, err = b.listInside(id, &s.inside)
	}
	if b.isVanishing(id, err) {
		// The last that held the namespace released it, and the kernel has
		// yet to take it down: the ports still name it, but nobody may look
		// inside any more.
		b.freezeSpace(s)
		return
	}
	if err != nil {
		b.spacesAgain[id] = true
		b.netns.fail(s.scope(), fmt.Errorf("list the addresses behind %s (%s): %w", s.first().link.Name, s.label(), err))
		return
	}
	delete(b.spacesAgain, id)
	for index, p := range s.ports {
		b.thaw(p)
		b.netns.drop(scope(index))
	}
	b.takeInside(id, got)
}

// sighting makes the sightings of the addresses in a namespace. Each is told once, at
// the port whose far end has it; one of a link that is no port's far end is told
// at the first port.
func (s *space) sighting(bridge string) func(rtnl.Address) census.Sighting {
	label, first, at := s.label(), s.first(), make(map[int]*port, len(s.ports))
	for _, p := range s.ports {
		at[p.link.Peer] = p
	}
	if s.leads == nil && len(s.ports) > 1 {
		var names []string
		for _, p := range s.ports {
			names = append(names, p.link.Name)
		}
		s.leads = census.NewPorts(names...)
	}
	return func(a rtnl.Address) census.Sighting {
		p := at[a.Index]
		if p == nil {
			p = first
		}
		return census.Sighting{
			Addr: a.Prefix.Addr(), Bridge: bridge, Port: p.link.Name, Leads: s.leads, Netns: label, MAC: s.macs[a.Index],
		}
	}
}

// first is the port of the lowest index.
func (s *space) first() (p *port) {
	for _, q := range s.ports {
		if p == nil || q.link.Index < p.link.Index {
			p = q
		}
	}
	return p
}

// readMACs fills in the MACs that are not known yet: of those links that are the far
// ends of our ports, and of mostMACs others that have addresses.
func (b *Bridge) readMACs(s *space) {
	if s.macs == nil {
		s.macs = make(map[int]string)
	}
	need := func(index int) {
		if _, known := s.macs[index]; known {
			return
		}
		// Who has the address matters more than its MAC: a link that cannot
		// be read has an unknown one.
		if l, err := b.kernel.Link(s.id, index); err == nil {
			s.macs[index] = l.MAC.String()
		}
	}
	for _, p := range s.ports {
		need(p.link.Peer)
	}
	most := len(s.macs) + mostMACs
	for _, a := range s.addrs {
		if len(s.macs) >= most {
			return
		}
		need(a.Index)
	}
}

// noteMoves has the neighbour entries of addresses that came or went weighed
// again.
func (b *Bridge) noteMoves(before, after []rtnl.Address) {
	moved := make(map[netip.Addr]bool)
	for _, a := range before {
		moved[a.Prefix.Addr()] = true
	}
	for _, a := range after {
		addr := a.Prefix.Addr()
		moved[addr] = !moved[addr]
	}
	for addr, did := range moved {
		if did && b.neighbours[addr] != nil {
			b.neighbourAgain(addr)
		}
		if h := b.heard[addr]; did && h.proxied { // by who had not the address then, or has it no more
			h.proxied = false
			b.heard[addr] = h
		}
	}
}

// isVanishing reports that a namespace could not be read because it is going
// away. The kernel says EINVAL of its id then, and also of a question that it
// does not understand; so it is asked whether the id names any namespace.
func (b *Bridge) isVanishing(id int, err error) bool {
	return errors.Is(err, unix.EINVAL) && b.isDead(id)
}

// isDead reports that the kernel knows of no namespace that lives by an id.
func (b *Bridge) isDead(id int) bool {
	there, err := b.kernel.HasNetns(id)
	return err == nil && !there
}
