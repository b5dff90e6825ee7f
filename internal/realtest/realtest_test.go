package realtest_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/ipamd/ipamd/internal/realtest"
)

// spy notes what a helper did to its test, and ends the helper as the real
// one would.
type spy struct {
	testing.TB
	failed, skipped bool
}

func (s *spy) Helper()               {}
func (s *spy) Failed() bool          { return s.failed }
func (s *spy) Fatalf(string, ...any) { s.failed = true; panic(s) }
func (s *spy) Skip(...any)           { s.skipped = true; panic(s) }

// run calls f with a spy and returns what became of it.
func run(f func(testing.TB)) (s *spy) {
	s = new(spy)
	defer func() {
		if r := recover(); r != nil && r != any(s) {
			panic(r)
		}
	}()
	f(s)
	return s
}

func TestNeed(t *testing.T) {
	for _, c := range []struct {
		name, ci, program string
		failed, skipped   bool
	}{
		{"there", "", "sh", false, false},
		{"there, in CI", "true", "sh", false, false},
		{"missing", "", "no-such-program", false, true},
		{"missing, in CI", "true", "no-such-program", true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv("CI", c.ci)
			s := run(func(t testing.TB) { realtest.Need(t, "sh", c.program) })
			if s.failed != c.failed || s.skipped != c.skipped {
				t.Errorf("failed %v, skipped %v; want %v, %v", s.failed, s.skipped, c.failed, c.skipped)
			}
		})
	}
}

func TestEventually(t *testing.T) {
	n := 0
	if s := run(func(t testing.TB) {
		realtest.Eventually(t, time.Minute, "three", func() bool { n++; return n == 3 })
	}); s.failed {
		t.Error("failed although the answer came")
	}
	if s := run(func(t testing.TB) {
		realtest.Eventually(t, 5*time.Millisecond, "never", func() bool { return false })
	}); !s.failed {
		t.Error("did not fail although the answer never came")
	}
}

// Asking takes a fifth of the time at most, and an answer is not late for that.
func TestEventuallyAsksLessOftenWhatTakesLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const question, comes = 10 * time.Millisecond, 10 * time.Second
		began, n := time.Now(), 0
		realtest.Eventually(t, time.Minute, "it has come", func() bool {
			n++
			time.Sleep(question)
			return time.Since(began) > comes
		})
		if took := time.Since(began); n > int(comes/question)/5+1 || took > comes+6*question {
			t.Errorf("asked %d times for %v each, within %v", n, question, took)
		}
		began, n = time.Now(), 0
		realtest.Eventually(t, time.Minute, "it has come", func() bool {
			n++
			time.Sleep(comes)
			return n == 2
		})
		if rested := time.Since(began) - 2*comes; rested > time.Second {
			t.Errorf("rested for %v behind a question", rested)
		}
	})
}

// A machine that stands still for longer than anybody waits, here for as long
// as one question takes, is no reason to give up.
func TestEventuallyOnAMachineThatStandsStill(t *testing.T) {
	const timeout = 20 * time.Millisecond
	n := 0
	if s := run(func(t testing.TB) {
		realtest.Eventually(t, timeout, "ten", func() bool {
			if n++; n == 1 {
				<-time.After(2 * timeout)
			}
			return n == 10
		})
	}); s.failed {
		t.Errorf("gave up after %d questions", n)
	}
}

// One round in time is enough, a scene that failed is not played again, and none
// in time is a failure.
func TestInTime(t *testing.T) {
	const limit = time.Second
	for _, c := range []struct {
		name   string
		scene  func(n int, s *spy) time.Duration
		rounds int
		failed bool
	}{
		{"at once", func(int, *spy) time.Duration { return 0 }, 1, false},
		{"in the last round", func(n int, _ *spy) time.Duration { return limit * time.Duration(min(10-n, 1)) }, 10, false},
		{"never", func(int, *spy) time.Duration { return limit }, 10, true},
		{"it failed", func(_ int, s *spy) time.Duration { s.failed = true; return limit }, 1, true},
	} {
		n := 0
		s := run(func(t testing.TB) {
			realtest.InTime(t, limit, c.name, func() time.Duration { n++; return c.scene(n, t.(*spy)) })
		})
		if n != c.rounds || s.failed != c.failed {
			t.Errorf("%s: %d rounds, failed %v; want %d, %v", c.name, n, s.failed, c.rounds, c.failed)
		}
	}
}

func TestLack(t *testing.T) {
	for ci, failed := range map[string]bool{"": false, "true": true} {
		t.Setenv("CI", ci)
		if s := run(func(t testing.TB) { realtest.Lack(t, "needs a moon") }); s.failed != failed || s.skipped == failed {
			t.Errorf("CI=%q: failed %v, skipped %v", ci, s.failed, s.skipped)
		}
	}
}
