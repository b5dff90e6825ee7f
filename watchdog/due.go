package watchdog

import (
	"slices"
	"time"

	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/ipam"
)

const (
	// firstWait and lastWait bound the back-off of attempts that nothing but
	// time asks for.
	firstWait = 50 * time.Millisecond
	lastWait  = 5 * time.Second
	// stuckWait is the longest back-off of a lease that waits for what news
	// announces: the end of a container, a task, a port, a sighting, a silence. At
	// lastWait a thousand releases that wait for their ports take half a processor.
	// It is also that of a bound lease whose containers are gone: most of those are
	// kept on purpose, and the reconciler looks at them too.
	stuckWait = time.Minute
	// firstPause and lastPause are the least time between two attempts that news
	// asks for. After an attempt that the clock asked for there is none, or a
	// container that goes just behind it would have its address wait.
	firstPause = 10 * time.Millisecond
	lastPause  = 100 * time.Millisecond
)

// A track is what is remembered of a lease between two attempts to confirm.
type track struct {
	lease *ipam.Lease
	newer *ipam.Lease // as it was read while an attempt was under way

	busy   bool // an attempt is under way
	slow   bool // the last one ended by its timeout
	warned bool // that it takes too long
	began  newsCounts
	ended  time.Time // of the last attempt; zero before the first
	found  []obstacle
	wait   time.Duration // after ended, until the next attempt
	pause  time.Duration // after ended, until one that news asks for
}

// newsCounts is how often the sources have had news so far.
type newsCounts struct{ runtime, ports uint64 }

// due returns when the next attempt is to begin. asked says that it is news
// that asks for it.
func (t *track) due(lifted bool) (at time.Time, asked bool) {
	if t.ended.IsZero() {
		return t.ended, false
	}
	at = t.ended.Add(t.wait)
	if soon := t.ended.Add(t.pause); lifted && soon.Before(at) {
		return soon, true
	}
	return at, false
}

// failed notes what an attempt found.
func (t *track) failed(found []obstacle, now time.Time, asked bool) {
	most := lastWait
	if t.lease.State != ipam.Releasing || !slices.ContainsFunc(found, obstacle.unannounced) {
		most = stuckWait
	}
	same := slices.EqualFunc(found, t.found, func(a, b obstacle) bool {
		return a.Kind == b.Kind && a.container == b.container && a.port == b.port
	})
	if t.wait = min(max(2*t.wait, firstWait), most); !same {
		t.wait = firstWait
	}
	if t.pause = min(max(2*t.pause, firstPause), lastPause); !asked {
		t.pause = 0
	}
	t.found, t.ended = found, now
}

// unannounced reports that no news of its own may announce an obstacle's end.
func (o obstacle) unannounced() bool {
	switch o.Kind {
	case KindContainer, KindTask:
		return false
	case KindPort:
		return o.port == ""
	case KindSighting, KindSilent:
		return o.witness == ""
	}
	return true
}

// fresh forgets the attempts, because the lease is another one now.
func (t *track) fresh(l *ipam.Lease) {
	t.lease, t.found, t.ended, t.wait, t.pause, t.slow, t.warned = l, nil, time.Time{}, 0, 0, false, false
}

// renew goes on with the lease as it was read during the attempt.
func (t *track) renew() {
	if t.newer != nil && t.newer.Rev > t.lease.Rev {
		t.fresh(t.newer)
	}
	t.newer = nil
}

// A view is what shows whether an obstacle may have gone.
type view struct {
	counts newsCounts
	there  func(Container) bool
	port   func(name string) bool // is one
	about  func() census.Answer   // about the lease's address
}

// lifted reports that news lets an attempt look promising: none of the
// obstacles that the last one met is known to stand. Asking the runtime and
// the kernel at every commit and every probe would cost more than all else.
func (t *track) lifted(v view) bool {
	var now *census.Answer
	for _, o := range t.found {
		switch o.Kind {
		case KindContainer:
			if v.counts.runtime == t.began.runtime || v.there(o.container) {
				return false
			}
		case KindTask:
			if v.counts.runtime == t.began.runtime {
				return false
			}
		case KindPort:
			if v.counts.ports == t.began.ports || o.port != "" && v.port(o.port) {
				return false
			}
		case KindSighting, KindSilent:
			if now == nil {
				a := v.about()
				now = &a
			}
			if stands(o, *now) {
				return false
			}
		case KindRuntime:
			if v.counts.runtime == t.began.runtime || stands(obstacle{Blocker: Blocker{Kind: KindSilent}, witness: census.Runtime}, v.about()) {
				return false
			}
		default: // only time ends it
			return false
		}
	}
	return true
}

// stands reports that a witness still sees the address, or still is silent.
func stands(o obstacle, now census.Answer) bool {
	if o.witness == "" {
		return true
	}
	if o.Kind == KindSighting {
		return slices.ContainsFunc(now.Seen, func(s census.Sighting) bool { return s.Witness == o.witness })
	}
	return slices.ContainsFunc(now.Silent, func(s census.Silence) bool { return s.Witness == o.witness })
}
