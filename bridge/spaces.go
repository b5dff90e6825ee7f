package bridge

import (
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/ipamd/ipamd/census"
)

// A space is a network namespace behind one or more ports.
type space struct {
	id    int       // nsid, as the bridge's namespace knows it
	name  spaceName // under /run/netns; zero when none is known
	ports map[int]*port
	addrs []address      // as last read
	macs  map[int]string // by link index; nil after news about links there
}

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
	for _, a := range s.addrs {
		hasAddr = hasAddr || a.prefix.Addr() == addr
	}
	return hasMAC, hasAddr
}

// readSpace lists the addresses in a namespace, on whatever link they are,
// once for all ports that lead there.
func (b *Bridge) readSpace(id int) {
	s := b.spaces[id]
	if s == nil {
		return
	}
	addrs, err := b.kernel.addresses(id)
	if isVanishing(err) {
		// The namespace, or the port to it, went while we asked. Looking at
		// the ports again tells; if one still leads there, ask once more.
		for index := range s.ports {
			b.readPort(index)
		}
		if b.spaces[id] != s {
			return
		}
		addrs, err = b.kernel.addresses(id)
	}
	if isVanishing(err) {
		// The last that held the namespace let go of it, and the kernel has
		// yet to take it down: the ports still name it, but nobody may look
		// inside any more.
		for _, p := range s.ports {
			b.freeze(p)
		}
		return
	}
	if err != nil {
		b.spacesAgain[id] = true
		for index, p := range s.ports {
			b.netns.fail(scope(index), fmt.Errorf("list the addresses behind %s (%s): %w", p.link.name, s.label(), err))
		}
		return
	}
	delete(b.spacesAgain, id)
	b.noteMoves(s.addrs, addrs)
	s.addrs = addrs
	b.readMACs(s)
	for index, p := range s.ports {
		p.read = true
		var seen []census.Sighting
		for _, a := range addrs {
			if counts(a.prefix.Addr()) {
				seen = append(seen, census.Sighting{
					Addr: a.prefix.Addr(), Bridge: b.cfg.Name, Port: p.link.name,
					Netns: s.label(), MAC: s.macs[a.index],
				})
			}
		}
		b.netns.see(scope(index), seen)
	}
}

// readMACs fills in the MACs that are not known yet: of the links that have
// addresses, and of those that are the far ends of our ports.
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
		if l, err := b.kernel.link(s.id, index); err == nil {
			s.macs[index] = l.mac.String()
		}
	}
	for _, p := range s.ports {
		need(p.link.peer)
	}
	for _, a := range s.addrs {
		if counts(a.prefix.Addr()) {
			need(a.index)
		}
	}
}

// noteMoves has the neighbour entries of addresses that came or went weighed
// again.
func (b *Bridge) noteMoves(before, after []address) {
	for _, all := range [][]address{before, after} {
		for _, a := range all {
			if addr := a.prefix.Addr(); b.neighbours[addr] != nil {
				b.neighboursAgain[addr] = true
			}
		}
	}
}

// isVanishing reports an answer that a namespace gives while it goes away.
func isVanishing(err error) bool {
	return isGone(err) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ESRCH)
}
