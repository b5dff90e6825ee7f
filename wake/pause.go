package wake

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ipamd/ipamd/internal/broadcast"
	"github.com/ipamd/ipamd/ipam"
)

// A Catcher begins flights by the traffic to paused sandboxes; *catch.Catcher is one.
type Catcher interface {
	// Watches is an error when the traffic to a lease cannot be watched.
	Watches(l *ipam.Lease) error
	// Unwatched is Watches of many leases, as of the call.
	Unwatched() func(l *ipam.Lease) error
	// Sync watches for all that the book has paused by now.
	Sync(ctx context.Context) error
}

// CatchBy has the traffic to paused sandboxes watched. It is called before anything else is,
// or not at all: then a policy of traffic is refused because of why.
func (f *Flights) CatchBy(c Catcher, why error) { f.catcher, f.blind = c, why }

// Unwatched returns what says why the traffic to a lease cannot be watched, nil where it can.
func (f *Flights) Unwatched() func(*ipam.Lease) error {
	if f.catcher == nil {
		return func(*ipam.Lease) error { return f.blind }
	}
	return f.catcher.Unwatched()
}

// Pause records that a sandbox is paused, how, and what wakes it. What this daemon cannot do
// is refused with what is missing for it, and nothing is recorded. Once it is answered, traffic
// that the policy names begins a flight: what comes before the sandbox stands still is answered
// by itself, and what comes later wakes it.
//
// With how.Do the tasks are paused as well, once the traffic is watched: a flight that begins
// meanwhile waits for that, and then resumes them. What cannot be paused is resumed, and the
// lease is as it was; where that fails, too, it stays paused, and a flight goes on with it. Other leases of the sandbox that have a policy are paused with it.
func (f *Flights) Pause(ctx context.Context, who ipam.Who, id string, ifRev int64, how ipam.Sleep) (*ipam.Lease, error) {
	l, err := f.cfg.Book.Lease(id)
	if err != nil {
		return nil, err
	}
	if err := f.can(l, how); err != nil {
		return nil, err
	}
	if !how.Do {
		all, err := f.record(ctx, who, id, ifRev, how)
		if err != nil {
			return nil, err
		}
		return all[0].l, nil
	}
	return f.doPause(ctx, who, id, ifRev, how, nil)
}

// Repause pauses a bound lease as it was paused before, as seen at a revision, unless there was
// traffic before it was watched: quiet is asked once it is.
func (f *Flights) Repause(ctx context.Context, l *ipam.Lease, quiet func() error) error {
	s := f.cfg.Book.Sleep(l.ID)
	if s == nil || !s.Do || s.Wake == nil {
		return fmt.Errorf("pause %s again: %w: nothing says how", l.Addr, ipam.ErrState)
	}
	how := ipam.Sleep{Mode: s.Mode, Do: true, Wake: s.Wake}
	if err := f.can(l, how); err != nil {
		return err
	}
	_, err := f.doPause(ctx, itself("idle_paused"), l.ID, l.Rev, how, quiet)
	return err
}

// doPause records the pause and freezes the tasks, if it is quiet between the two.
func (f *Flights) doPause(ctx context.Context, who ipam.Who, id string, ifRev int64, how ipam.Sleep, quiet func() error) (*ipam.Lease, error) {
	l, unlock, err := f.lockLease(ctx, id)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if quiet != nil && l.State != ipam.Bound {
		return nil, fmt.Errorf("pause %s again: %w: it is %s", l.Addr, ipam.ErrState, l.State)
	}
	all, err := f.record(ctx, who, id, ifRev, how)
	if err != nil {
		return nil, err
	}
	if quiet != nil {
		if err := quiet(); err != nil {
			f.takeBack(ctx, all, "not_idle")
			return nil, err
		}
	}
	return f.freeze(ctx, all, &how)
}

// can is what is missing for a pause, as an [ipam.FieldError].
func (f *Flights) can(l *ipam.Lease, how ipam.Sleep) error {
	if err := how.Check(l.Addr); err != nil {
		return err
	}
	if _, can := f.cfg.Resumer.(Pauser); how.Do && !can {
		return &ipam.FieldError{Field: "do", Reason: "this daemon has nothing to pause by (wake.resumer is event): pause the tasks, and leave do out"}
	}
	if how.Do && len(l.Containers) == 0 {
		return &ipam.FieldError{Field: "do", Reason: "the lease records no container that could be paused: bind it with containers"}
	}
	if how.Wake == nil {
		return nil
	}
	if f.cfg.FreezeOnly && len(l.Containers) == 0 {
		return &ipam.FieldError{Field: "wake", Reason: "the lease records no container that could be resumed: bind it with containers, or have a resumer event or exec"}
	}
	if how.Mode == ipam.Hibernate && f.cfg.FreezeOnly {
		return &ipam.FieldError{Field: "mode", Reason: "wake.resumer makes no task anew that is gone: leave wake out, or have a resumer event or exec"}
	}
	if f.catcher == nil {
		return &ipam.FieldError{Field: "wake", Reason: fmt.Sprintf("this daemon cannot watch the ports' traffic (%v): leave wake out, and wake by POST /v1/leases/{id}/wake", f.blind)}
	}
	if how.Wake.RepauseAfter > 0 && !f.cfg.Counts {
		return &ipam.FieldError{Field: "wake.repause_after", Reason: "this daemon does not look at traffic (idle.after is 0s): set it, or leave repause_after out"}
	}
	return f.catcher.Watches(l)
}

// A moved is a lease that is recorded as paused, and how, its state before, and what was recorded
// of its sleep then.
type moved struct {
	l      *ipam.Lease
	how    ipam.Sleep
	was    ipam.State
	before *ipam.Sleep // nil: nothing
}

// record has the pause in the book and the traffic watched, or neither. The lease itself is the
// first; behind it are those that stand still with it.
func (f *Flights) record(ctx context.Context, who ipam.Who, id string, ifRev int64, how ipam.Sleep) ([]moved, error) {
	before, err := f.cfg.Book.Lease(id)
	if err != nil {
		return nil, err
	}
	slept := f.cfg.Book.Sleep(id)
	l, err := f.cfg.Book.PauseAs(ctx, who, id, ifRev, how)
	if err != nil {
		return nil, err
	}
	all := []moved{{l, how, before.State, slept}}
	if how.Do {
		if all, err = f.recordBeside(ctx, all); err != nil {
			f.takeBack(ctx, all, "not_paused")
			return nil, err
		}
	}
	if how.Wake == nil && len(all) == 1 {
		return all, nil
	}
	if err := f.catcher.Sync(ctx); err != nil {
		f.takeBack(ctx, all, "not_watched")
		return nil, &ipam.FieldError{Field: "wake", Reason: fmt.Sprintf("the kernel does not take the rules that watch for traffic: %v", err)}
	}
	return all, nil
}

// recordBeside pauses the other leases of a sandbox that have a policy, as ipamd is about to freeze
// the tasks that they record, too: what comes for them must find them watched.
func (f *Flights) recordBeside(ctx context.Context, all []moved) ([]moved, error) {
	for _, other := range f.cfg.Book.OpenOf(all[0].l.UID) {
		s := f.cfg.Book.Sleep(other.ID)
		shared := slices.ContainsFunc(other.Containers, func(c ipam.Container) bool { return slices.Contains(all[0].l.Containers, c) })
		if other.ID == all[0].l.ID || !shared || s == nil || s.Wake == nil || f.catcher == nil || f.catcher.Watches(other) != nil {
			continue
		}
		how := ipam.Sleep{Mode: ipam.Freeze, Do: true, Wake: s.Wake}
		if other.State == ipam.Paused {
			if s.Mode != ipam.Freeze {
				continue
			}
			how.Do = s.Do
		}
		switch l, err := f.cfg.Book.PauseAs(ctx, itself("sandbox_paused"), other.ID, 0, how); {
		case err == nil:
			all = append(all, moved{l, how, other.State, s})
		case !errors.Is(err, ipam.ErrGone) && !errors.Is(err, ipam.ErrState): // else it was released
			return all, err
		}
	}
	return all, nil
}

// takeBack has leases that were paused in vain be as they were: bound, or paused as before.
func (f *Flights) takeBack(ctx context.Context, all []moved, reason string) {
	for _, m := range all {
		_, err := f.cfg.Book.TakeBack(context.WithoutCancel(ctx), itself(reason), m.l.ID, m.l.Since, m.how, m.was, m.before)
		if err != nil && !errors.Is(err, ipam.ErrState) && !errors.Is(err, ipam.ErrGone) { // else others have moved it since
			f.cfg.Log.Warn("a pause could not be taken back", "lease", m.l.ID, "addr", m.l.Addr, "err", err)
		}
	}
}

// freeze pauses the tasks of a sandbox whose leases are recorded as paused, and records that they
// are. The caller has locked the tasks. That the caller hangs up in between ends nothing.
func (f *Flights) freeze(ctx context.Context, all []moved, how *ipam.Sleep) (*ipam.Lease, error) {
	l := all[0].l
	within := f.cfg.Wait
	if how.Wake != nil && how.Wake.Wait > 0 {
		within = how.Wake.Wait
	}
	apart := context.WithoutCancel(ctx)
	bounded, cancel := context.WithTimeout(apart, within)
	defer cancel()
	defer untilStopped(f.life.Load(), 0, cancel)()
	if end, has := ctx.Deadline(); has {
		bounded, cancel = context.WithDeadline(bounded, end)
		defer cancel()
	}
	err := until(bounded, func() error { return f.cfg.Resumer.(Pauser).Pause(bounded, l, how) })
	if err == nil {
		now, failed := f.frozen(apart, all)
		if failed == nil {
			return now, nil
		}
		err = failed
	}
	if errors.Is(err, ErrRefused) {
		err = fmt.Errorf("%w: %w", ipam.ErrState, err)
	}
	if left := f.unfreeze(apart, all, how); left != nil {
		return nil, fmt.Errorf("pause the tasks of %s: %w; what was paused could not be resumed: it stays paused, and a wake goes on with it: %w", l.Addr, err, left)
	}
	return nil, fmt.Errorf("pause the tasks of %s: %w", l.Addr, err)
}

// undoWithin bounds what a call that fails takes back.
const undoWithin = 5 * time.Second

// unfreeze resumes the tasks of a sandbox that were paused in vain, and has its leases be as they were.
// After an error some stand still yet: what was bound stays paused, as a bound lease is woken by nothing,
// and a flight goes on with it, also after a restart.
//
// A sandbox that stood still before the pause is left so: to resume it would wake it.
func (f *Flights) unfreeze(ctx context.Context, all []moved, how *ipam.Sleep) error {
	l := all[0].l
	if stoodStill(f.cfg.Book, all[0]) {
		f.takeBack(ctx, all, "not_frozen")
		return nil
	}
	undo, end := context.WithTimeout(ctx, min(f.cfg.Wait, undoWithin)) // the call may be over: a flight goes on with the rest
	defer end()
	defer untilStopped(f.life.Load(), aMoment, end)() // what is not resumed by then stays paused in the book, and is woken after the start
	err := until(undo, func() error { return f.cfg.Resumer.Resume(undo, l, how) })
	if err == nil || errors.Is(err, ErrRefused) {
		f.takeBack(ctx, all, "not_frozen")
		return nil
	}
	f.cfg.Log.Warn("tasks that were paused in vain could not be resumed", "lease", l.ID, "addr", l.Addr, "err", err)
	for _, m := range all {
		if m.was == ipam.Paused {
			f.takeBack(ctx, []moved{m}, "not_frozen")
			continue
		}
		_, _, begin := f.Wake(ctx, itself(""), m.l.ID, ipam.Cause{By: ipam.ByCall}, nil)
		if begin != nil && !errors.Is(begin, ipam.ErrState) && !errors.Is(begin, ipam.ErrGone) { // else others have moved it since
			f.cfg.Log.Warn("a step of a wake could not be recorded", "step", "begin", "lease", m.l.ID, "flight", "", "err", begin)
		}
	}
	return err
}

// stoodStill reports that the tasks of a lease were frozen before it was paused once more, and that nobody has
// moved it since.
func stoodStill(b Book, m moved) bool {
	now, err := b.Lease(m.l.ID)
	return err == nil && now.State == ipam.Paused && now.Since.Same(m.l.Since) &&
		m.was == ipam.Paused && m.before != nil && m.before.Mode == ipam.Freeze && m.before.Still && !m.before.Plain
}

// frozen records that the tasks of leases stand still. A pass that read the tasks before they did
// may have resumed a lease, or is about to: the first is met here, the other one by the revision of
// this change.
func (f *Flights) frozen(ctx context.Context, all []moved) (first *ipam.Lease, err error) {
	for _, m := range all {
		now, err := f.cfg.Book.Frozen(ctx, itself("frozen"), m.l.ID, m.l.Since)
		if first == nil {
			if err != nil {
				return nil, err
			}
			first = now
			continue
		}
		if err == nil {
			continue
		}
		if now, lost := f.cfg.Book.Lease(m.l.ID); lost == nil && now.State.Open() { // else it was released meanwhile
			return nil, err
		}
	}
	return first, nil
}

// untilStopped calls end so long after the daemon, which lives as long as life, stops, unless its result is
// called first. nil is one that has not begun.
func untilStopped(life *context.Context, after time.Duration, end func()) (done func()) {
	if life == nil {
		return func() {}
	}
	stop := context.AfterFunc(*life, func() { time.AfterFunc(after, end) })
	return func() { stop() }
}

// until tries a step until it is done, refused or ctx ends.
func until(ctx context.Context, step func() error) error {
	for pause := firstRetry; ; pause = min(2*pause, lastRetry) {
		err := step()
		if err == nil || errors.Is(err, ErrRefused) {
			return err
		}
		if !broadcast.Pause(ctx, pause) {
			return fmt.Errorf("%w: %w", ctx.Err(), err)
		}
	}
}

// Resume records that a paused sandbox runs again. Tasks that this daemon has paused it
// resumes first.
func (f *Flights) Resume(ctx context.Context, who ipam.Who, id string, ifRev int64) (*ipam.Lease, error) {
	s := f.cfg.Book.Sleep(id)
	if s == nil || !s.Do || f.cfg.Resumer == nil {
		return f.resumed(ctx, who, id, ifRev, f.cfg.Book.Resume)
	}
	l, unlock, err := f.lockLease(ctx, id)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if l.State != ipam.Paused || ifRev != 0 && ifRev != l.Rev {
		return f.resumed(ctx, who, id, ifRev, f.cfg.Book.Resume)
	}
	if err := until(ctx, func() error { return f.cfg.Resumer.Resume(ctx, l, s) }); err != nil {
		if errors.Is(err, ErrRefused) {
			return nil, fmt.Errorf("resume the tasks of %s: %w: %w", l.Addr, ipam.ErrState, err)
		}
		return nil, fmt.Errorf("resume the tasks of %s: %w", l.Addr, err)
	}
	return f.resumed(context.WithoutCancel(ctx), who, id, 0, f.cfg.Book.Resume)
}

// Seen records that a pass has seen the tasks of a lease stand still, or run. Those that this
// daemon pauses or resumes itself are asked anew, alone: what was seen may be earlier than that, and
// a lease that is bound while its tasks stand still is woken by nothing. So what is recorded to run is
// resumed first: of several tasks one may run, as a daemon that ended in the midst of a freeze or of a
// wake leaves them. What is not so by now is [ipam.ErrStale], and so is a sandbox that is being paused or
// resumed for longer than a moment: a pass must not hang on one. A nil f asks nothing, and records.
func (f *Flights) Seen(ctx context.Context, who ipam.Who, id string, rev int64, frozen bool, record func(context.Context, ipam.Who, string, int64) (*ipam.Lease, error)) (*ipam.Lease, error) {
	if f == nil {
		return record(ctx, who, id, rev)
	}
	teller, can := f.cfg.Resumer.(Teller)
	if s := f.cfg.Book.Sleep(id); !can || s == nil || !s.Do {
		return f.resumed(ctx, who, id, rev, record)
	}
	patience, cancel := context.WithTimeout(ctx, aMoment)
	l, unlock, err := f.lockLease(patience, id)
	cancel()
	if err != nil {
		if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
			return nil, fmt.Errorf("lease %s: %w: its tasks are being paused or resumed", id, ipam.ErrStale)
		}
		return nil, err
	}
	defer unlock()
	switch now, err := teller.Frozen(ctx, l); {
	case err != nil:
		return nil, err
	case now != frozen:
		return nil, fmt.Errorf("%s: %w: its tasks were paused or resumed meanwhile", l.Addr, ipam.ErrStale)
	}
	if s := f.cfg.Book.Sleep(id); !frozen && l.State == ipam.Paused && (rev == 0 || rev == l.Rev) && s != nil && s.Do {
		// Where the resumer refuses no other attempt helps, and something of it runs.
		patience, cancel := context.WithTimeout(ctx, aMoment)
		err := f.cfg.Resumer.Resume(patience, l, s)
		cancel()
		if err != nil && !errors.Is(err, ErrRefused) {
			return nil, fmt.Errorf("resume the other tasks of %s: %w: %w", l.Addr, ipam.ErrStale, err)
		}
	}
	return f.resumed(ctx, who, id, rev, record)
}
