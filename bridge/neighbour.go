package bridge

import (
	"encoding/binary"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/ipamd/ipamd/bridge/rtnl"
	"github.com/ipamd/ipamd/census"
)

const (
	// neighboursAtOnce is how many messages about neighbours one Settle reads, which takes some
	// 50 µs. Where it leaves any, it has to ask the kernel about each address that it is called for:
	// see stale.
	neighboursAtOnce = 64
	// mostNeighboursAgain bounds the addresses that are remembered to be looked up again. Where there
	// are more, all are.
	mostNeighboursAgain = 256
	// neighboursPerSettle is how many neighbours one Settle looks up beside
	// those that it is called for. One look-up takes some 10 µs, and twenty times
	// as long while a guest floods.
	neighboursPerSettle = 16
)

// A neighbour is an entry of the bridge's neighbour table that has a MAC.
type neighbour struct {
	mac  string
	port int // index of the port that the MAC was last seen behind; 0 when never
}

// neighbours is the neighbour witness. Guests decide how much news of neighbours there is, so
// memory may be older than the news. Where it may be, [Bridge.Settle] looks up the addresses that it is
// called for.
type neighbours struct {
	*report
	bridge string // its name
	wake   func() // has Run look again
	// portOf returns the port to name in the sighting of an entry whose MAC the forwarding table has at
	// p, and a note: see [answers.portOf].
	portOf func(w wire, addr netip.Addr, mac string, p *port) (port, note string)

	entries map[netip.Addr]*neighbour
	byMAC   map[string]map[netip.Addr]bool
	again   map[netip.Addr]bool // to be looked up again
	lost    bool                // any entry is to be looked up again: which ones is not remembered
	more    atomic.Bool         // the last Settle left news of neighbours unread
}

// lookAgain notes that an entry is to be looked up again.
func (n *neighbours) lookAgain(addr netip.Addr) {
	if len(n.again) >= mostNeighboursAgain && !n.again[addr] {
		n.lose()
		return
	}
	n.again[addr] = true
}

// lose notes that any entry may have changed. It makes no witness silent:
// [Bridge.Settle] looks up the addresses that it is called for, and Run
// lists the others again.
func (n *neighbours) lose() {
	if !n.lost {
		n.lost = true
		n.wake()
	}
}

// stale reports whether memory may be wrong about a neighbour's entry.
func (n *neighbours) stale(addr netip.Addr) bool { return n.lost || n.more.Load() || n.again[addr] }

// isBehind reports whether the last settle left work for another one: news, or entries to be looked up.
// Where all are to be looked up, Run does that.
func (n *neighbours) isBehind() bool { return n.more.Load() || !n.lost && len(n.again) > 0 }

// receive takes in a message about an entry of the neighbour table, or of the forwarding table, and
// notes which neighbours are to be looked up again: the one of the message, or those with its MAC.
func (n *neighbours) receive(bridge int, body []byte) {
	if len(body) < unix.SizeofNdMsg {
		return
	}
	forwarding := body[0] == unix.AF_BRIDGE
	reachable := binary.NativeEndian.Uint16(body[8:])&unix.NUD_REACHABLE != 0
	if n.lost && (forwarding || !reachable) {
		return // all are to be looked up again; that one is reachable is noted below
	}
	e, err := rtnl.ParseEntry(body)
	switch {
	case err != nil:
		n.lose() // news that cannot be read is lost news
		n.recent.miss()
	case forwarding:
		for addr := range n.byMAC[e.MAC.String()] {
			n.lookAgain(addr)
		}
	case e.Index == bridge && rtnl.Assignable(e.Addr):
		n.lookAgain(e.Addr)
		if reachable { // it may be so no more when it is looked up
			n.recent.note(e.Addr)
		}
	}
}

// notice takes in that an address came to a namespace, or went, which decides what its entry proves.
func (n *neighbours) notice(addr netip.Addr) {
	if n.entries[addr] != nil {
		n.lookAgain(addr)
	}
}

// portGone has the entries looked up again whose MAC was last seen behind a port that is gone.
func (n *neighbours) portGone(index int) {
	for addr, e := range n.entries {
		if e.port == index {
			n.lookAgain(addr)
		}
	}
}

// settle looks up the entries that memory may be wrong about: those of
// some addresses, and a few of the others. What is left is Run's to do.
func (n *neighbours) settle(w wire, about []netip.Addr) {
	for _, addr := range about {
		if addr = addr.Unmap().WithZone(""); rtnl.Assignable(addr) && n.stale(addr) {
			n.read(w, addr)
		}
	}
	left := neighboursPerSettle
	for addr := range n.again {
		if n.lost || left == 0 {
			return
		}
		left--
		n.read(w, addr)
	}
}

// listNeighbours lists the addresses in a bridge's neighbour table.
func listNeighbours(k *rtnl.Socket, bridge *rtnl.Link) (map[netip.Addr]bool, error) {
	all := make(map[netip.Addr]bool)
	err := k.Neighbours(bridge.Index, func(e rtnl.Entry) {
		if rtnl.Assignable(e.Addr) {
			all[e.Addr] = true
		}
	})
	if err != nil {
		return nil, fmt.Errorf("list the neighbours of %s: %w", bridge.Name, err)
	}
	return all, nil
}

// compare adds to the listed neighbours those that memory has, drops the sightings
// of all others, and returns them all. Each is to be read.
func (n *neighbours) compare(all map[netip.Addr]bool) []netip.Addr {
	for addr := range n.entries {
		all[addr] = true
	}
	for addr := range n.again {
		all[addr] = true
	}
	n.keep(func(known string) bool {
		addr, err := netip.ParseAddr(known)
		return err == nil && all[addr]
	})
	return slices.Collect(maps.Keys(all))
}

// read looks an entry up again and posts what it proves.
func (n *neighbours) read(w wire, addr netip.Addr) {
	delete(n.again, addr)
	e, err := w.Neighbour(w.link.Index, addr)
	if err == nil && len(e.MAC) == 0 || rtnl.IsGone(err) {
		n.forgetMAC(addr)
		delete(n.entries, addr)
		n.drop(addr.String())
		return
	}
	var seen []census.Sighting
	if err == nil {
		seen, err = n.weigh(w, addr, e)
	}
	if err != nil {
		n.again[addr] = true
		n.fail(addr.String(), fmt.Errorf("look up neighbour %v: %w", addr, err))
		return
	}
	n.see(addr.String(), seen)
}

// weigh returns a sighting where an entry proves that a guest has the address now, else none.
//
// A REACHABLE one was confirmed within the last 45 s, so it does, unless the
// port that its MAC was behind is gone since. Any other is only a memory of a
// MAC: it counts while the bridge sees that MAC on a live port, unless the
// namespace there owns the MAC and does not have the address. Thus neither
// the entries of dead containers nor a foreign gratuitous ARP, which can turn
// a dead entry to a living MAC, are evidence.
func (n *neighbours) weigh(w wire, addr netip.Addr, e rtnl.Entry) ([]census.Sighting, error) {
	known := n.remember(addr, e.MAC.String())
	f, err := w.Forwarding(w.link.Index, w.link.VLAN, e.MAC)
	learned := err == nil && f.State&unix.NUD_REACHABLE != 0 // not aged, not set by hand
	if err != nil && !rtnl.IsGone(err) {
		return nil, err
	}
	if learned {
		known.port = f.Index
	}
	p := w.ports[known.port]
	proof := false
	switch {
	case e.State&unix.NUD_REACHABLE != 0:
		proof = known.port == 0 || p != nil
	case learned && p != nil && p.link.Carries():
		proof = !p.hasMACOnly(known.mac, addr)
	}
	if !proof {
		return nil, nil
	}
	s := census.Sighting{Addr: addr, Bridge: n.bridge, MAC: known.mac}
	if p != nil {
		s.Port, s.Note = n.portOf(w, addr, known.mac, p)
	}
	return []census.Sighting{s}, nil
}

// remember returns the entry of an address in memory. It is a new one where there was none with this MAC.
func (n *neighbours) remember(addr netip.Addr, mac string) *neighbour {
	if known := n.entries[addr]; known != nil && known.mac == mac {
		return known
	}
	n.forgetMAC(addr)
	known := &neighbour{mac: mac}
	n.entries[addr] = known
	if n.byMAC[mac] == nil {
		n.byMAC[mac] = make(map[netip.Addr]bool)
	}
	n.byMAC[mac][addr] = true
	return known
}

// forgetMAC takes an address out of those that its MAC is known for.
func (n *neighbours) forgetMAC(addr netip.Addr) {
	if known := n.entries[addr]; known != nil {
		delete(n.byMAC[known.mac], addr)
		if len(n.byMAC[known.mac]) == 0 {
			delete(n.byMAC, known.mac)
		}
	}
}
