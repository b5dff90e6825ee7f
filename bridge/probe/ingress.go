package probe

import (
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/ipamd/ipamd/bridge/rtnl"
)

// An Ingress receives answers as they come in by the ports.
type Ingress struct {
	fd   int
	came map[answerKey]arrival
}

// An arrival is by which port an answer came last, by index, and when that was read.
type arrival struct {
	port int
	at   time.Time
}

type answerKey struct {
	addr netip.Addr
	from MAC
}

const (
	// ingressMost bounds what is remembered, and ingressReads the answers of one read,
	// which is made with the bridge's lock held.
	ingressMost, ingressReads = 1024, 64
	// cameWithin is how long it says where an answer comes from that one like it came by
	// a port.
	cameWithin = time.Second
)

// OpenIngress opens a socket in the thread's namespace.
func OpenIngress() (*Ingress, error) {
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
	return &Ingress{fd: fd, came: make(map[answerKey]arrival)}, nil
}

func (i *Ingress) Close() { _ = unix.Close(i.fd) }

// anyAnswer lets the answers of both protocols in, whatever their destination.
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

// Read takes in the answers that are there now.
func (i *Ingress) Read(isPort func(index int) bool) {
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
				i.came[answerKey{addr, MAC(frame[6:12])}] = arrival{link.Ifindex, time.Now()}
			}
		}
	}
}

// By is the port by which an answer came, by index; 0 when that is not known. Another
// answer says nothing about it, whatever its MAC is: any guest may send that.
func (i *Ingress) By(addr netip.Addr, from MAC) int {
	if a := i.came[answerKey{addr, from}]; time.Since(a.at) < cameWithin {
		return a.port
	}
	return 0
}

// Await waits for an answer, a millisecond at most.
func (i *Ingress) Await() {
	_, _ = unix.Poll([]unix.PollFd{{Fd: int32(i.fd), Events: unix.POLLIN}}, 1)
}
