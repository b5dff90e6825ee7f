package bridge

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ipamd/ipamd/bridge/rtnl"
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
func childrenIn(ctx context.Context, k *rtnl.Kept, id int, self func() int, parents map[int]string, found *brood) error {
	all, err := linksOn(ctx, k, id, parents)
	switch {
	case err == nil:
	case id == rtnl.NoNetns || ctx.Err() != nil:
		return err
	case errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM):
		return nil
	case errors.Is(err, unix.EINVAL):
		there := true
		asked := k.Ask(ctx, func(r *rtnl.Socket) (err error) {
			there, err = r.HasNetns(id)
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
	home := rtnl.NoNetns
	if id != rtnl.NoNetns {
		home = self()
	}
	n := &nest{id: id, inside: new(inside)}
	for _, l := range all {
		if l.Behind == home {
			n.children = append(n.children, child{l, parents[l.Peer]})
		}
	}
	if len(n.children) > 0 && (id == rtnl.NoNetns || id != home) {
		slices.SortFunc(n.children, func(a, b child) int { return cmp.Compare(a.link.Index, b.link.Index) })
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
func linksOn(ctx context.Context, k *rtnl.Kept, id int, parents map[int]string) ([]*rtnl.Link, error) {
	var unsure error
	addressed := make(map[int]bool)
	if id != rtnl.NoNetns {
		unsure = repeat(ctx, k, id, func(r *rtnl.Socket, until time.Time) error { return r.Addressed(id, until, addressed) })
		if unsure != nil && !errors.Is(unsure, rtnl.ErrInterrupted) && !errors.Is(unsure, rtnl.ErrCutShort) {
			return nil, unsure
		}
	}
	listed := make(map[int]bool)
	var last, found map[int]*rtnl.Link // of the last list, of all lists
	found = make(map[int]*rtnl.Link)
	note := func(l *rtnl.Link) {
		listed[l.Index] = true
		if stacked[l.Kind] && parents[l.Peer] != "" {
			last[l.Index], found[l.Index] = l, l
		}
	}
	err := repeat(ctx, k, id, func(r *rtnl.Socket, _ time.Time) error {
		last = make(map[int]*rtnl.Link)
		there := 0
		return r.Links(id, func(l *rtnl.Link) error {
			note(l)
			if there++; there > mostLinks && id != rtnl.NoNetns {
				return rtnl.ErrCutShort
			}
			return nil
		})
	})
	if err == nil {
		found = last
	}
	if id != rtnl.NoNetns {
		for index := range listed {
			delete(addressed, index)
		}
		short := !listed[loopback]
		err = errors.Join(unsure, err, lookUp(ctx, k, id, slices.Sorted(maps.Keys(addressed)), func(l *rtnl.Link) {
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
func repeat(ctx context.Context, k *rtnl.Kept, id int, list func(r *rtnl.Socket, until time.Time) error) error {
	until := time.Now().Add(linksWithin)
	for try := 1; ; try++ {
		err := k.Ask(ctx, func(r *rtnl.Socket) error { return list(r, until) })
		if !errors.Is(err, rtnl.ErrInterrupted) || try == rtnl.ListTries || id != rtnl.NoNetns && time.Now().After(until) {
			return err
		}
	}
}

// lookUp looks links up one by one, and gives each those that are there.
func lookUp(ctx context.Context, k *rtnl.Kept, id int, indices []int, each func(*rtnl.Link)) error {
	until := time.Now().Add(linksWithin)
	return k.Ask(ctx, func(r *rtnl.Socket) (all error) {
		for _, index := range indices {
			if time.Now().After(until) {
				return rtnl.ErrCutShort
			}
			switch l, err := r.Link(id, index); {
			case err == nil:
				each(l)
			case !rtnl.IsGone(err):
				all = err
			}
		}
		return all
	})
}
