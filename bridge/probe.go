package bridge

import (
	"context"
	"fmt"
	"net"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/ipamd/ipamd/bridge/rtnl"
)

// A prober asks the wire who has an address, in both families.
type prober struct {
	arp, ndp *wire

	sending fairMutex // a broadcast costs about 1 µs a port inside send(2)
	index   int       // of the bridge; 0 when there is none
	mac     net.HardwareAddr
	closed  bool

	asked  questions
	latest map[netip.Addr]said // of what read takes in
}

// openProber opens both wires in the thread's namespace. They hear nothing
// until they are aimed.
func openProber() (*prober, error) {
	p := &prober{sending: newFairMutex(), latest: make(map[netip.Addr]said)}
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
func (p *prober) aim(l *rtnl.Link) error {
	p.sending.Lock()
	defer p.sending.Unlock()
	if l == nil || l.Kind != "bridge" {
		p.index = 0
		return nil
	}
	p.mac = l.MAC
	if p.index == l.Index {
		return nil
	}
	for _, w := range []*wire{p.arp, p.ndp} {
		if err := w.bind(l.Index); err != nil {
			p.index = 0
			return fmt.Errorf("bind %s socket to %s: %w", w.name, l.Name, err)
		}
	}
	p.index = l.Index
	return nil
}

// ask sends one question.
func (p *prober) ask(ctx context.Context, addr netip.Addr) error {
	p.asked.note(addr)
	if err := p.sending.LockContext(ctx); err != nil {
		return err
	}
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

// read takes in the answers that are there now; of several for one address the
// last is told. It costs a read and a look into a map for each: whatever else
// is to be done for an answer is done once for each address.
func (p *prober) read(take func(netip.Addr, said)) {
	frame := make([]byte, snapLength)
	for _, w := range []*wire{p.arp, p.ndp} {
		for range rtnl.Queued(w.fd) {
			n, err := unix.Read(w.fd, frame)
			if err != nil {
				// Nothing more; or the bridge went (ENETDOWN, told once),
				// which the link's own news tells, too.
				break
			}
			if addr, says, ok := w.answer(frame[:n]); ok && p.asked.recent(addr) {
				p.latest[addr] = said{mac(frame[6:12]), mac(says)}
			}
		}
		for addr, s := range p.latest {
			take(addr, s)
		}
		clear(p.latest)
	}
}

// missed reports whether answers got lost since the last call because they
// were not read in time. That it cannot be told counts as a loss.
func (p *prober) missed() (lost bool) {
	for _, w := range []*wire{p.arp, p.ndp} {
		stats, err := unix.GetsockoptTpacketStats(w.fd, unix.SOL_PACKET, unix.PACKET_STATISTICS)
		lost = lost || err != nil || stats.Drops != 0
	}
	return lost
}

// Probe sends one ARP probe (RFC 5227, section 2.1.1) or neighbour
// solicitation (RFC 4861, section 4.3) for addr, and does not wait. An answer
// lands on the board with the next [Bridge.Settle], or by itself while
// [Bridge.Run] runs; one from a container on this host is there when Probe
// returns. The frame never claims the address. On a bridge without carrier,
// which is one without a live port, it reaches nobody and is no error.
//
// An address that answered before stays seen until it kept silent for
// Config.ProbeWindow after a question that surely reached it, or until its
// port or the bridge goes. A probe that could not be sent changes nothing.
func (b *Bridge) Probe(ctx context.Context, addr netip.Addr) error {
	addr = addr.Unmap().WithZone("")
	if !rtnl.Assignable(addr) {
		return fmt.Errorf("probe %v: not an address that a neighbour can have", addr)
	}
	var p *prober
	doubted := false
	err := b.locked(ctx, func() error {
		p = b.probe
		doubted = b.doubt(addr) // before: a local answer may be read before ask returns
		return nil
	})
	if err == nil {
		err = p.ask(ctx, addr) // without the lock: it takes a while on many ports
	}
	if doubted && b.mu.LockContext(ctx) == nil { // else it has no date, until the next question
		b.doubtSince(addr, err == nil)
		b.mu.Unlock()
	}
	if err != nil {
		return fmt.Errorf("probe %v: %w", addr, err)
	}
	return nil
}
