package bridge

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// A guest decides how many links and addresses are in its namespace, how long they
// stay, and how long the kernel's answer about one is: mostLinks are listed, and each
// of the three steps of a search ends after linksWithin.
const (
	mostLinks   = 8192
	linksWithin = 100 * time.Millisecond
)

// loopback is the index of lo, which every namespace has.
const loopback = 1

// childrenIn adds the children in one namespace. One that goes away meanwhile, or
// that is not ours to read, has none; the latter's still listen on the bridge. What
// cannot be asked of one namespace says nothing about the others.
func childrenIn(ctx context.Context, k *kept, id int, self func() int, parents map[int]string, found *brood) error {
	all, err := linksOn(ctx, k, id, parents)
	switch {
	case err == nil:
	case id == noSpace || ctx.Err() != nil:
		return err
	case errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM):
		return nil
	case errors.Is(err, unix.EINVAL):
		there := true
		asked := k.ask(ctx, func(r *rtnl) (err error) {
			there, err = r.hasSpace(id)
			return err
		})
		if asked == nil && !there {
			return nil
		}
		found.partly[id] = err
	default:
		found.partly[id] = err
	}
	if len(all) == 0 {
		return nil
	}
	home := noSpace
	if id != noSpace {
		home = self()
	}
	n := &nest{id: id, inside: new(inside)}
	for _, l := range all {
		if l.behind == home {
			n.children = append(n.children, child{l, parents[l.peer]})
		}
	}
	if len(n.children) > 0 && (id == noSpace || id != home) {
		slices.SortFunc(n.children, func(a, b child) int { return cmp.Compare(a.link.index, b.link.index) })
		found.nests[id] = n
	}
	return nil
}

// linksOn lists the links in a namespace that are stacked on others. Where it may lack
// some the error says why, and the list has all that could be found.
//
// No list of another namespace's links is complete because it ended well: it ends,
// without an error, before the first link that is longer than the kernel's buffer, and
// root in there makes any link so long by alternative names. So each link that has an
// address, of which the list is not cut like this, and that is not among the links is
// looked up by its index. The addresses come first: a link that is made meanwhile is
// not missing, and one that goes is not there when it is looked up.
func linksOn(ctx context.Context, k *kept, id int, parents map[int]string) ([]*link, error) {
	var unsure error
	addressed := make(map[int]bool)
	if id != noSpace {
		unsure = repeat(ctx, k, id, func(r *rtnl, until time.Time) error { return r.addressed(id, until, addressed) })
		if unsure != nil && !errors.Is(unsure, errInterrupted) && !errors.Is(unsure, errCutShort) {
			return nil, unsure
		}
	}
	listed := make(map[int]bool)
	var last, found map[int]*link // of the last list, of all lists
	found = make(map[int]*link)
	note := func(l *link) {
		listed[l.index] = true
		if stacked[l.kind] && parents[l.peer] != "" {
			last[l.index], found[l.index] = l, l
		}
	}
	err := repeat(ctx, k, id, func(r *rtnl, _ time.Time) error {
		last = make(map[int]*link)
		there := 0
		return r.links(id, func(l *link) error {
			note(l)
			if there++; there > mostLinks && id != noSpace {
				return errCutShort
			}
			return nil
		})
	})
	if err == nil {
		found = last
	}
	if id != noSpace {
		for index := range listed {
			delete(addressed, index)
		}
		short := !listed[loopback]
		err = errors.Join(unsure, err, lookUp(ctx, k, id, slices.Sorted(maps.Keys(addressed)), func(l *link) {
			short = true
			note(l)
		}))
		if short && err == nil {
			err = errEndsEarly
		}
	}
	return slices.Collect(maps.Values(found)), err
}

// repeat makes a list of a namespace, again while it is interrupted: so many times,
// and of one that guests may be root in for so long.
func repeat(ctx context.Context, k *kept, id int, list func(r *rtnl, until time.Time) error) error {
	until := time.Now().Add(linksWithin)
	for try := 1; ; try++ {
		err := k.ask(ctx, func(r *rtnl) error { return list(r, until) })
		if !errors.Is(err, errInterrupted) || try == listTries || id != noSpace && time.Now().After(until) {
			return err
		}
	}
}

// lookUp looks links up one by one, and gives each those that are there.
func lookUp(ctx context.Context, k *kept, id int, indices []int, each func(*link)) error {
	until := time.Now().Add(linksWithin)
	return k.ask(ctx, func(r *rtnl) (all error) {
		for _, index := range indices {
			if time.Now().After(until) {
				return errCutShort
			}
			switch l, err := r.link(id, index); {
			case err == nil:
				each(l)
			case !isGone(err):
				all = err
			}
		}
		return all
	})
}

// addressed adds the indices of the links in a namespace that have addresses which
// can collide with a lease's. After errCutShort the socket is of no use.
func (r *rtnl) addressed(nsid int, until time.Time, on map[int]bool) error {
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
			if listed++; listed%mostInline == 0 && time.Now().After(until) {
				return errCutShort
			}
			a, err := parseAddress(body)
			if err == nil && counts(a.prefix.Addr()) {
				on[a.index] = true
			}
			return err
		})
		switch {
		case errors.Is(err, errInterrupted):
			unsure = err
		case err != nil:
			return err
		}
	}
	return unsure
}
