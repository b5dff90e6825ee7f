package rtnl

import (
	"errors"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// A AddressList is a list of the addresses in one namespace that can collide with a
// lease's.
type AddressList struct {
	Addrs []Address // all that any of the tries has shown
	Exact bool      // one try was not interrupted: these are all, and all are there
	Full  bool      // there are more
	Cost  int       // addresses that the kernel listed, in all tries
}

// AddressesOf lists the addresses in a namespace, at most so many of each family. A
// list that is interrupted is tried again, so many times and for so long. One that
// is given up because there are more leaves the socket in the middle of an answer:
// the error is ErrCutShort then, and nothing more can be asked on it.
func (r *Socket) AddressesOf(nsid, most, tries int, within time.Duration) (AddressList, error) {
	got := AddressList{Exact: true}
	until := time.Now().Add(within)
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		req, err := withAttributes(ifaddr(family, 0, 0, 0), func(ae *netlink.AttributeEncoder) {
			ae.Int32(unix.IFA_TARGET_NETNSID, int32(nsid))
		})
		if err != nil {
			return got, err
		}
		var last []Address
		union := make(map[Address]bool)
		for try := 1; ; try++ {
			listed := 0
			last = last[:0]
			err = r.dump(unix.RTM_GETADDR, req, func(body []byte) error {
				a, err := ParseAddress(body)
				got.Cost++
				if listed++; listed > most {
					return ErrCutShort
				}
				if err == nil && Assignable(a.Prefix.Addr()) {
					last = append(last, a)
				}
				return err
			})
			if err == nil {
				break
			}
			for _, a := range last {
				union[a] = true
			}
			if !errors.Is(err, ErrInterrupted) || try == tries || time.Now().After(until) {
				break
			}
		}
		if err == nil {
			got.Addrs = append(got.Addrs, last...)
			continue
		}
		got.Exact = false
		for a := range union {
			got.Addrs = append(got.Addrs, a)
		}
		switch {
		case errors.Is(err, ErrCutShort):
			got.Full = true
			return got, err
		case !errors.Is(err, ErrInterrupted):
			return got, err
		}
	}
	return got, nil
}

// clockEvery is how many messages of a list are read between two looks at the clock.
const clockEvery = 512

// Addressed adds the indices of the links in a namespace that have addresses which
// can collide with a lease's. After ErrCutShort the socket is of no use.
func (r *Socket) Addressed(nsid int, until time.Time, on map[int]bool) error {
	var unsure error
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		req, err := withAttributes(ifaddr(family, 0, 0, 0), func(ae *netlink.AttributeEncoder) {
			ae.Int32(unix.IFA_TARGET_NETNSID, int32(nsid))
		})
		if err != nil {
			return err
		}
		listed := 0
		err = r.dump(unix.RTM_GETADDR, req, func(body []byte) error {
			if listed++; listed%clockEvery == 0 && time.Now().After(until) {
				return ErrCutShort
			}
			a, err := ParseAddress(body)
			if err == nil && Assignable(a.Prefix.Addr()) {
				on[a.Index] = true
			}
			return err
		})
		switch {
		case errors.Is(err, ErrInterrupted):
			unsure = err
		case err != nil:
			return err
		}
	}
	return unsure
}
