package watchdog

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/internal/broadcast"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/workload"
)

// releaseLook bounds how long the answer to a release waits for a look at what
// is left of the workload.
const releaseLook = 250 * time.Millisecond

// Release records that the owner releases the lease. A lease that was never
// bound, that every witness answers not to see, and that none has seen since it
// was handed out, ends at once and comes back free; the probe is asked again
// before any other gets the address. Every other lease is releasing; it comes
// back cooling when nothing of its workload was left, else with what stands in
// the way, by a look that was taken now or, if that takes too long, by the
// records. A runtime or a kernel that hangs makes it releasing, and holds up the
// answer for no more than half of what is left of ctx.
//
// Errors are those of [netdb.Book.Release]. When ctx ends after the release
// was recorded, the release stands and so does its answer.
func (w *Watchdog) Release(ctx context.Context, who ipam.Who, id, uid string, ifRev int64) (*ipam.Lease, []Blocker, error) {
	l, err := w.cfg.Book.Lease(id)
	if err == nil && l.State == ipam.Reserved && (uid == "" || uid == l.UID) && (ifRev == 0 || ifRev == l.Rev) && ctx.Err() == nil {
		by := who
		by.Actor = ipam.ByWatchdog
		own, cancel := w.ownContext(ctx)
		freed, _, err := w.freeUnbound(own, by, l)
		late := own.Err() != nil
		cancel()
		switch {
		case freed != nil:
			w.awaiting.end(id)
			return freed, nil, nil
		case err != nil && !late && !errors.Is(err, errStillSeen) && !errors.Is(err, errWasSeen) && !errors.Is(err, ipam.ErrCools) && !moved(err):
			return nil, nil, err
		}
	}
	if l, err = w.cfg.Book.Release(ctx, who, id, uid, ifRev); err != nil {
		return nil, nil, err
	}
	w.awaiting.end(id)
	l = w.waitForAttempt(ctx, l)
	return l, w.Blockers(l), nil
}

// waitForAttempt waits, no longer than releaseLook, until Run has looked at what is left of a
// lease that was released just now, and returns the lease as it is then.
func (w *Watchdog) waitForAttempt(ctx context.Context, l *ipam.Lease) *ipam.Lease {
	ctx, cancel := context.WithTimeout(ctx, releaseLook)
	defer cancel()
	for poked := false; l.State == ipam.Releasing; poked = true {
		w.mu.Lock()
		ended, t := w.ended.Next(), w.tracks[l.ID]
		known := !w.running || t != nil && t.lease.Rev >= l.Rev && lasting(t.found)
		if !poked && !known {
			w.justReleased = append(w.justReleased, l.ID)
			broadcast.Wake(w.wakeup)
		}
		w.mu.Unlock()
		if known {
			return l
		}
		// The lease is read after the channel was taken: a confirmation that
		// comes in between is not slept through.
		now, err := w.cfg.Book.Lease(l.ID)
		if err != nil {
			return l // it cooled, and the address has been given again
		}
		if l = now; l.State != ipam.Releasing {
			return l
		}
		select {
		case <-ended:
		case <-ctx.Done():
			return l
		}
	}
	return l
}

// lasting reports that not only the runtime witness stands in the way, whose next event
// may end that: a container's record is gone a moment before its witness has read it.
func lasting(found []obstacle) bool {
	return slices.ContainsFunc(found, func(o obstacle) bool {
		return o.Kind == KindSilent || o.witness != census.Runtime
	})
}

// Blockers says what keeps a lease's address from being reusable: what the
// last attempt to confirm found or, before the first, what the records and the
// board say. There is nothing for one that cools or is free.
func (w *Watchdog) Blockers(l *ipam.Lease) []Blocker {
	if l.State == ipam.Cooling || l.State == ipam.Free {
		return nil
	}
	w.mu.Lock()
	var found []obstacle
	if t := w.tracks[l.ID]; t != nil && t.lease.Rev == l.Rev {
		found = t.found
	}
	w.mu.Unlock()
	if len(found) == 0 {
		found = onRecord(l, workload.About(w.cfg.Board, l))
	}
	return plain(found)
}

// Blocked counts the releasing leases by the kind of their first blocker. It
// walks all leases.
func (w *Watchdog) Blocked() map[string]int {
	out := make(map[string]int)
	for _, l := range w.cfg.Book.InState(ipam.Releasing) {
		out[w.Blockers(l)[0].Kind]++
	}
	return out
}

// onRecord says what stands in the way before anything was asked: all that a
// lease records.
func onRecord(l *ipam.Lease, wire census.Answer) (out []obstacle) {
	for _, c := range l.Containers {
		out = append(out, obstruct(KindContainer, "container %s: its removal is not confirmed", c))
	}
	if l.HostInterface != "" {
		out = append(out, obstruct(KindPort, "port %s: its removal is not confirmed", l.HostInterface))
	}
	if l.Netns != "" {
		out = append(out, obstruct(KindPort, "network namespace %s: its removal is not confirmed", l.Netns))
	}
	if out = append(out, onWire(wire)...); len(out) == 0 {
		out = append(out, obstruct(KindUnconfirmed, "no witness sees it; the confirmation is still to come"))
	}
	return out
}
