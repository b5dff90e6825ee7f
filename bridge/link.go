package bridge

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// A link is what matters here of a network interface.
type link struct {
	index       int
	name        string
	kind        string // "bridge", "veth", ...; "" for hardware
	flags       uint32
	mtu         int
	mac         net.HardwareAddr
	master      int    // index of the bridge it is a port of
	peer        int    // index of the far end, in the namespace behind
	promiscuity uint32 // how many want it to take up all frames
	behind      int    // nsid of the namespace of the far end, or noSpace, or unnamed

	stp          bool
	forwardDelay uint32 // in 1/100 s
	vlan         uint16 // the VLAN of untagged frames on a bridge that filters; else 0
}

const (
	noSpace = -2 // the link has no far end in another namespace
	// unnamed is the kernel's NETNSA_NSID_NOT_ASSIGNED: the namespace behind
	// is being taken down, or an id could not be had.
	unnamed = -1
)

// same reports that all that matters of a link is as it was.
func (l *link) same(o *link) bool {
	return l.index == o.index && l.name == o.name && l.kind == o.kind && l.flags == o.flags && l.mtu == o.mtu &&
		bytes.Equal(l.mac, o.mac) && l.master == o.master && l.peer == o.peer && l.behind == o.behind &&
		l.stp == o.stp && l.forwardDelay == o.forwardDelay && l.vlan == o.vlan
}

func (l *link) up() bool { return l.flags&unix.IFF_UP != 0 }

// carries reports whether frames can come in by this link.
func (l *link) carries() bool { return l.up() && l.flags&unix.IFF_LOWER_UP != 0 }

// skipStats (RTEXT_FILTER_SKIP_STATS) makes the kernel leave out counters that
// would be half of each answer.
const skipStats = 1 << 3

func ifinfo(index int, flags, change uint32) []byte {
	b := make([]byte, unix.SizeofIfInfomsg)
	binary.NativeEndian.PutUint32(b[4:], uint32(index))
	binary.NativeEndian.PutUint32(b[8:], flags)
	binary.NativeEndian.PutUint32(b[12:], change)
	return b
}

// link looks a link up by its index, in the namespace that nsid names
// (noSpace: the own one). A link that is not there is ENODEV.
func (r *rtnl) link(nsid, index int) (*link, error) {
	return r.oneLink(ifinfo(index, 0, 0), func(ae *netlink.AttributeEncoder) {
		if nsid != noSpace {
			ae.Int32(unix.IFLA_TARGET_NETNSID, int32(nsid))
		}
	})
}

func (r *rtnl) linkByName(name string) (*link, error) {
	return r.oneLink(ifinfo(0, 0, 0), func(ae *netlink.AttributeEncoder) {
		ae.String(unix.IFLA_IFNAME, name)
	})
}

func (r *rtnl) oneLink(fixed []byte, fill func(*netlink.AttributeEncoder)) (*link, error) {
	req, err := withAttributes(fixed, func(ae *netlink.AttributeEncoder) {
		ae.Uint32(unix.IFLA_EXT_MASK, skipStats)
		fill(ae)
	})
	if err != nil {
		return nil, err
	}
	var l *link
	err = r.get(unix.RTM_GETLINK, req, func(body []byte) (err error) {
		l, err = parseLink(body)
		return err
	})
	return l, err
}

// portsOf lists the ports of a bridge.
func (r *rtnl) portsOf(bridge int, each func(*link)) error {
	req, err := withAttributes(ifinfo(0, 0, 0), func(ae *netlink.AttributeEncoder) {
		ae.Uint32(unix.IFLA_EXT_MASK, skipStats)
		ae.Uint32(unix.IFLA_MASTER, uint32(bridge))
	})
	if err != nil {
		return err
	}
	return r.dump(unix.RTM_GETLINK, req, func(body []byte) error {
		l, err := parseLink(body)
		if err == nil && l.master == bridge {
			each(l)
		}
		return err
	})
}

// links lists all links of the namespace that nsid names (noSpace: the own one).
func (r *rtnl) links(nsid int, each func(*link) error) error {
	req, err := withAttributes(ifinfo(0, 0, 0), func(ae *netlink.AttributeEncoder) {
		ae.Uint32(unix.IFLA_EXT_MASK, skipStats)
		if nsid != noSpace {
			ae.Int32(unix.IFLA_TARGET_NETNSID, int32(nsid))
		}
	})
	if err != nil {
		return err
	}
	return r.dump(unix.RTM_GETLINK, req, func(body []byte) error {
		l, err := parseLink(body)
		if err == nil {
			err = each(l)
		}
		return err
	})
}

func parseLink(body []byte) (*link, error) {
	l := &link{behind: noSpace}
	err := attributes(body, unix.SizeofIfInfomsg, func(ad *netlink.AttributeDecoder) {
		switch ad.Type() {
		case unix.IFLA_IFNAME:
			l.name = ad.String()
		case unix.IFLA_MTU:
			l.mtu = int(ad.Uint32())
		case unix.IFLA_ADDRESS:
			l.mac = net.HardwareAddr(ad.Bytes())
		case unix.IFLA_MASTER:
			l.master = int(ad.Uint32())
		case unix.IFLA_LINK:
			l.peer = int(ad.Uint32())
		case unix.IFLA_PROMISCUITY:
			l.promiscuity = ad.Uint32()
		case unix.IFLA_LINK_NETNSID:
			l.behind = int(ad.Int32())
		case unix.IFLA_LINKINFO:
			ad.Nested(l.info)
		}
	})
	if err != nil {
		return nil, err
	}
	l.index = int(int32(binary.NativeEndian.Uint32(body[4:])))
	l.flags = binary.NativeEndian.Uint32(body[8:])
	return l, nil
}

func (l *link) info(ad *netlink.AttributeDecoder) error {
	for ad.Next() {
		switch ad.Type() {
		case unix.IFLA_INFO_KIND:
			l.kind = ad.String()
		case unix.IFLA_INFO_DATA:
			if l.kind == "bridge" { // the kind comes first
				ad.Nested(l.bridgeData)
			}
		}
	}
	return nil
}

func (l *link) bridgeData(ad *netlink.AttributeDecoder) error {
	var filters bool
	var pvid uint16
	for ad.Next() {
		switch ad.Type() {
		case unix.IFLA_BR_STP_STATE:
			l.stp = ad.Uint32() != 0
		case unix.IFLA_BR_FORWARD_DELAY:
			l.forwardDelay = ad.Uint32()
		case unix.IFLA_BR_VLAN_FILTERING:
			filters = ad.Uint8() != 0
		case unix.IFLA_BR_VLAN_DEFAULT_PVID:
			pvid = ad.Uint16()
		}
	}
	if filters {
		l.vlan = pvid
	}
	return nil
}

// netnsID asks for the id by which this namespace knows the one that fd is
// open on. No id is ErrNoNetnsID.
func (r *rtnl) netnsID(fd int) (int, error) { return r.spaceID(unix.NETNSA_FD, uint32(fd)) }

// netnsIDOf asks the same of the one that a process is in.
func (r *rtnl) netnsIDOf(pid uint32) (int, error) { return r.spaceID(unix.NETNSA_PID, pid) }

func (r *rtnl) spaceID(by uint16, value uint32) (int, error) {
	const sizeofRtgenmsg = 1
	fixed := make([]byte, (sizeofRtgenmsg+3)&^3) // family, padded
	req, err := withAttributes(fixed, func(ae *netlink.AttributeEncoder) {
		ae.Uint32(by, value)
	})
	if err != nil {
		return 0, err
	}
	id := unnamed
	err = r.get(unix.RTM_GETNSID, req, func(body []byte) error {
		return attributes(body, len(fixed), func(ad *netlink.AttributeDecoder) {
			if ad.Type() == unix.NETNSA_NSID {
				id = int(ad.Int32())
			}
		})
	})
	if err == nil && id < 0 {
		err = ErrNoNetnsID
	}
	return id, err
}

// spaceIDs lists the ids of all namespaces that this one knows.
func (r *rtnl) spaceIDs() (ids []int, err error) {
	const sizeofRtgenmsg = 1
	fixed := make([]byte, (sizeofRtgenmsg+3)&^3)
	err = steady(func() error {
		ids = ids[:0]
		return r.dump(unix.RTM_GETNSID, fixed, func(body []byte) error {
			return attributes(body, len(fixed), func(ad *netlink.AttributeDecoder) {
				if ad.Type() == unix.NETNSA_NSID {
					ids = append(ids, int(ad.Int32()))
				}
			})
		})
	})
	return ids, err
}

// nameSpace has the kernel give an id to the namespace that fd is open on.
func (r *rtnl) nameSpace(fd int) error {
	const sizeofRtgenmsg = 1
	req, err := withAttributes(make([]byte, (sizeofRtgenmsg+3)&^3), func(ae *netlink.AttributeEncoder) {
		ae.Int32(unix.NETNSA_NSID, unnamed)
		ae.Uint32(unix.NETNSA_FD, uint32(fd))
	})
	if err != nil {
		return err
	}
	return r.change(unix.RTM_NEWNSID, 0, req)
}

// hasSpace reports whether an id names a namespace that lives.
func (r *rtnl) hasSpace(id int) (bool, error) {
	const sizeofRtgenmsg = 1
	req, err := withAttributes(make([]byte, (sizeofRtgenmsg+3)&^3), func(ae *netlink.AttributeEncoder) {
		ae.Int32(unix.NETNSA_NSID, int32(id))
	})
	if err != nil {
		return false, err
	}
	err = r.get(unix.RTM_GETNSID, req, func([]byte) error { return nil })
	if errors.Is(err, unix.ENOENT) {
		return false, nil
	}
	return err == nil, err
}

// isGone reports that the kernel answered, and the answer was that the link,
// namespace or entry is not there.
func isGone(err error) bool {
	return errors.Is(err, unix.ENODEV) || errors.Is(err, unix.ENOENT)
}
