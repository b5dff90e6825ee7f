package watchdog

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/internal/broadcast"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/workload"
)

// An attempt is one try to confirm that a lease's workload is gone.
type attempt struct {
	lease      *ipam.Lease
	unrecorded []Container // that belong to it, or did, beside the recorded ones
	leases     *workload.Leases
	byName     []Container        // that may belong to it by the sandbox's name alone
	graceOver  bool               // byNameGrace is over
	reassigned map[Container]bool // of the recorded ones, those that are another lease's by now
	facts      facts
	asked      bool // news asked for it, and not the clock
	slow       bool // it has one of the few slots for leases whose last attempt ended by its timeout
}

// track has a track for each lease that is to be confirmed, and no other.
func (w *Watchdog) track(want map[string]*ipam.Lease) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for id, t := range w.tracks {
		if want[id] == nil && !t.busy {
			delete(w.tracks, id)
		}
	}
	for _, l := range want {
		w.follow(l)
	}
}

// follow opens the track of a lease, or a fresh one when the lease has
// changed; w.mu is held.
func (w *Watchdog) follow(l *ipam.Lease) {
	t := w.tracks[l.ID]
	if t == nil {
		t = &track{lease: l}
		w.tracks[l.ID] = t
	}
	switch {
	case t.lease.Rev == l.Rev:
	case t.busy:
		t.newer = l
	default:
		t.fresh(l)
	}
}

// begin starts the attempts that are due, as many as there is room for, and
// returns when the next one will be; zero when none waits.
//
// Book and bridge are asked before w.mu is taken; see the order of locks at
// [Watchdog].
func (w *Watchdog) begin(ctx context.Context, works *sync.WaitGroup, r *reading, h newsCounts, now time.Time) (next time.Time) {
	released, byPort := w.wanted()
	leases := w.releasing(released)
	if byPort {
		r.readPorts(w.cfg.Kernel, h.ports)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, l := range leases {
		w.follow(l)
	}
	type dueTrack struct {
		*track
		at    time.Time
		asked bool
	}
	var queue []dueTrack
	for _, t := range w.tracks {
		if t.busy {
			continue
		}
		at, asked := t.due(t.lifted(view{
			counts: h,
			there:  func(c Container) bool { return r.stands(t.lease, c) },
			port:   func(name string) bool { return r.ports[name] },
			about:  func() census.Answer { return workload.About(w.cfg.Board, t.lease) },
		}))
		if !at.After(now) {
			queue = append(queue, dueTrack{t, at, asked})
		} else if next.IsZero() || at.Before(next) {
			next = at
		}
	}
	slices.SortFunc(queue, func(a, b dueTrack) int { return a.at.Compare(b.at) })
	for _, t := range queue {
		if w.slots >= w.cfg.Parallel {
			break // the end of one wakes Run
		}
		// One that ended by its timeout may not take every slot again.
		if t.slow && w.slow >= max(1, w.cfg.Parallel/2) {
			continue
		}
		w.slots++
		if t.slow {
			w.slow++
		}
		t.busy, t.began = true, h
		x := r.allLeases()
		a := &attempt{lease: t.lease, unrecorded: r.index.of(t.lease, x, true), leases: x, reassigned: r.index.reassigned(t.lease, x),
			asked: t.asked, slow: t.slow}
		a.byName = r.index.byNameAlone(t.lease, a.unrecorded)
		a.unrecorded = slices.DeleteFunc(a.unrecorded, func(c Container) bool { return slices.Contains(a.byName, c) })
		works.Go(func() { w.try(ctx, works, a) })
	}
	return next
}

// wanted takes the ids of leases that were released just now, and reports
// whether any lease waits for a port to go.
func (w *Watchdog) wanted() (released []string, byPort bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	released, w.justReleased = w.justReleased, nil
	for _, t := range w.tracks {
		byPort = byPort || slices.ContainsFunc(t.found, func(o obstacle) bool { return o.Kind == KindPort })
	}
	return released, byPort
}

// releasing reads those of the leases that are releasing.
func (w *Watchdog) releasing(ids []string) (out []*ipam.Lease) {
	for _, id := range ids {
		if l, err := w.cfg.Book.Lease(id); err == nil && l.State == ipam.Releasing {
			out = append(out, l)
		}
	}
	return out
}

// try is the first stage of an attempt: what is asked for one lease alone.
func (w *Watchdog) try(ctx context.Context, works *sync.WaitGroup, a *attempt) {
	own, cancel := context.WithTimeout(ctx, w.cfg.Timeout)
	defer cancel()
	a.facts = w.look(own, a.lease, a.unrecorded, a.reassigned, a.leases)
	w.askByName(own, a)
	found := obstacles(a.lease, a.facts, false)
	if len(found) == 0 && a.lease.State != ipam.Releasing { // that it ends was decided with the release
		found = w.askOwner(own, a.lease.Sandbox)
	}
	late := own.Err() != nil

	w.mu.Lock()
	defer w.mu.Unlock()
	w.slots--
	if a.slow {
		w.slow--
	}
	defer broadcast.Wake(w.wakeup)
	w.tracks[a.lease.ID].slow = late
	if len(found) > 0 {
		w.fail(a, found)
		return
	}
	w.toConclude = append(w.toConclude, a)
	if !w.concluding {
		w.concluding = true
		works.Go(func() { w.conclude(ctx) })
	}
}

// fail notes what stands in the way; w.mu is held.
func (w *Watchdog) fail(a *attempt, found []obstacle) {
	t := w.tracks[a.lease.ID]
	t.busy, t.lease = false, a.lease
	t.failed(found, time.Now(), a.asked)
	if left := w.grace(a.lease); a.lease.State == ipam.Releasing && left > 0 {
		t.wait = min(t.wait, left)
	}
	if waited := w.cfg.Now().Since(a.lease.Since); a.lease.State == ipam.Releasing && waited >= w.cfg.ReleasingMax && !t.warned {
		t.warned = true
		w.cfg.Log.Warn("a release is not confirmed for long", "addr", a.lease.Addr, "sandbox", a.lease.Sandbox,
			"lease", a.lease.ID, "blocker", found[0].Kind, "detail", found[0].Detail, "for", waited.Round(time.Second))
	}
	t.renew()
	w.ended.Send()
}

// end closes a lease's track: it cools, is quarantined, or is not what the
// attempt was about any more; w.mu is held.
func (w *Watchdog) end(a *attempt) {
	if t := w.tracks[a.lease.ID]; t.newer == nil || t.newer.Rev <= a.lease.Rev {
		delete(w.tracks, a.lease.ID)
	} else {
		t.busy = false
		t.renew()
	}
	w.ended.Send()
}
