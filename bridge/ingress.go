package bridge

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"time"

	"github.com/ipamd/ipamd/bridge/probe"
)

// The forwarding table says behind which port a MAC was seen last. A guest that
// answers with a busy neighbour's MAC has that neighbour's port named, for the next
// frame of the neighbour sets the table right. Where the namespace behind the port
// that is named has the MAC and not the address, the answer is asked for again and
// received at the ports themselves.

const (
	// ingressIdle is how long answers are received at the ports after the last
	// suspicion: the kernel shows each frame that comes in to the filter meanwhile.
	ingressIdle = time.Minute
	// ingressAsks bounds the questions of one drain, which everybody waits for.
	ingressAsks   = 4
	ingressWithin = 10 * time.Millisecond
	// ingressFirst is how many questions are asked when the socket is opened, and
	// ingressWait how long everybody waits for their answers: at most once each
	// ingressIdle.
	ingressFirst = 64
	ingressWait  = 50 * time.Millisecond
)

// unmask checks the port that the forwarding table names for an answer, where the
// namespace there has its MAC and not the address. came is the port that the answer
// came by, 0 when that is not known. asks is how many questions are left.
func (b *Bridge) unmask(addr netip.Addr, s probe.Reply, named int, asks *int) (came int, checked bool) {
	p := b.ports[named]
	if p == nil || p.space == nil {
		return 0, false
	}
	if hasMAC, hasAddr := p.space.holds(s.From.String(), addr); !hasMAC || hasAddr {
		return 0, false
	}
	if b.ingress == nil {
		_ = b.place.do(func() (err error) { b.ingress, err = probe.OpenIngress(); return err }) // without it the port is not known
		b.askAtPorts(addr)
	}
	if b.ingress == nil {
		return 0, true
	}
	b.suspected = time.Now()
	if b.ingress.By(addr, s.From) == 0 && *asks > 0 {
		*asks--
		b.askAtPort(addr)
		b.ingress.Read(b.isPort)
	}
	if came = b.ingress.By(addr, s.From); !b.isPort(came) {
		came = 0
	}
	return came, true
}

// askAtPorts asks again for what was answered before the socket was opened: an
// address, and others that wait to be placed. Their answers are read when it returns,
// unless they take longer than everybody waits.
func (b *Bridge) askAtPorts(first netip.Addr) {
	if b.ingress == nil {
		return
	}
	until := time.Now().Add(ingressWait)
	asked := map[netip.Addr]probe.MAC{first: b.unplaced[first].From}
	b.askAtPort(first)
	for addr, s := range b.unplaced {
		if len(asked) == ingressFirst || time.Now().After(until) {
			break
		}
		if addr != first {
			asked[addr] = s.From
			b.askAtPort(addr)
		}
	}
	for len(asked) > 0 && time.Now().Before(until) {
		b.ingress.Await()
		b.ingress.Read(b.isPort)
		maps.DeleteFunc(asked, func(addr netip.Addr, from probe.MAC) bool { return b.ingress.By(addr, from) != 0 })
	}
}

// askAtPort asks for an address; a question that is not sent has no answer.
func (b *Bridge) askAtPort(addr netip.Addr) {
	ctx, cancel := context.WithTimeout(context.Background(), ingressWithin)
	defer cancel()
	_ = b.probe.Ask(ctx, addr)
}

func (b *Bridge) isPort(index int) bool { return b.ports[index] != nil }

// closeIngress closes the socket once nothing is suspected any more: without the
// lock, for the kernel waits until no frame is on its way to it.
func (b *Bridge) closeIngress() {
	b.mu.Lock()
	idle := b.ingress
	if idle == nil || time.Since(b.suspected) < ingressIdle {
		b.mu.Unlock()
		return
	}
	b.ingress = nil
	b.mu.Unlock()
	idle.Close()
}

// forged is what is said of an answer with the MAC of a namespace behind a port.
func forged(port string) string {
	return fmt.Sprintf("the MAC may be forged: it is that of the namespace behind %s, which does not have the address", port)
}

// whereHeard returns the port at which an entry of the neighbour table lives, which
// the forwarding table says is p, and what is to be said of it. Where the namespace
// there does not have the address, the answers to probes tell more.
func (b *Bridge) whereHeard(addr netip.Addr, from string, p *port) (port, note string) {
	if p.space == nil {
		return p.link.Name, ""
	}
	if hasMAC, hasAddr := p.space.holds(from, addr); !hasMAC || hasAddr {
		return p.link.Name, ""
	}
	h, answers := b.heard[addr]
	switch at := b.ports[h.port]; {
	case !answers || h.From.String() != from || at == nil:
		return "", forged(p.link.Name)
	case at == p && h.proxied:
		return p.link.Name, "" // a proxy: it answers for what it does not have
	case at == p: // it had the address when it answered
		return "", forged(p.link.Name)
	default:
		return at.link.Name, forged(p.link.Name)
	}
}
