package probe

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"golang.org/x/sync/semaphore"
	"golang.org/x/sys/unix"

	"github.com/ipamd/ipamd/bridge/rtnl"
)

// A Prober asks the wire who has an address, in both families.
type Prober struct {
	arp, ndp *wire

	sending *semaphore.Weighted // a broadcast costs about 1 µs a port inside send(2)
	index   int                 // of the bridge; 0 when there is none
	mac     net.HardwareAddr
	closed  bool

	questions questions
	latest    map[netip.Addr]Reply // of what read takes in
}

// Open opens both wires in the thread's namespace. They receive nothing
// until they are aimed.
func Open() (*Prober, error) {
	p := &Prober{sending: semaphore.NewWeighted(1), latest: make(map[netip.Addr]Reply)}
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

// Close waits for the question that is being sent.
func (p *Prober) Close() {
	_ = p.sending.Acquire(context.Background(), 1) // which never ends
	defer p.sending.Release(1)
	p.closed = true
	p.arp.close()
	p.ndp.close()
}

// Aim points the wires at a bridge; nil is none.
func (p *Prober) Aim(l *rtnl.Link) error {
	_ = p.sending.Acquire(context.Background(), 1) // which never ends
	defer p.sending.Release(1)
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

// Ask sends one question.
func (p *Prober) Ask(ctx context.Context, addr netip.Addr) error {
	p.questions.note(addr)
	if err := p.sending.Acquire(ctx, 1); err != nil {
		return err
	}
	defer p.sending.Release(1)
	switch {
	case p.closed:
		return rtnl.ErrClosed
	case p.index == 0:
		return ErrNoBridge
	}
	w := p.ndp
	if addr.Is4() {
		w = p.arp
	}
	return w.send(p.index, Question(p.mac, addr))
}

// Question is the frame by which a bridge with this MAC asks who has an address.
func Question(from net.HardwareAddr, addr netip.Addr) []byte {
	if addr.Is4() {
		return arpQuestion(from, addr)
	}
	return ndpQuestion(from, addr)
}

// Read takes in the answers that are there now; of several for one address the
// last counts. It costs a read and a look into a map for each: whatever else
// is to be done for an answer is done once for each address.
func (p *Prober) Read(take func(netip.Addr, Reply)) {
	frame := make([]byte, snapLength)
	for _, w := range []*wire{p.arp, p.ndp} {
		for range rtnl.Queued(w.fd) {
			n, err := unix.Read(w.fd, frame)
			if err != nil {
				// Nothing more; or the bridge went (ENETDOWN, reported once),
				// which the link's own news says, too.
				break
			}
			if addr, says, ok := w.answer(frame[:n]); ok && p.questions.recent(addr) {
				p.latest[addr] = Reply{MAC(frame[6:12]), MAC(says)}
			}
		}
		for addr, s := range p.latest {
			take(addr, s)
		}
		clear(p.latest)
	}
}

// Missed reports whether answers got lost since the last call because they
// were not read in time. Where it cannot be known that counts as a loss.
func (p *Prober) Missed() (lost bool) {
	for _, w := range []*wire{p.arp, p.ndp} {
		stats, err := unix.GetsockoptTpacketStats(w.fd, unix.SOL_PACKET, unix.PACKET_STATISTICS)
		lost = lost || err != nil || stats.Drops != 0
	}
	return lost
}

// ErrNoBridge means that there is no bridge to ask on.
var ErrNoBridge = errors.New("there is no bridge to ask on")

// Sockets are the descriptors that answers come by.
func (p *Prober) Sockets() []int { return []int{p.arp.fd, p.ndp.fd} }
