package bridge

import (
	"fmt"
	"maps"
	"net/netip"
	"time"

	"github.com/ipamd/ipamd/bridge/probe"
)

// The forwarding table says behind which port a MAC was seen last. A guest that
// answers with a busy neighbour's MAC has that neighbour's port named, for the next
// frame of the neighbour sets the table right. Where the namespace behind the port
// that is named has the MAC and not the address, the address is probed again, and the answer received at the ports themselves.

const (
	// ingressIdle is how long answers are received at the ports after the last
	// suspicion: the kernel shows each frame that comes in to the filter meanwhile.
	ingressIdle = time.Minute
	// ingressAsks bounds the questions of one drain, which holds the lock.
	ingressAsks   = 4
	ingressWithin = 10 * time.Millisecond
	// ingressFirst is how many questions are asked when the socket is opened, and
	// ingressWait how long their answers are waited for, with the lock held: at most
	// once each ingressIdle.
	ingressFirst = 64
	ingressWait  = 50 * time.Millisecond
)

// unmask checks the port that the forwarding table names for an answer, where the
// namespace there has its MAC and not the address. came is the port that the answer
// came by, 0 when that is not known. asks is how many questions are left.
func (a *answers) unmask(w wire, addr netip.Addr, s probe.Reply, named int, asks *int) (came int, checked bool) {
	p := w.ports[named]
	if p == nil || !p.hasMACOnly(s.From.String(), addr) {
		return 0, false
	}
	if a.ingress == nil {
		if a.ingress, _ = a.listen(); a.ingress == nil { // without it the port is not known
			return 0, true
		}
		a.askAtPorts(w, addr)
	}
	a.suspected = time.Now()
	if a.ingress.By(addr, s.From) == 0 && *asks > 0 {
		*asks--
		a.ask(addr)
		a.ingress.Read(w.isPort)
	}
	if came = a.ingress.By(addr, s.From); !w.isPort(came) {
		came = 0
	}
	return came, true
}

// askAtPorts asks again for what was answered before the socket was opened: an
// address, and others that wait to be located. Their answers are read when it returns,
// unless they take too long.
func (a *answers) askAtPorts(w wire, first netip.Addr) {
	until := time.Now().Add(ingressWait)
	open := map[netip.Addr]probe.MAC{first: a.unlocated[first].From}
	a.ask(first)
	for addr, s := range a.unlocated {
		if len(open) == ingressFirst || time.Now().After(until) {
			break
		}
		if addr != first {
			open[addr] = s.From
			a.ask(addr)
		}
	}
	for len(open) > 0 && time.Now().Before(until) {
		a.ingress.Await()
		a.ingress.Read(w.isPort)
		maps.DeleteFunc(open, func(addr netip.Addr, from probe.MAC) bool { return a.ingress.By(addr, from) != 0 })
	}
}

// idleIngress takes the socket away once nothing is suspected any more; nil before. It is
// closed without the lock, for the kernel waits until no frame is on its way to it.
func (a *answers) idleIngress() *probe.Ingress {
	if a.ingress == nil || time.Since(a.suspected) < ingressIdle {
		return nil
	}
	idle := a.ingress
	a.ingress = nil
	return idle
}

// forged is what is said of an answer with the MAC of a namespace behind a port.
func forged(port string) string {
	return fmt.Sprintf("the MAC may be forged: it is that of the namespace behind %s, which does not have the address", port)
}

// portOf returns the port at which an entry of the neighbour table lives, which
// the forwarding table says is p, and what is to be said of it. Where the namespace
// there does not have the address, the answers to probes show more.
func (a *answers) portOf(w wire, addr netip.Addr, from string, p *port) (port, note string) {
	if !p.hasMACOnly(from, addr) {
		return p.link.Name, ""
	}
	h, answered := a.known[addr]
	switch at := w.ports[h.port]; {
	case !answered || h.From.String() != from || at == nil:
		return "", forged(p.link.Name)
	case at == p && h.proxied:
		return p.link.Name, "" // a proxy: it answers for what it does not have
	case at == p: // it had the address when it answered
		return "", forged(p.link.Name)
	default:
		return at.link.Name, forged(p.link.Name)
	}
}
