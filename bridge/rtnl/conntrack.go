package rtnl

import (
	"encoding/binary"
	"errors"
	"net/netip"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// What linux/netfilter/nfnetlink_conntrack.h and nfnetlink.h say.
const (
	sizeofNfgenmsg = 4

	conntrackGet    = unix.NFNL_SUBSYS_CTNETLINK<<8 | 1
	conntrackDelete = unix.NFNL_SUBSYS_CTNETLINK<<8 | 2
	conntrackStats  = unix.NFNL_SUBSYS_CTNETLINK<<8 | 5

	ctaStatsGlobalEntries = 1

	ctaTupleOrig  = 1
	ctaTupleReply = 2
	ctaID         = 12
	ctaZone       = 18
	ctaTupleIP    = 1
)

// A connection is a tracked one, with what it takes to name it.
type connection struct {
	family byte
	tuple  []byte // of the original direction, as the kernel wrote it
	zone   []byte // nil for zone 0
	ID     []byte // distinguishes it from a later one with the same ends
	Ends   []netip.Addr
}

// Connections lists the tracked connections that have an address that of names at
// an end, as the kernel sees either direction: network address translation
// makes them differ. The table may hold hundreds of thousands, of which only
// those are kept.
//
// Where nothing is tracked it is spared the walk: the kernel passes all its
// empty buckets, of which it makes more the more memory there is, in 10 ms.
func (r *Socket) Connections(of func(netip.Addr) bool) ([]connection, error) {
	n, err := r.CountConnections()
	if n == 0 || err != nil {
		return nil, err
	}
	var found []connection
	err = Steady(func() error {
		found = found[:0]
		return r.dump(conntrackGet, make([]byte, sizeofNfgenmsg), func(body []byte) error { // AF_UNSPEC: both families
			c, err := parseConnection(body)
			for _, end := range c.Ends {
				if err == nil && of(end) {
					found = append(found, c)
					break
				}
			}
			return err
		})
	})
	return found, err
}

// CountConnections returns how many connections are tracked in the namespace.
func (r *Socket) CountConnections() (n uint32, err error) {
	counted := false
	// The kernel marks the one message of this answer as a part and sends no
	// other, so only the acknowledgement ends it.
	err = r.ask(conntrackStats, unix.NLM_F_ACK, make([]byte, sizeofNfgenmsg), func(body []byte) error {
		return attributes(body, sizeofNfgenmsg, func(ad *netlink.AttributeDecoder) {
			if ad.Type() == ctaStatsGlobalEntries {
				ad.ByteOrder = binary.BigEndian
				n, counted = ad.Uint32(), true
			}
		})
	})
	if err == nil && !counted {
		err = errors.New("count: the kernel gave no number")
	}
	return n, err
}

// IsUntracked reports that a kernel which never answered for connection tracking
// has none: no netfilter at all (EPROTONOSUPPORT, of the socket), or nothing
// registered for these messages (EINVAL; EOPNOTSUPP without nfnetlink). Of one
// that did answer they mean that it was asked wrongly or could not say, and the
// entries are still there.
func IsUntracked(err error) bool {
	return errors.Is(err, unix.EPROTONOSUPPORT) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP)
}

func (r *Socket) DeleteConnection(c connection) error {
	req, err := withAttributes([]byte{c.family, 0, 0, 0}, func(ae *netlink.AttributeEncoder) {
		ae.Bytes(ctaTupleOrig|unix.NLA_F_NESTED, c.tuple)
		if c.zone != nil {
			ae.Bytes(ctaZone, c.zone)
		}
		ae.Bytes(ctaID, c.ID)
	})
	if err != nil {
		return err
	}
	return r.change(conntrackDelete, 0, req)
}

func parseConnection(body []byte) (connection, error) {
	var c connection
	err := attributes(body, sizeofNfgenmsg, func(ad *netlink.AttributeDecoder) {
		switch ad.Type() {
		case ctaTupleOrig:
			c.tuple = ad.Bytes()
			ad.Nested(c.readEnds)
		case ctaTupleReply:
			ad.Nested(c.readEnds)
		case ctaZone:
			c.zone = ad.Bytes()
		case ctaID:
			c.ID = ad.Bytes()
		}
	})
	if err == nil {
		c.family = body[0]
	}
	return c, err
}

// readEnds reads the addresses of one direction. All that a tuple's address
// part holds are addresses: source and destination, of one family.
func (c *connection) readEnds(tuple *netlink.AttributeDecoder) error {
	for tuple.Next() {
		if tuple.Type() != ctaTupleIP {
			continue
		}
		tuple.Nested(func(ip *netlink.AttributeDecoder) error {
			for ip.Next() {
				if a, ok := netip.AddrFromSlice(ip.Bytes()); ok {
					c.Ends = append(c.Ends, a)
				}
			}
			return ip.Err()
		})
	}
	return tuple.Err()
}
