package probe

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// A protocol is how one address family asks who has an address.
type protocol struct {
	name      string
	etherType uint16
	// filter lets answers in that are addressed to us, and nothing else, so
	// that the traffic of containers does not wake the daemon.
	filter []bpf.Instruction
	// answer reads out of a frame which address is at which MAC, as it says.
	answer func(frame []byte) (netip.Addr, net.HardwareAddr, bool)
}

// A wire is a packet socket on the bridge for one protocol.
type wire struct {
	protocol
	fd int
}

// snapLength is how much of a frame is kept, in bytes: a neighbour
// advertisement with its option has 86.
const snapLength = 128

// wireBuffer is the wanted receive buffer, in bytes, of which the kernel makes
// twice as much: the system's own holds some 270 answers, which a flooder sends
// in 4 ms, and those of others are lost with its.
const wireBuffer = 2 << 20

// openWire opens a socket in the thread's namespace. It receives nothing until
// it is bound: opened with its protocol, it would receive from all links at once.
func openWire(p protocol) (*wire, error) {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s socket: %w", p.name, err)
	}
	if err := attach(fd, p.filter); err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("filter %s socket: %w", p.name, err)
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, wireBuffer); err != nil {
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, wireBuffer) // what the system allows
	}
	return &wire{p, fd}, nil
}

func attach(fd int, filter []bpf.Instruction) error {
	raw, err := bpf.Assemble(filter)
	if err != nil {
		return err
	}
	prog := make([]unix.SockFilter, len(raw))
	for i, in := range raw {
		prog[i] = unix.SockFilter{Code: in.Op, Jt: in.Jt, Jf: in.Jf, K: in.K}
	}
	return unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER,
		&unix.SockFprog{Len: uint16(len(prog)), Filter: &prog[0]})
}

func (w *wire) bind(index int) error {
	return unix.Bind(w.fd, &unix.SockaddrLinklayer{Protocol: networkOrder(w.etherType), Ifindex: index})
}

func (w *wire) send(index int, frame []byte) error {
	for {
		err := unix.Sendto(w.fd, frame, unix.MSG_DONTWAIT,
			&unix.SockaddrLinklayer{Protocol: networkOrder(w.etherType), Ifindex: index})
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

func (w *wire) close() { _ = unix.Close(w.fd) }

// networkOrder returns the number whose bytes in memory are v's on the wire.
func networkOrder(v uint16) uint16 {
	return binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, v))
}

// matching builds a filter: frames to our own MAC whose fields have these
// values.
func matching(fields ...field) []bpf.Instruction {
	prog := []bpf.Instruction{bpf.LoadExtension{Num: bpf.ExtType}}
	rest := uint8(2*len(fields) + 1) // instructions from the next one to the refusal
	prog = append(prog, bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.PACKET_HOST, SkipTrue: rest})
	for _, f := range fields {
		rest -= 2
		prog = append(prog,
			bpf.LoadAbsolute{Off: f.offset, Size: f.size},
			bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: f.value, SkipTrue: rest})
	}
	return append(prog, bpf.RetConstant{Val: snapLength}, bpf.RetConstant{Val: 0})
}

// A field is a number in a frame, in network order.
type field struct {
	offset uint32
	size   int
	value  uint32
}
