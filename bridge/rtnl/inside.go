package rtnl

import (
	"errors"
	"maps"
	"slices"
	"time"
)

// An AddressList is a list of the addresses in one namespace that can collide with a
// lease's.
type AddressList struct {
	Addrs []Address // all that any of the tries has shown
	Exact bool      // one try was not interrupted: these are all, and all are there
	Full  bool      // there are more
	Cost  int       // addresses that the kernel listed, in all tries
}

// AddressesOf lists the addresses in a namespace, at most so many of each family. A
// list that is interrupted is tried again, so many times and for so long. The error is
// [ErrCutShort] when there are more.
func (r *Socket) AddressesOf(nsid, most, tries int, within time.Duration) (AddressList, error) {
	got := AddressList{Exact: true}
	until := time.Now().Add(within)
	for _, family := range families {
		var last []Address
		union := make(map[Address]bool)
		var err error
		for try := 1; ; try++ {
			listed := 0
			last = last[:0]
			err = r.eachAddress(nsid, family, func(a Address) error {
				got.Cost++
				if listed++; listed > most {
					return ErrCutShort
				}
				if Assignable(a.Prefix.Addr()) {
					last = append(last, a)
				}
				return nil
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
		got.Addrs = slices.AppendSeq(got.Addrs, maps.Keys(union))
		got.Full = errors.Is(err, ErrCutShort)
		if !errors.Is(err, ErrInterrupted) {
			return got, err
		}
	}
	return got, nil
}

// clockEvery is how many messages of a list are read between two looks at the clock.
const clockEvery = 512

// Addressed adds the indices of the links in a namespace that have addresses which
// can collide with a lease's.
func (r *Socket) Addressed(nsid int, until time.Time, on map[int]bool) error {
	var unsure error
	for _, family := range families {
		listed := 0
		err := r.eachAddress(nsid, family, func(a Address) error {
			if listed++; listed%clockEvery == 0 && time.Now().After(until) {
				return ErrCutShort
			}
			if Assignable(a.Prefix.Addr()) {
				on[a.Index] = true
			}
			return nil
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
