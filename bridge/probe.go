package bridge

import (
	"fmt"
	"net"
	"net/netip"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/ipamd/ipamd/census"
)

// A prober asks the wire who has an address, in both families.
type prober struct {
	arp, ndp *wire

	sending sync.Mutex // a broadcast costs about 1 µs a port inside send(2)
	index   int        // of the bridge; 0 when there is none
	mac     net.HardwareAddr
	closed  bool

	asked questions
}

// openProber opens both wires in the thread's namespace. They hear nothing
// until they are aimed.
func openProber() (*prober, error) {
	p := new(prober)
	var err error
	if p.arp, err = openWire(arp()); err != nil {
		return nil, err
	}
	if p.ndp, err = openWire(ndp()); err != nil {
		p.arp.close()
		return nil, err
	}
	return p, nil
}

func (p *prober) close() {
	p.sending.Lock()
	defer p.sending.Unlock()
	p.closed = true
	p.arp.close()
	p.ndp.close()
}

// aim points the wires at a bridge; nil is none.
func (p *prober) aim(l *link) error {
	p.sending.Lock()
	defer p.sending.Unlock()
	if l == nil || l.kind != "bridge" {
		p.index = 0
		return nil
	}
	p.mac = l.mac
	if p.index == l.index {
		return nil
	}
	for _, w := range []*wire{p.arp, p.ndp} {
		if err := w.bind(l.index); err != nil {
			p.index = 0
			return fmt.Errorf("bind %s socket to %s: %w", w.name, l.name, err)
		}
	}
	p.index = l.index
	return nil
}

// ask sends one question.
func (p *prober) ask(addr netip.Addr) error {
	p.asked.note(addr)
	p.sending.Lock()
	defer p.sending.Unlock()
	switch {
	case p.closed:
		return ErrClosed
	case p.index == 0:
		return ErrNotReady
	}
	w := p.ndp
	if addr.Is4() {
		w = p.arp
	}
	return w.send(p.index, w.ask(p.mac, addr))
}

// read takes in the answers that are there now.
func (p *prober) read(take func(netip.Addr, net.HardwareAddr)) {
	frame := make([]byte, snapLength)
	for _, w := range []*wire{p.arp, p.ndp} {
		for {
			n, err := unix.Read(w.fd, frame)
			if err != nil {
				// Nothing more; or the bridge went (ENETDOWN, told once),
				// which the link's own news tells, too.
				break
			}
			if addr, mac, ok := w.answer(frame[:n]); ok && p.asked.recent(addr) {
				take(addr, mac)
			}
		}
	}
}

// Probe sends one ARP probe (RFC 5227, section 2.1.1) or neighbour
// solicitation (RFC 4861, section 4.3) for addr, and does not wait. An answer
// lands on the board with the next [Bridge.Settle], or by itself while
// [Bridge.Run] runs; one from a container on this host is there when Probe
// returns. The frame never claims the address. On a bridge without carrier,
// which is one without a live port, it reaches nobody and is no error.
func (b *Bridge) Probe(addr netip.Addr) error {
	addr = addr.Unmap().WithZone("")
	if !counts(addr) {
		return fmt.Errorf("probe %v: not an address that a neighbour can have", addr)
	}
	var p *prober
	err := b.locked(func() error { p = b.probe; return nil })
	if err == nil {
		err = p.ask(addr) // without the lock: it takes a while on many ports
	}
	if err != nil {
		return fmt.Errorf("probe %v: %w", addr, err)
	}
	return nil
}

// ClearProbe takes the answers for addr off the board: it was asked again,
// and nobody spoke.
func (b *Bridge) ClearProbe(addr netip.Addr) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.answers.drop(addr.Unmap().WithZone("").String())
}

// answered posts an answer, with the port that it came by.
func (b *Bridge) answered(addr netip.Addr, mac net.HardwareAddr) {
	s := census.Sighting{Addr: addr, Bridge: b.cfg.Name, MAC: mac.String()}
	if b.link != nil {
		if f, err := b.kernel.forwarding(b.link.index, b.link.vlan, mac); err == nil && b.ports[f.index] != nil {
			s.Port = b.ports[f.index].link.name
		}
	}
	b.answers.see(addr.String(), []census.Sighting{s})
}

// dropAnswersBy takes the answers that came by a port off the board: the port
// is gone, and who answered with it.
func (b *Bridge) dropAnswersBy(port string) {
	for scope, seen := range b.answers.scopes {
		if seen[0].Port == port {
			b.answers.drop(scope)
		}
	}
}
