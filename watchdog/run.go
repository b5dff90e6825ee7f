package watchdog

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/ipamd/ipamd/netdb"
)

// Run confirms releases until ctx ends, and returns nil then, with no
// goroutine left. There is one Run at a time.
//
// Each attempt has a goroutine and a deadline of its own: one that waits for a
// stuck shim holds up nobody else. Attempts whose look-ups found nothing left
// meet in a second stage, which reads the kernel's news and the runtime's list
// once for all of them, and whose commits are shared.
func (w *Watchdog) Run(ctx context.Context) error {
	if !w.start() {
		return errors.New("run the watchdog: it runs already")
	}
	defer w.stop()
	var works sync.WaitGroup
	defer works.Wait()
	e := w.listen()
	var r reading
	for ctx.Err() == nil {
		now := time.Now()
		if e.news && !now.Before(r.next) {
			e.news = false
			w.read(&r)
		}
		next := w.begin(ctx, &works, &r, e.heard, now)
		if e.news && (next.IsZero() || r.next.Before(next)) {
			next = r.next
		}
		e.sleep(ctx, w.bell, next)
	}
	return nil
}

func (w *Watchdog) start() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	was := w.running
	w.running = true
	return !was
}

func (w *Watchdog) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.running = false
	clear(w.tracks)
	w.passed, w.poked = nil, nil
	w.broadcast()
}

// ears hold the channels that say "look again". Each is asked for anew before
// the reading that follows, so nothing that comes in between is lost.
type ears struct {
	sources [4]func() <-chan struct{}
	open    [4]<-chan struct{}
	heard   heard
	news    bool
}

// The sources by their place in ears.
const (
	earBook = iota
	earBoard
	earRuntime
	earPorts
)

func (w *Watchdog) listen() *ears {
	e := &ears{news: true}
	e.sources[earBook], e.sources[earBoard], e.sources[earPorts] = w.cfg.Book.Changed, w.cfg.Board.Changed, w.cfg.PortsChanged
	if w.cfg.Runtime != nil {
		e.sources[earRuntime] = w.cfg.Runtime.Changed
	}
	for i, source := range e.sources {
		if source != nil {
			e.open[i] = source()
		}
	}
	return e
}

// hear notes which sources have told something, and listens on.
func (e *ears) hear() {
	for i, ch := range e.open {
		select {
		case <-ch:
		default:
			continue
		}
		e.open[i] = e.sources[i]()
		e.news = true
		switch i {
		case earRuntime:
			e.heard.runtime++
		case earPorts:
			e.heard.ports++
		}
	}
}

// sleep returns when there is something to do: news, a bell, or the time next
// (zero: none). While news waits for its turn it is no reason to wake.
func (e *ears) sleep(ctx context.Context, bell <-chan struct{}, next time.Time) {
	var timer <-chan time.Time
	if !next.IsZero() {
		t := time.NewTimer(time.Until(next))
		defer t.Stop()
		timer = t.C
	}
	open := e.open
	if e.news {
		open = [4]<-chan struct{}{}
	}
	select {
	case <-ctx.Done():
	case <-bell:
	case <-timer:
	case <-open[earBook]:
	case <-open[earBoard]:
	case <-open[earRuntime]:
	case <-open[earPorts]:
	}
	e.hear()
}

// A reading is the whole state as it was last read, and what Run remembers of
// it from one reading to the next.
type reading struct {
	rows []*netdb.Lease
	rev  int64
	kin  *kin // of rows; nil until it is needed
	roll roll
	met  map[string][]Container // by lease id: seen to belong to it in this daemon's life
	next time.Time              // not before: a reading may not take more than a part of the time
}

const (
	// leastGap is the least time between two readings; a twentieth of a
	// processor is the most that they may take. A reading walks all leases.
	leastGap = 2 * time.Millisecond
	dutyGap  = 20
)

// read reads book and board, and decides which leases are to be confirmed.
func (w *Watchdog) read(r *reading) {
	began := time.Now()
	// The book first: a container of a lease that is not read yet belongs to
	// nobody, while a lease without its containers would look forsaken.
	if rev := w.cfg.Book.Rev(); r.rows == nil || rev != r.rev {
		r.rows, r.rev = w.cfg.Book.Leases()
		r.kin = nil
	}
	c := w.cfg.Board.Census()
	r.roll = newRoll(onBoard(c))
	answered := w.cfg.Runtime != nil && !silentRuntime(c)

	met := make(map[string][]Container)
	want := make(map[string]*netdb.Lease)
	for _, l := range r.rows {
		if l.State == netdb.Releasing {
			want[l.ID] = l
		} else if !l.State.Open() {
			continue
		}
		there := r.roll.of(l, heirs{})
		if was := r.met[l.ID]; len(was)+len(there) > 0 {
			met[l.ID] = remember(was, there, l)
		}
		if len(there) > 0 && len(r.kinship().bySandbox[l.Sandbox]) > 1 {
			there = r.roll.of(l, r.kinship().heirs(l))
		}
		if answered && removed(l, there, met[l.ID]) {
			want[l.ID] = l
		}
	}
	r.met = met
	w.track(r, want)
	r.next = time.Now().Add(max(leastGap, dutyGap*time.Since(began)))
}

// kinship returns who shares names with whom, of the rows as they were read.
func (r *reading) kinship() *kin {
	if r.kin == nil {
		r.kin = newKin(r.rows)
	}
	return r.kin
}

// mostMet bounds what is remembered of one lease; as many as it may record.
const mostMet = 256

// remember adds the containers that are there now to those that were. When
// they are too many, those that are neither there nor recorded go.
func remember(was []Container, there []Workload, l *netdb.Lease) []Container {
	out := slices.Clone(was)
	for _, w := range there {
		if !slices.Contains(out, w.Container) {
			out = append(out, w.Container)
		}
	}
	if len(out) > mostMet {
		out = slices.DeleteFunc(out, func(c Container) bool {
			return !slices.Contains(l.Containers, netdb.Container(c)) &&
				!slices.ContainsFunc(there, func(w Workload) bool { return w.Container == c })
		})
	}
	return out
}

// removed reports that a bound lease had containers and has none any more: it
// records some, all of those were seen in this daemon's life, and nothing that
// belongs to it is there. A paused one is never forsaken: a hibernated sandbox
// has no container.
func removed(l *netdb.Lease, there []Workload, met []Container) bool {
	if l.State != netdb.Bound || len(l.Containers) == 0 || len(there) > 0 {
		return false
	}
	return !slices.ContainsFunc(recorded(l), func(c Container) bool { return !slices.Contains(met, c) })
}
