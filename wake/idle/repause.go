package idle

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/ipamd/ipamd/ipam"
)

// mostPausing bounds how many sandboxes are paused at once.
const mostPausing = 16

// The rest of a sandbox that could not be paused: it doubles.
const (
	firstRest = time.Second
	mostRest  = 5 * time.Minute
)

// A repausing is a sandbox that is being paused again, or that could not be.
type repausing struct {
	busy bool
	next time.Time // not before
	rest time.Duration
}

// errTraffic means that a sandbox had traffic after it was found idle.
var errTraffic = fmt.Errorf("%w: it had traffic meanwhile", ipam.ErrState)

// repause has a sandbox paused again whose policy asks for it, beside others, so that one that
// cannot be frozen holds up none. It is false where that has to wait.
func (w *Watcher) repause(ctx context.Context, l *ipam.Lease, all []*ipam.Lease, quiet time.Duration) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := w.pausing[l.UID]
	if p == nil {
		p = new(repausing)
	}
	if p.busy || time.Now().Before(p.next) {
		return p.busy
	}
	p.busy = w.pauses.TryGo(func() error {
		err := w.pauseAgain(ctx, l, all, quiet)
		w.mu.Lock()
		defer w.mu.Unlock()
		p.busy = false
		if err == nil || errors.Is(err, errTraffic) || errors.Is(err, ipam.ErrStale) {
			delete(w.pausing, l.UID)
			return nil
		}
		p.rest = min(max(firstRest, 2*p.rest), mostRest)
		p.next = time.Now().Add(p.rest)
		return nil
	})
	if p.busy {
		w.pausing[l.UID] = p
	}
	return p.busy
}

// forget drops what is known of sandboxes that are not awake any more. The caller holds mu.
func (w *Watcher) forget(awake map[string][]*ipam.Lease) {
	maps.DeleteFunc(w.pausing, func(uid string, p *repausing) bool { return !p.busy && awake[uid] == nil })
}

// pauseAgain pauses a sandbox, unless one of its leases has had traffic by the time that its traffic
// is watched.
func (w *Watcher) pauseAgain(ctx context.Context, l *ipam.Lease, all []*ipam.Lease, quiet time.Duration) error {
	began := time.Now()
	err := w.cfg.Pauser.Repause(ctx, l, func() error {
		if err := w.Read(); err != nil {
			return err
		}
		if w.unseenUntil().After(began.Add(-quiet / 2)) {
			return errTraffic
		}
		for _, one := range all {
			if at, known := w.LastTraffic(one); known && at.After(began.Add(-quiet/2)) {
				return errTraffic
			}
		}
		return nil
	})
	if err != nil && !over(err) && ctx.Err() == nil {
		w.cfg.Log.Warn("an idle sandbox could not be paused", "lease", l.ID, "addr", l.Addr, "err", err)
	}
	return err
}
