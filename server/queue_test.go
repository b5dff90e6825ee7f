package server

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// TestQueue: how many calls of a holder run, sixty-four by itself and eight
// beside another one.
func TestQueue(t *testing.T) {
	ts := turns{lasts: time.Hour}
	a, b, now := holder{uid: 1}, holder{uid: 2}, time.Now()
	var all []*turn
	runs := func(tn *turn) bool {
		select {
		case <-tn.runs:
			return true
		default:
			return false
		}
	}
	count := func() (n int) {
		for i, tn := range all {
			if runs(tn) {
				n++
				if slices.ContainsFunc(all[:i], func(earlier *turn) bool { return !runs(earlier) }) {
					t.Fatalf("call %d runs before an earlier one", i)
				}
			}
		}
		return n
	}
	endFirst := func(n int) {
		for range n {
			ts.end(all[0], now)
			all = all[1:]
		}
	}
	want := func(n int, when string) {
		t.Helper()
		if got := count(); got != n {
			t.Errorf("%s: %d calls run, want %d", when, got, n)
		}
	}

	for range 200 {
		all = append(all, ts.ask(a, 1, now))
	}
	want(64, "alone")
	other := ts.ask(b, 1, now)
	if !runs(other) {
		t.Error("the first call of another one waits")
	}
	endFirst(55)
	want(9, "when those that ran have nearly ended, beside another one")
	endFirst(1)
	want(8, "beside another one")
	endFirst(1)
	want(8, "after one more ended")
	now = now.Add(asksFor)
	endFirst(1)
	want(64, "when the other one has not asked for long")

	// One that waits leaves, and those behind it move up.
	left := all[64]
	ts.end(left, now)
	all = slices.Delete(all, 64, 65)
	endFirst(1)
	want(64, "after one left the queue")
	if runs(left) {
		t.Error("a call runs that left")
	}

	// What counts for more than there is runs alone.
	all = append(all, ts.ask(a, 2*64, now), ts.ask(a, 1, now))
	endFirst(len(all) - 2)
	want(1, "a giant and one behind it")
	endFirst(1)
	want(1, "the one behind it")
	endFirst(1)
	ts.end(other, now)
	if len(ts.of) > 0 {
		t.Errorf("%d holders are kept, of which none asks", len(ts.of))
	}
}

// TestTurnsThatLast: a call that hangs keeps the others of its peer for no longer
// than its turn, and ends it once.
func TestTurnsThatLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ts turns
		h, now := holder{uid: 1}, time.Now
		hang := make([]*turn, 64)
		for i := range hang {
			hang[i] = ts.ask(h, 1, now())
		}
		next := ts.ask(h, 1, now())
		<-time.After(turnLasts - 1)
		synctest.Wait()
		select {
		case <-next.runs:
			t.Error("it runs beside as many as may")
		default:
		}
		<-time.After(1)
		synctest.Wait()
		select {
		case <-next.runs:
		default:
			t.Error("it waits for calls that hang")
		}
		for _, tn := range hang {
			ts.end(tn, now())
		}
		if q := ts.of[h]; q == nil || q.running != 1 {
			t.Errorf("one runs, and %+v is kept", q)
		}
		ts.end(next, now())
		if len(ts.of) > 0 {
			t.Errorf("%d holders are kept, of which none asks", len(ts.of))
		}
	})
}
