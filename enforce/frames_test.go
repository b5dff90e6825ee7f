package enforce_test

import (
	"encoding/binary"
	"net"
	"net/netip"

	"github.com/ipamd/ipamd/internal/nstest"
)

var (
	everyone = net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	zero     = netip.IPv4Unspecified()
	zero6    = netip.IPv6Unspecified()
)

func arp(op byte, from, sender net.HardwareAddr, sip, tip netip.Addr) []byte {
	b := []byte{0, 1, 8, 0, 6, 4, 0, op}
	b = append(append(b, sender...), sip.AsSlice()...)
	b = append(append(b, make([]byte, 6)...), tip.AsSlice()...)
	return nstest.Frame(everyone, from, 0x0806, append(b, make([]byte, 18)...)...)
}

func ip4(from net.HardwareAddr, src, dst netip.Addr) []byte {
	b := []byte{0x45, 0, 0, 0, 0, 0, 0, 0, 64, 17, 0, 0}
	b = append(append(b, src.AsSlice()...), dst.AsSlice()...)
	b = append(b, 0, 68, 0, 67, 0, 8, 0, 0)
	binary.BigEndian.PutUint16(b[2:], uint16(len(b)))
	sum(b[:20], b[10:])
	return nstest.Frame(everyone, from, 0x0800, append(b, make([]byte, 26)...)...)
}

func sum(b, into []byte) {
	var s uint32
	for i := 0; i < len(b); i += 2 {
		s += uint32(b[i])<<8 | uint32(b[i+1])
	}
	for s>>16 != 0 {
		s = s&0xffff + s>>16
	}
	binary.BigEndian.PutUint16(into, ^uint16(s))
}

func ip6(from net.HardwareAddr, src, dst netip.Addr, next byte, body ...byte) []byte {
	b := []byte{0x60, 0, 0, 0, byte(len(body) >> 8), byte(len(body)), next, 255}
	b = append(append(b, src.AsSlice()...), dst.AsSlice()...)
	return nstest.Frame(everyone, from, 0x86dd, append(b, body...)...)
}

func udp6(from net.HardwareAddr, src, dst netip.Addr) []byte {
	return ip6(from, src, dst, 17, 0, 9, 0, 9, 0, 8, 0, 0)
}

// nd is a message of neighbour discovery with a target; hops put before it is an empty
// hop-by-hop header, behind which a kernel finds the message all the same.
func nd(from net.HardwareAddr, typ byte, src, target netip.Addr, hops bool) []byte {
	m := append([]byte{typ, 0, 0, 0, 0, 0, 0, 0}, target.AsSlice()...)
	if hops {
		return ip6(from, src, netip.MustParseAddr("ff02::1"), 0, append([]byte{58, 0, 1, 4, 0, 0, 0, 0}, m...)...)
	}
	return ip6(from, src, netip.MustParseAddr("ff02::1"), 58, m...)
}

// mld is a report of multicast groups, as it goes with the detection of duplicates.
func mld(from net.HardwareAddr) []byte {
	return ip6(from, zero6, netip.MustParseAddr("ff02::16"), 0, 58, 0, 5, 2, 0, 0, 1, 0, 143, 0, 0, 0, 0, 0, 0, 0)
}

// tagged puts a VLAN tag into a frame; one of id 0 is to a receiver as none.
func tagged(f []byte, typ uint16, id byte) []byte {
	out := append([]byte{}, f[:12]...)
	return append(append(out, byte(typ>>8), byte(typ), 0, id), f[12:]...)
}

// longer puts more data into a frame, and into the lengths that it states: a bridge may cut
// what is behind them.
func longer(f []byte, data string) []byte {
	out := append(append([]byte{}, f...), data...)
	switch binary.BigEndian.Uint16(out[12:]) {
	case 0x0800:
		binary.BigEndian.PutUint16(out[16:], uint16(len(out)-14))
		copy(out[24:], []byte{0, 0})
		sum(out[14:34], out[24:])
	case 0x86dd:
		binary.BigEndian.PutUint16(out[18:], uint16(len(out)-54))
	}
	return out
}

// untagged is a frame as a packet socket shows it: a VLAN tag is beside it.
func untagged(f []byte) []byte {
	if typ := binary.BigEndian.Uint16(f[12:]); typ != 0x8100 && typ != 0x88a8 {
		return f
	}
	return append(append([]byte{}, f[:12]...), f[16:]...)
}
