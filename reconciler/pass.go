package reconciler

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/internal/broadcast"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/workload"
)

// Mode is how a pass that was asked for is made.
type Mode struct {
	Preview bool // plan, do nothing and remember nothing
	// Confirm: a person has looked. It lifts the brakes on how much is released
	// and believes another runtime from now on; a silent witness stays one.
	Confirm bool
}

// Pass reads everything anew, compares once, and does what is safe. Passes
// are made one at a time; a caller waits for the passes before its own and gets the report of
// its own.
//
// An error means that no pass was made. A step that cannot be done is written in
// the report. While Run runs, a pass that was begun hangs on Run's context and
// not on the caller's: a client that hangs up must not read as a witness that
// went silent.
func (r *Reconciler) Pass(ctx context.Context, m Mode) (*Report, error) {
	if err := r.take(ctx); err != nil {
		return nil, err
	}
	defer r.give()
	if life := r.life.Load(); life != nil {
		ctx = *life
	}
	return r.pass(ctx, m, reading{whole: true, probe: true})
}

func (r *Reconciler) take(ctx context.Context) error {
	select {
	case r.passing <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for the pass before: %w", ctx.Err())
	}
}

func (r *Reconciler) give() { <-r.passing }

// A reading is how much is asked before a plan is made.
type reading struct {
	whole bool // kernel and runtime anew; else what events have shown
	probe bool // the wire about quarantined addresses that it has seen
}

// pass makes a pass; the caller holds passing.
func (r *Reconciler) pass(ctx context.Context, m Mode, how reading) (*Report, error) {
	began := r.Now()
	before := r.asked
	v, err := r.read(ctx, how, m.Confirm && !m.Preview)
	if err != nil {
		return nil, err
	}
	d := v.plan(r.known, m.Confirm)
	rep := &Report{
		Started: began.Wall, Preview: m.Preview, Complete: v.census.Complete(), Silent: v.census.Silent,
		Leases: len(v.book), Seen: len(v.census.Seen), Absent: d.absent, Held: d.held, Findings: d.findings,
	}
	if _, claimless := v.census.Seen[netip.Addr{}]; claimless {
		rep.Seen--
	}
	rep.AbsentSince = make(map[string]time.Time, len(d.missed))
	for id, missed := range d.missed {
		rep.AbsentSince[id] = missed.since.Wall
	}
	r.dateHeld(rep)
	if m.Preview {
		r.asked = before
	} else {
		r.known, r.tried, r.quarantined = d.memory, keys(d.steps), v.quarantined()
		r.standing.Store(int64(d.standing))
		rep.Findings = append(rep.Findings, r.dateFull(rep, r.apply(ctx, d.steps))...)
		sortFindings(rep.Findings)
	}
	for _, s := range d.steps {
		rep.Actions = append(rep.Actions, s.Action)
	}
	rep.Took = r.Now().Since(began)
	if !m.Preview {
		r.publish(rep, how)
	}
	return rep, nil
}

// dateHeld says since when releases are held. A pass is held anew each time, and
// what an operator wants to know is for how long.
func (r *Reconciler) dateHeld(rep *Report) {
	if rep.Held == nil {
		return
	}
	rep.Held.Since = rep.Started
	if before := r.last.Load(); before != nil && before.Held != nil {
		rep.Held.Since = before.Held.Since
	}
}

// dateFull says since when addresses could not be quarantined: since the first of
// the passes in a row that tried.
func (r *Reconciler) dateFull(rep *Report, found []Finding) []Finding {
	first := make(map[netip.Addr]time.Time)
	if before := r.last.Load(); before != nil {
		for _, f := range before.Findings {
			if f.Kind == quarantineFull {
				first[f.Addr] = f.Since
			}
		}
	}
	for i := range found {
		found[i].Since = rep.Started
		if since, was := first[found[i].Addr]; was {
			found[i].Since = since
		}
	}
	return found
}

// publish makes a report the last one. A pass on news releases nothing, so
// what the whole pass before it held is held yet.
func (r *Reconciler) publish(rep *Report, how reading) {
	before := r.last.Load()
	if !how.whole && before != nil {
		rep.Held = before.Held
	}
	switch was := before != nil && before.Held != nil; {
	case rep.Held != nil && !was:
		r.Log.Warn("reconcile: releases are held until an operator confirms", "reason", rep.Held.Reason,
			"releases", rep.Held.Releases, "most", rep.Held.Most, "next", "ipamctl reconcile --preview")
	case rep.Held == nil && was:
		r.Log.Info("reconcile: releases are not held any more")
	}
	r.last.Store(rep)
	if r.OnPass != nil {
		r.OnPass(rep)
	}
}

// read takes the book first and the census second, so that what is missing
// from the census cannot be younger than the row that is compared with it.
//
// With accept, the runtime that answered this reading is believed.
func (r *Reconciler) read(ctx context.Context, how reading, accept bool) (*view, error) {
	book, _ := r.Book.Leases()
	unasked, err := r.probe(ctx, book, how.probe)
	if err != nil {
		return nil, err
	}
	var failed error
	if how.whole {
		failed = r.Refresh(ctx)
	}
	if err := r.Settle(ctx); err != nil {
		failed = err
	}
	if ctx.Err() != nil {
		return nil, fmt.Errorf("read kernel and runtime: %w", ctx.Err())
	}
	if accept && r.Instance != nil {
		if err := r.Instance.Accept(ctx); err != nil {
			return nil, fmt.Errorf("accept the runtime: %w", err)
		}
	}
	if how.whole {
		r.lookBeside(ctx, book)
	}
	v := r.view(ctx, book, how.whole)
	v.unasked = unasked
	if failed != nil && v.census.Complete() {
		// A witness that failed should have fallen silent. That none did is no
		// reason to take the board for whole.
		v.census.Silent = append(v.census.Silent, census.Silence{Witness: "reading", Reason: failed.Error(), Since: v.now.Wall})
	}
	if how.whole {
		r.lookUp(ctx, v)
	}
	return v, nil
}

// view reads the board, and what is known of the claims on it.
func (r *Reconciler) view(ctx context.Context, book []*ipam.Lease, whole bool) *view {
	c := addBeside(r.Board.Census(), r.beside, book)
	v := &view{policy: r.policy(), book: book, census: c, whole: whole, now: r.Now()}
	v.index()
	r.prove(ctx, v)
	if r.Instance != nil {
		v.changed = r.Instance.Err()
	}
	return v
}

// lookUp asks about the workload of every lease that this pass would reap: its containers,
// each by its id, or what the kernel alone shows. An error is no answer.
func (r *Reconciler) lookUp(ctx context.Context, v *view) {
	_, _, overdue := v.missed(r.known.missed)
	var mu sync.Mutex
	v.gone = make(map[string]bool)
	var g errgroup.Group // waited for below
	g.SetLimit(abreast)
	for _, l := range v.book {
		if !overdue[l.ID] || len(l.Containers) == 0 && !workload.ByKernelAlone(l) {
			continue
		}
		g.Go(func() error {
			if gone, err := r.Watchdog.Gone(ctx, l, v.leases); err == nil && gone {
				mu.Lock()
				v.gone[l.ID] = true
				mu.Unlock()
			}
			r.pulse.Beat() // a hundred frozen shims take minutes
			return nil
		})
	}
	_ = g.Wait() // none of them returns one
}

// probe asks the wire again for every quarantined address that a probe has
// seen, and waits out the window. They are quarantined, so none is
// given one in between. It returns those that were not asked about: of them
// this pass knows nothing.
func (r *Reconciler) probe(ctx context.Context, book []*ipam.Lease, now bool) (unasked map[netip.Addr]bool, err error) {
	ask, wait := toProbe(book, r.Board.About, r.asked)
	if !now {
		ask, wait = nil, append(ask, wait...)
	}
	unasked = make(map[netip.Addr]bool)
	for _, a := range wait {
		unasked[a] = true
	}
	var unsent error
	for _, a := range ask {
		r.asked = a
		if err := r.Prober.Probe(ctx, a); err != nil {
			unasked[a], unsent = true, err
		}
	}
	if unsent != nil {
		r.Log.Warn("quarantined addresses could not be asked about", "err", unsent)
	}
	if len(ask) == 0 {
		return unasked, nil
	}
	if !broadcast.Pause(ctx, r.Window) {
		return nil, fmt.Errorf("wait for answers of the wire: %w", ctx.Err())
	}
	return unasked, nil
}
