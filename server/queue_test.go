package server

import (
	"slices"
	"testing"
	"time"
)

// TestQueue: how many calls of a holder run, by itself and beside another one.
func TestQueue(t *testing.T) {
	var ts turns
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
	want(runAlone, "alone")
	other := ts.ask(b, 1, now)
	if !runs(other) {
		t.Error("the first call of another one waits")
	}
	endFirst(runAlone - runBeside)
	want(runBeside, "beside another one")
	endFirst(1)
	want(runBeside, "after one more ended")
	now = now.Add(asksFor)
	endFirst(1)
	want(runAlone, "when the other one has not asked for long")

	// One that waits leaves, and those behind it move up.
	left := all[runAlone]
	ts.end(left, now)
	all = slices.Delete(all, runAlone, runAlone+1)
	endFirst(1)
	want(runAlone, "after one left the queue")
	if runs(left) {
		t.Error("a call runs that left")
	}

	// A listing counts for more, and for one that may always run.
	all = append(all, ts.ask(a, listingCost, now), ts.ask(a, 1, now))
	endFirst(len(all) - 2)
	want(1, "a listing and one behind it")
	endFirst(1)
	want(1, "the one behind it")
	endFirst(1)
	ts.end(other, now)
	if len(ts.of) > 0 {
		t.Errorf("%d holders are kept, of which none asks", len(ts.of))
	}
}
