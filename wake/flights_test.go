package wake

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/ipamd/ipamd/internal/realtest"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb"
	"github.com/ipamd/ipamd/netdb/netdbtest"
)

var runtime = netdbtest.Who(ipam.ByClient, "paused")

// A world is a book with a sandbox that sleeps, and flights that run.
type world struct {
	*Flights
	book *netdb.Book
	l    *ipam.Lease
	stop func() // of what start runs
}

func start(t *testing.T, resumer Resumer, wait time.Duration) *world {
	t.Helper()
	w := &world{book: netdbtest.Open(t)}
	w.l = w.asleep(t, "a")
	var err error
	if w.Flights, err = New(Config{Book: w.book, Resumer: resumer, Wait: wait, Log: slog.New(slog.NewTextHandler(t.Output(), nil))}); err != nil {
		t.Fatal(err)
	}
	w.stop = w.run(t)
	return w
}

// run drives the flights until the test, or stop, ends it.
func (w *world) run(t *testing.T) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return stop
}

func (w *world) asleep(t *testing.T, sandbox string) *ipam.Lease {
	t.Helper()
	l := netdbtest.Reserve(t, w.book, sandbox)
	if _, err := w.book.Bind(t.Context(), runtime, l.ID, 0, ipam.Binding{HostInterface: "veth-" + sandbox}); err != nil {
		t.Fatal(err)
	}
	l, err := w.book.PauseAs(t.Context(), runtime, l.ID, 0, ipam.Sleep{Mode: ipam.Freeze})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func (w *world) call(ctx context.Context, l *ipam.Lease) (*ipam.Lease, error) {
	_, f, err := w.Wake(ctx, runtime, l.ID, ipam.Cause{By: ipam.ByCall}, nil)
	if err != nil || f == nil {
		return nil, err
	}
	return w.Await(ctx, l.ID, f.ID)
}

// recorded counts the changes of a lease with a reason.
func (w *world) recorded(t *testing.T, l *ipam.Lease, reason string) (n int) {
	t.Helper()
	all, err := w.book.Changes(context.Background(), 0, 10_000)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range all {
		if c.LeaseID == l.ID && c.Who.Reason == reason {
			n++
		}
	}
	return n
}

// by is a resumer that is a function.
type by func(ctx context.Context, l *ipam.Lease, s *ipam.Sleep) error

func (b by) Resume(ctx context.Context, l *ipam.Lease, s *ipam.Sleep) error { return b(ctx, l, s) }

// Z4: 50 that ask at once get the result of one resume. Z5: that one of them hangs up is nothing
// to the others, nor to the flight.
func TestZ4Z5AllThatAskShareOneFlight(t *testing.T) {
	t.Parallel()
	var resumes atomic.Int32
	begun, goOn := make(chan struct{}), make(chan struct{})
	w := start(t, by(func(ctx context.Context, l *ipam.Lease, _ *ipam.Sleep) error {
		if l.Sandbox == "other" {
			return nil
		}
		if resumes.Add(1) == 1 {
			close(begun)
		}
		select {
		case <-goOn:
		case <-ctx.Done():
		}
		return ctx.Err()
	}), time.Minute)
	hasty, hangUp := context.WithCancel(t.Context())
	defer hangUp()
	results := make(chan error, 51)
	for range 50 {
		go func() { _, err := w.call(t.Context(), w.l); results <- err }()
	}
	gone := make(chan error, 1)
	go func() { _, err := w.call(hasty, w.l); gone <- err }()
	<-begun
	hangUp()
	if err := <-gone; err == nil {
		t.Error("the one that hung up was answered")
	}
	// Meanwhile all flights are looked at again and again.
	for range 5 {
		other := w.asleep(t, "other")
		if _, err := w.call(t.Context(), other); err != nil {
			t.Error(err)
		}
		if _, err := w.book.Release(t.Context(), runtime, other.ID, "", 0); err != nil {
			t.Fatal(err)
		}
	}
	close(goOn)
	for range 50 {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
	if n := resumes.Load(); n != 1 {
		t.Errorf("%d resumes", n)
	}
	if n := w.recorded(t, w.l, reasonRequested); n != 1 {
		t.Errorf("%d requests are recorded", n)
	}
}

// Z4: who waits for a flight that woke the sandbox is not answered otherwise because it is paused again by then.
func TestZ4WokenAndPausedAgain(t *testing.T) {
	b := netdbtest.Open(t)
	l := netdbtest.Reserve(t, b, "a")
	if _, err := b.Bind(t.Context(), runtime, l.ID, 0, ipam.Binding{HostInterface: "v"}); err != nil {
		t.Fatal(err)
	}
	f, err := New(Config{Book: b, Wait: time.Minute, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	pause := func() {
		if _, err := b.PauseAs(t.Context(), runtime, l.ID, 0, ipam.Sleep{Mode: ipam.Freeze}); err != nil {
			t.Fatal(err)
		}
	}
	pause()
	_, flight, err := f.Wake(t.Context(), runtime, l.ID, ipam.Cause{By: ipam.ByCall}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Acknowledge(t.Context(), runtime, l.ID, flight.ID, false, ipam.Woken, ""); err != nil {
		t.Fatal(err)
	}
	pause()
	if l, err := f.Await(t.Context(), l.ID, flight.ID); err != nil || l == nil {
		t.Errorf("its flight woke it: %v, %v", l, err)
	}
}

// Z6: a resumer that hangs ends as a timeout that can be tried again, and the lease says so.
func TestZ6AResumerThatHangs(t *testing.T) {
	t.Parallel()
	w := start(t, by(func(ctx context.Context, _ *ipam.Lease, _ *ipam.Sleep) error { <-ctx.Done(); return ctx.Err() }), ipam.LeastWait)
	if _, err := w.call(t.Context(), w.l); !errors.Is(err, ipam.ErrWakeTimeout) {
		t.Errorf("answered %v", err)
	}
	if f := w.book.Sleep(w.l.ID).Flight; f.Result != ipam.TimedOut || f.Failed != 1 || !strings.Contains(f.Detail, "not within 100ms") {
		t.Errorf("the lease says %+v", f)
	}
}

// Z7: what may pass is tried again until the deadline; what will not is tried once, and answered
// at once. The class decides, never the text.
func TestZ7ClassesOfErrors(t *testing.T) {
	t.Parallel()
	var tries atomic.Int32
	w := start(t, by(func(_ context.Context, l *ipam.Lease, _ *ipam.Sleep) error {
		switch n := tries.Add(1); {
		case l.Sandbox == "gone":
			return fmt.Errorf("still pausing: %w", ErrRefused)
		case n < 4:
			return errors.New("gone, terminating, not allowed")
		}
		return nil
	}), time.Minute)
	if l, err := w.call(t.Context(), w.l); err != nil || l.State != ipam.Bound || tries.Load() != 4 {
		t.Errorf("still pausing: %+v, %v after %d", l, err, tries.Load())
	}
	tries.Store(0)
	if _, err := w.call(t.Context(), w.asleep(t, "gone")); !errors.Is(err, ipam.ErrWakeRefused) || tries.Load() != 1 {
		t.Errorf("gone: %v after %d", err, tries.Load())
	}
}

// Z10: a sandbox that is released while it is woken ends the wait of those that asked.
func TestZ10ReleasedWhileWaking(t *testing.T) {
	t.Parallel()
	begun := make(chan struct{}, 100)
	w := start(t, by(func(context.Context, *ipam.Lease, *ipam.Sleep) error {
		begun <- struct{}{}
		return errors.New("not yet")
	}), time.Minute)
	result := make(chan error, 1)
	go func() { _, err := w.call(t.Context(), w.l); result <- err }()
	<-begun
	if _, err := w.book.Release(t.Context(), runtime, w.l.ID, "", 0); err != nil {
		t.Fatal(err)
	}
	if err := <-result; !errors.Is(err, ipam.ErrGone) {
		t.Errorf("answered %v", err)
	}
	if w.book.Sleep(w.l.ID) != nil {
		t.Error("the flight did not end with its lease")
	}
}

// Z15: with no runtime to resume, the request stays, across restarts too, is announced again to who
// subscribes, and is counted, until it is acknowledged.
func TestZ15ARequestWaitsForTheRuntime(t *testing.T) {
	t.Parallel()
	w := start(t, nil, time.Minute)
	_, f, err := w.Wake(t.Context(), runtime, w.l.ID, ipam.Cause{By: ipam.ByTraffic}, nil)
	if err != nil || w.Unacknowledged() != 1 {
		t.Fatal(f, err, w.Unacknowledged())
	}
	// A daemon that starts on this book announces it, too.
	next, err := New(w.cfg)
	if err != nil {
		t.Fatal(err)
	}
	(&world{Flights: next}).run(t)
	realtest.Eventually(t, time.Minute, "it is announced again", func() bool { return w.recorded(t, w.l, reasonRequested) >= 2 })
	before := w.recorded(t, w.l, reasonRequested)
	w.Subscribed()
	realtest.Eventually(t, time.Minute, "a subscriber gets it", func() bool { return w.recorded(t, w.l, reasonRequested) > before })
	patience, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := w.Await(patience, w.l.ID, f.ID); !errors.Is(err, ipam.ErrWakeTimeout) || !strings.Contains(err.Error(), "not acknowledged") {
		t.Errorf("one that does not wait longer: %v", err)
	}
	if _, err := w.Acknowledge(t.Context(), runtime, w.l.ID, f.ID, true, "", ""); err != nil || w.Unacknowledged() != 0 {
		t.Errorf("acknowledged: %v, %d", err, w.Unacknowledged())
	}
	l, err := w.Acknowledge(t.Context(), runtime, w.l.ID, f.ID, false, ipam.Woken, "")
	if err != nil || l.State != ipam.Bound {
		t.Errorf("woken: %+v, %v", l, err)
	}
	if _, err := w.Acknowledge(t.Context(), runtime, w.l.ID, f.ID, false, ipam.Woken, ""); !errors.Is(err, ipam.ErrFlightEnded) {
		t.Errorf("acknowledged late: %v", err)
	}
}

// A flight that was under way when the daemon ended goes on at the next start, with the rest
// of its time.
func TestAFlightGoesOnAfterARestart(t *testing.T) {
	t.Parallel()
	w := &world{book: netdbtest.Open(t)}
	w.l = w.asleep(t, "a")
	begun := make(chan struct{}, 100)
	hangs := by(func(ctx context.Context, _ *ipam.Lease, _ *ipam.Sleep) error {
		begun <- struct{}{}
		<-ctx.Done()
		return ctx.Err()
	})
	cfg := Config{Book: w.book, Resumer: hangs, Wait: time.Minute, Log: slog.New(slog.NewTextHandler(t.Output(), nil))}
	var err error
	if w.Flights, err = New(cfg); err != nil {
		t.Fatal(err)
	}
	stop := w.run(t)
	_, f, err := w.Wake(t.Context(), runtime, w.l.ID, ipam.Cause{By: ipam.ByCall}, nil)
	if err != nil {
		t.Fatal(err)
	}
	<-begun
	stop()
	if is := w.book.Sleep(w.l.ID).Flight; is.Phase != ipam.Waking || is.ID != f.ID {
		t.Errorf("when the daemon ended: %+v", is)
	}
	cfg.Resumer = by(func(context.Context, *ipam.Lease, *ipam.Sleep) error { return nil })
	if w.Flights, err = New(cfg); err != nil {
		t.Fatal(err)
	}
	w.run(t)
	if l, err := w.Await(t.Context(), w.l.ID, f.ID); err != nil || l.State != ipam.Bound {
		t.Errorf("after the start: %+v, %v", l, err)
	}
}

// Z14: what the runtime says of a flight that it took on counts, though no daemon ran when the
// flight would have ended.
func TestZ14TheRuntimeIsDoneWhileTheDaemonIsDown(t *testing.T) {
	t.Parallel()
	w := start(t, nil, time.Minute)
	_, f, err := w.Wake(t.Context(), runtime, w.l.ID, ipam.Cause{By: ipam.ByCall}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Acknowledge(t.Context(), runtime, w.l.ID, f.ID, true, "", ""); err != nil {
		t.Fatal(err)
	}
	w.stop()
	w.cfg.Book = later{w.book, 2 * time.Minute}
	if w.Flights, err = New(w.cfg); err != nil {
		t.Fatal(err)
	}
	w.run(t)
	realtest.Eventually(t, time.Minute, "the flight to be looked at", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.seen[f.ID].flight != nil || !w.book.Sleep(w.l.ID).Flight.Open()
	})
	if l, err := w.Acknowledge(t.Context(), runtime, w.l.ID, f.ID, false, ipam.Woken, ""); err != nil || l.State != ipam.Bound {
		t.Errorf("woken: %+v, %v", l, err)
	}
}

// later is a book whose clock has gone on since its last change.
type later struct {
	*netdb.Book
	by time.Duration
}

func (b later) Now() ipam.Stamp {
	now := b.Book.Now()
	now.Boottime += b.by
	return now
}

// However many are asked for at once, each has its whole time, and those whose resumer hangs hold
// up no other.
func TestManyWakesAtOnce(t *testing.T) {
	t.Parallel()
	const within, many = time.Minute, mostAtWork + 8
	var begun, ended atomic.Int32
	all := make(chan struct{})
	var w *world
	w = start(t, by(func(ctx context.Context, l *ipam.Lease, s *ipam.Sleep) error {
		switch {
		case l.Sandbox == "well":
			return nil
		case strings.HasPrefix(l.Sandbox, "hangs"):
			<-ctx.Done()
			ended.Add(1)
			return ctx.Err()
		}
		deadline, _ := ctx.Deadline()
		if whole := time.Until(deadline) + w.book.Now().Since(s.Flight.Working); whole < within-aMoment/2 {
			t.Errorf("%s has %v", l.Sandbox, whole)
		}
		if begun.Add(1) == many {
			close(all)
		}
		select {
		case <-all:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}), within)
	var calls errgroup.Group
	for i := range many {
		l := w.asleep(t, fmt.Sprint("slow", i))
		calls.Go(func() error { _, err := w.call(t.Context(), l); return err })
	}
	if err := calls.Wait(); err != nil {
		t.Error(err)
	}
	for i := range mostAtWork {
		if _, _, _, err := w.book.Wake(t.Context(), runtime, w.asleep(t, fmt.Sprint("hangs", i)).ID, within, ipam.Cause{By: ipam.ByCall}, nil); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.call(t.Context(), w.asleep(t, "well")); err != nil || ended.Load() != 0 {
		t.Errorf("beside those that hang: %v, and %d of them have ended", err, ended.Load())
	}
}

// A runtime that takes a flight on and does not finish it ends it by its deadline.
func TestZ6TheRuntimeHangs(t *testing.T) {
	t.Parallel()
	w := start(t, nil, ipam.LeastWait)
	_, f, err := w.Wake(t.Context(), runtime, w.l.ID, ipam.Cause{By: ipam.ByCall}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Acknowledge(t.Context(), runtime, w.l.ID, f.ID, true, "", ""); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Await(t.Context(), w.l.ID, f.ID); !errors.Is(err, ipam.ErrWakeTimeout) {
		t.Errorf("answered %v", err)
	}
	if is := w.book.Sleep(w.l.ID).Flight; is.Result != ipam.TimedOut {
		t.Errorf("the lease says %+v", is)
	}
}
