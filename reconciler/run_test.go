package reconciler

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb/netdbtest"
)

// A shift is a reconciler that runs, on a real book, inside a bubble: its time
// passes when no part is at work.
type shift struct {
	*yard
	whole atomic.Int32 // readings made anew
	all   atomic.Int32 // passes
	stop  func()
}

// wait reports whether ctx lasts so long.
func wait(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// runShift starts Run and lets the first pass end.
func runShift(t *testing.T, before func(*shift)) *shift {
	t.Helper()
	s := &shift{yard: plain(t)}
	began, boot := time.Now(), s.clock.Stamp
	cfg := s.Config
	cfg.Now = func() ipam.Stamp {
		now, past := boot, time.Since(began)
		now.Wall, now.Boottime = now.Wall.Add(past), now.Boottime+past
		return now
	}
	cfg.Refresh = func(ctx context.Context) error { s.whole.Add(1); return s.refresh(ctx) }
	cfg.OnPass = func(*Report) { s.all.Add(1) }
	cfg.Log = slog.New(slog.DiscardHandler)
	var err error
	if s.Reconciler, err = New(cfg); err != nil {
		t.Fatal(err)
	}
	if before != nil {
		before(s)
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	s.stop = func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run ended with %v", err)
		}
	}
	synctest.Wait()
	return s
}

// counted fails unless so many whole passes and passes on news were made.
func (s *shift) counted(whole, news int32) {
	s.t.Helper()
	if w, n := s.whole.Load(), s.all.Load()-s.whole.Load(); w != whole || n != news {
		s.t.Errorf("after %v: %d whole passes and %d on news, want %d and %d", s.Now().Since(s.clock.Stamp), w, n, whole, news)
	}
}

// With nothing new the passes are those of the clock, however much happens
// that needs none.
func TestRunKeepsTheClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := runShift(t, nil)
		defer s.stop()
		s.counted(1, 0)
		wait(ctx, 5*time.Minute+2*time.Second)
		s.counted(2, 0)
		l := s.hold("A", "c1")
		for i := range 100 { // sightings that the book explains, and changes that need no pass
			s.show(container("c1", owner("A"), ip(l.Addr.String()), runs), seen(netns, l.Addr.String(), port(fmt.Sprint("veth", i))))
			wait(ctx, time.Second)
		}
		s.counted(2, 0)
	})
}

// A workload without a lease is adopted at once, not at the next whole pass;
// news that come together cost one pass, news that go on one a second.
func TestRunFollowsNews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := runShift(t, nil)
		defer s.stop()
		var there []line
		for i := range 20 {
			there = append(there, lives(fmt.Sprint("c", i), fmt.Sprint("S", i), fmt.Sprintf("10.8.64.%d", 20+i)))
			s.show(there...)
		}
		wait(ctx, 2*debounce)
		s.counted(1, 1)
		if rows, _ := s.book.Leases(); len(rows) != 20 {
			t.Errorf("%d are adopted: %q", len(rows), s.states())
		}
		wait(ctx, 2*pause)
		for i := range 100 { // ten seconds, a new workload ten times a second
			there = append(there, lives(fmt.Sprint("d", i), fmt.Sprint("T", i), fmt.Sprintf("10.8.64.%d", 100+i)))
			s.show(there...)
			wait(ctx, 100*time.Millisecond)
		}
		wait(ctx, 2*pause)
		if n := s.all.Load() - 2; n < 5 || n > 12 {
			t.Errorf("ten seconds of news cost %d passes", n)
		}
		if rows, _ := s.book.Leases(); len(rows) != 120 {
			t.Errorf("%d are adopted", len(rows))
		}
	})
}

// Kicks coalesce, and a pass on a kick reads nothing anew.
func TestKicks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := runShift(t, nil)
		defer s.stop()
		for range 1000 {
			s.Kick()
		}
		wait(ctx, 3*pause)
		if n := s.all.Load() - s.whole.Load(); n < 1 || n > 2 {
			t.Errorf("a thousand kicks at once cost %d passes", n)
		}
		if s.whole.Load() != 1 {
			t.Errorf("%d whole readings", s.whole.Load())
		}
	})
}

// What no lease can be made for is quarantined once, and is no news after that.
func TestRunDoesNotHammer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := runShift(t, nil)
		defer s.stop()
		tooLong := strings.Repeat("u", ipam.MaxName+1)
		s.show(container("c1", owner("B"), as(tooLong), ip("10.8.64.9"), runs))
		wait(ctx, 3*pause)
		before := s.all.Load()
		for i := range 30 {
			s.show(container("c1", owner("B"), as(tooLong), ip("10.8.64.9"), runs), container(fmt.Sprint("x", i)))
			wait(ctx, time.Second)
		}
		if after := s.all.Load(); before != 3 || after != before {
			t.Errorf("%d passes, and then %d more over a workload that no lease can be made for", before, after-before)
		}
		s.holds("10.8.64.9 quarantined")
	})
}

// A pass that was asked for hangs on Run and not on who asked: a client that
// hangs up must not look like a witness that went silent. It waits for its
// turn, and gives up waiting when it is asked to.
func TestAnAskedPassOutlivesItsCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := runShift(t, nil)
		reading, readOn := make(chan error, 1), make(chan struct{})
		s.refresh = func(ctx context.Context) error {
			<-readOn
			reading <- ctx.Err()
			return ctx.Err()
		}
		caller, hangUp := context.WithCancel(ctx)
		done := make(chan *Report, 1)
		go func() {
			rep, err := s.Pass(caller, Mode{})
			if err != nil {
				t.Errorf("the pass: %v", err)
			}
			done <- rep
		}()
		synctest.Wait()
		hangUp()
		second, giveUp := context.WithTimeout(ctx, time.Second)
		defer giveUp()
		if _, err := s.Pass(second, Mode{Preview: true}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a pass that waited for its turn for too long: %v", err)
		}
		close(readOn)
		if err := <-reading; err != nil {
			t.Errorf("the reading ended with its caller: %v", err)
		}
		if rep := <-done; rep == nil || !rep.Complete || s.Last() != rep {
			t.Errorf("the report is %+v, the last one %+v", rep, s.Last())
		}
		s.stop()
		if _, err := s.Pass(caller, Mode{}); !errors.Is(err, context.Canceled) {
			t.Errorf("a pass after the end: %v", err)
		}
	})
}

// Run that is asked to stop in the middle of a reading ends, and leaves no
// report of half a pass.
func TestRunEndsInTheMiddleOfAPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := runShift(t, func(s *shift) {
			s.refresh = func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
		})
		s.stop()
		if s.Last() != nil {
			t.Errorf("a pass that was broken off is reported: %+v", s.Last())
		}
	})
}

// News count for no quarantine: however many come, it lasts for three whole passes and its time, and a sighting
// among them starts it over.
func TestNewsEndNoQuarantine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := runShift(t, func(s *shift) {
			s.quarantineByHand("10.8.64.9")
			s.show(seen(netns, "10.8.64.9"))
		})
		defer s.stop()
		s.counted(1, 0)
		wait(ctx, time.Minute)
		var there []line
		for i := range 4 { // each a pass
			there = append(there, lives(fmt.Sprint("c", i), fmt.Sprint("S", i), fmt.Sprintf("10.8.64.%d", 20+i)))
			s.show(there...)
			wait(ctx, 2*pause)
		}
		s.counted(1, 4)
		s.passing <- struct{}{}
		if n := len(s.known.unseen); n != 0 {
			t.Errorf("passes on news counted: %+v", s.known.unseen)
		}
		s.give()
		wait(ctx, 14*time.Minute) // whole passes after 5, 10 and 15 minutes
		s.holds("10.8.64.9 quarantined", "10.8.64.20 bound S0", "10.8.64.21 bound S1", "10.8.64.22 bound S2", "10.8.64.23 bound S3")
		wait(ctx, 5*time.Minute)
		s.holds("10.8.64.9 cooling", "10.8.64.20 bound S0", "10.8.64.21 bound S1", "10.8.64.22 bound S2", "10.8.64.23 bound S3")
	})
}

// A quarantine that ended its unseen starts it anew at once: the pass on the
// news asks the wire about it too.
func TestRunWatchesQuarantines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := runShift(t, func(s *shift) {
			if _, err := s.book.Quarantine(ctx, netdbtest.Who(ipam.ByAllocator, "seen_on_wire"), netip.MustParseAddr("10.8.64.9"), evidenceOf(census.Probe)); err != nil {
				t.Fatal(err)
			}
		})
		defer s.stop()
		asked := func() int { return len(s.Prober.(*wire).asked) }
		wait(ctx, time.Minute)
		before := asked()
		s.show(seen(netns, "10.8.64.9"))
		wait(ctx, 2*pause)
		if asked() != before+1 {
			t.Errorf("the wire was asked %d times about an address that came alive, want once", asked()-before)
		}
		s.show()
		wait(ctx, 2*pause)
		wait(ctx, 14*time.Minute)
		s.holds("10.8.64.9 quarantined")
		wait(ctx, 6*time.Minute)
		s.holds("10.8.64.9 cooling")
	})
}
