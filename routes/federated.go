package routes

import (
	"cmp"
	"container/list"
	"slices"
	"sync"
)

const (
	// mostGone bounds the sandboxes without a route of which the attempts are remembered.
	mostGone = 1 << 16
	// mostLives bounds the incarnations of a sandbox that are remembered, the latest ones.
	mostLives = 4
)

// A Federated joins the tables of many runners. A sandbox that several of them have is
// where its owner put it last. Of one incarnation (uid) the highest attempt decides, not a
// clock, and not which runner was read last. An attempt that was seen keeps lower ones out,
// also when it has ended, so that a runner that is cut off cannot bring back what it had. Of
// the runner itself it does so within an epoch: a book that was restored or rebuilt may know
// a live sandbox by a lower attempt, which then counts as the one that the runner had.
//
// Attempts of two incarnations are never compared: the next one counts from 1 again. The later
// incarnation is the one whose first lease that was seen has the later id. These are dated by
// the runners' clocks, which may differ by less than lies between the two. A later incarnation
// keeps earlier ones out, also when it has ended; but where one runner alone had it, and still
// has an earlier one, as after an upgrade that failed, the earlier one is where it was.
//
// At no instant has an address of a runner two sandboxes. The zero value has no runner. All
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
	lives   []life        // the latest first
	claims  []Claim       // the best first
	current int           // how many of them, from the first on, say where the sandbox is
	gone    *list.Element // nil: it has some
}

// A life is what is known of one incarnation.
type life struct {
	uid     string
	first   string   // the least id of its leases that was seen; they rise with time
	attempt int64    // the highest that was seen
	holders []holder // the runners that had it
}

// A holder is a runner that had the highest attempt, in whichever epoch of its book, and what
// it had since in the last one.
type holder struct {
	runner, epoch string
	attempt       int64 // the highest of that epoch
}

// see takes in that a runner has a route in an epoch.
func (of *family) see(runner, epoch string, r *Route) {
	i := slices.IndexFunc(of.lives, func(l life) bool { return l.uid == r.UID })
	if i < 0 {
		i = len(of.lives)
		of.lives = append(of.lives, life{uid: r.UID, first: r.Lease})
	}
	l := &of.lives[i]
	l.first = min(l.first, r.Lease)
	l.see(runner, epoch, r.Attempt)
	if len(of.lives) > 1 {
		slices.SortFunc(of.lives, func(a, b life) int { return cmp.Or(cmp.Compare(b.first, a.first), cmp.Compare(b.uid, a.uid)) })
		of.lives = slices.Delete(of.lives, min(mostLives, len(of.lives)), len(of.lives))
	}
}

// see takes in that a runner has an attempt in an epoch.
func (l *life) see(runner, epoch string, attempt int64) {
	if attempt > l.attempt {
		l.attempt, l.holders = attempt, nil
	}
	h := l.holder(runner)
	switch {
	case h == nil && attempt < l.attempt:
	case h == nil:
		l.holders = append(l.holders, holder{runner, epoch, attempt})
	case h.epoch != epoch:
		h.epoch, h.attempt = epoch, attempt
	default:
		h.attempt = max(h.attempt, attempt)
	}
}

func (l *life) holder(runner string) *holder {
	for i := range l.holders {
		if l.holders[i].runner == runner {
			return &l.holders[i]
		}
	}
	return nil
}

// isCurrent reports whether no higher attempt than the claim's was seen, and no later incarnation
// that keeps it out.
func (of *family) isCurrent(c *Claim) bool {
	for i := range of.lives {
		l := &of.lives[i]
		h := l.holder(c.Runner)
		if l.uid == c.UID {
			return h != nil && c.Attempt >= h.attempt
		}
		endedHere := h != nil && len(l.holders) == 1 &&
			!slices.ContainsFunc(of.claims, func(o Claim) bool { return o.Runner == c.Runner && o.UID == l.uid })
		if !endedHere {
			return false
		}
	}
	return false
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
	of.claims = slices.DeleteFunc(of.claims, func(c Claim) bool { return c.Runner == runner })
	for i := range routes {
		of.see(runner, epoch, &routes[i])
		of.claims = append(of.claims, Claim{runner, routes[i]})
	}
	of.order()
	switch {
	case len(of.claims) == 0 && of.gone == nil:
		of.gone = f.gone.PushBack(sandbox)
	case len(of.claims) > 0 && of.gone != nil:
		f.gone.Remove(of.gone)
		of.gone = nil
	}
	for f.gone.Len() > mostGone {
		delete(f.by, f.gone.Remove(f.gone.Front()).(string))
	}
}

// order puts the claims that say where the sandbox is first, and the best of them before the others.
func (of *family) order() {
	var current, kept []Claim
	for i := range of.claims {
		if c := &of.claims[i]; of.isCurrent(c) {
			current = append(current, *c)
		} else {
			kept = append(kept, *c)
		}
	}
	slices.SortFunc(current, func(a, b Claim) int {
		return cmp.Or(cmp.Compare(b.Attempt, a.Attempt), boolFirst(a.Served(), b.Served()), cmp.Compare(a.Runner, b.Runner), compare(&a.Route, &b.Route))
	})
	of.claims, of.current = append(current, kept...), len(current)
}

// Lookup returns where a sandbox is: the best route of its latest incarnation's highest attempt. The error
// of a table that lags or is cut off is its own to report, see [Table.Status].
func (f *Federated) Lookup(sandbox string) (Claim, bool) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	of := f.by[sandbox]
	if of == nil || of.current == 0 {
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
	for _, c := range of.claims[:of.current] {
		if c.Served() {
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
