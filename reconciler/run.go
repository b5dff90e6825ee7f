package reconciler

import (
	"context"
	"maps"
	"net/netip"
	"time"

	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/workload"
)

const (
	// debounce is how long a look waits for more news, so that the news of one event is looked at once.
	debounce = 100 * time.Millisecond
	// pause is the least time between two passes that news ask for.
	pause = time.Second
	// share: after a look that found no news, Run rests so many times as long as the look took, so that
	// looks take a twentieth of a core at most. The shorter of the last two looks is used: one that
	// only lost its processor must not prolong the rest.
	share = 20
)

// Run makes a whole pass every Config.Every, and passes on what events have
// reported when a plan on it has something new to do, until ctx ends. Then it
// returns nil.
func (r *Reconciler) Run(ctx context.Context) error {
	r.life.Store(&ctx)
	defer r.life.Store(nil)
	// Three censuses must fit into the time that a quarantine lasts.
	every := min(r.Every, r.Quarantine/leastCensuses)
	if r.Last() == nil {
		r.try(ctx, reading{whole: true, probe: true})
	}
	due := time.NewTimer(every)
	defer due.Stop()
	var took time.Duration
	for {
		board, book := r.Board.Changed(), r.Book.Changed()
		rest := debounce
		look := r.look(ctx)
		if look.news {
			r.try(ctx, reading{probe: look.quarantined})
			rest = pause
		} else {
			rest = max(rest, share*min(took, look.took))
		}
		took = look.took
		switch r.idle(ctx, rest, look.again, due.C, board, book) {
		case stopped:
			return nil
		case wholeDue:
			r.try(ctx, reading{whole: true, probe: true})
			due.Reset(every)
		case kicked:
			r.try(ctx, reading{})
		}
	}
}

// What ends the time between two looks.
const (
	stopped = iota
	wholeDue
	kicked
	newsCame
)

// idle waits for something to do. The rest keeps only the news waiting: a whole
// pass comes in time, and a call of Alive is answered. A look at a
// large book on a busy machine takes half a second, and ten seconds of silence
// after it read as a reconciler that hangs. again is when time alone makes
// another look worth it; 0: never.
func (r *Reconciler) idle(ctx context.Context, rest, again time.Duration, due <-chan time.Time, board, book <-chan struct{}) int {
	resting := time.NewTimer(rest)
	defer resting.Stop()
	rested := false
	var kick, onBoard, inBook <-chan struct{}
	var timed <-chan time.Time
	if again > 0 {
		t := time.NewTimer(max(again, rest))
		defer t.Stop()
		timed = t.C
	}
	for {
		select {
		case <-ctx.Done():
			return stopped
		case r.pulse <- struct{}{}:
			if rested {
				return newsCame // what is due by time alone is news without an event
			}
		case <-resting.C:
			rested, kick, onBoard, inBook = true, r.kick, board, book
		case <-due:
			return wholeDue
		case <-timed:
			return newsCame
		case <-kick:
			return kicked
		case <-onBoard:
			return newsCame
		case <-inBook:
			return newsCame
		}
	}
}

// try makes a pass and ends its error's journey.
func (r *Reconciler) try(ctx context.Context, how reading) {
	if r.take(ctx) != nil {
		return
	}
	defer r.give()
	if _, err := r.pass(ctx, Mode{}, how); err != nil && ctx.Err() == nil {
		r.Log.Error("reconcile", "err", err)
	}
}

// A look is what a look at book and board shows.
type look struct {
	news        bool
	quarantined bool          // about a quarantined address
	again       time.Duration // until time alone may bring news; 0: never
	took        time.Duration
}

// look plans on what is in memory, asking beside that only where tasks live and what the history knows of
// leases that are claimed, and reports whether that has anything that the last pass did not know of. What a pass has tried in vain
// waits for the next whole one.
func (r *Reconciler) look(ctx context.Context) look {
	if r.take(ctx) != nil {
		return look{}
	}
	defer r.give()
	began := time.Now()
	book, _ := r.Book.Leases()
	v := r.view(ctx, book, false)
	v.unasked = make(map[netip.Addr]bool)
	ask, wait := toProbe(book, r.Board.About, r.asked)
	for _, a := range append(ask, wait...) {
		v.unasked[a] = true
	}
	d := v.plan(r.known, false)
	r.known.contests = d.contests // what a look observes of them is as good as a pass
	r.standing.Store(int64(d.standing))
	l := look{quarantined: !maps.Equal(v.quarantined(), r.quarantined), again: d.again}
	l.news = l.quarantined
	for i := range d.steps {
		s := &d.steps[i]
		l.news = l.news || s.soon || !r.tried[s.key()]
	}
	l.took = time.Since(began)
	return l
}

// A stepKey is what makes a step the same as one of another plan.
type stepKey struct {
	kind string
	addr netip.Addr
	rev  int64
}

func keys(steps []step) map[stepKey]bool {
	out := make(map[stepKey]bool, len(steps))
	for _, s := range steps {
		out[s.key()] = true
	}
	return out
}

func (s *step) key() stepKey { return stepKey{s.Kind, s.Addr, s.rev()} }

// quarantined returns which addresses are quarantined, and whether they are seen.
func (v *view) quarantined() map[netip.Addr]bool {
	out := make(map[netip.Addr]bool)
	for _, l := range v.book {
		if l.State == ipam.Quarantined {
			out[l.Addr] = len(workload.SeenOf(v.census, l)) > 0
		}
	}
	return out
}

// Alive returns nil as soon as Run shows that it goes on: it is between two
// passes, or has ended a step of one. Otherwise it returns an error that wraps
// ctx's. A pass may be long, but each of its steps has a deadline.
func (r *Reconciler) Alive(ctx context.Context) error { return r.pulse.Wait(ctx, "the passes") }
