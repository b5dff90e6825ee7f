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
	// mostAhead bounds what pushes may bring ahead of the stream: some 20 MB, and 60 with the longest names. A push
	// beyond it is refused, which loses nothing, for the stream brings the same later.
	mostAhead = 1 << 16
	// doubtAfter is how long a pushed revision may be above all that the daemon says to
	// have: a push is sent after its commit, so the daemon's next word is not below it.
	doubtAfter = time.Minute
	// lookEvery is the least time between two looks for pushes that cannot be true.
	lookEvery = 5 * time.Second
)

var (
	// ErrList means: list again, and give that list to [Table.Replace], none that was asked
	// for before. The epoch is another, or there was no list yet: then nothing was changed.
	// Or what was pushed cannot be true: the daemon's own news was taken in.
	ErrList = errors.New("the routes are to be listed again")
	// ErrOldList means that the list is older than the table. Nothing was changed.
	ErrOldList = errors.New("the list is older than the table")
	// ErrFull means that pushes are further ahead of the stream than is remembered.
	// Nothing was changed; the stream brings the same.
	ErrFull = errors.New("too many pushes are ahead of the stream")
)

// A Table maps sandbox ids to their addresses. Its zero value is empty and not ready.
// All methods are safe for concurrent use. A look-up takes no lock and allocates nothing: it
// waits for no list, and neither for other look-ups nor for a writer.
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
	looked   time.Time  // when pushes were last looked at
	cells    map[netip.Addr]*cell
	ahead    map[netip.Addr]lead               // of cells above the position
	notify   func(sandbox string, has []Route) // of each whose routes change; nil: of none
	early    early                             // of epochs that are not listed yet
	former   []string                          // epochs that were listed before
	kept     int                               // cells with a route
	sum      uint64                            // of their hashes
}

// A cell is the last that is known of an address. It has no route once the lease ended,
// and is kept while the stream has not passed its revision.
type cell struct {
	revision int64
	kept     bool   // it has a route
	sandbox  string // whose that is
	hash     uint64 // of the route
}

// A lead is how a cell came to be above the position.
type lead struct {
	since   time.Time // its revision was pushed
	doubted bool      // by the daemon's word long after
}

// Lookup returns the best route of a sandbox: one that is served, if it has one. A
// sandbox without a route has ended, or the table is not ready.
func (t *Table) Lookup(sandbox string) (Route, bool) {
	of, ok := t.index.Load().of(sandbox)
	return of.best, ok
}

// Ready reports whether there was a complete list. Before, a sandbox without a route
// may well be alive.
func (t *Table) Ready() bool { return t.index.Load() != nil }

// Routes returns all routes of a sandbox, the best first.
func (t *Table) Routes(sandbox string) []Route {
	of, ok := t.index.Load().of(sandbox)
	if !ok {
		return nil
	}
	return append([]Route{of.best}, of.more...)
}

// All returns every route, by sandbox, the best of each first. It copies them all, and
// writers wait for that.
func (t *Table) All() []Route {
	t.mu.Lock()
	all := t.index.Load().routes()
	t.mu.Unlock()
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
	if t.put(&r) {
		t.changed.Send()
	}
	t.settle(r.Addr)
	return t.doubt()
}

// Bookmark takes in that the stream is complete up to a revision.
func (t *Table) Bookmark(epoch string, revision int64) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.epoch == "" || epoch != t.epoch {
		return ErrList
	}
	t.word = t.now()
	t.position, t.latest = max(t.position, revision), max(t.latest, revision)
	return t.doubt()
}

// doubt asks for a list when something that was pushed cannot be true. It is called at each
// news of the daemon's: one that is never idle has no other moment for it.
func (t *Table) doubt() (err error) {
	if len(t.ahead) == 0 || t.word.Sub(t.looked) < lookEvery {
		return nil
	}
	t.looked = t.word
	for addr, l := range t.ahead {
		switch {
		case t.cells[addr].revision <= t.position: // the stream passed it and did not bring it
			t.settle(addr)
			err = ErrList
		case t.word.Sub(l.since) > doubtAfter: // the daemon is not there yet
			t.ahead[addr], err = lead{l.since, true}, ErrList
		}
	}
	return err
}

// Push takes in news that a peer brought. It reports whether that was newer than what
// the table had; news of an epoch that is not listed yet is kept for its list, and that of
// a former one is none.
func (t *Table) Push(epoch string, r Route) (newer bool, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.epoch == "" || epoch != t.epoch {
		if slices.Contains(t.former, epoch) {
			return false, nil
		}
		return false, t.early.add(epoch, r)
	}
	return t.push(r)
}

func (t *Table) push(r Route) (newer bool, err error) {
	c := t.cells[r.Addr]
	_, leads := t.ahead[r.Addr]
	switch {
	case r.Revision <= t.position, c != nil && r.Revision <= c.revision:
		return false, nil // up to the position the table is complete
	case !leads && len(t.ahead) >= mostAhead:
		return false, ErrFull
	}
	t.ahead[r.Addr] = lead{since: t.now()}
	t.latest = max(t.latest, r.Revision)
	if t.put(&r) {
		t.changed.Send()
	}
	return true, nil
}

// put makes r what is known of its address, unless something newer is, and reports
// whether a route changed by it. A route that stays as it was has the new revision.
//
// The route that was there goes first: between the two steps no reader resolves to the
// address.
func (t *Table) put(r *Route) (changed bool) {
	c := t.cells[r.Addr]
	if c == nil {
		c = &cell{}
		t.cells[r.Addr] = c
	} else if c.revision > r.Revision {
		return false
	}
	before, x := *c, t.index.Load()
	*c = cellOf(r)
	t.count(before, -1)
	t.count(*c, 1)
	if before.kept && !(c.kept && c.sandbox == before.sandbox) {
		x.drop(before.sandbox, r)
		t.report(before.sandbox)
	}
	if c.kept {
		x.put(r)
		t.report(c.sandbox)
	}
	return before.kept || c.kept
}

// report says that a sandbox's routes changed.
func (t *Table) report(sandbox string) {
	if t.notify != nil {
		t.notify(sandbox, t.Routes(sandbox))
	}
}

// cellOf is what r says of its address.
func cellOf(r *Route) cell {
	if !Kept(r.State) {
		return cell{revision: r.Revision}
	}
	return cell{r.Revision, true, r.Sandbox, r.hash()}
}

// count takes a cell into what the status says, or out of it.
func (t *Table) count(c cell, by int) {
	if c.kept {
		t.kept += by
		t.sum += uint64(by) * c.hash
	}
}

// settle forgets of an address what the position says as well.
func (t *Table) settle(addr netip.Addr) {
	c := t.cells[addr]
	if c == nil || c.revision > t.position {
		return
	}
	if len(t.ahead) > 0 {
		delete(t.ahead, addr)
	}
	if !c.kept {
		delete(t.cells, addr)
	}
}

func (t *Table) now() time.Time {
	if t.Now != nil {
		return t.Now()
	}
	return time.Now()
}
