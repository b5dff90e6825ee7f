// Package icmp6 has what several rooms need to send ICMPv6 on a link: the address that belongs to a
// MAC, and the checksum of a message.
package icmp6

import (
	"encoding/binary"
	"net"
	"net/netip"
)

// LinkLocal is the link-local address that an interface with that MAC gives itself (RFC 4291,
// appendix A). It is the zero address for what is no MAC of Ethernet.
func LinkLocal(mac net.HardwareAddr) netip.Addr {
	if len(mac) != 6 {
		return netip.Addr{}
	}
	return netip.AddrFrom16([16]byte{
		0xfe, 0x80, 0, 0, 0, 0, 0, 0,
		mac[0] ^ 0x02, mac[1], mac[2], 0xff, 0xfe, mac[3], mac[4], mac[5],
	})
}

// icmpv6 is the protocol's number (RFC 4443, section 1).
const icmpv6 = 58

// Checksum is ICMPv6's (RFC 4443, section 2.3), over the pseudo header and a message of even
// length whose own checksum is zero.
func Checksum(source, target [16]byte, message []byte) uint16 {
	sum := uint32(len(message)) + icmpv6
	for _, part := range [][]byte{source[:], target[:], message} {
		for i := 0; i < len(part); i += 2 {
			sum += uint32(binary.BigEndian.Uint16(part[i:]))
		}
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}
