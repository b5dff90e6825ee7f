package routes

import (
	"iter"
	"net/netip"
	"slices"

	"github.com/puzpuzpuz/xsync/v4"
)

// An index finds the routes of a sandbox. Readers take no lock and write to no memory; there
// is one writer at a time.
type index struct {
	by *xsync.Map[string, found]
}

// found is what one sandbox has. A slice of it is not changed in place.
type found struct {
	best Route
	more []Route // the rest, the best first
}

// newIndex returns an empty one with room for n sandboxes.
func newIndex(n int) *index {
	return &index{xsync.NewMap[string, found](xsync.WithPresize(n))}
}

func (x *index) of(sandbox string) (found, bool) {
	if x == nil {
		return found{}, false
	}
	return x.by.Load(sandbox)
}

// at returns a sandbox's route at an address.
func (x *index) at(sandbox string, addr netip.Addr) (Route, bool) {
	of, ok := x.of(sandbox)
	if !ok || of.best.Addr == addr {
		return of.best, ok
	}
	for _, r := range of.more {
		if r.Addr == addr {
			return r, true
		}
	}
	return Route{}, false
}

// len is how many routes a sandbox has.
func (x *index) len(sandbox string) int {
	if of, ok := x.of(sandbox); ok {
		return 1 + len(of.more)
	}
	return 0
}

// all yields the names of all sandboxes. Only a writer of the table may ask.
func (x *index) all() iter.Seq[string] {
	return func(yield func(string) bool) {
		if x == nil {
			return
		}
		x.by.Range(func(sandbox string, _ found) bool { return yield(sandbox) })
	}
}

// routes returns a copy of all, in no order. Only a writer of the table may ask.
func (x *index) routes() (all []Route) {
	if x == nil {
		return nil
	}
	x.by.Range(func(_ string, of found) bool {
		all = append(append(all, of.best), of.more...)
		return true
	})
	return all
}

// put makes r the route of its sandbox at its address.
func (x *index) put(r *Route) {
	x.by.Compute(r.Sandbox, func(of found, has bool) (found, xsync.ComputeOp) {
		if !has || len(of.more) == 0 && of.best.Addr == r.Addr {
			return found{best: *r}, xsync.UpdateOp
		}
		all := append(of.without(r), *r)
		slices.SortFunc(all, func(a, b Route) int { return compare(&a, &b) })
		return found{all[0], all[1:]}, xsync.UpdateOp
	})
}

// drop takes a sandbox's route at r's address away.
func (x *index) drop(sandbox string, r *Route) {
	x.by.Compute(sandbox, func(of found, _ bool) (found, xsync.ComputeOp) {
		left := of.without(r)
		if len(left) == 0 {
			return found{}, xsync.DeleteOp
		}
		return found{left[0], left[1:]}, xsync.UpdateOp
	})
}

// without returns a copy of the routes that are at other addresses than r.
func (of *found) without(r *Route) []Route {
	left := make([]Route, 0, len(of.more)+2)
	if of.best.Addr != r.Addr {
		left = append(left, of.best)
	}
	for _, other := range of.more {
		if other.Addr != r.Addr {
			left = append(left, other)
		}
	}
	return left
}
