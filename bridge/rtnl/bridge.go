package rtnl

import (
	"encoding/binary"
	"net"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// AddBridge adds a bridge that is up and forwards at once; 0 is the kernel's own MTU.
func (r *Socket) AddBridge(name string, mac net.HardwareAddr, mtu int) error {
	req, err := withAttributes(ifinfo(0, unix.IFF_UP, unix.IFF_UP), func(ae *netlink.AttributeEncoder) {
		ae.String(unix.IFLA_IFNAME, name)
		ae.Bytes(unix.IFLA_ADDRESS, mac)
		if mtu != 0 {
			ae.Uint32(unix.IFLA_MTU, uint32(mtu))
		}
		bridgeInfo(ae, func(data *netlink.AttributeEncoder) {
			data.Uint32(unix.IFLA_BR_STP_STATE, 0)
			data.Uint32(unix.IFLA_BR_FORWARD_DELAY, 0)
		})
	})
	if err != nil {
		return err
	}
	return r.change(unix.RTM_NEWLINK, unix.NLM_F_CREATE|unix.NLM_F_EXCL, req)
}

// ForwardAtOnce turns a bridge's STP off and its forward delay to zero, which the
// kernel refuses while STP is on.
func (r *Socket) ForwardAtOnce(index int) error {
	for _, attr := range []uint16{unix.IFLA_BR_STP_STATE, unix.IFLA_BR_FORWARD_DELAY} {
		err := r.setLink(index, 0, func(ae *netlink.AttributeEncoder) {
			bridgeInfo(ae, func(data *netlink.AttributeEncoder) { data.Uint32(attr, 0) })
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (r *Socket) SetMAC(index int, mac net.HardwareAddr) error {
	return r.setLink(index, 0, func(ae *netlink.AttributeEncoder) { ae.Bytes(unix.IFLA_ADDRESS, mac) })
}

func (r *Socket) SetMTU(index, mtu int) error {
	return r.setLink(index, 0, func(ae *netlink.AttributeEncoder) { ae.Uint32(unix.IFLA_MTU, uint32(mtu)) })
}

func (r *Socket) SetUp(index int) error {
	return r.setLink(index, unix.IFF_UP, func(*netlink.AttributeEncoder) {})
}

// SetGroupForward sets which frames to 01-80-C2-00-00-00 to -0F, a bit for each, a bridge's
// port takes in as it does all others. The kernel hands the rest to the host's own stack by
// the port, and hooks of nftables see few of them.
func (r *Socket) SetGroupForward(index int, mask uint16) error {
	return r.setPort(index, func(data *netlink.AttributeEncoder) { data.Uint16(unix.IFLA_BRPORT_GROUP_FWD_MASK, mask) })
}

// Unlearn has a bridge forget which MACs it has learned to be at a port.
func (r *Socket) Unlearn(index int) error {
	return r.setPort(index, func(data *netlink.AttributeEncoder) { data.Flag(unix.IFLA_BRPORT_FLUSH, true) })
}

func (r *Socket) setPort(index int, fill func(*netlink.AttributeEncoder)) error {
	return r.setLink(index, 0, func(ae *netlink.AttributeEncoder) {
		ae.Nested(unix.IFLA_LINKINFO, func(info *netlink.AttributeEncoder) error {
			info.String(unix.IFLA_INFO_SLAVE_KIND, "bridge")
			info.Nested(unix.IFLA_INFO_SLAVE_DATA, func(data *netlink.AttributeEncoder) error {
				fill(data)
				return nil
			})
			return nil
		})
	})
}

// noGroupLearn (1 << BR_BOOLOPT_NO_LL_LEARN, not in x/sys/unix) is ip-link's no_linklocal_learn.
const noGroupLearn = 1 << 0

// SetNoGroupLearn has a bridge learn nothing from frames to 01-80-C2-00-00-00 to -0F. A kernel
// before Linux 5.0 does not know of it, and answers as if it did.
func (r *Socket) SetNoGroupLearn(index int) error {
	option := binary.NativeEndian.AppendUint32(nil, noGroupLearn)   // the values,
	option = binary.NativeEndian.AppendUint32(option, noGroupLearn) // and which of them are set
	return r.setLink(index, 0, func(ae *netlink.AttributeEncoder) {
		bridgeInfo(ae, func(data *netlink.AttributeEncoder) { data.Bytes(unix.IFLA_BR_MULTI_BOOLOPT, option) })
	})
}

func (r *Socket) setLink(index int, flags uint32, fill func(*netlink.AttributeEncoder)) error {
	req, err := withAttributes(ifinfo(index, flags, flags), fill)
	if err != nil {
		return err
	}
	return r.change(unix.RTM_NEWLINK, 0, req)
}

func bridgeInfo(ae *netlink.AttributeEncoder, fill func(*netlink.AttributeEncoder)) {
	ae.Nested(unix.IFLA_LINKINFO, func(info *netlink.AttributeEncoder) error {
		info.String(unix.IFLA_INFO_KIND, "bridge")
		info.Nested(unix.IFLA_INFO_DATA, func(data *netlink.AttributeEncoder) error {
			fill(data)
			return nil
		})
		return nil
	})
}
