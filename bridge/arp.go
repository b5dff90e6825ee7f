package bridge

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

// arp asks by ARP probe (RFC 5227, section 2.1.1): the sender's IP is
// 0.0.0.0, so nobody who hears the question learns a wrong owner from it.
//
// Only a reply that is addressed to us counts. A gratuitous ARP is a
// broadcast, and anybody may shout.
func arp() protocol {
	return protocol{
		name:      "ARP",
		etherType: unix.ETH_P_ARP,
		filter:    matching(field{20, 2, arpReply}),
		ask:       arpQuestion,
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

// arpAnswer reads a reply, for nothing else comes through the filter. The MAC
// is the sender hardware address of its payload (RFC 826).
func arpAnswer(f []byte) (netip.Addr, net.HardwareAddr, bool) {
	if len(f) < arpLength {
		return netip.Addr{}, nil, false
	}
	return netip.AddrFrom4([4]byte(f[28:32])), net.HardwareAddr(append([]byte(nil), f[22:28]...)), true
}
