package reconciler

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"

	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/workload"
)

// abreast is how many releases of a pass are under way at once. Each asks the
// runtime, where one frozen container must not hold up all.
const abreast = 8

// clearsAbreast is how many quarantines end at once. Those that do share a walk of all tracked connections, which takes
// a third of a second at 100 000 of them.
const clearsAbreast = 64

// apply does what a plan decided, each step at the revision it was decided on.
// What a step comes to is written into it; findings come back. First what
// keeps addresses, in their order; then what releases them.
func (r *Reconciler) apply(ctx context.Context, steps []step) []Finding {
	var findings []Finding
	for i := range steps {
		s := &steps[i]
		switch s.Kind {
		case Clear, Expire, Reap:
			continue
		}
		err := r.keep(ctx, s)
		s.end(err)
		r.pulse.Beat()
		if errors.Is(err, ipam.ErrQuarantineFull) {
			findings = append(findings, Finding{Kind: quarantineFull, Addr: s.Addr, Source: quarantinedFor(s.evidence), Repair: "ipamctl quarantine ls",
				Detail: s.Reason + "; it is not quarantined, because quarantined addresses have their share of the pool already. While it is seen it is not given"})
		}
	}
	var g, clears errgroup.Group // waited for below
	g.SetLimit(abreast)
	clears.SetLimit(clearsAbreast)
	for i := range steps {
		s := &steps[i]
		switch s.Kind {
		case Clear, Expire, Reap:
			if s.Result != Braked {
				of := &g
				if s.Kind == Clear {
					of = &clears
				}
				of.Go(func() error { s.end(r.release(ctx, s)); r.pulse.Beat(); return nil })
			}
		}
	}
	_, _ = g.Wait(), clears.Wait() // none of them returns one: each has written its own
	r.logSteps(steps)
	return findings
}

// quarantineFull is the kind of finding that only a pass can make.
const quarantineFull = "quarantine_full"

// errSkipped ends a step that a last look, or a limit, speaks against.
type errSkipped struct{ why string }

func (e errSkipped) Error() string { return e.why }

// end writes down what a step came to.
func (s *step) end(err error) {
	var skipped errSkipped
	var owned *ipam.OwnedError
	switch {
	case err == nil:
		s.Result = Done
	case errors.As(err, &skipped):
		s.Result, s.Reason = Skipped, s.Reason+"; but "+skipped.why
	case errors.Is(err, ipam.ErrStale), errors.Is(err, ipam.ErrGone), errors.Is(err, ipam.ErrState), errors.As(err, &owned):
		s.Result = Skipped // the next pass looks again
	default:
		s.Result, s.Err = Skipped, err.Error()
	}
}

func by(reason string) ipam.Who { return ipam.Who{Actor: ipam.ByReconciler, Reason: reason} }

func (r *Reconciler) keep(ctx context.Context, s *step) (err error) {
	l := s.lease
	switch s.Kind {
	case Adopt:
		if l, err = r.Book.Adopt(ctx, by("adopted"), s.adopt); err == nil {
			s.LeaseID = l.ID
		}
	case Bind:
		why := "seen_running"
		if len(s.bind.Containers) == 0 {
			why = "seen_plugged"
		}
		l, err = r.Book.Bind(ctx, by(why), l.ID, l.Rev, s.bind)
	case Quarantine:
		if l, err = r.Book.QuarantineAt(ctx, by(ipam.SeenOnWire), s.Addr, s.rev(), s.evidence); err == nil {
			s.LeaseID = l.ID
		}
	case ConflictSeen:
		if !r.notes.AllowN(r.Now().Wall, 1) {
			return errSkipped{"the history has its share of such notes for now"}
		}
		_, err = r.Book.ConflictAt(ctx, by(ConflictSeen), l.ID, l.Rev, s.evidence)
	case ConflictOver:
		_, err = r.Book.ConflictOverAt(ctx, by(ConflictOver), l.ID, l.Rev, s.evidence)
	case Pause:
		_, err = r.Book.Pause(ctx, by(ipam.RuntimePaused), l.ID, l.Rev)
	case Still:
		_, err = r.Book.Still(ctx, by("seen_still"), l.ID, l.Rev)
	case Resume:
		if l, err = r.Book.Resume(ctx, by("runtime_running"), l.ID, l.Rev); err == nil && len(s.bind.Containers) > 0 {
			_, err = r.Book.Bind(ctx, by("seen_running"), l.ID, l.Rev, s.bind)
		}
	default:
		return fmt.Errorf("%s %s: no such step", s.Kind, s.Addr)
	}
	if err == nil && s.paused {
		_, err = r.Book.Pause(ctx, by(ipam.RuntimePaused), l.ID, l.Rev)
	}
	return err
}

func (r *Reconciler) release(ctx context.Context, s *step) error {
	l := s.lease
	done, why := true, ""
	var err error
	switch s.Kind {
	case Clear:
		if why, err = r.Watchdog.Left(ctx, l); err != nil {
			return fmt.Errorf("look for what is left of %s: %w", l.Addr, err)
		} else if why != "" {
			return errSkipped{why}
		}
		_, err = r.Book.ClearAt(ctx, by("not_seen"), l.ID, l.Rev, r.stillUnseen(l))
	case Expire:
		done, why, err = r.Watchdog.Expire(ctx, l, "expired")
	case Reap:
		done, why, err = r.Watchdog.Reap(ctx, l, "reaped")
	}
	if err == nil && !done {
		return errSkipped{cmp.Or(why, "a last look spoke against it")}
	}
	return err
}

// stillUnseen is asked in the transaction that has a quarantined address cool: what a
// plan was made of may be a thousand steps old by then.
func (r *Reconciler) stillUnseen(l *ipam.Lease) func() error {
	return func() error {
		switch now := workload.About(r.Board, l); {
		case len(now.Seen) > 0:
			return errSkipped{fmt.Sprintf("the %s witness sees it%s", now.Seen[0].Witness, now.Seen[0].Where())}
		case len(now.Silent) > 0:
			return errSkipped{fmt.Sprintf("the %s witness cannot answer: %s", now.Silent[0].Witness, now.Silent[0].Reason)}
		}
		return nil
	}
}

// logSteps logs why things were done, a line each beside the one of the change,
// and what went wrong, in one line: with a full disk it is the same for all.
func (r *Reconciler) logSteps(steps []step) {
	failed, first := 0, ""
	for _, s := range steps {
		switch {
		case s.Result == Done:
			r.Log.Debug("reconciled", "action", s.Kind, "addr", s.Addr, "lease", s.LeaseID, "sandbox", s.Sandbox, "detail", s.Reason)
		case s.Err != "":
			failed++
			first = cmp.Or(first, s.Err)
		}
	}
	if failed > 0 {
		r.Log.Warn("reconcile: steps could not be done", "steps", failed, "err", first)
	}
}
