package attach

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

type desk = Desk[string, string]

// settled gives work and says what came of it.
func settled(ctx context.Context, d *desk, work string) <-chan error {
	done := make(chan error, 1)
	go func() {
		done <- d.Do(ctx, work, func(r string) (bool, error) {
			if r != "made "+work {
				return false, errors.New(r)
			}
			return true, nil
		})
	}()
	return done
}

// M14: without a helper the answer is at once, and says so.
func TestM14NobodyIsThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := new(desk)
		if err := <-settled(t.Context(), d, "a"); !errors.Is(err, ErrNoHelper) || d.Present() {
			t.Error(err, d.Present())
		}
		ctx, stop := context.WithCancel(t.Context())
		go d.Take(ctx, "first")
		synctest.Wait()
		if !d.Present() {
			t.Error("a helper that waits is not there")
		}
		stop()
		synctest.Wait()
		time.Sleep(around)
		if d.Present() {
			t.Error("a helper that left is there")
		}
	})
}

// M1: what a killed helper had in hand goes to the next one.
func TestM1WorkOfAKilledHelper(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := new(desk)
		go func() {
			if j := d.Take(t.Context(), "first"); j == nil || j.Work != "a" {
				t.Errorf("taken: %+v", j)
			}
		}()
		synctest.Wait()
		done := settled(t.Context(), d, "a")
		synctest.Wait()
		j := d.Take(t.Context(), "second") // the first one never reports
		if j == nil || j.Work != "a" {
			t.Fatalf("taken: %+v", j)
		}
		if keep, live := d.Report(t.Context(), j.ID, "made a"); !keep || !live {
			t.Error(keep, live)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
		if _, live := d.Report(t.Context(), j.ID, "made a"); live {
			t.Error("a report is taken twice")
		}
	})
}

// A caller whose turn did not come is not answered that no helper runs.
func TestABusyHelper(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := new(desk)
		go d.Take(t.Context(), "first")
		synctest.Wait()
		soon, stop := context.WithTimeout(t.Context(), 2*around)
		defer stop()
		first := settled(soon, d, "a")
		synctest.Wait()
		late, stop := context.WithTimeout(t.Context(), 2*around-time.Second)
		defer stop()
		if err := <-settled(late, d, "b"); !errors.Is(err, ErrBusy) || errors.Is(err, ErrNoHelper) {
			t.Error(err)
		}
		if err := <-first; !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	})
}

// A caller that comes while a helper has had work in hand for long waits its turn: the helper asks
// for nothing, and is there. One that never reports is not believed for ever.
func TestACallerOfABusyHelper(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := new(desk)
		taken := make(chan *Job[string, string], 1)
		go func() { taken <- d.Take(t.Context(), "first") }()
		synctest.Wait()
		leaving, leave := context.WithCancel(t.Context())
		first := settled(leaving, d, "a")
		a := <-taken
		leave() // the helper goes on all the same
		if err := <-first; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		time.Sleep(around + time.Second)
		if !d.Present() {
			t.Error("a helper at work is not there")
		}
		second := settled(t.Context(), d, "b")
		synctest.Wait()
		if _, live := d.Report(t.Context(), a.ID, "made a"); live {
			t.Error("a caller waits")
		}
		b := d.Take(t.Context(), "first")
		if b == nil || b.Work != "b" {
			t.Fatalf("taken: %+v", b)
		}
		time.Sleep(inHand + time.Second)
		if err := <-settled(t.Context(), d, "c"); !errors.Is(err, ErrNoHelper) {
			t.Error(err)
		}
		go func() { d.Report(t.Context(), b.ID, "made b") }()
		if err := <-second; err != nil {
			t.Error(err)
		}
	})
}

// A helper that has hung up gets no work, and is not taken for the newest one: what the next one has in
// hand stays so. One whose time is over gets what is there.
func TestAHelperThatHungUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := new(desk)
		has := func(work string) bool { return d.Has(func(w string) bool { return w == work }) }
		taken := make(chan *Job[string, string], 1)
		go func() { taken <- d.Take(t.Context(), "second") }()
		synctest.Wait()
		leaving, leave := context.WithCancel(t.Context())
		first := settled(leaving, d, "a")
		<-taken
		leave()
		if err := <-first; !errors.Is(err, context.Canceled) || !has("a") {
			t.Fatal(err, has("a"))
		}
		done := settled(t.Context(), d, "b")
		synctest.Wait()
		hungUp, hangUp := context.WithCancel(t.Context())
		hangUp()
		for _, worker := range []string{"first", "second"} {
			if j := d.Take(hungUp, worker); j != nil {
				t.Errorf("%s has hung up, and gets %q", worker, j.Work)
			}
		}
		if !has("a") {
			t.Error("what the second one has in hand is forgotten")
		}
		over, end := context.WithTimeout(t.Context(), 0)
		defer end()
		j := d.Take(over, "second")
		if j == nil || j.Work != "b" {
			t.Fatalf("taken: %+v", j)
		}
		d.Report(t.Context(), j.ID, "made b")
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// A caller that left is not waited for, and what it wanted is not given any more.
func TestACallerThatLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := new(desk)
		go d.Take(t.Context(), "first")
		synctest.Wait()
		ctx, leave := context.WithCancel(t.Context())
		done := settled(ctx, d, "a")
		synctest.Wait()
		leave()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if _, live := d.Report(t.Context(), "1", "made a"); live {
			t.Error("a caller waits")
		}
		soon, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		if j := d.Take(soon, "second"); j != nil {
			t.Errorf("given: %+v", j)
		}
	})
}

// A report that comes as its caller leaves is answered: the helper waits for it, and with it
// any other caller that wants the same port.
func TestAReportAsTheCallerLeaves(t *testing.T) {
	d := new(desk)
	taken := make(chan *Job[string, string], 1)
	go func() { taken <- d.Take(t.Context(), "first") }()
	for !d.Present() {
		time.Sleep(time.Millisecond)
	}
	ctx, leave := context.WithCancel(t.Context())
	done := settled(ctx, d, "a")
	j := <-taken
	d.mu.Lock()
	leave()
	time.Sleep(20 * time.Millisecond) // the caller has seen it, and waits for the lock
	j.given = true                    // as Report does
	d.mu.Unlock()
	j.reported <- "made a"
	select {
	case keep := <-j.kept:
		if err := <-done; !keep || err != nil {
			t.Error(keep, err)
		}
	case <-time.After(10 * time.Second):
		t.Error("the report is not answered")
	}
}

// Work may be done until the helper has reported it, has had its time for it, or has ended: also where who
// wanted it has left.
func TestWorkThatMayBeDoneYet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := new(desk)
		a := func(work string) bool { return work == "a" }
		has := func(want bool, when string) {
			t.Helper()
			synctest.Wait()
			if got := d.Has(a); got != want {
				t.Errorf("%s: %v", when, got)
			}
		}
		take := func(worker string) (j *Job[string, string]) {
			ctx, stop := context.WithTimeout(t.Context(), time.Second)
			defer stop()
			return d.Take(ctx, worker)
		}
		give := func() (leave func()) {
			ctx, leave := context.WithCancel(t.Context())
			settled(ctx, d, "a")
			synctest.Wait()
			return leave
		}
		take("first") // it is there from now on
		has(false, "before")

		leave := give()
		has(true, "while it waits")
		leave()
		has(false, "it was not begun, and who wanted it has left")

		leave = give()
		j := take("first")
		leave()
		has(true, "in hand, and who wanted it has left")
		d.Report(t.Context(), j.ID, "made a")
		has(false, "once it is reported")

		leave = give()
		take("first")
		leave()
		time.Sleep(inHand)
		has(true, "at the end of the helper's time")
		time.Sleep(around + time.Second)
		has(false, "long after that")

		take("first")
		leave = give()
		take("first")
		leave()
		has(true, "in hand again")
		take("second")
		has(false, "its helper has ended")
	})
}
