package census

import (
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/ipamd/ipamd/internal/broadcast"
)

// A Board holds the last report of every witness, indexed by address. The hot
// path of an allocation reads it, so [Board.About] takes one read lock and
// does no work that grows with the number of sightings.
//
// A report is divided into scopes, the smallest parts that a witness can read
// again on its own: a namespace, a container, a probed address. What is in a
// scope is replaced as a whole, so a lost or doubled event costs nothing.
//
// Witnesses of several bridges report each by a [Part] of the board.
//
// All methods are safe for concurrent use.
type Board struct {
	now func() time.Time

	mu      sync.RWMutex
	order   []source
	records map[source]*record
	byAddr  map[netip.Addr][]entry
	parts   int                          // bridges that have one
	place   func(addr netip.Addr) string // see LocateBy
	changed broadcast.Signal
}

// A source is one witness, on one bridge: "" is a witness of all of them, and of the one
// bridge where there are no parts.
type source struct {
	witness Witness
	bridge  string
}

// entry is one sighting in the index, with the source and the scope that it came by.
type entry struct {
	from  source
	scope string
	seen  Sighting
}

type record struct {
	scopes map[string][]Sighting
	err    error
	since  time.Time
}

// notReported is the silence of a witness before its first report.
type notReported struct{}

func (notReported) Error() string { return "has not reported yet" }

// NewBoard returns a board that expects the given witnesses: each is silent
// until it reports.
func NewBoard(expected ...Witness) *Board {
	b := &Board{
		now:     time.Now,
		records: make(map[source]*record),
		byAddr:  make(map[netip.Addr][]entry),
		place:   func(netip.Addr) string { return "" },
	}
	for _, w := range expected {
		b.record(source{w, ""}).err = notReported{}
	}
	return b
}

func (b *Board) record(s source) *record {
	r := b.records[s]
	if r == nil {
		r = &record{scopes: make(map[string][]Sighting), since: b.now()}
		b.records[s] = r
		b.order = append(b.order, s)
	}
	return r
}

// Replace posts a whole report: scopes hold everything the witness sees. An
// incomplete report (a container whose labels cannot be read) counts as seen
// for what it names and as silence for the rest; incomplete is nil when the
// report is whole.
func (b *Board) Replace(w Witness, scopes map[string][]Sighting, incomplete error) {
	b.replace(source{w, ""}, scopes, incomplete)
}

func (b *Board) replace(from source, scopes map[string][]Sighting, incomplete error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	r := b.record(from)
	for scope := range r.scopes {
		if _, keep := scopes[scope]; !keep {
			b.setScope(from, r, scope, nil, false)
		}
	}
	for scope, seen := range scopes {
		b.setScope(from, r, scope, seen, false)
	}
	b.setErr(r, incomplete)
	b.changed.Send()
}

// ReplaceScope posts one scope of a witness; no sightings means that the
// scope is not seen. It says nothing about the other scopes and does not end a
// silence.
func (b *Board) ReplaceScope(w Witness, scope string, seen []Sighting) {
	b.replaceScope(source{w, ""}, scope, seen)
}

func (b *Board) replaceScope(from source, scope string, seen []Sighting) {
	b.mu.Lock()
	defer b.mu.Unlock()
	r := b.record(from)
	if len(seen) == 0 && len(r.scopes[scope]) == 0 {
		return
	}
	b.setScope(from, r, scope, seen, true)
	b.changed.Send()
}

// Silence says that a witness could not answer. What it saw before stands:
// unknown is never gone.
func (b *Board) Silence(w Witness, reason error) { b.silence(source{w, ""}, reason) }

func (b *Board) silence(from source, reason error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.setErr(b.record(from), reason)
	b.changed.Send()
}

func (b *Board) setErr(r *record, err error) {
	if (err == nil) != (r.err == nil) {
		r.since = b.now()
	}
	r.err = err
}

// setScope replaces a scope. Its work grows with what the scope holds, and the
// index is changed by what came and went: one guest may have thousands of addresses.
// alone says that the report is of this scope alone.
func (b *Board) setScope(from source, r *record, scope string, seen []Sighting, alone bool) {
	old := r.scopes[scope]
	before := sharing(old)
	kept := make([]Sighting, len(seen))
	for i, s := range seen {
		s.Witness = from.witness
		s.Addr = s.Addr.Unmap().WithZone("")
		kept[i] = b.begun(b.dated(s, old, alone), before(s.Addr))
	}
	if slices.Equal(kept, old) {
		return // as nearly all of a whole report is
	}
	after := sharing(kept)
	for _, s := range old {
		if !slices.Contains(after(s.Addr), s) {
			b.unindex(entry{from, scope, s})
		}
	}
	for _, s := range kept {
		if !slices.Contains(before(s.Addr), s) {
			b.index(entry{from, scope, s})
		}
	}
	r.scopes[scope] = kept
	if len(kept) == 0 {
		delete(r.scopes, scope)
	}
}

// sharing finds those of some sightings that can be of an address.
func sharing(all []Sighting) func(netip.Addr) []Sighting {
	const few = 8 // most scopes hold one
	if len(all) <= few {
		return func(netip.Addr) []Sighting { return all }
	}
	of := make(map[netip.Addr][]Sighting, len(all))
	for _, s := range all {
		of[s.Addr] = append(of[s.Addr], s)
	}
	return func(a netip.Addr) []Sighting { return of[a] }
}

// atOnce is how far two readings of when a process was started may be apart.
const atOnce = time.Second

// dated dates what a container's task does: a task that does the same as before keeps the moment,
// whatever its container claims by now. All that is in a scope is of one container.
func (b *Board) dated(s Sighting, old []Sighting, alone bool) Sighting {
	if s.Container == "" {
		return s
	}
	s.TaskAt, s.Resumed, s.StoodAt = b.now(), false, time.Time{}
	if alone && s.Task == "paused" {
		s.StoodAt = s.TaskAt
	}
	if len(old) == 0 {
		return s
	}
	o := old[0]
	if s.PID == o.PID && s.Began.Sub(o.Began).Abs() < atOnce {
		s.Began = o.Began
	}
	if s.StoodAt.IsZero() && s.PID != 0 && s.PID == o.PID {
		s.StoodAt = o.StoodAt
	}
	switch another := o.PID != 0 && s.PID != 0 && o.PID != s.PID; {
	case another:
	case o.Task == s.Task:
		s.TaskAt, s.Resumed = o.TaskAt, o.Resumed
	default:
		s.Resumed = alone && o.Task == "paused" && s.Task == "running"
	}
	return s
}

// begun dates a sighting: one that stands keeps the moment it began, whatever
// its task does, and however it or that is worded: else a claim that waits for a person
// would look new when its task stops, and be adopted.
func (b *Board) begun(s Sighting, old []Sighting) Sighting {
	for _, o := range old {
		same := s
		same.At, same.Task, same.TaskAt, same.PID, same.Leads, same.Says, same.Unread, same.Note = o.At, o.Task, o.TaskAt, o.PID, o.Leads, o.Says, o.Unread, o.Note
		same.Resumed, same.StoodAt, same.Began = o.Resumed, o.StoodAt, o.Began
		if same == o {
			s.At = o.At
			return s
		}
	}
	if s.At.IsZero() {
		s.At = b.now()
	}
	return s
}

// index keeps the sightings of an address in the order of what they show: a
// container first, a mere answer on the wire last.
func (b *Board) index(e entry) {
	of := b.byAddr[e.seen.Addr]
	if slices.Contains(of, e) {
		return // a report may say a thing twice
	}
	at := len(of)
	for at > 0 && rank(e.seen.Witness) < rank(of[at-1].seen.Witness) {
		at--
	}
	b.byAddr[e.seen.Addr] = slices.Insert(of, at, e)
}

func rank(w Witness) int {
	return slices.Index([]Witness{Runtime, Netns, Host, Neighbour, Probe}, w)
}

// unindex takes one out, if it is there.
func (b *Board) unindex(e entry) {
	of := b.byAddr[e.seen.Addr]
	at := slices.Index(of, e)
	switch {
	case at < 0:
	case len(of) == 1:
		delete(b.byAddr, e.seen.Addr)
	default:
		b.byAddr[e.seen.Addr] = slices.Delete(of, at, at+1)
	}
}

// Changed returns a channel that is closed at the next report. It carries no
// payload: look again.
func (b *Board) Changed() <-chan struct{} { return b.changed.Next() }
