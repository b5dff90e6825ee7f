package realtest

import (
	"testing"
	"time"
)

// mostRounds is how often a scene is played.
const mostRounds = 10

// InTime plays a scene, which says how long it took, until that was less than
// limit, and fails the test when it never was. So a bound holds on a machine that
// stands still now and then: it may spoil one round, but not ten. No round is
// played once the test has failed.
func InTime(t testing.TB, limit time.Duration, what string, scene func() time.Duration) {
	t.Helper()
	var took []time.Duration
	for range mostRounds {
		last := scene()
		if t.Failed() || last < limit {
			return
		}
		took = append(took, last)
	}
	t.Fatalf("%s: not once within %v: %v", what, limit, took)
}
