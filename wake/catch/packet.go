package catch

import (
	"encoding/binary"
	"errors"
	"net/netip"

	"github.com/ipamd/ipamd/netdb"
)

// A Packet is what is known of a packet that was copied.
type Packet struct {
	Source, Dest netip.Addr
	Protocol     netdb.Protocol
	Port         uint16 // the destination's; 0 of an echo request
}

var errMalformed = errors.New("malformed packet")

// parse reads the begin of an Ethernet frame.
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
		p.Source, p.Dest, proto = netip.AddrFrom16([16]byte(body[8:24])), netip.AddrFrom16([16]byte(body[24:40])), body[6]
		body = body[40:]
	default:
		return p, errMalformed
	}
	switch proto {
	case tcp, udp:
		if len(body) < 4 {
			return p, errMalformed
		}
		p.Protocol, p.Port = netdb.TCP, binary.BigEndian.Uint16(body[2:])
		if proto == udp {
			p.Protocol = netdb.UDP
		}
	case icmp4, icmp6:
		p.Protocol = netdb.ICMP
	default:
		return p, errMalformed
	}
	return p, nil
}
