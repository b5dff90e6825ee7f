package watchdog

import (
	"context"
	"encoding/json"
	"errors"
	"net/netip"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/internal/broadcast"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/workload"
)

// commits is how many confirmations wait for the book at once; they share
// their commits.
const commits = 64

// conclude is the second stage, of which one runs at a time: it takes all attempts that
// passed the first stage, until there are none.
func (w *Watchdog) conclude(ctx context.Context) {
	for {
		w.mu.Lock()
		batch := w.toConclude
		w.toConclude = nil
		if len(batch) == 0 {
			w.concluding = false
			w.mu.Unlock()
			return
		}
		w.mu.Unlock()
		w.confirm(ctx, batch)
		broadcast.Wake(w.wakeup)
	}
}

// confirm reads the kernel's news and the runtime's list once for all attempts, and moves
// the leases of which nothing is left to cooling.
//
// The kernel's entries are forgotten before the commit: a crash between the
// two costs nothing, while the other order would leave entries of an old owner
// behind on an address that may have a new one.
func (w *Watchdog) confirm(ctx context.Context, batch []*attempt) {
	ctx, cancel := context.WithTimeout(ctx, w.cfg.Timeout)
	defer cancel()
	ties := make([]Tie, len(batch))
	for i, a := range batch {
		ties[i] = workload.TieOf(a.lease)
	}
	in := w.survey(ctx, ties)
	clean := w.sift(batch, func(a *attempt) ([]obstacle, error) {
		if found := w.cfg.inTheMaking(a.lease); len(found) > 0 {
			return found, nil
		}
		wire := workload.About(w.cfg.Board, a.lease)
		a.facts.add(a.lease, a.leases, in, wire)
		a.facts.list = slices.DeleteFunc(a.facts.list, a.ignored(in.there, w.snapshot.of(w.cfg.Board)))
		found := obstacles(a.lease, a.facts, true)
		if len(found) == 0 {
			found = besideOf(ctx, w.cfg.Kernel, a.lease)
		}
		if a.lease.State == ipam.Releasing && len(found) > 0 {
			return w.quarantine(ctx, a, found, wire)
		}
		return found, nil
	})
	clean = w.sift(clean, func(a *attempt) ([]obstacle, error) {
		if a.lease.State == ipam.Releasing {
			return nil, nil
		}
		return w.releaseRemoved(ctx, a)
	})
	if len(clean) == 0 {
		return
	}
	gone := make([]netip.Prefix, len(clean))
	for i, a := range clean {
		gone[i] = a.lease.Prefix()
	}
	forgotten := w.cfg.Kernel.Forget(ctx, gone...)
	w.sift(clean, func(a *attempt) ([]obstacle, error) {
		if err := census.ErrorAbout(a.lease.Addr, forgotten); err != nil {
			return []obstacle{obstruct(KindUnconfirmed, "the kernel's entries of the address could not be deleted: %v", err)}, nil
		}
		return w.cool(ctx, a)
	})
}

// errOver ends a track: the lease cools, is quarantined, or is not what the
// attempt was about any more.
var errOver = errors.New("the attempt is over")

// sift takes a step with each attempt, many at once, and returns those that
// passed. An obstacle ends an attempt until the next, an error its track.
func (w *Watchdog) sift(batch []*attempt, step func(*attempt) ([]obstacle, error)) (clean []*attempt) {
	type result struct {
		found []obstacle
		err   error
	}
	results := make([]result, len(batch))
	var all errgroup.Group // a goroutine each: they wait for a shared commit
	all.SetLimit(commits)
	for i, a := range batch {
		all.Go(func() error {
			results[i].found, results[i].err = step(a)
			return nil
		})
	}
	_ = all.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, a := range batch {
		switch {
		case results[i].err != nil:
			w.end(a)
		case len(results[i].found) > 0:
			w.fail(a, results[i].found)
		default:
			clean = append(clean, a)
		}
	}
	return clean
}

// releaseRemoved releases a lease whose containers were removed without a release.
func (w *Watchdog) releaseRemoved(ctx context.Context, a *attempt) ([]obstacle, error) {
	l, err := w.cfg.Book.ReleaseAt(ctx, w.who(reasonRemoved), a.lease.ID, a.lease.Rev, w.unawaited(a.lease, w.unseen(a.lease, belonging(a.lease, a.leases))))
	if err != nil {
		return w.refused(a, err)
	}
	a.lease = l
	return nil, nil
}

// cool records a confirmation. It always ends the track or leaves an obstacle.
func (w *Watchdog) cool(ctx context.Context, a *attempt) ([]obstacle, error) {
	l, err := w.cfg.Book.Confirm(ctx, w.who(reasonConfirmed), a.lease.ID, a.lease.Rev, w.unseen(a.lease, a.belonging()))
	if err != nil {
		return w.refused(a, err)
	}
	took := w.cfg.Now().Since(a.lease.Since)
	if w.cfg.OnConfirm != nil {
		w.cfg.OnConfirm(l, took)
	}
	return nil, errOver
}

// quarantine quarantines an address that is still seen on the wire, if [quarantineReason] has a
// reason; else it returns what was found.
func (w *Watchdog) quarantine(ctx context.Context, a *attempt, found []obstacle, wire census.Answer) ([]obstacle, error) {
	strangers := a.leases.Strangers(a.lease, wire.Seen)
	others := slices.DeleteFunc(slices.Clone(wire.Seen), a.ignores)
	claimed := len(wire.Seen) > 0 && (len(others) == 0 || a.leases.Claimed(a.lease, others))
	reason := quarantineReason(found, strangers, claimed, w.cfg.Now().Since(a.lease.Since), w.cfg.ReleasingMax)
	if reason == "" {
		return found, nil
	}
	seen := wire.Seen
	if len(seen) == 0 { // it is in a namespace that no witness reads; evidence names the one that would, were a port to lead there
		for _, o := range found {
			seen = append(seen, census.Sighting{Addr: a.lease.Addr, Witness: census.Netns, Note: o.Detail})
		}
	}
	evidence, err := json.Marshal(seen)
	if err != nil {
		return []obstacle{obstruct(KindUnconfirmed, "who is seen there could not be written down: %v", err)}, nil
	}
	if _, err := w.cfg.Book.QuarantineReleasing(ctx, w.who(reason), a.lease.ID, a.lease.Rev, evidence); err != nil {
		return w.refused(a, err)
	}
	return nil, errOver
}

// refused turns an error of the book into the obstacle that the attempt ends with, or into errOver.
func (w *Watchdog) refused(a *attempt, err error) ([]obstacle, error) {
	switch {
	case errors.Is(err, errStillSeen):
		return w.seenAgain(a.lease, a.belonging()), nil
	case errors.Is(err, ErrAwaited):
		return []obstacle{ofAnswer()}, nil
	case moved(err):
		return nil, errOver
	}
	return []obstacle{obstruct(KindUnconfirmed, "the book could not record it: %v", err)}, nil
}

// moved reports that the lease is not as it was when an action was decided.
func moved(err error) bool {
	return errors.Is(err, ipam.ErrStale) || errors.Is(err, ipam.ErrState) ||
		errors.Is(err, ipam.ErrGone) || errors.Is(err, ipam.ErrNotFound)
}

func (w *Watchdog) who(reason string) ipam.Who {
	return ipam.Who{Actor: ipam.ByWatchdog, Reason: reason}
}
