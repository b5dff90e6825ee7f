package rtnl

import (
	"encoding/binary"
	"net/netip"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// An Address is one address of one link.
type Address struct {
	Prefix netip.Prefix // the address itself, with its prefix length
	Index  int          // of the link
}

func ifaddr(family uint8, bits int, flags uint8, index int) []byte {
	b := make([]byte, unix.SizeofIfAddrmsg)
	b[0], b[1], b[2] = family, uint8(bits), flags
	binary.NativeEndian.PutUint32(b[4:], uint32(index))
	return b
}

// families are those whose addresses are listed one after the other.
var families = []uint8{unix.AF_INET, unix.AF_INET6}

// Addresses lists all addresses of both families in the namespace that nsid
// names (NoNetns: the own one).
func (r *Socket) Addresses(nsid int) (all []Address, err error) {
	for _, family := range families {
		before := len(all)
		err = Steady(func() error {
			all = all[:before]
			return r.eachAddress(nsid, family, func(a Address) error {
				if a.Prefix.IsValid() {
					all = append(all, a)
				}
				return nil
			})
		})
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}

// eachAddress makes one list of the addresses of a family.
func (r *Socket) eachAddress(nsid int, family uint8, each func(Address) error) error {
	return r.listAddresses(nsid, family, 0, func(body []byte) error {
		a, err := ParseAddress(body)
		if err == nil {
			err = each(a)
		}
		return err
	})
}

// listAddresses lists those of a family on the link of an index; 0 is any.
func (r *Socket) listAddresses(nsid int, family uint8, index int, each func(body []byte) error) error {
	req, err := withAttributes(ifaddr(family, 0, 0, index), func(ae *netlink.AttributeEncoder) {
		if nsid != NoNetns {
			ae.Int32(unix.IFA_TARGET_NETNSID, int32(nsid))
		}
	})
	if err != nil {
		return err
	}
	return r.dump(unix.RTM_GETADDR, req, each)
}

// The kernel keeps with each address, since Linux 5.18, who made it (IFA_PROTO, not in
// x/sys/unix); below 4 is the kernel itself, and 0 what `ip addr add` says.
const (
	ifaProto = 11
	madeByUs = 'i'
)

// OursOn lists the addresses that AddAddress put on a link, in this life of the process or
// an earlier one, and that no other has put there anew. An older kernel knows of none.
func (r *Socket) OursOn(index int) (all []netip.Prefix, err error) {
	for _, family := range families {
		before := len(all)
		err = Steady(func() error {
			all = all[:before]
			return r.listAddresses(NoNetns, family, index, func(body []byte) error {
				ours := false
				err := attributes(body, unix.SizeofIfAddrmsg, func(ad *netlink.AttributeDecoder) {
					ours = ours || ad.Type() == ifaProto && ad.Uint8() == madeByUs
				})
				if err != nil || !ours {
					return err
				}
				a, err := ParseAddress(body)
				if err == nil && a.Index == index {
					all = append(all, a.Prefix)
				}
				return err
			})
		})
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}

func ParseAddress(body []byte) (Address, error) {
	var local, far netip.Addr
	err := attributes(body, unix.SizeofIfAddrmsg, func(ad *netlink.AttributeDecoder) {
		switch ad.Type() {
		case unix.IFA_LOCAL:
			local, _ = netip.AddrFromSlice(ad.Bytes())
		case unix.IFA_ADDRESS:
			far, _ = netip.AddrFromSlice(ad.Bytes())
		}
	})
	if err != nil {
		return Address{}, err
	}
	if !local.IsValid() {
		local = far // on a point-to-point link IFA_ADDRESS is the other side
	}
	return Address{
		Prefix: netip.PrefixFrom(local, int(body[1])),
		Index:  int(binary.NativeEndian.Uint32(body[4:])),
	}, nil
}

// AddAddress puts an address on a link, ready at once: with duplicate address
// detection an IPv6 gateway would be deaf until the first port had been up for
// a second. One that is there is EEXIST and stays as it is; of IPv6 also one of another prefix
// length.
func (r *Socket) AddAddress(index int, p netip.Prefix) error {
	flags := uint8(0)
	if p.Addr().Is6() {
		flags = unix.IFA_F_NODAD
	}
	req, err := withAttributes(ifaddr(familyOf(p.Addr()), p.Bits(), flags, index), func(ae *netlink.AttributeEncoder) {
		ae.Bytes(unix.IFA_LOCAL, p.Addr().AsSlice())
		ae.Bytes(unix.IFA_ADDRESS, p.Addr().AsSlice())
		ae.Uint8(ifaProto, madeByUs)
	})
	if err != nil {
		return err
	}
	return r.change(unix.RTM_NEWADDR, unix.NLM_F_CREATE|unix.NLM_F_EXCL, req)
}

// RemoveAddress takes an address of this prefix length off a link; one that is not there is
// EADDRNOTAVAIL.
func (r *Socket) RemoveAddress(index int, p netip.Prefix) error {
	req, err := withAttributes(ifaddr(familyOf(p.Addr()), p.Bits(), 0, index), func(ae *netlink.AttributeEncoder) {
		ae.Bytes(unix.IFA_LOCAL, p.Addr().AsSlice())
		ae.Bytes(unix.IFA_ADDRESS, p.Addr().AsSlice())
	})
	if err != nil {
		return err
	}
	return r.change(unix.RTM_DELADDR, 0, req)
}

// Assignable reports whether an address can collide with one of a pool: loopback
// and link-local ones cannot.
func Assignable(a netip.Addr) bool {
	return a.IsValid() && !a.IsLoopback() && !a.IsLinkLocalUnicast() && !a.IsMulticast() && !a.IsUnspecified()
}
