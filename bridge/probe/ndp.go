package probe

import (
	"encoding/binary"
	"net"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/ipamd/ipamd/internal/icmp6"
)

const (
	ipv6Length = 40
	icmpv6     = 58

	neighbourSolicitation  = 135
	neighbourAdvertisement = 136
	solicited              = 0x40 // flag of an advertisement that answers
	sourceLinkLayer        = 1    // option
	targetLinkLayer        = 2    // option
)

// ndp asks by neighbour solicitation (RFC 4861, section 4.3) from the
// link-local address that belongs to the bridge's MAC, whether or not the
// bridge has it.
//
// It does not ask from the unspecified address, as duplicate address
// detection does (RFC 4862, section 5.4.2): a guest that is just taking the
// address would have to give it up (section 5.4.3), and the answer would go to
// all nodes, where it looks like any unasked announcement. Asked from a
// real address the owner answers to us alone and sets the solicited flag, and
// only such an answer counts.
func ndp() protocol {
	const icmp = etherLength + ipv6Length
	return protocol{
		name:      "neighbour discovery",
		etherType: unix.ETH_P_IPV6,
		filter: matching(
			field{etherLength + 6, 1, icmpv6},
			field{icmp, 1, neighbourAdvertisement},
		),
		answer: ndpAnswer,
	}
}

func ndpQuestion(from net.HardwareAddr, addr netip.Addr) []byte {
	target := addr.As16()
	// The solicited-node group of the target, and the MAC it maps to.
	group := netip.MustParseAddr("ff02::1:ff00:0").As16()
	copy(group[13:], target[13:])
	source := icmp6.LinkLocal(from).As16()

	message := []byte{neighbourSolicitation, 0, 0, 0, 0, 0, 0, 0}
	message = append(message, target[:]...)
	message = append(message, sourceLinkLayer, 1)
	message = append(message, from...)
	binary.BigEndian.PutUint16(message[2:], icmp6.Checksum(source, group, message))

	f := make([]byte, 0, etherLength+ipv6Length+len(message))
	f = append(f, 0x33, 0x33, group[12], group[13], group[14], group[15])
	f = append(f, from...)
	f = binary.BigEndian.AppendUint16(f, unix.ETH_P_IPV6)
	f = append(f, 6<<4, 0, 0, 0)
	f = binary.BigEndian.AppendUint16(f, uint16(len(message)))
	f = append(f, icmpv6, 255) // the hop limit proves that no router passed it on
	f = append(f, source[:]...)
	f = append(f, group[:]...)
	return append(f, message...)
}

// ndpAnswer reads an advertisement, for nothing else comes through the filter,
// if it is an answer and no router passed it on. The MAC is that of its target
// link-layer option (RFC 4861, section 4.4); without one, the frame's.
func ndpAnswer(f []byte) (netip.Addr, net.HardwareAddr, bool) {
	const icmp = etherLength + ipv6Length
	if len(f) < icmp+24 || f[etherLength+7] != 255 || f[icmp+4]&solicited == 0 {
		return netip.Addr{}, nil, false
	}
	mac := f[6:12]
	if option := f[icmp+24:]; len(option) >= 8 && option[0] == targetLinkLayer && option[1] == 1 {
		mac = option[2:8]
	}
	return netip.AddrFrom16([16]byte(f[icmp+8 : icmp+24])), net.HardwareAddr(append([]byte(nil), mac...)), true
}
