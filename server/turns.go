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
	waiting list.List // of *turn
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
	place *list.Element // in the holder's queue; nil once it runs
	over  bool
	limit *time.Timer // ends it when it lasts too long; nil before it runs
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
	if t.over {
		return
	}
	t.over = true
	q := ts.of[t.of]
	if t.place != nil {
		q.waiting.Remove(t.place)
	} else {
		t.limit.Stop()
		q.running -= t.n
	}
	ts.next(t.of, q, now)
}

// next lets those run of a holder's calls that may, and forgets a holder
// without any.
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
			return
		}
		q.waiting.Remove(e)
		t.place = nil
		q.running += t.n
		t.limit = time.AfterFunc(cmp.Or(ts.lasts, turnLasts), func() { ts.end(t, time.Now()) })
		close(t.runs)
	}
	if q.running == 0 {
		delete(ts.of, h)
	}
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
