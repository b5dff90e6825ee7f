package rtnl

import (
	"encoding/binary"
	"net"
	"net/netip"
	"slices"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// An Entry is a row of the neighbour table, or of the bridge's forwarding
// table (FDB), where it says behind which port a MAC is.
type Entry struct {
	Index int        // link: the bridge, or in the FDB the port
	Addr  netip.Addr // zero in the FDB
	MAC   net.HardwareAddr
	State uint16 // NUD_*
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

// Neighbours lists a link's neighbour table, both families.
func (r *Socket) Neighbours(index int, each func(Entry)) error {
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		req, err := withAttributes(ndmsg(family, 0), func(ae *netlink.AttributeEncoder) {
			ae.Uint32(unix.NDA_IFINDEX, uint32(index))
		})
		if err != nil {
			return err
		}
		err = Steady(func() error {
			return r.dump(unix.RTM_GETNEIGH, req, func(body []byte) error {
				e, err := ParseEntry(body)
				if err == nil && e.Index == index {
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

// Neighbour looks one entry up; one that is not there is ENOENT.
func (r *Socket) Neighbour(index int, addr netip.Addr) (Entry, error) {
	return r.oneEntry(ndmsg(familyOf(addr), index), func(ae *netlink.AttributeEncoder) {
		ae.Bytes(unix.NDA_DST, addr.AsSlice())
	})
}

// Forwarding looks a MAC up in a bridge's FDB; one that is not there is
// ENOENT. A lookup for each MAC that matters costs less than a dump, which
// walks the whole table once for each port.
func (r *Socket) Forwarding(bridge int, vlan uint16, mac net.HardwareAddr) (Entry, error) {
	return r.oneEntry(ndmsg(unix.AF_BRIDGE, 0), func(ae *netlink.AttributeEncoder) {
		ae.Uint32(unix.NDA_MASTER, uint32(bridge))
		ae.Bytes(unix.NDA_LLADDR, mac)
		if vlan != 0 {
			ae.Uint16(unix.NDA_VLAN, vlan)
		}
	})
}

func (r *Socket) oneEntry(fixed []byte, fill func(*netlink.AttributeEncoder)) (Entry, error) {
	req, err := withAttributes(fixed, fill)
	if err != nil {
		return Entry{}, err
	}
	var e Entry
	err = r.get(unix.RTM_GETNEIGH, req, func(body []byte) (err error) {
		e, err = ParseEntry(body)
		return err
	})
	return e, err
}

func ParseEntry(body []byte) (Entry, error) {
	var e Entry
	err := attributes(body, unix.SizeofNdMsg, func(ad *netlink.AttributeDecoder) {
		switch ad.Type() {
		case unix.NDA_DST:
			e.Addr, _ = netip.AddrFromSlice(ad.Bytes())
		case unix.NDA_LLADDR:
			e.MAC = net.HardwareAddr(ad.Bytes())
		}
	})
	if err != nil {
		return e, err
	}
	e.Index = int(int32(binary.NativeEndian.Uint32(body[4:])))
	e.State = binary.NativeEndian.Uint16(body[8:])
	return e, nil
}

// Listeners returns the MACs, but those that are known, for which a bridge takes frames
// up.
func (r *Socket) Listeners(bridge int, known map[string]bool) (hidden []net.HardwareAddr, err error) {
	err = Steady(func() error {
		hidden = hidden[:0]
		return r.dump(unix.RTM_GETNEIGH, ndmsg(unix.AF_BRIDGE, bridge), func(body []byte) error {
			e, err := ParseEntry(body)
			if err == nil && e.Index == bridge && body[10]&unix.NTF_SELF != 0 && len(e.MAC) == 6 && e.MAC[0]&1 == 0 && !known[e.MAC.String()] {
				hidden = append(hidden, slices.Clone(e.MAC))
			}
			return err
		})
	})
	return hidden, err
}

func (r *Socket) DeleteNeighbour(index int, addr netip.Addr) error {
	req, err := withAttributes(ndmsg(familyOf(addr), index), func(ae *netlink.AttributeEncoder) {
		ae.Bytes(unix.NDA_DST, addr.AsSlice())
	})
	if err != nil {
		return err
	}
	return r.change(unix.RTM_DELNEIGH, 0, req)
}
