package catch

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"github.com/ipamd/ipamd/ipam"
)

// A Packet is what is known of a packet that was copied.
type Packet struct {
	Source, Dest netip.Addr
	Protocol     ipam.Protocol // "" where the copy ends before it
	Port         uint16        // the destination's; 0 of an echo request, and where the copy ends before it
}

var (
	errMalformed = errors.New("malformed packet")
	errShort     = fmt.Errorf("%w: it ends within a header", errMalformed)
)

// parse reads the begin of an Ethernet frame. Of one that is longer than what is copied, the
// extension headers of IPv6 may hide the port: the kernel has read them whole.
func parse(frame []byte) (p Packet, err error) {
	if len(frame) < 14 {
		return p, errMalformed
	}
	body := frame[14:]
	var proto byte
	switch binary.BigEndian.Uint16(frame[12:]) {
	case 0x0800:
		if len(body) < 20 || body[0]>>4 != 4 || int(body[0]&15)*4 < 20 || len(body) < int(body[0]&15)*4 {
			return p, errMalformed
		}
		p.Source, p.Dest, proto = netip.AddrFrom4([4]byte(body[12:16])), netip.AddrFrom4([4]byte(body[16:20])), body[9]
		body = body[int(body[0]&15)*4:]
	case 0x86dd:
		if len(body) < 40 || body[0]>>4 != 6 {
			return p, errMalformed
		}
		p.Source, p.Dest = netip.AddrFrom16([16]byte(body[8:24])), netip.AddrFrom16([16]byte(body[24:40]))
		proto, body, err = behindHeaders(body[6], body[40:])
		if errors.Is(err, errShort) && len(frame) >= snap {
			return p, nil
		}
		if err != nil {
			return p, err
		}
	default:
		return p, errMalformed
	}
	switch proto {
	case tcp, udp:
		p.Protocol = ipam.TCP
		if proto == udp {
			p.Protocol = ipam.UDP
		}
		switch {
		case len(body) >= 4:
			p.Port = binary.BigEndian.Uint16(body[2:])
		case len(frame) < snap:
			return p, errMalformed
		}
	case icmp4, icmp6:
		p.Protocol = ipam.ICMP
	default:
		return p, errMalformed
	}
	return p, nil
}

// Extension headers of IPv6 (RFC 8200, section 4) that stand before what is transported.
const (
	hopByHop    = byte(0)
	routing     = byte(43)
	fragment    = byte(44)
	destination = byte(60)
)

// behindHeaders returns what stands behind the extension headers of an IPv6 packet. Each has the
// next one's number in its first byte, and in its second one its length in units of eight bytes
// beyond the first eight; a fragment's is always eight.
func behindHeaders(proto byte, body []byte) (byte, []byte, error) {
	for proto == hopByHop || proto == routing || proto == fragment || proto == destination {
		if len(body) < 8 {
			return 0, nil, errShort
		}
		length := 8
		if proto != fragment {
			length += int(body[1]) * 8
		} else if binary.BigEndian.Uint16(body[2:])&^7 != 0 {
			return 0, nil, errMalformed // not the first one: it has no ports
		}
		if len(body) < length {
			return 0, nil, errShort
		}
		proto, body = body[0], body[length:]
	}
	return proto, body, nil
}
