package bridge

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"time"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/ipamd/ipamd/bridge/rtnl"
)

// The forwarding table says behind which port a MAC was heard last. A guest that
// answers with a busy neighbour's MAC has that neighbour's port named, for the next
// frame of the neighbour sets the table right. Where the namespace behind the port
// that is named has the MAC and not the address, the answer is asked for again and
// received at the ports themselves.

const (
	// ingressIdle is how long answers are received at the ports after the last
	// suspicion: the kernel shows each frame that comes in to the filter meanwhile.
	ingressIdle = time.Minute
	// ingressMost bounds what is remembered of those, and ingressAsks the questions
	// and ingressReads the answers of one drain, which everybody waits for.
	ingressMost, ingressAsks, ingressReads = 1024, 4, 64
	ingressWithin                          = 10 * time.Millisecond
	// ingressFirst is how many questions are asked when the socket is opened, and
	// ingressWait how long everybody waits for their answers: at most once each
	// ingressIdle.
	ingressFirst = 64
	ingressWait  = 50 * time.Millisecond
	// cameWithin is how long it says where an answer comes from that one like it came by
	// a port.
	cameWithin = time.Second
)

// An ingress receives answers as they come in by the ports.
type ingress struct {
	fd   int
	used time.Time
	came map[answerKey]arrival
}

// An arrival is by which port an answer came last, by index, and when that was read.
type arrival struct {
	port int
	at   time.Time
}

type answerKey struct {
	addr netip.Addr
	from mac
}

// openIngress opens a socket in the thread's namespace.
func openIngress() (*ingress, error) {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("open a socket on all ports: %w", err)
	}
	err = attach(fd, anyAnswer())
	if err == nil { // else each frame that is sent is copied for it
		err = unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1)
	}
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: networkOrder(unix.ETH_P_ALL)})
	}
	if err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("set up a socket on all ports: %w", err)
	}
	return &ingress{fd: fd, came: make(map[answerKey]arrival)}, nil
}

func (i *ingress) close() { _ = unix.Close(i.fd) }

// anyAnswer lets the answers of both protocols in, to whoever they are.
func anyAnswer() []bpf.Instruction {
	const icmp = etherLength + ipv6Length
	return []bpf.Instruction{
		bpf.LoadAbsolute{Off: 12, Size: 2},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.ETH_P_ARP, SkipTrue: 2},
		bpf.LoadAbsolute{Off: 20, Size: 2},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: arpReply, SkipTrue: 5, SkipFalse: 6},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.ETH_P_IPV6, SkipTrue: 5},
		bpf.LoadAbsolute{Off: etherLength + 6, Size: 1},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: icmpv6, SkipTrue: 3},
		bpf.LoadAbsolute{Off: icmp, Size: 1},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: neighbourAdvertisement, SkipTrue: 1},
		bpf.RetConstant{Val: snapLength},
		bpf.RetConstant{Val: 0},
	}
}

// read takes in the answers that are there now.
func (i *ingress) read(isPort func(index int) bool) {
	frame := make([]byte, snapLength)
	for range min(rtnl.Queued(i.fd), ingressReads) {
		n, from, err := unix.Recvfrom(i.fd, frame, 0)
		if err != nil {
			return
		}
		link, is := from.(*unix.SockaddrLinklayer)
		if !is || !isPort(link.Ifindex) || n < etherLength {
			continue
		}
		for _, p := range []protocol{arp(), ndp()} {
			if uint16(frame[12])<<8|uint16(frame[13]) != p.etherType {
				continue
			}
			if addr, _, ok := p.answer(frame[:n]); ok {
				if len(i.came) >= ingressMost {
					clear(i.came)
				}
				i.came[answerKey{addr, mac(frame[6:12])}] = arrival{link.Ifindex, time.Now()}
			}
		}
	}
}

// by is the port by which an answer came, by index; 0 when that is not known. Another
// answer says nothing about it, whatever its MAC is: anybody may send that.
func (i *ingress) by(addr netip.Addr, from mac) int {
	if a := i.came[answerKey{addr, from}]; time.Since(a.at) < cameWithin {
		return a.port
	}
	return 0
}

// unmask checks the port that the forwarding table names for an answer, where the
// namespace there has its MAC and not the address. came is the port that the answer
// came by, 0 when that is not known. asks is how many questions are left.
func (b *Bridge) unmask(addr netip.Addr, s said, named int, asks *int) (came int, checked bool) {
	p := b.ports[named]
	if p == nil || p.space == nil {
		return 0, false
	}
	if hasMAC, hasAddr := p.space.holds(s.from.String(), addr); !hasMAC || hasAddr {
		return 0, false
	}
	if b.ingress == nil {
		_ = b.place.do(func() (err error) { b.ingress, err = openIngress(); return err }) // without it the port is not known
		b.askAtPorts(addr)
	}
	if b.ingress == nil {
		return 0, true
	}
	b.ingress.used = time.Now()
	if b.ingress.by(addr, s.from) == 0 && *asks > 0 {
		*asks--
		b.askAtPort(addr)
		b.ingress.read(b.isPort)
	}
	if came = b.ingress.by(addr, s.from); !b.isPort(came) {
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
	asked := map[netip.Addr]mac{first: b.unplaced[first].from}
	b.askAtPort(first)
	for addr, s := range b.unplaced {
		if len(asked) == ingressFirst || time.Now().After(until) {
			break
		}
		if addr != first {
			asked[addr] = s.from
			b.askAtPort(addr)
		}
	}
	for len(asked) > 0 && time.Now().Before(until) {
		_, _ = unix.Poll([]unix.PollFd{{Fd: int32(b.ingress.fd), Events: unix.POLLIN}}, 1)
		b.ingress.read(b.isPort)
		maps.DeleteFunc(asked, func(addr netip.Addr, from mac) bool { return b.ingress.by(addr, from) != 0 })
	}
}

// askAtPort asks for an address; a question that is not sent has no answer.
func (b *Bridge) askAtPort(addr netip.Addr) {
	ctx, cancel := context.WithTimeout(context.Background(), ingressWithin)
	defer cancel()
	_ = b.probe.ask(ctx, addr)
}

func (b *Bridge) isPort(index int) bool { return b.ports[index] != nil }

// closeIngress closes the socket once nothing is suspected any more: without the
// lock, for the kernel waits until no frame is on its way to it.
func (b *Bridge) closeIngress() {
	b.mu.Lock()
	idle := b.ingress
	if idle == nil || time.Since(idle.used) < ingressIdle {
		b.mu.Unlock()
		return
	}
	b.ingress = nil
	b.mu.Unlock()
	idle.close()
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
	case !answers || h.from.String() != from || at == nil:
		return "", forged(p.link.Name)
	case at == p && h.proxied:
		return p.link.Name, "" // a proxy: it answers for what it does not have
	case at == p: // it had the address when it answered
		return "", forged(p.link.Name)
	default:
		return at.link.Name, forged(p.link.Name)
	}
}
