package wake

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb"
	"github.com/ipamd/ipamd/netdb/netdbtest"
)

// A task is a resumer of one sandbox whose state can be asked.
type task struct {
	frozen   atomic.Bool
	pauses   func(ctx context.Context) error // in the midst of a pause; may be nil
	thawed   atomic.Int32
	overlaps atomic.Int32
	busy     atomic.Bool
}

func (k *task) step(do func() error) error {
	if !k.busy.CompareAndSwap(false, true) {
		k.overlaps.Add(1)
	}
	defer k.busy.Store(false)
	time.Sleep(300 * time.Microsecond) // as one takes
	return do()
}

func (k *task) Pause(ctx context.Context, _ *ipam.Lease, _ *ipam.Sleep) error {
	return k.step(func() error {
		if k.pauses != nil {
			if err := k.pauses(ctx); err != nil {
				return err
			}
		}
		k.frozen.Store(true)
		return nil
	})
}

func (k *task) Resume(context.Context, *ipam.Lease, *ipam.Sleep) error {
	return k.step(func() error { k.frozen.Store(false); k.thawed.Add(1); return nil })
}

// awake is a world whose sandbox is bound with a container, and a task that ipamd turns.
func awake(t *testing.T, k *task) *world {
	w := start(t, k, time.Minute)
	if _, err := w.book.Bind(t.Context(), runtime, w.l.ID, 0, ipam.Binding{Containers: []ipam.Container{{Namespace: "default", ID: "a"}}}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.book.Resume(t.Context(), runtime, w.l.ID, 0); err != nil {
		t.Fatal(err)
	}
	return w
}

var freeze = ipam.Sleep{Mode: ipam.Freeze, Do: true}

// agree holds the task against the lease.
func (w *world) agree(t *testing.T, k *task) {
	t.Helper()
	l, err := w.book.Lease(w.l.ID)
	if err != nil {
		t.Fatal(err)
	}
	if s := w.book.Sleep(l.ID); (l.State == ipam.Paused) != k.frozen.Load() || s.Flight.Open() {
		t.Errorf("the lease is %s, the task stands still: %v, its flight: %+v", l.State, k.frozen.Load(), s.Flight)
	}
	if n := k.overlaps.Load(); n != 0 {
		t.Errorf("%d steps with the task at once", n)
	}
}

// Z8: what asks for it between the wish to pause and the freeze wakes it after the freeze.
func TestZ8AskedForWhileItIsFrozen(t *testing.T) {
	t.Parallel()
	k := new(task)
	w := awake(t, k)
	var flight string
	k.pauses = func(ctx context.Context) error {
		_, f, err := w.Wake(ctx, runtime, w.l.ID, ipam.Cause{By: ipam.ByTraffic}, nil)
		if err != nil || f == nil {
			return fmt.Errorf("%w: no flight: %v", ErrRefused, err)
		}
		flight = f.ID
		return nil
	}
	if _, err := w.Pause(t.Context(), runtime, w.l.ID, 0, freeze); err != nil {
		t.Fatal(err)
	}
	if l, err := w.Await(t.Context(), w.l.ID, flight); err != nil || l.State != ipam.Bound {
		t.Fatal(l, err)
	}
	w.agree(t, k)
}

// Z9: pauses and wakes at once have one order, and task and lease agree afterwards.
func TestZ9PauseAndWakeAtOnce(t *testing.T) {
	t.Parallel()
	k := new(task)
	w := awake(t, k)
	var all errgroup.Group
	for range 4 {
		all.Go(func() error {
			for range 25 {
				if _, err := w.Pause(t.Context(), runtime, w.l.ID, 0, freeze); err != nil && !errors.Is(err, ipam.ErrState) {
					return err
				}
			}
			return nil
		})
		all.Go(func() error {
			for range 25 {
				if _, err := w.call(t.Context(), w.l); err != nil && !errors.Is(err, ipam.ErrWakeTimeout) { // paused again meanwhile
					return err
				}
			}
			return nil
		})
	}
	if err := all.Wait(); err != nil {
		t.Fatal(err)
	}
	if _, err := w.call(t.Context(), w.l); err != nil {
		t.Fatal(err)
	}
	w.agree(t, k)
	if _, err := w.Pause(t.Context(), runtime, w.l.ID, 0, freeze); err != nil {
		t.Fatal(err)
	}
	w.agree(t, k)
	if _, err := w.Flights.Resume(t.Context(), runtime, w.l.ID, 0); err != nil {
		t.Fatal(err)
	}
	w.agree(t, k)
}

// Z8: a pass that resumes the lease while its tasks are being frozen calls the pause off, and one
// that is about to is answered that the lease has changed.
func TestZ8AResumeCallsThePauseOff(t *testing.T) {
	t.Parallel()
	k := new(task)
	w := awake(t, k)
	k.pauses = func(ctx context.Context) error {
		_, err := w.book.Resume(ctx, netdbtest.Who(ipam.ByReconciler, "runtime_running"), w.l.ID, 0)
		return err
	}
	if _, err := w.Pause(t.Context(), runtime, w.l.ID, 0, freeze); !errors.Is(err, ipam.ErrState) {
		t.Errorf("answered %v", err)
	}
	w.agree(t, k)
	var seen int64
	k.pauses = func(context.Context) error {
		l, err := w.book.Lease(w.l.ID)
		seen = l.Rev
		return err
	}
	if _, err := w.Pause(t.Context(), runtime, w.l.ID, 0, freeze); err != nil {
		t.Fatal(err)
	}
	if _, err := w.book.Resume(t.Context(), netdbtest.Who(ipam.ByReconciler, "runtime_running"), w.l.ID, seen); !errors.Is(err, ipam.ErrStale) {
		t.Errorf("a pass that saw it before: %v", err)
	}
	w.agree(t, k)
}

// watches is a catcher without rules.
type watches struct{}

func (watches) Watches(*ipam.Lease) error  { return nil }
func (watches) Sync(context.Context) error { return nil }
func (watches) Unwatched() func(*ipam.Lease) error {
	return func(*ipam.Lease) error { return nil }
}

// beside is another lease of the sandbox, which records its task, too. Both were paused with a
// policy, and are bound again.
func (w *world) beside(t *testing.T) *ipam.Lease {
	t.Helper()
	w.CatchBy(watches{}, nil)
	sixth, err := netdbtest.TryReserve(w.book, netdbtest.Pool(t, w.book, "six", "fd00:8::/64"), "a", netdbtest.Policy)
	if err != nil || sixth.UID != w.l.UID {
		t.Fatal(sixth, err)
	}
	other, err := w.book.Bind(t.Context(), runtime, sixth.ID, 0, ipam.Binding{HostInterface: "veth-1", Containers: []ipam.Container{{Namespace: "default", ID: "a"}}})
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range []*ipam.Lease{w.l, other} {
		if _, err := w.Pause(t.Context(), runtime, l.ID, 0, woken); err != nil {
			t.Fatal(err)
		}
	}
	for _, l := range []*ipam.Lease{w.l, other} {
		if _, err := w.Flights.Resume(t.Context(), runtime, l.ID, 0); err != nil {
			t.Fatal(err)
		}
	}
	return other
}

var woken = ipam.Sleep{Mode: ipam.Freeze, Do: true, Wake: &ipam.WakePolicy{}}

// Z8: what asks for another lease of the sandbox, from before the freeze on, wakes it; so does what
// comes before it was quiet, and then none of them is paused.
func TestZ8AllLeasesOfASandbox(t *testing.T) {
	t.Parallel()
	k := new(task)
	w := awake(t, k)
	other := w.beside(t)
	is := func(when string, frozen bool, want ...ipam.State) {
		t.Helper()
		for i, id := range []string{w.l.ID, other.ID} {
			if l, err := w.book.Lease(id); err != nil || l.State != want[i] {
				t.Errorf("%s: lease %d is %+v, %v", when, i, l, err)
			}
		}
		if k.frozen.Load() != frozen {
			t.Errorf("%s: the task stands still: %v", when, !frozen)
		}
	}
	var flight string
	k.pauses = func(ctx context.Context) error {
		_, f, err := w.Wake(ctx, runtime, other.ID, ipam.Cause{By: ipam.ByTraffic}, nil)
		if err != nil || f == nil {
			return fmt.Errorf("%w: no flight: %v", ErrRefused, err)
		}
		flight = f.ID
		return nil
	}
	if _, err := w.Pause(t.Context(), runtime, w.l.ID, 0, woken); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Await(t.Context(), other.ID, flight); err != nil {
		t.Fatal(err)
	}
	is("asked for during the freeze", false, ipam.Paused, ipam.Bound)
	if _, err := w.Flights.Resume(t.Context(), runtime, w.l.ID, 0); err != nil { // as its event does
		t.Fatal(err)
	}

	k.pauses = nil
	now, err := w.book.Lease(other.ID)
	if err != nil {
		t.Fatal(err)
	}
	busy := fmt.Errorf("%w: there was traffic", ipam.ErrState)
	if err := w.Repause(t.Context(), now, func() error {
		is("when it is asked whether it is quiet", false, ipam.Paused, ipam.Paused)
		return busy
	}); !errors.Is(err, busy) {
		t.Errorf("paused again with traffic: %v", err)
	}
	is("with traffic", false, ipam.Bound, ipam.Bound)

	k.pauses = func(context.Context) error { return fmt.Errorf("%w: not allowed", ErrRefused) }
	if _, err := w.Pause(t.Context(), runtime, w.l.ID, 0, woken); !errors.Is(err, ipam.ErrState) {
		t.Errorf("a pause that fails: %v", err)
	}
	is("after a pause that failed", false, ipam.Bound, ipam.Bound)

	k.pauses = func(ctx context.Context) error { // a pass that saw the task run
		_, err := w.book.Resume(ctx, netdbtest.Who(ipam.ByReconciler, "runtime_running"), other.ID, 0)
		return err
	}
	if _, err := w.Pause(t.Context(), runtime, w.l.ID, 0, woken); !errors.Is(err, ipam.ErrState) {
		t.Errorf("a pass that resumes the other one in between: %v", err)
	}
	is("called off by a pass", false, ipam.Bound, ipam.Bound)

	k.pauses = nil
	now, err = w.book.Lease(other.ID)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Repause(t.Context(), now, func() error { return nil }); err != nil {
		t.Error(err)
	}
	is("quiet", true, ipam.Paused, ipam.Paused)
	if err := w.Repause(t.Context(), now, func() error { return busy }); !errors.Is(err, ipam.ErrState) || errors.Is(err, busy) {
		t.Errorf("one that is paused already: %v", err)
	}
	is("paused already", true, ipam.Paused, ipam.Paused)
}

// Z9: the leases of a sandbox share its task, which one at a time turns.
func TestZ9TwoLeasesAtOnce(t *testing.T) {
	t.Parallel()
	k := new(task)
	w := awake(t, k)
	both := []*ipam.Lease{w.l, w.beside(t)}
	var all errgroup.Group
	for _, l := range both {
		all.Go(func() error {
			for range 25 {
				if _, err := w.Pause(t.Context(), runtime, l.ID, 0, woken); err != nil && !errors.Is(err, ipam.ErrState) {
					return err
				}
			}
			return nil
		})
		all.Go(func() error {
			for range 25 {
				if _, err := w.call(t.Context(), l); err != nil && !errors.Is(err, ipam.ErrWakeTimeout) { // paused again meanwhile
					return err
				}
			}
			return nil
		})
	}
	if err := all.Wait(); err != nil {
		t.Fatal(err)
	}
	for _, l := range both {
		if _, err := w.call(t.Context(), l); err != nil {
			t.Fatal(err)
		}
		w.l = l
		w.agree(t, k)
	}
}

// A pause that fails leaves the sandbox as it was: it runs, and its lease is bound.
func TestAPauseThatFails(t *testing.T) {
	t.Parallel()
	k := &task{pauses: func(context.Context) error { return fmt.Errorf("%w: not allowed", ErrRefused) }}
	w := awake(t, k)
	if _, err := w.Pause(t.Context(), runtime, w.l.ID, 0, freeze); !errors.Is(err, ipam.ErrState) {
		t.Errorf("answered %v", err)
	}
	w.agree(t, k)
	if k.thawed.Load() == 0 {
		t.Error("what may stand still is not resumed")
	}
}

// A tied task is one that cannot be paused to the end, and then not be resumed for so many attempts.
type tied struct {
	task
	resumes atomic.Int32 // that fail
}

func (k *tied) Pause(context.Context, *ipam.Lease, *ipam.Sleep) error {
	k.frozen.Store(true)
	return fmt.Errorf("%w: not allowed", ErrRefused)
}

func (k *tied) Resume(ctx context.Context, l *ipam.Lease, s *ipam.Sleep) error {
	if k.resumes.Add(-1) >= 0 {
		return errors.New("busy")
	}
	return k.task.Resume(ctx, l, s)
}

// Z8: what a pause that failed has frozen is resumed, however often that is tried; a lease is not bound before it
// runs. What the pause does not get done a flight does, after a restart, too.
func TestZ8WhatAPauseFrozeInVain(t *testing.T) {
	t.Parallel()
	k := new(tied)
	w := awake(t, &k.task)
	w.stop()
	other := w.beside(t)
	w.cfg.Resumer = k
	is := func(what string, state ipam.State) {
		t.Helper()
		for _, id := range []string{w.l.ID, other.ID} {
			s := w.book.Sleep(id)
			if l, err := w.book.Lease(id); err != nil || l.State != state || s != nil && s.Flight.Open() != (state == ipam.Paused) {
				t.Errorf("%s: %+v, %v, %+v", what, l, err, s)
			}
		}
		if k.frozen.Load() != (state == ipam.Paused) {
			t.Errorf("%s: the task stands still: %v", what, k.frozen.Load())
		}
	}
	k.resumes.Store(2)
	if _, err := w.Pause(t.Context(), runtime, w.l.ID, 0, woken); !errors.Is(err, ipam.ErrState) {
		t.Errorf("answered %v", err)
	}
	is("resumed at the third attempt", ipam.Bound)

	k.resumes.Store(1000)
	w.cfg.Wait = 20 * time.Millisecond
	if _, err := w.Pause(t.Context(), runtime, w.l.ID, 0, woken); !errors.Is(err, ipam.ErrState) || !strings.Contains(err.Error(), "a wake goes on with it") {
		t.Errorf("answered %v", err)
	}
	is("not resumed", ipam.Paused)
	k.resumes.Store(0)
	w.run(t)
	for _, l := range []*ipam.Lease{w.l, other} {
		f := w.book.Sleep(l.ID).Flight
		if f == nil {
			t.Fatalf("%s has no flight", l.Addr)
		}
		if _, err := w.Await(t.Context(), l.ID, f.ID); err != nil {
			t.Error(err)
		}
	}
	is("after the start", ipam.Bound)
}

// A pause of a sandbox that stands still, which fails, does not wake it; one that was resumed meanwhile runs.
func TestAPauseAgainThatFails(t *testing.T) {
	t.Parallel()
	k := new(task)
	w := awake(t, k)
	if _, err := w.Pause(t.Context(), runtime, w.l.ID, 0, freeze); err != nil {
		t.Fatal(err)
	}
	k.pauses = func(context.Context) error { return fmt.Errorf("%w: not allowed", ErrRefused) }
	w.CatchBy(watches{}, nil)
	for _, how := range []ipam.Sleep{freeze, woken} {
		if _, err := w.Pause(t.Context(), runtime, w.l.ID, 0, how); !errors.Is(err, ipam.ErrState) {
			t.Errorf("answered %v", err)
		}
		w.agree(t, k)
		if s := w.book.Sleep(w.l.ID); k.thawed.Load() != 0 || s.Wake != nil || !s.Still {
			t.Errorf("resumed %d times, and %+v is recorded", k.thawed.Load(), s)
		}
	}
	k.pauses = func(ctx context.Context) error {
		_, err := w.book.Resume(ctx, runtime, w.l.ID, 0)
		return errors.Join(fmt.Errorf("%w: not allowed", ErrRefused), err)
	}
	if _, err := w.Pause(t.Context(), runtime, w.l.ID, 0, freeze); !errors.Is(err, ipam.ErrState) {
		t.Errorf("answered %v", err)
	}
	w.agree(t, k)
	if k.frozen.Load() {
		t.Error("it was resumed meanwhile, and stands still")
	}
}

// A freeze that does not end holds up neither a pass nor the end of the daemon, and is undone then.
func TestAFreezeThatHangs(t *testing.T) {
	t.Parallel()
	k := new(pair)
	begun := make(chan struct{})
	k.pauses = func(ctx context.Context) error { close(begun); <-ctx.Done(); return ctx.Err() }
	w := awake(t, &k.task)
	w.stop()
	w.cfg.Resumer = k
	stop := w.run(t)
	paused := make(chan error, 1)
	go func() { _, err := w.Pause(context.Background(), runtime, w.l.ID, 0, freeze); paused <- err }()
	<-begun
	patience, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if _, err := w.Seen(patience, netdbtest.Who(ipam.ByReconciler, "runtime_running"), w.l.ID, 0, false, w.book.Resume); !errors.Is(err, ipam.ErrStale) {
		t.Errorf("a pass is answered %v", err)
	}
	stop()
	select {
	case err := <-paused:
		if !errors.Is(err, context.Canceled) {
			t.Errorf("answered %v", err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("the daemon stops, and the freeze goes on")
	}
	w.agree(t, &k.task)
}

// An unruly kernel takes no rules that watch for traffic, once it is full.
type unruly struct {
	watches
	full bool
}

func (u *unruly) Sync(context.Context) error {
	if u.full {
		return errors.New("no space left")
	}
	return nil
}

// A pause that the kernel does not take is refused, and leaves the lease as it was: bound, paused
// as before, with its flight, or paused in no way that is recorded.
func TestAPauseThatTheKernelRefuses(t *testing.T) {
	t.Parallel()
	k := new(task)
	w := awake(t, k)
	kernel := new(unruly)
	w.CatchBy(kernel, nil)
	policy := func(port uint16) ipam.Sleep {
		return ipam.Sleep{Mode: ipam.Freeze, Wake: &ipam.WakePolicy{Ports: []ipam.PortRange{{First: port, Last: port}}}}
	}
	refused := func(what string, state ipam.State, wakes string) {
		t.Helper()
		kernel.full = true
		defer func() { kernel.full = false }()
		fe := new(ipam.FieldError)
		if _, err := w.Pause(t.Context(), runtime, w.l.ID, 0, policy(443)); !errors.As(err, &fe) || fe.Field != "wake" {
			t.Errorf("%s: answered %v", what, err)
		}
		l, err := w.book.Lease(w.l.ID)
		s, got := w.book.Sleep(w.l.ID), ""
		if s != nil && s.Wake != nil {
			got = s.Wake.String()
		}
		if err != nil || l.State != state || state == ipam.Paused && got != wakes {
			t.Errorf("%s: %+v, %v, woken by %q", what, l, err, got)
		}
	}
	refused("a bound one", ipam.Bound, "")
	if _, err := w.Pause(t.Context(), runtime, w.l.ID, 0, policy(80)); err != nil {
		t.Fatal(err)
	}
	refused("one that sleeps", ipam.Paused, "tcp to 80")
	if _, err := w.book.Pause(t.Context(), runtime, w.l.ID, 0); err != nil {
		t.Fatal(err)
	}
	refused("one of which nothing is recorded", ipam.Paused, "")
	if s := w.book.Sleep(w.l.ID); s != nil {
		t.Errorf("%+v is recorded", s)
	}
}

// A pause that is taken back leaves what was recorded before: of a bound lease how it is paused again,
// and of one that slept how it sleeps, and what was seen of that. So of the lease itself, and of
// those that were paused with it.
func TestAPauseThatIsTakenBackLeavesWhatWasRecorded(t *testing.T) {
	t.Parallel()
	hibernated := ipam.Sleep{Mode: ipam.Hibernate, Wake: &ipam.WakePolicy{Ports: []ipam.PortRange{{First: 80, Last: 80}}}}
	frozen := ipam.Sleep{Mode: ipam.Freeze, Wake: &ipam.WakePolicy{Ports: []ipam.PortRange{{First: 443, Last: 443}}}}
	for name, fails := range map[string]func(w *world, k *task){
		"not frozen": func(_ *world, k *task) {
			k.pauses = func(context.Context) error { return fmt.Errorf("%w: not allowed", ErrRefused) }
		},
		"not watched":  func(w *world, _ *task) { w.CatchBy(&unruly{full: true}, nil) },
		"not recorded": func(w *world, _ *task) { w.cfg.Book = &unpaused{Book: w.book, after: 1} },
	} {
		for what, before := range map[string]*ipam.Sleep{"hibernated": &hibernated, "frozen": &frozen, "nothing": nil} {
			for _, was := range []ipam.State{ipam.Bound, ipam.Paused} {
				t.Run(fmt.Sprintf("%s, %s, %s", name, was, what), func(t *testing.T) {
					t.Parallel()
					k := new(task)
					w := awake(t, k)
					other := w.beside(t)
					if _, err := w.book.PauseAs(t.Context(), runtime, other.ID, 0, hibernated); err != nil {
						t.Fatal(err)
					}
					if _, err := w.book.Resume(t.Context(), runtime, other.ID, 0); err != nil {
						t.Fatal(err)
					}
					if _, err := w.book.Pause(t.Context(), runtime, w.l.ID, 0); err != nil { // nothing is recorded
						t.Fatal(err)
					}
					if before != nil {
						if _, err := w.book.PauseAs(t.Context(), runtime, w.l.ID, 0, *before); err != nil {
							t.Fatal(err)
						}
						if _, err := w.book.Still(t.Context(), netdbtest.Who(ipam.ByReconciler, "seen_still"), w.l.ID, 0); err != nil {
							t.Fatal(err)
						}
					}
					if was == ipam.Bound {
						if _, err := w.book.Resume(t.Context(), runtime, w.l.ID, 0); err != nil {
							t.Fatal(err)
						}
					}
					reply := func() string {
						out := ""
						for _, id := range []string{w.l.ID, other.ID} {
							l, err := w.book.Lease(id)
							if err != nil {
								t.Fatal(err)
							}
							out += string(l.State)
							if s := w.book.Sleep(id); s != nil {
								out += fmt.Sprintf(" %s, do %v, still %v, woken by %v", s.Mode, s.Do, s.Still, s.Wake)
							}
							out += "; "
						}
						return out
					}
					want := reply()
					w.stop() // a pause needs no loop, and what follows is not for one that runs
					fails(w, k)
					if _, err := w.Pause(t.Context(), runtime, w.l.ID, 0, woken); err == nil {
						t.Fatal("it is paused")
					}
					if got := reply(); got != want {
						t.Errorf("it is %s\nand was %s", got, want)
					}
				})
			}
		}
	}
}

// unpaused is a book that records so many pauses and no more.
type unpaused struct {
	*netdb.Book
	after int
}

func (b *unpaused) PauseAs(ctx context.Context, who ipam.Who, id string, ifRev int64, how ipam.Sleep) (*ipam.Lease, error) {
	if b.after--; b.after < 0 {
		return nil, errFull
	}
	return b.Book.PauseAs(ctx, who, id, ifRev, how)
}

// A policy of traffic is refused that nothing could follow: tasks are resumed, and the lease records
// no container.
func TestAPolicyWithoutContainersToResume(t *testing.T) {
	t.Parallel()
	w := start(t, new(task), time.Minute)
	w.CatchBy(new(unruly), nil)
	how := ipam.Sleep{Mode: ipam.Freeze, Wake: new(ipam.WakePolicy)}
	for _, only := range []bool{true, false} { // ... tasks are resumed
		w.cfg.FreezeOnly = only
		fe := new(ipam.FieldError)
		if err := w.can(w.l, how); errors.As(err, &fe) != only || only && fe.Field != "wake" {
			t.Errorf("resumes tasks alone: %v: %v", only, err)
		}
		if err := w.can(w.l, ipam.Sleep{Mode: ipam.Freeze}); err != nil {
			t.Errorf("without a policy: %v", err)
		}
	}
}

// A pause without a mode calls a flight off that is under way: who waits gets an error, and it is
// counted.
func TestAPlainPauseCallsAFlightOff(t *testing.T) {
	t.Parallel()
	w := start(t, nil, time.Minute)
	w.stop()
	results := make(chan ipam.FlightResult, 10)
	w.cfg.OnEnd = func(_ *ipam.Flight, r ipam.FlightResult, _ time.Duration) { results <- r }
	w.run(t)
	_, f, err := w.Wake(t.Context(), runtime, w.l.ID, ipam.Cause{By: ipam.ByCall}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.book.Pause(t.Context(), runtime, w.l.ID, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Await(t.Context(), w.l.ID, f.ID); !errors.Is(err, ipam.ErrWakeTimeout) {
		t.Errorf("answered %v", err)
	}
	if r := <-results; r != ipam.CalledOff {
		t.Errorf("it ended as %s", r)
	}
}

// A pair is two tasks of a sandbox.
type pair struct {
	task             // the one
	runs atomic.Bool // the other
	err  error       // of a resume
}

func (p *pair) Resume(ctx context.Context, l *ipam.Lease, s *ipam.Sleep) error {
	if p.err != nil {
		return p.err
	}
	p.runs.Store(true)
	return p.task.Resume(ctx, l, s)
}

func (p *pair) Frozen(context.Context, *ipam.Lease) (bool, error) {
	return p.frozen.Load() && !p.runs.Load(), nil
}

// Z9: a sandbox of which a part runs, as a daemon that was killed in the midst of a freeze, or of a wake, leaves
// it, is bound by a pass once all of it runs; what the pass saw of an earlier revision resumes nothing.
func TestZ9OneOfTwoTasksRuns(t *testing.T) {
	t.Parallel()
	k := new(pair)
	w := awake(t, &k.task)
	w.stop()
	w.cfg.Resumer = k
	l, err := w.book.PauseAs(t.Context(), runtime, w.l.ID, 0, freeze)
	if err != nil {
		t.Fatal(err)
	}
	k.frozen.Store(true)
	k.runs.Store(true)
	seen := func(rev int64) error {
		_, err := w.Seen(t.Context(), netdbtest.Who(ipam.ByReconciler, "runtime_running"), l.ID, rev, false, w.book.Resume)
		return err
	}
	is := func(what string, state ipam.State, frozen bool) {
		t.Helper()
		if now, err := w.book.Lease(l.ID); err != nil || now.State != state || k.frozen.Load() != frozen {
			t.Errorf("%s: %+v, %v, its one task stands still: %v", what, now, err, !frozen)
		}
	}
	if err := seen(l.Rev - 1); !errors.Is(err, ipam.ErrStale) {
		t.Errorf("seen before the pause: %v", err)
	}
	is("seen before the pause", ipam.Paused, true)
	k.err = errors.New("busy")
	if err := seen(l.Rev); !errors.Is(err, k.err) {
		t.Errorf("a resume that fails: %v", err)
	}
	is("a resume that fails", ipam.Paused, true)
	k.err = nil
	if err := seen(l.Rev); err != nil {
		t.Error(err)
	}
	is("seen", ipam.Bound, false)
}

// TestWithoutFlightsAPauseThatIsSeenIsRecorded: a rebuild opens none, and its pass sees what there is.
func TestWithoutFlightsAPauseThatIsSeenIsRecorded(t *testing.T) {
	w := awake(t, new(task))
	var none *Flights
	l, err := none.Seen(t.Context(), ipam.Who{Actor: ipam.ByReconciler, Reason: "tasks stand still"}, w.l.ID, 0, true, w.book.Pause)
	if err != nil || l.State != ipam.Paused {
		t.Errorf("it is %+v, %v", l, err)
	}
}
