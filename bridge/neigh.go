package bridge

import (
	"encoding/binary"
	"net"
	"net/netip"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// An entry is a row of the neighbour table, or of the bridge's forwarding
// table (FDB), where it says behind which port a MAC is.
type entry struct {
	index int        // link: the bridge, or in the FDB the port
	addr  netip.Addr // zero in the FDB
	mac   net.HardwareAddr
	state uint16 // NUD_*
}

func ndmsg(family uint8, index int) []byte {
	b := make([]byte, unix.SizeofNdMsg)
	b[0] = family
	binary.NativeEndian.PutUint32(b[4:], uint32(index))
	return b
}

func familyOf(a netip.Addr) uint8 {
	if a.Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}

// neighbours lists a link's neighbour table, both families.
func (r *rtnl) neighbours(index int, each func(entry)) error {
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		req, err := withAttributes(ndmsg(family, 0), func(ae *netlink.AttributeEncoder) {
			ae.Uint32(unix.NDA_IFINDEX, uint32(index))
		})
		if err != nil {
			return err
		}
		err = steady(func() error {
			return r.dump(unix.RTM_GETNEIGH, req, func(body []byte) error {
				e, err := parseEntry(body)
				if err == nil && e.index == index {
					each(e)
				}
				return err
			})
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// neighbour looks one entry up; one that is not there is ENOENT.
func (r *rtnl) neighbour(index int, addr netip.Addr) (entry, error) {
	return r.oneEntry(ndmsg(familyOf(addr), index), func(ae *netlink.AttributeEncoder) {
		ae.Bytes(unix.NDA_DST, addr.AsSlice())
	})
}

// forwarding looks a MAC up in a bridge's FDB; one that is not there is
// ENOENT. A lookup for each MAC that matters costs less than a dump, which
// walks the whole table once for each port.
func (r *rtnl) forwarding(bridge int, vlan uint16, mac net.HardwareAddr) (entry, error) {
	return r.oneEntry(ndmsg(unix.AF_BRIDGE, 0), func(ae *netlink.AttributeEncoder) {
		ae.Uint32(unix.NDA_MASTER, uint32(bridge))
		ae.Bytes(unix.NDA_LLADDR, mac)
		if vlan != 0 {
			ae.Uint16(unix.NDA_VLAN, vlan)
		}
	})
}

func (r *rtnl) oneEntry(fixed []byte, fill func(*netlink.AttributeEncoder)) (entry, error) {
	req, err := withAttributes(fixed, fill)
	if err != nil {
		return entry{}, err
	}
	var e entry
	err = r.get(unix.RTM_GETNEIGH, req, func(body []byte) (err error) {
		e, err = parseEntry(body)
		return err
	})
	return e, err
}

func parseEntry(body []byte) (entry, error) {
	var e entry
	err := attributes(body, unix.SizeofNdMsg, func(ad *netlink.AttributeDecoder) {
		switch ad.Type() {
		case unix.NDA_DST:
			e.addr, _ = netip.AddrFromSlice(ad.Bytes())
		case unix.NDA_LLADDR:
			e.mac = net.HardwareAddr(ad.Bytes())
		}
	})
	if err != nil {
		return e, err
	}
	e.index = int(int32(binary.NativeEndian.Uint32(body[4:])))
	e.state = binary.NativeEndian.Uint16(body[8:])
	return e, nil
}
