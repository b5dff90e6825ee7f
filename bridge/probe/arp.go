package probe

import (
	"encoding/binary"
	"net"
	"net/netip"

	"golang.org/x/sys/unix"
)

const (
	etherLength = 14
	arpLength   = etherLength + 28
	arpRequest  = 1
	arpReply    = 2
)

// arpReplyHeader is how each reply begins: the types of hardware and protocol, the
// lengths of their addresses, and the operation.
var arpReplyHeader = [8]byte{0, 1, unix.ETH_P_IP >> 8, unix.ETH_P_IP & 0xff, 6, 4, 0, arpReply}

// arp asks by ARP probe (RFC 5227, section 2.1.1): the sender's IP is
// 0.0.0.0, so no receiver of the question learns a wrong owner from it.
//
// Only a reply that is addressed to us counts. A gratuitous ARP is a
// broadcast, and any guest may send one.
func arp() protocol {
	return protocol{
		name:      "ARP",
		etherType: unix.ETH_P_ARP,
		filter:    matching(field{20, 2, arpReply}),
		answer:    arpAnswer,
	}
}

func arpQuestion(from net.HardwareAddr, addr netip.Addr) []byte {
	f := make([]byte, 0, arpLength)
	f = append(f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff)
	f = append(f, from...)
	f = binary.BigEndian.AppendUint16(f, unix.ETH_P_ARP)
	f = binary.BigEndian.AppendUint16(f, 1) // Ethernet
	f = binary.BigEndian.AppendUint16(f, unix.ETH_P_IP)
	f = append(f, 6, 4)
	f = binary.BigEndian.AppendUint16(f, arpRequest)
	f = append(f, from...)
	f = append(f, 0, 0, 0, 0)
	f = append(f, 0, 0, 0, 0, 0, 0)
	return append(f, addr.AsSlice()...)
}

// arpAnswer reads a reply for IPv4 over Ethernet (RFC 826). Whatever else has the
// operation of a reply is none: of other types or lengths of addresses, the
// addresses are elsewhere. The MAC is the sender hardware address of the payload.
func arpAnswer(f []byte) (netip.Addr, net.HardwareAddr, bool) {
	if len(f) < arpLength || [8]byte(f[etherLength:]) != arpReplyHeader || binary.BigEndian.Uint16(f[12:]) != unix.ETH_P_ARP {
		return netip.Addr{}, nil, false
	}
	return netip.AddrFrom4([4]byte(f[28:32])), net.HardwareAddr(append([]byte(nil), f[22:28]...)), true
}
