package probe

import (
	"net/netip"
	"testing"
	"testing/synctest"
	"time"
)

// TestQuestions: an answer counts for a minute after the last question, and
// what is remembered does not grow with the time.
func TestQuestions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q questions
		first, second, never := netip.MustParseAddr("10.8.64.2"), netip.MustParseAddr("10.8.64.3"), netip.MustParseAddr("10.8.64.4")
		want := func(when string, of netip.Addr, counts bool) {
			t.Helper()
			if q.recent(of) != counts {
				t.Errorf("%s, an answer for %s counts: %v", when, of, !counts)
			}
		}
		want("before any question", first, false)
		q.note(first)
		want("at once", first, true)
		want("at once", never, false)
		time.Sleep(answerWithin)
		want("a minute later", first, true)
		time.Sleep(time.Second)
		want("after a minute", first, false)
		q.note(second) // a new generation
		want("in the next generation", first, false)
		time.Sleep(answerWithin + time.Second)
		q.note(first)
		time.Sleep(answerWithin - time.Second)
		q.note(second)
		time.Sleep(2 * time.Second)
		q.note(never)
		want("asked in the generation before, too long ago", first, false)
		want("asked in the generation before, recently", second, true)
		for addr := first; len(q.young)+len(q.old) < 1000; addr = addr.Next() {
			q.note(addr)
		}
		for range 2 {
			time.Sleep(answerWithin + time.Second)
			q.note(first)
		}
		if n := len(q.young) + len(q.old); n > 2 {
			t.Errorf("%d questions are remembered after two quiet minutes", n)
		}
	})
}
