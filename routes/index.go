package routes

import (
	"iter"
	"maps"
	"slices"
	"sync"
)

// An index finds the routes of a sandbox. Neither a route nor a slice of them is
// changed in place.
type index struct {
	mu sync.RWMutex
	by map[string][]*Route // the best first, never empty
}

func (x *index) of(sandbox string) []*Route {
	if x == nil {
		return nil
	}
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.by[sandbox]
}

// all yields the names of all sandboxes. Only a writer of the table may ask.
func (x *index) all() iter.Seq[string] {
	if x == nil {
		return func(func(string) bool) {}
	}
	return maps.Keys(x.by)
}

// routes returns a copy of all, in no order.
func (x *index) routes() (all []Route) {
	if x == nil {
		return nil
	}
	x.mu.RLock()
	defer x.mu.RUnlock()
	for _, of := range x.by {
		for _, r := range of {
			all = append(all, *r)
		}
	}
	return all
}

// replace puts a route in the place of another; nil is none.
func (x *index) replace(old, now *Route) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if old != nil && (now == nil || now.Sandbox != old.Sandbox) {
		left := slices.DeleteFunc(slices.Clone(x.by[old.Sandbox]), func(r *Route) bool { return r == old })
		if len(left) == 0 {
			delete(x.by, old.Sandbox)
		} else {
			x.by[old.Sandbox] = left
		}
		old = nil
	}
	if now == nil {
		return
	}
	of := make([]*Route, 0, len(x.by[now.Sandbox])+1)
	for _, r := range x.by[now.Sandbox] {
		if r != old {
			of = append(of, r)
		}
	}
	of = append(of, now)
	slices.SortFunc(of, compare)
	x.by[now.Sandbox] = of
}
