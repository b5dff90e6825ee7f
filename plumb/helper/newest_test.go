package helper

import (
	"testing"
	"testing/synctest"
	"time"
)

// Of two pieces of work on a port the one that was given first is not done behind the other.
func TestNewest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n newest
		for _, c := range []struct {
			owner, id string
			passed    bool
		}{
			{"a", "p12", false}, {"a", "p13", false}, {"a", "p12", true}, {"b", "p12", false}, {"a", "p13", false},
			{"a", "odd", false}, {"a", "p2", true},
		} {
			if got := n.passed(c.owner, c.id); got != c.passed {
				t.Errorf("%s of %s: %t", c.id, c.owner, got)
			}
		}
		time.Sleep(time.Hour)
		if n.passed("c", "p1") || n.passed("a", "p1") || len(n.of) != 2 {
			t.Errorf("an hour later: %v", n.of)
		}
	})
}
