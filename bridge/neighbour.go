package bridge

import (
	"context"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/ipamd/ipamd/bridge/rtnl"
	"github.com/ipamd/ipamd/census"
)

// A neighbour is an entry of the bridge's neighbour table that has a MAC.
type neighbour struct {
	mac  string
	port int // index of the port that the MAC was last seen behind; 0 when never
}

const (
	// mostNeighboursAgain bounds the news of neighbours that is remembered, one by one.
	mostNeighboursAgain = 256
	// neighboursPerSettle is how many neighbours one Settle looks up beside
	// those that it is called for. A question takes some 10 µs, and twenty times
	// as long beside a flood.
	neighboursPerSettle = 16
)

// neighbourAgain notes that an entry is to be looked up again.
func (b *Bridge) neighbourAgain(addr netip.Addr) {
	if len(b.neighboursAgain) >= mostNeighboursAgain && !b.neighboursAgain[addr] {
		b.loseNeighbours()
		return
	}
	b.neighboursAgain[addr] = true
}

// loseNeighbours notes that any entry may be another by now. It makes nobody
// silent: [Bridge.Settle] asks about the addresses that it is called for, and Run
// lists the others again.
func (b *Bridge) loseNeighbours() {
	if !b.neighboursLost {
		b.neighboursLost = true
		b.alarm.ring()
	}
}

// stale reports whether memory may be wrong about a neighbour's entry.
func (b *Bridge) stale(addr netip.Addr) bool {
	return b.neighboursLost || b.neighboursMore.Load() || b.neighboursAgain[addr]
}

// settleNeighbours looks up the entries that memory may be wrong about: those of
// some addresses, and a few of the others. What is left is Run's to do.
func (b *Bridge) settleNeighbours(about []netip.Addr) {
	for _, addr := range about {
		if addr = addr.Unmap().WithZone(""); rtnl.Assignable(addr) && b.stale(addr) {
			b.readNeighbour(addr)
		}
	}
	if b.neighboursLost {
		return
	}
	left := neighboursPerSettle
	for addr := range b.neighboursAgain {
		if left == 0 {
			return
		}
		left--
		b.readNeighbour(addr)
	}
}

// recountNeighbours lists the neighbours without the lock and looks each up
// again, as a whole reading does.
func (b *Bridge) recountNeighbours(ctx context.Context) error {
	index := 0
	err := b.locked(ctx, func() error {
		if !b.lost && b.isThere() {
			index, b.neighboursLost = b.link.Index, false
		}
		return nil
	})
	if err != nil || index == 0 {
		return err
	}
	all := make(map[netip.Addr]bool)
	err = b.tables.Ask(ctx, func(k *rtnl.Socket) error {
		return k.Neighbours(index, func(e rtnl.Entry) {
			if rtnl.Assignable(e.Addr) {
				all[e.Addr] = true
			}
		})
	})
	var addrs []netip.Addr
	if err := b.locked(ctx, func() error {
		switch {
		case err != nil:
			b.neighboursLost = true
		case b.isThere() && b.link.Index == index:
			addrs = b.toRead(all)
		}
		return err
	}); err != nil {
		return fmt.Errorf("list the neighbours of %s: %w", b.cfg.Name, err)
	}
	return b.readEach(ctx, addrs)
}

// readEach looks neighbours up again, one piece each.
func (b *Bridge) readEach(ctx context.Context, addrs []netip.Addr) error {
	for _, addr := range addrs {
		if err := b.piece(ctx, func() { b.readNeighbour(addr) }); err != nil {
			return err
		}
	}
	return nil
}

// listNeighbours notes every entry of the bridge's neighbour table as one to
// be read, and those that are known.
func (b *Bridge) listNeighbours() ([]netip.Addr, error) {
	all := make(map[netip.Addr]bool)
	b.neighboursLost = false
	err := b.kernel.Neighbours(b.link.Index, func(e rtnl.Entry) {
		if rtnl.Assignable(e.Addr) {
			all[e.Addr] = true
		}
	})
	if err != nil {
		return nil, fmt.Errorf("list the neighbours of %s: %w", b.cfg.Name, err)
	}
	return b.toRead(all), nil
}

// toRead adds those that are known to listed neighbours, forgets what is told
// of any other, and returns them all.
func (b *Bridge) toRead(all map[netip.Addr]bool) []netip.Addr {
	for addr := range b.neighbours {
		all[addr] = true
	}
	for addr := range b.neighboursAgain {
		all[addr] = true
	}
	b.neighbour.keep(func(known string) bool {
		addr, err := netip.ParseAddr(known)
		return err == nil && all[addr]
	})
	out := make([]netip.Addr, 0, len(all))
	for addr := range all {
		out = append(out, addr)
	}
	return out
}

// readNeighbour looks one entry up again and weighs what it proves.
func (b *Bridge) readNeighbour(addr netip.Addr) {
	delete(b.neighboursAgain, addr)
	e, err := b.kernel.Neighbour(b.link.Index, addr)
	if err == nil && len(e.MAC) == 0 || rtnl.IsGone(err) {
		b.forgetNeighbour(addr)
		return
	}
	var seen []census.Sighting
	if err == nil {
		seen, err = b.weigh(addr, e)
	}
	if err != nil {
		b.neighboursAgain[addr] = true
		b.neighbour.fail(addr.String(), fmt.Errorf("look up neighbour %v: %w", addr, err))
		return
	}
	b.neighbour.see(addr.String(), seen)
}

// weigh says whether an entry proves that a guest has the address now.
//
// A REACHABLE one was confirmed within the last 45 s, so it does, unless the
// port that its MAC was behind is gone since. Any other is only a memory of a
// MAC: it counts while the bridge sees that MAC on a live port, unless the
// namespace there owns the MAC and does not have the address. Thus neither
// the entries of dead containers nor a foreign gratuitous ARP, which can turn
// a dead entry to a living MAC, are evidence.
func (b *Bridge) weigh(addr netip.Addr, e rtnl.Entry) ([]census.Sighting, error) {
	n := b.rememberNeighbour(addr, e.MAC.String())
	f, err := b.kernel.Forwarding(b.link.Index, b.link.VLAN, e.MAC)
	heard := err == nil && f.State&unix.NUD_REACHABLE != 0 // learned, not aged, not set by hand
	if err != nil && !rtnl.IsGone(err) {
		return nil, err
	}
	if heard {
		n.port = f.Index
	}
	p := b.ports[n.port]
	proof := false
	switch {
	case e.State&unix.NUD_REACHABLE != 0:
		proof = n.port == 0 || p != nil
	case heard && p != nil && p.link.Carries():
		proof = true
		if p.space != nil {
			hasMAC, hasAddr := p.space.holds(n.mac, addr)
			proof = hasAddr || !hasMAC
		}
	}
	if !proof {
		return nil, nil
	}
	s := census.Sighting{Addr: addr, Bridge: b.cfg.Name, MAC: n.mac}
	if p != nil {
		s.Port, s.Note = b.whereHeard(addr, n.mac, p)
	}
	return []census.Sighting{s}, nil
}

func (b *Bridge) rememberNeighbour(addr netip.Addr, mac string) *neighbour {
	n := b.neighbours[addr]
	if n != nil && n.mac == mac {
		return n
	}
	b.forgetMAC(addr, n)
	n = &neighbour{mac: mac}
	b.neighbours[addr] = n
	if b.byMAC[mac] == nil {
		b.byMAC[mac] = make(map[netip.Addr]bool)
	}
	b.byMAC[mac][addr] = true
	return n
}

func (b *Bridge) forgetNeighbour(addr netip.Addr) {
	b.forgetMAC(addr, b.neighbours[addr])
	delete(b.neighbours, addr)
	b.neighbour.drop(addr.String())
}

func (b *Bridge) forgetMAC(addr netip.Addr, n *neighbour) {
	if n == nil {
		return
	}
	delete(b.byMAC[n.mac], addr)
	if len(b.byMAC[n.mac]) == 0 {
		delete(b.byMAC, n.mac)
	}
}
