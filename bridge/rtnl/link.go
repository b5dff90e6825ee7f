package rtnl

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// A Link is what matters here of a network interface.
type Link struct {
	Index       int
	Name        string
	Kind        string // "bridge", "veth", ...; "" for hardware
	Flags       uint32
	MTU         int
	MAC         net.HardwareAddr
	Master      int    // index of the bridge it is a port of
	Peer        int    // index of the far end, in the namespace behind
	Promiscuity uint32 // how many want it to take up all frames
	Carrier     bool   // its other end is there: of a tap, a program has it open
	Fleeting    bool   // of a tap: it is there for as long as a program has it open
	Behind      int    // nsid of the namespace of the far end, or NoNetns, or Unassigned

	STP          bool
	ForwardDelay uint32 // in 1/100 s
	VLAN         uint16 // the VLAN of untagged frames on a bridge that filters; else 0
	GroupForward uint16 // of a bridge's port: see [Socket.SetGroupForward]
	NoGroupLearn bool   // of a bridge: see [Socket.SetNoGroupLearn]
}

const (
	NoNetns = -2 // the link has no far end in another namespace
	// Unassigned is the kernel's NETNSA_NSID_NOT_ASSIGNED: the namespace behind
	// is being taken down, or an id could not be had.
	Unassigned = -1
)

// IsOpenTap reports that a link is a tap that a machine has open, whether it is up or not. The machine may
// have its carrier off; of a tap that outlives its machine nothing else shows that it is open. One that is stacked on
// another link is taken for open while it is there: nothing shows that it is not.
func (l *Link) IsOpenTap() bool {
	return l.Kind == "tun" && (l.Carrier || l.Fleeting) || l.Kind == "macvtap" || l.Kind == "ipvtap"
}

// IsTap reports that what is behind a link is a machine, and not another link.
func (l *Link) IsTap() bool { return l.Kind == "tun" || l.Kind == "macvtap" || l.Kind == "ipvtap" }

// Same reports that all that matters of a link is as it was.
func (l *Link) Same(o *Link) bool {
	return l.Index == o.Index && l.Name == o.Name && l.Kind == o.Kind && l.Flags == o.Flags && l.MTU == o.MTU &&
		bytes.Equal(l.MAC, o.MAC) && l.Master == o.Master && l.Peer == o.Peer && l.Behind == o.Behind &&
		l.STP == o.STP && l.ForwardDelay == o.ForwardDelay && l.VLAN == o.VLAN && l.GroupForward == o.GroupForward && l.NoGroupLearn == o.NoGroupLearn
}

func (l *Link) Up() bool { return l.Flags&unix.IFF_UP != 0 }

// Carries reports whether frames can come in by this link.
func (l *Link) Carries() bool { return l.Up() && l.Flags&unix.IFF_LOWER_UP != 0 }

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

// Link looks a link up by its index, in the namespace that nsid names
// (NoNetns: the own one). A link that is not there is ENODEV.
func (r *Socket) Link(nsid, index int) (*Link, error) {
	return r.oneLink(ifinfo(index, 0, 0), func(ae *netlink.AttributeEncoder) {
		if nsid != NoNetns {
			ae.Int32(unix.IFLA_TARGET_NETNSID, int32(nsid))
		}
	})
}

func (r *Socket) LinkByName(name string) (*Link, error) {
	return r.oneLink(ifinfo(0, 0, 0), func(ae *netlink.AttributeEncoder) {
		ae.String(unix.IFLA_IFNAME, name)
	})
}

func (r *Socket) oneLink(fixed []byte, fill func(*netlink.AttributeEncoder)) (l *Link, err error) {
	req, err := withAttributes(fixed, func(ae *netlink.AttributeEncoder) {
		ae.Uint32(unix.IFLA_EXT_MASK, skipStats)
		fill(ae)
	})
	if err != nil {
		return nil, err
	}
	err = r.get(unix.RTM_GETLINK, req, func(body []byte) (err error) {
		l, err = ParseLink(body)
		return err
	})
	return l, err
}

// PortsOf lists the ports of a bridge.
func (r *Socket) PortsOf(bridge int, each func(*Link)) error {
	return r.eachLink(unix.IFLA_MASTER, bridge, func(l *Link) error {
		if l.Master == bridge {
			each(l)
		}
		return nil
	})
}

// Links lists all links of the namespace that nsid names (NoNetns: the own one).
func (r *Socket) Links(nsid int, each func(*Link) error) error {
	return r.eachLink(unix.IFLA_TARGET_NETNSID, nsid, each)
}

// eachLink lists the links that have a value of an attribute; NoNetns is any.
func (r *Socket) eachLink(attribute uint16, value int, each func(*Link) error) error {
	req, err := withAttributes(ifinfo(0, 0, 0), func(ae *netlink.AttributeEncoder) {
		ae.Uint32(unix.IFLA_EXT_MASK, skipStats)
		if value != NoNetns {
			ae.Int32(attribute, int32(value))
		}
	})
	if err != nil {
		return err
	}
	return r.dump(unix.RTM_GETLINK, req, func(body []byte) error {
		l, err := ParseLink(body)
		if err == nil {
			err = each(l)
		}
		return err
	})
}

// longestAttribute is how long an attribute can say that it is, in bytes. The kernel does not look
// whether the length of a link's LINKINFO fits: of one that is longer, its end is read as further
// attributes, and is what a guest likes: a macvlan's source MACs, a vlan's priorities. It could be the
// link's parent and that one's namespace, which the kernel writes behind LINKINFO, and swallow the
// kernel's own. The same holds for alternative names, which come last. The kernel writes no attribute twice.
const longestAttribute = 1<<16 - 1

// longInfo are the kinds of links of which LINKINFO can be longer than that.
var longInfo = map[string]bool{"macvlan": true, "macvtap": true, "vlan": true}

var (
	errTwice = errors.New("an attribute is there twice")
	errLong  = errors.New("it is too long for its kind")
)

// ParseLink reads the body of a message about a link. An error is ErrUnreadable.
func ParseLink(body []byte) (*Link, error) {
	l := &Link{Behind: NoNetns}
	var seen map[uint16]bool // its attributes, if one may be too long
	if len(body) > longestAttribute {
		seen = make(map[uint16]bool)
	}
	err := attributes(body, unix.SizeofIfInfomsg, func(ad *netlink.AttributeDecoder) {
		if seen[ad.Type()] {
			ad.Do(func([]byte) error { return errTwice })
			return
		}
		if seen != nil {
			seen[ad.Type()] = true
		}
		switch ad.Type() {
		case unix.IFLA_IFNAME:
			l.Name = ad.String()
		case unix.IFLA_MTU:
			l.MTU = int(ad.Uint32())
		case unix.IFLA_ADDRESS:
			l.MAC = net.HardwareAddr(ad.Bytes())
		case unix.IFLA_MASTER:
			l.Master = int(ad.Uint32())
		case unix.IFLA_CARRIER:
			l.Carrier = ad.Uint8() != 0
		case unix.IFLA_LINK:
			l.Peer = int(ad.Uint32())
		case unix.IFLA_PROMISCUITY:
			l.Promiscuity = ad.Uint32()
		case unix.IFLA_LINK_NETNSID:
			l.Behind = int(ad.Int32())
		case unix.IFLA_LINKINFO:
			ad.Nested(l.info)
		}
	})
	if err == nil && seen != nil && longInfo[l.Kind] {
		err = errLong
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnreadable, err)
	}
	l.Index = int(int32(binary.NativeEndian.Uint32(body[4:])))
	l.Flags = binary.NativeEndian.Uint32(body[8:])
	return l, nil
}

func (l *Link) info(ad *netlink.AttributeDecoder) error {
	var port bool
	for ad.Next() {
		switch ad.Type() {
		case unix.IFLA_INFO_KIND:
			l.Kind = ad.String()
		case unix.IFLA_INFO_DATA:
			switch l.Kind { // which comes first
			case "bridge":
				ad.Nested(l.bridgeData)
			case "tun":
				ad.Nested(l.tunData)
			}
		case unix.IFLA_INFO_SLAVE_KIND:
			port = ad.String() == "bridge"
		case unix.IFLA_INFO_SLAVE_DATA:
			if port { // the kind comes first
				ad.Nested(l.portData)
			}
		}
	}
	return nil
}

func (l *Link) tunData(ad *netlink.AttributeDecoder) error {
	for ad.Next() {
		if ad.Type() == unix.IFLA_TUN_PERSIST {
			l.Fleeting = ad.Uint8() == 0
		}
	}
	return nil
}

func (l *Link) portData(ad *netlink.AttributeDecoder) error {
	for ad.Next() {
		if ad.Type() == unix.IFLA_BRPORT_GROUP_FWD_MASK {
			l.GroupForward = ad.Uint16()
		}
	}
	return nil
}

func (l *Link) bridgeData(ad *netlink.AttributeDecoder) error {
	var filters bool
	var pvid uint16
	for ad.Next() {
		switch ad.Type() {
		case unix.IFLA_BR_STP_STATE:
			l.STP = ad.Uint32() != 0
		case unix.IFLA_BR_FORWARD_DELAY:
			l.ForwardDelay = ad.Uint32()
		case unix.IFLA_BR_VLAN_FILTERING:
			filters = ad.Uint8() != 0
		case unix.IFLA_BR_VLAN_DEFAULT_PVID:
			pvid = ad.Uint16()
		case unix.IFLA_BR_MULTI_BOOLOPT:
			if b := ad.Bytes(); len(b) >= 4 {
				l.NoGroupLearn = binary.NativeEndian.Uint32(b)&noGroupLearn != 0
			}
		}
	}
	if filters {
		l.VLAN = pvid
	}
	return nil
}

// PortNamed looks up the link of a name, if it is a port of the bridge.
func (r *Socket) PortNamed(bridge int, name string) (*Link, error) {
	if name == "" || len(name) >= unix.IFNAMSIZ { // no link can have such a name
		return nil, nil
	}
	l, err := r.LinkByName(name)
	if IsGone(err) || err == nil && l.Master != bridge {
		return nil, nil
	}
	return l, err
}
