package server

import (
	"cmp"
	"container/list"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/ipamd/ipamd/api"
)

// How many calls of one holder have a turn at once; the others wait for one of
// those to end. A commit takes all that wait for one, so a holder by itself needs
// many for its throughput, and somebody beside it needs few of them before
// it: with four hundred, a lone call took a hundred times as long as with none.
const (
	runAlone  = 64
	runBeside = 8
	// listingTurns is how many turns a listing takes: of those beside each other
	// one is enough.
	listingTurns = runBeside
	// turnLasts is how long a turn lasts at the most. A call that needs longer
	// waits for a disk, for the book's lock or for containerd, and takes nothing
	// from anybody meanwhile. Its peer's others would all be late for that.
	turnLasts = 50 * time.Millisecond
	// asksFor is how long somebody counts as asking after a call of his has
	// begun: what a client does between two calls is mostly shorter. Who asks less
	// often than that finds one commit of the many before him, no more.
	asksFor = 100 * time.Millisecond
)

// A turns says which calls run. Each holder has a queue of its own, first
// come, first served, so that nobody waits here for somebody else's call. The
// zero value is ready.
type turns struct {
	lasts time.Duration // 0: turnLasts

	mu     sync.Mutex
	of     map[holder]*queue // those with a call that runs or waits
	newest asked             // the last call
	before asked             // the last call of another holder than newest's
}

type queue struct {
	running int       // the turns that were given and have not ended
	given   list.List // those, as *turn: the oldest first
	waiting list.List // of *turn
	limit   *time.Timer
}

type asked struct {
	by holder
	at time.Time
}

// A turn is one call's. It counts for as many as are said when it is asked for.
type turn struct {
	of   holder
	n    int
	runs chan struct{} // closed when the call may run

	// Under the lock of the turns.
	place *list.Element // in waiting, then in given; nil once it is over
	since time.Time     // it runs; zero before
}

// ask takes a turn that counts for n, or a place in the queue. One of a holder's
// may always run.
func (ts *turns) ask(h holder, n int, now time.Time) *turn {
	t := &turn{of: h, n: n, runs: make(chan struct{})}
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if ts.newest.by != h {
		ts.before = ts.newest
	}
	ts.newest = asked{h, now}
	q := ts.of[h]
	if q == nil {
		if ts.of == nil {
			ts.of = make(map[holder]*queue)
		}
		q = new(queue)
		ts.of[h] = q
	}
	t.place = q.waiting.PushBack(t)
	ts.next(h, q, now)
	return t
}

// end gives a turn back, or leaves the queue. One that has ended stays so.
func (ts *turns) end(t *turn, now time.Time) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if t.place == nil {
		return
	}
	q := ts.of[t.of]
	if t.since.IsZero() {
		q.waiting.Remove(t.place)
		t.place = nil
	} else {
		q.take(t)
	}
	ts.next(t.of, q, now)
}

// take ends a turn that runs.
func (q *queue) take(t *turn) {
	q.given.Remove(t.place)
	t.place = nil
	q.running -= t.n
}

// next lets those run of a holder's calls that may, and forgets a holder
// without any. While one has to wait, turns that last too long end: only then is
// there a timer, which would wake a processor for each call.
func (ts *turns) next(h holder, q *queue, now time.Time) {
	most, other := runAlone, ts.newest
	if other.by == h {
		other = ts.before
	}
	if now.Sub(other.at) < asksFor {
		most = runBeside
	}
	for e := q.waiting.Front(); e != nil; e = q.waiting.Front() {
		t := e.Value.(*turn)
		if q.running > 0 && q.running+t.n > most {
			ts.late(h, q, now)
			return
		}
		q.waiting.Remove(e)
		t.place, t.since = q.given.PushBack(t), now
		q.running += t.n
		close(t.runs)
	}
	if q.limit != nil {
		q.limit.Stop()
		q.limit = nil
	}
	if q.running == 0 {
		delete(ts.of, h)
	}
}

// late sees to it that the oldest turn ends in time.
func (ts *turns) late(h holder, q *queue, now time.Time) {
	if q.limit != nil {
		return
	}
	lasts := cmp.Or(ts.lasts, turnLasts)
	left := lasts - now.Sub(q.given.Front().Value.(*turn).since)
	q.limit = time.AfterFunc(max(left, 0), func() {
		ts.mu.Lock()
		defer ts.mu.Unlock()
		if ts.of[h] != q || q.limit == nil {
			return
		}
		q.limit = nil
		now := time.Now()
		for e := q.given.Front(); e != nil && now.Sub(e.Value.(*turn).since) >= lasts; e = q.given.Front() {
			q.take(e.Value.(*turn))
		}
		ts.next(h, q, now)
	})
}

// turnsOf is how many turns a call of the verb takes, 0 when it waits for none.
// Those that say how the daemon is never wait; and a pass or a diagnosis waits for
// containerd and the kernel.
func turnsOf(v api.Verb) int {
	switch v {
	case api.VerbHealth, api.VerbReady, api.VerbMetrics, api.VerbVersion, api.VerbDoctor, api.VerbReconcile:
		return 0
	case api.VerbLeases, api.VerbChanges:
		return listingTurns
	}
	return 1
}

// turn waits until the call may run. Its deadline begins here, and its request
// has been read as a whole: net/http notices that a peer hangs up only from
// then on.
func (s *Server) turn(c *call) error {
	now := time.Now()
	c.due = now.Add(s.cfg.Deadline)
	n := turnsOf(c.end.Verb)
	if n == 0 {
		return nil
	}
	t := s.turns.ask(c.peer.holder, n, now)
	c.turn = t
	select {
	case <-t.runs:
		return nil
	default:
	}
	ctx, cancel := c.context()
	defer cancel()
	select {
	case <-t.runs:
		return nil
	case <-ctx.Done():
		s.pass(c)
		return fmt.Errorf("%s: wait for other calls of the same peer: %w", c.end.Verb, context.Cause(ctx))
	}
}

// pass gives the call's turn back, if it has one: it ends, or it is about to
// wait for something that none of its peer's other calls needs to wait for.
func (s *Server) pass(c *call) {
	if c.turn != nil {
		s.turns.end(c.turn, time.Now())
		c.turn = nil
	}
}
