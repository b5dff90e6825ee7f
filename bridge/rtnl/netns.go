package rtnl

import (
	"errors"
	"os"
	"slices"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// sizeofRtgenmsg is the fixed part of messages about ids of namespaces, padded.
const sizeofRtgenmsg = 4

// NetnsID asks for the id by which this namespace knows the one that fd is
// open on. No id is ErrNoNetnsID.
func (r *Socket) NetnsID(fd int) (int, error) { return r.spaceID(unix.NETNSA_FD, uint32(fd)) }

// NetnsIDOf asks the same of the one that a process is in.
func (r *Socket) NetnsIDOf(pid uint32) (int, error) { return r.spaceID(unix.NETNSA_PID, pid) }

func (r *Socket) spaceID(by uint16, value uint32) (int, error) {
	req, err := withAttributes(make([]byte, sizeofRtgenmsg), func(ae *netlink.AttributeEncoder) {
		ae.Uint32(by, value)
	})
	if err != nil {
		return 0, err
	}
	id := Unassigned
	err = r.get(unix.RTM_GETNSID, req, func(body []byte) (err error) {
		id, err = ParseNetnsID(body)
		return err
	})
	if err == nil && id < 0 {
		err = ErrNoNetnsID
	}
	return id, err
}

// A part of a list is a page, of 8 KiB at the most, or 32 KiB to a reader that has read before, where the kernel has as much
// at hand: some of it is the kernel's own. One that ends for want of room has three quarters of these ids at least.
var (
	idsInPage  = min(os.Getpagesize(), 8<<10) / idSize
	idsIn32KiB = 32 << 10 / idSize
)

const (
	idSize = 28   // bytes of a message about one
	idsGap = 1024 // ids in a row that no namespace has; the kernel gives a new one the lowest that is free
)

// NetnsIDs lists the ids of all namespaces that this one knows, in order; one of them may have just ended.
//
// The kernel's list is not whole where it takes several parts, and nothing marks that. Since Linux 6.10 it ends
// with the first one (rtnl_net_dumpid, whose walk may stop for want of room, and is taken for over). Before that it went on by
// the number of those sent, so for each namespace that ended meanwhile one that lives was left out. So a list
// that may take several is asked for again, which has larger parts then as a rule, and where that may have ended for want
// of room the rest is asked for id by id: one that no namespace has costs 5 µs, and one that one has 35 µs with 3 000 of them.
// That ends behind idsGap ids that none has, so one of a higher id, as a person may choose it, is not found then.
func (r *Socket) NetnsIDs() (ids []int, err error) {
	for again := range 2 {
		var list []int
		err = Steady(func() error {
			list = list[:0]
			return r.dump(unix.RTM_GETNSID, make([]byte, sizeofRtgenmsg), func(body []byte) error {
				id, err := ParseNetnsID(body)
				if id != Unassigned {
					list = append(list, id)
				}
				return err
			})
		})
		ids = append(ids, list...)
		slices.Sort(ids)
		ids = slices.Compact(ids)
		n := len(list)
		if err != nil || n < idsInPage*3/4 || again > 0 && idsInPage < n && n < idsIn32KiB*3/4 {
			return ids, err
		}
	}
	for id := ids[len(ids)-1] + 1; id <= ids[len(ids)-1]+idsGap; id++ {
		there, err := r.HasNetns(id)
		if err != nil {
			return ids, err
		}
		if there {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

// AssignID has the kernel give an id to the namespace that fd is open on.
func (r *Socket) AssignID(fd int) error {
	req, err := withAttributes(make([]byte, sizeofRtgenmsg), func(ae *netlink.AttributeEncoder) {
		ae.Int32(unix.NETNSA_NSID, Unassigned)
		ae.Uint32(unix.NETNSA_FD, uint32(fd))
	})
	if err != nil {
		return err
	}
	return r.change(unix.RTM_NEWNSID, 0, req)
}

// IDOf is [Socket.NetnsID] of a namespace that fd is open on, which gets an id where it has none.
func IDOf(r *Socket, fd int) (int, error) {
	id, err := r.NetnsID(fd)
	if errors.Is(err, ErrNoNetnsID) {
		if err = r.AssignID(fd); err == nil || errors.Is(err, unix.EEXIST) { // another was first
			id, err = r.NetnsID(fd)
		}
	}
	return id, err
}

// HasNetns reports whether an id names a namespace that lives.
func (r *Socket) HasNetns(id int) (bool, error) {
	req, err := withAttributes(make([]byte, sizeofRtgenmsg), func(ae *netlink.AttributeEncoder) {
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

// ParseNetnsID reads the id of a namespace out of a message about one; Unassigned when it
// has none.
func ParseNetnsID(body []byte) (id int, err error) {
	id = Unassigned
	err = attributes(body, sizeofRtgenmsg, func(ad *netlink.AttributeDecoder) {
		if ad.Type() == unix.NETNSA_NSID {
			id = int(ad.Int32())
		}
	})
	return id, err
}

// IsVanishing reports that a namespace could not be read because it is going
// away. The kernel says EINVAL of its id then, and also of a question that it
// does not understand; so it is asked whether the id names any namespace.
func IsVanishing(r *Socket, id int, err error) bool {
	return errors.Is(err, unix.EINVAL) && IsDead(r, id)
}

// IsDead reports that the kernel knows of no namespace that lives by an id.
func IsDead(r *Socket, id int) bool {
	there, err := r.HasNetns(id)
	return err == nil && !there
}
