package routes

import (
	"net/netip"
	"slices"
)

const (
	// mostEpochs bounds the epochs of which news waits for a list.
	mostEpochs = 256
	// mostFormer bounds the epochs that are known to have passed.
	mostFormer = 64
)

// An early is news of epochs that are not listed yet: the last of each address, [mostAhead] in
// all. Which epoch comes next is not known, so none is kept out by others: when there are too
// many, the one that was pushed to longest ago goes, and when they are too large the largest.
// Nothing is lost by that, for the list and the stream bring the same.
type early struct {
	of     map[string]*waiting
	routes int
	pushes int64
}

type waiting struct {
	routes map[netip.Addr]Route
	last   int64 // push
}

// add keeps r for the list of its epoch.
func (e *early) add(epoch string, r Route) error {
	w := e.of[epoch]
	if w == nil {
		if len(e.of) >= mostEpochs {
			e.drop(e.least(func(w *waiting) int64 { return w.last }))
		}
		if e.of == nil {
			e.of = make(map[string]*waiting)
		}
		w = &waiting{routes: make(map[netip.Addr]Route)}
		e.of[epoch] = w
	}
	e.pushes++
	w.last = e.pushes
	had, has := w.routes[r.Addr]
	switch {
	case has && had.Revision >= r.Revision:
		return nil
	case !has && e.routes >= mostAhead:
		largest := e.least(func(w *waiting) int64 { return -int64(len(w.routes)) })
		if largest == epoch {
			return ErrFull
		}
		e.drop(largest)
	}
	w.routes[r.Addr] = r
	if !has {
		e.routes++
	}
	return nil
}

func (e *early) drop(epoch string) {
	e.routes -= len(e.of[epoch].routes)
	delete(e.of, epoch)
}

// least is the epoch for which by is the least.
func (e *early) least(by func(*waiting) int64) (least string) {
	for epoch, w := range e.of {
		if of := e.of[least]; of == nil || by(w) < by(of) {
			least = epoch
		}
	}
	return least
}

// begin makes epoch the table's, and returns what waits for its list. With a new epoch nothing
// waits any more for those that did not come.
func (t *Table) begin(epoch string) map[netip.Addr]Route {
	if t.epoch == epoch {
		return nil
	}
	if t.epoch != "" && !slices.Contains(t.former, t.epoch) {
		t.former = append(t.former, t.epoch)
	}
	t.former = t.former[max(0, len(t.former)-mostFormer):]
	t.epoch = epoch
	w := t.early.of[epoch]
	t.early = early{}
	if w == nil {
		return nil
	}
	return w.routes
}
