package ipam

import (
	"slices"
	"testing"
)

// A row of the table whose states or actor are none is one that nothing tries.
func TestTheTableOfMovesHasKnownNames(t *testing.T) {
	states := append([]State{Free}, States()...)
	for i, m := range moves {
		if !slices.Contains(states, m.from) || !slices.Contains(states, m.to) || len(m.by) == 0 {
			t.Errorf("%q to %q by %q", m.from, m.to, m.by)
		}
		for _, by := range m.by {
			if !slices.Contains(Actors(), by) {
				t.Errorf("%s to %s by %q, which is no actor", m.from, m.to, by)
			}
		}
		if slices.ContainsFunc(moves[:i], func(o move) bool { return o.from == m.from && o.to == m.to }) {
			t.Errorf("%s to %s is there twice: only the first counts", m.from, m.to)
		}
	}
}

// What the design forbids in so many words.
func TestForbiddenMoves(t *testing.T) {
	for _, by := range Actors() {
		for _, m := range [][2]State{
			{Paused, Cooling}, {Bound, Cooling}, {Reserved, Cooling}, {Bound, Free}, {Paused, Free}, {Releasing, Free},
			{Releasing, Bound}, {Releasing, Reserved}, {Quarantined, Free}, {Quarantined, Reserved}, {Bound, Reserved},
		} {
			if Legal(by, m[0], m[1]) == nil {
				t.Errorf("%s may move %s to %s", by, m[0], m[1])
			}
		}
		if by != ByWatchdog && Legal(by, Releasing, Cooling) == nil {
			t.Errorf("%s may make an address cool", by)
		}
	}
}
