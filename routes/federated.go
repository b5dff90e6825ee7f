package routes

import (
	"cmp"
	"container/list"
	"slices"
	"sync"
)

// mostGone bounds the sandboxes without a route of which the attempt is remembered.
const mostGone = 1 << 16

// A Federated joins the tables of many runners. A sandbox that several of them have is
// where its owner put it last: the highest attempt decides, not a clock, and not which
// runner was read last. An attempt that was seen keeps lower ones out, also when it has
// ended, so that a runner that is cut off cannot bring back what it had. Of the runner
// itself it does so within an epoch: a book that was restored or rebuilt may know a live
// sandbox by a lower attempt, which then counts as the one that the runner had. At no
// instant has an address of a runner two sandboxes. The zero value has no runner. All
// methods are safe for concurrent use.
type Federated struct {
	joining sync.Mutex // held by Join and Leave, before a table's and mu

	mu     sync.RWMutex
	tables map[string]*Table
	by     map[string]*family
	gone   list.List // names of those without a route, the one that is so for longest first
}

// A family is what is known of one sandbox.
type family struct {
	attempt int64         // the highest that was seen
	holders []holder      // the runners that had it
	claims  []Claim       // the best first
	gone    *list.Element // nil: it has some
}

// A holder is a runner that had the highest attempt, in whichever epoch of its book, and what
// it had since in the last one.
type holder struct {
	runner, epoch string
	attempt       int64 // the highest of that epoch
}

// see takes in that a runner has an attempt in an epoch.
func (of *family) see(runner, epoch string, attempt int64) {
	if attempt > of.attempt {
		of.attempt, of.holders = attempt, nil
	}
	h := of.holder(runner)
	switch {
	case h == nil && attempt < of.attempt:
	case h == nil:
		of.holders = append(of.holders, holder{runner, epoch, attempt})
	case h.epoch != epoch:
		h.epoch, h.attempt = epoch, attempt
	default:
		h.attempt = max(h.attempt, attempt)
	}
}

func (of *family) holder(runner string) *holder {
	for i := range of.holders {
		if of.holders[i].runner == runner {
			return &of.holders[i]
		}
	}
	return nil
}

// current reports whether no higher attempt than the claim's was seen.
func (of *family) current(c *Claim) bool {
	h := of.holder(c.Runner)
	return h != nil && c.Attempt >= h.attempt
}

// A Claim is one runner's route of a sandbox.
type Claim struct {
	Runner string
	Route
}

// Join adds a runner's table, in the place of an earlier one of that runner. A table is
// joined once.
func (f *Federated) Join(runner string, t *Table) {
	f.joining.Lock()
	defer f.joining.Unlock()
	f.leave(runner)
	t.mu.Lock()
	defer t.mu.Unlock()
	f.mu.Lock()
	if f.tables == nil {
		f.tables, f.by = make(map[string]*Table), make(map[string]*family)
	}
	f.tables[runner] = t
	f.mu.Unlock()
	t.notify = func(sandbox string, has []Route) { f.look(runner, t.epoch, sandbox, has) }
	t.announce(nil)
}

// Leave takes a runner's table out. What it had is not reachable any more, and the
// attempts are remembered.
func (f *Federated) Leave(runner string) {
	f.joining.Lock()
	defer f.joining.Unlock()
	f.leave(runner)
}

func (f *Federated) leave(runner string) {
	f.mu.RLock()
	t := f.tables[runner]
	f.mu.RUnlock()
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.notify = nil
	for sandbox := range t.index.Load().all() {
		f.look(runner, "", sandbox, nil)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.tables, runner)
}

// look makes routes all that a runner has of a sandbox in an epoch of its book.
func (f *Federated) look(runner, epoch, sandbox string, routes []Route) {
	f.mu.Lock()
	defer f.mu.Unlock()
	of := f.by[sandbox]
	if of == nil {
		of = &family{}
		f.by[sandbox] = of
	}
	claims := slices.DeleteFunc(slices.Clone(of.claims), func(c Claim) bool { return c.Runner == runner })
	for _, r := range routes {
		of.see(runner, epoch, r.Attempt)
		claims = append(claims, Claim{runner, r})
	}
	slices.SortFunc(claims, func(a, b Claim) int {
		return cmp.Or(boolFirst(of.current(&a), of.current(&b)), cmp.Compare(b.Attempt, a.Attempt), boolFirst(a.Served(), b.Served()), cmp.Compare(a.Runner, b.Runner), compare(&a.Route, &b.Route))
	})
	of.claims = claims
	switch {
	case len(claims) == 0 && of.gone == nil:
		of.gone = f.gone.PushBack(sandbox)
	case len(claims) > 0 && of.gone != nil:
		f.gone.Remove(of.gone)
		of.gone = nil
	}
	for f.gone.Len() > mostGone {
		delete(f.by, f.gone.Remove(f.gone.Front()).(string))
	}
}

// Lookup returns where a sandbox is: the best route of its highest attempt. The error
// of a table that lags or is cut off is its own to report, see [Table.Status].
func (f *Federated) Lookup(sandbox string) (Claim, bool) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	of := f.by[sandbox]
	if of == nil || len(of.claims) == 0 || !of.current(&of.claims[0]) {
		return Claim{}, false
	}
	return of.claims[0], true
}

// Split returns the claims of a sandbox that two runners serve at the same attempt, which
// its owner should not have made: all of them, the one that [Federated.Lookup] prefers
// first. Any gateway prefers the same.
func (f *Federated) Split(sandbox string) []Claim {
	f.mu.RLock()
	defer f.mu.RUnlock()
	of := f.by[sandbox]
	if of == nil {
		return nil
	}
	var split []Claim
	several := false
	for _, c := range of.claims {
		if of.current(&c) && c.Served() {
			several = several || len(split) > 0 && split[0].Runner != c.Runner
			split = append(split, c)
		}
	}
	if !several {
		return nil
	}
	return split
}

// Runners returns what each table says of itself.
func (f *Federated) Runners() map[string]Status {
	f.mu.RLock()
	tables := make(map[string]*Table, len(f.tables))
	for runner, t := range f.tables {
		tables[runner] = t
	}
	f.mu.RUnlock()
	of := make(map[string]Status, len(tables))
	for runner, t := range tables {
		of[runner] = t.Status()
	}
	return of
}
