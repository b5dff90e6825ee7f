package routes

import (
	"cmp"
	"errors"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ipamd/ipamd/internal/broadcast"
)

const (
	// mostAhead bounds what pushes may bring ahead of the stream: 20 MB or so. A push
	// beyond it is refused, which loses nothing, for the stream brings the same later.
	mostAhead = 1 << 16
	// doubtAfter is how long a pushed revision may be above all that the daemon says to
	// have: a push is sent after its commit, so the daemon's next word is not below it.
	doubtAfter = time.Minute
)

var (
	// ErrList means: list again, and give the list to [Table.Replace]. Nothing was
	// changed. The epoch is another, or there was no list yet, or what was pushed
	// cannot be true.
	ErrList = errors.New("the routes are to be listed again")
	// ErrOldList means that the list is older than the table. Nothing was changed.
	ErrOldList = errors.New("the list is older than the table")
	// ErrFull means that pushes are further ahead of the stream than is remembered.
	// Nothing was changed; the stream brings the same.
	ErrFull = errors.New("too many pushes are ahead of the stream")
)

// A Table maps sandbox ids to their addresses. Its zero value is empty and not ready.
// All methods are safe for concurrent use; a look-up waits for no list.
type Table struct {
	// Now is the clock; nil is time.Now.
	Now func() time.Time

	index   atomic.Pointer[index]
	changed broadcast.Signal

	mu       sync.Mutex // of writers; guards all below
	epoch    string     // "" before the first list
	position int64      // the table is complete up to this revision
	latest   int64      // the last that the daemon is known to have
	word     time.Time  // when the daemon last said something
	cells    map[netip.Addr]cell
	ahead    map[netip.Addr]lead  // of cells above the position
	notify   func(sandbox string) // of each whose routes change; nil: of none
	early    []earlyPush          // of an epoch that is not listed yet
	kept     int                  // cells with a route
	sum      uint64               // of their hashes
}

// A cell is the last that is known of an address. It has no route once the lease ended,
// and is kept while the stream has not passed its revision.
type cell struct {
	revision int64
	route    *Route
	hash     uint64 // of that
}

// A lead is how a cell came to be above the position.
type lead struct {
	since   time.Time // its revision was pushed
	doubted bool      // by the daemon's word long after
}

type earlyPush struct {
	epoch string
	route Route
}

// Lookup returns the best route of a sandbox: one that is served, if it has one. A
// sandbox without a route has ended, or the table is not ready.
func (t *Table) Lookup(sandbox string) (Route, bool) {
	if of := t.index.Load().of(sandbox); of != nil {
		return *of[0], true
	}
	return Route{}, false
}

// Ready reports whether there was a complete list. Before, a sandbox without a route
// may well be alive.
func (t *Table) Ready() bool { return t.index.Load() != nil }

// Routes returns all routes of a sandbox, the best first.
func (t *Table) Routes(sandbox string) []Route {
	of := t.index.Load().of(sandbox)
	routes := make([]Route, len(of))
	for i, r := range of {
		routes[i] = *r
	}
	return routes
}

// All returns every route, by sandbox, the best of each first. It copies them all.
func (t *Table) All() []Route {
	all := t.index.Load().routes()
	slices.SortFunc(all, func(a, b Route) int { return cmp.Or(cmp.Compare(a.Sandbox, b.Sandbox), compare(&a, &b)) })
	return all
}

// Changed returns a channel that is closed by the next change of a route. Ask for it
// before reading.
func (t *Table) Changed() <-chan struct{} { return t.changed.Next() }

// Apply takes in the next change of the stream, of an address that has one. One that
// the table has passed already is ignored.
func (t *Table) Apply(epoch string, r Route) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.epoch == "" || epoch != t.epoch {
		return ErrList
	}
	t.word = t.now()
	if r.Revision <= t.position {
		return nil
	}
	t.position, t.latest = r.Revision, max(t.latest, r.Revision)
	if t.put(r) {
		t.changed.Send()
	}
	t.settle(r.Addr)
	return nil
}

// Bookmark takes in that the stream is complete up to a revision, which is the last
// that the daemon has.
func (t *Table) Bookmark(epoch string, revision int64) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.epoch == "" || epoch != t.epoch {
		return ErrList
	}
	t.word = t.now()
	t.position, t.latest = max(t.position, revision), max(t.latest, revision)
	for addr := range t.ahead {
		t.settle(addr)
	}
	var err error
	for addr, l := range t.ahead {
		if t.word.Sub(l.since) > doubtAfter {
			t.ahead[addr], err = lead{l.since, true}, ErrList // the daemon has no such revision
		}
	}
	return err
}

// Push takes in news that a peer brought. It reports whether that was newer than what
// the table had; news of an epoch that is not listed yet is kept for its list.
func (t *Table) Push(epoch string, r Route) (newer bool, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.epoch == "" || epoch != t.epoch {
		if len(t.early) >= mostAhead {
			return false, ErrFull
		}
		t.early = append(t.early, earlyPush{epoch, r})
		return false, nil
	}
	return t.push(r)
}

func (t *Table) push(r Route) (newer bool, err error) {
	c, known := t.cells[r.Addr]
	_, leads := t.ahead[r.Addr]
	switch {
	case r.Revision <= t.position, known && r.Revision <= c.revision:
		return false, nil // up to the position the table is complete
	case !leads && len(t.ahead) >= mostAhead:
		return false, ErrFull
	}
	t.ahead[r.Addr] = lead{since: t.now()}
	t.latest = max(t.latest, r.Revision)
	if t.put(r) {
		t.changed.Send()
	}
	return true, nil
}

// put makes r what is known of its address, unless something newer is, and reports
// whether a route changed by it. A route that stays as it was has the new revision.
func (t *Table) put(r Route) (changed bool) {
	old, known := t.cells[r.Addr]
	if known && old.revision > r.Revision {
		return false
	}
	c := cellOf(&r)
	t.cells[r.Addr] = c
	t.index.Load().replace(old.route, c.route)
	t.count(c, 1)
	t.count(old, -1)
	if t.notify != nil && old.route != nil && (c.route == nil || c.route.Sandbox != old.route.Sandbox) {
		t.notify(old.route.Sandbox)
	}
	if t.notify != nil && c.route != nil {
		t.notify(c.route.Sandbox)
	}
	return old.route != nil || c.route != nil
}

// cellOf is what r says of its address.
func cellOf(r *Route) cell {
	if !Kept(r.State) {
		return cell{revision: r.Revision}
	}
	return cell{r.Revision, r, r.hash()}
}

// count takes a cell into what the status says, or out of it.
func (t *Table) count(c cell, by int) {
	if c.route != nil {
		t.kept += by
		t.sum += uint64(by) * c.hash
	}
}

// settle forgets of an address what the position says as well.
func (t *Table) settle(addr netip.Addr) {
	c, known := t.cells[addr]
	if c.revision > t.position {
		return
	}
	delete(t.ahead, addr)
	if known && c.route == nil {
		delete(t.cells, addr)
	}
}

// A List is all that the daemon has at one revision.
type List struct {
	Epoch    string
	Revision int64
	Routes   []Route
}

// Replace makes the table what the list says, at once: look-ups see it before or
// after. Of the same epoch, news above the list's revision stays, unless [Table.Bookmark]
// has asked for a list because of it: a list may be long on its way.
func (t *Table) Replace(l List) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if l.Epoch == t.epoch && l.Revision < t.position {
		return ErrOldList
	}
	old := t.cells
	if l.Epoch != t.epoch {
		old = nil
	}
	ahead := t.ahead
	t.epoch, t.position, t.latest, t.word = l.Epoch, l.Revision, l.Revision, t.now()
	t.cells, t.ahead = make(map[netip.Addr]cell, len(l.Routes)), make(map[netip.Addr]lead)
	t.kept, t.sum = 0, 0
	for _, r := range l.Routes {
		if c := cellOf(&r); c.route != nil {
			t.cells[r.Addr] = c
		}
	}
	for addr, c := range old {
		if of := ahead[addr]; c.revision > l.Revision && !of.doubted {
			t.cells[addr], t.ahead[addr] = c, of
		}
	}
	x := &index{by: make(map[string][]*Route, len(t.cells))}
	for _, c := range t.cells {
		x.replace(nil, c.route)
		t.count(c, 1)
	}
	before := t.index.Swap(x)
	if t.notify != nil {
		for sandbox := range before.all() {
			if x.of(sandbox) == nil {
				t.notify(sandbox)
			}
		}
		for sandbox := range x.all() {
			t.notify(sandbox)
		}
	}
	early := t.early
	t.early = nil
	for _, p := range early {
		if p.epoch == l.Epoch {
			_, _ = t.push(p.route) // there were fewer than are kept
		}
	}
	t.changed.Send()
	return nil
}

func (t *Table) now() time.Time {
	if t.Now != nil {
		return t.Now()
	}
	return time.Now()
}
