package routes

import (
	"errors"
	"testing"
	"time"

	"github.com/ipamd/ipamd/api"
)

// A pushed revision that the daemon does not have, a minute on, is no news of its: the
// table asks for a list, and that one stands. What a stuck stream has not passed stays.
func TestARevisionThatIsNot(t *testing.T) {
	now := time.Unix(0, 0)
	table := listed(t, 5, route("a", "10.8.0.5", api.Bound, 3))
	table.Now = func() time.Time { return now }
	push(t, table, route("a", "10.8.0.5", api.Cooling, 1<<60), true)
	at(t, table, "a", "")
	if err := table.Bookmark(epoch, 6); err != nil {
		t.Error(err)
	}
	now = now.Add(doubtAfter + 1)
	push(t, table, route("b", "10.8.0.6", api.Bound, 9), true)
	if err := table.Bookmark(epoch, 7); !errors.Is(err, ErrList) {
		t.Error(err)
	}
	if err := table.Replace(List{epoch, 8, []Route{route("a", "10.8.0.5", api.Bound, 3)}}); err != nil {
		t.Error(err)
	}
	at(t, table, "a", "10.8.0.5")
	at(t, table, "b", "10.8.0.6")
	apply(t, table, route("b", "10.8.0.6", api.Bound, 9))
	if err := table.Bookmark(epoch, 9); err != nil || table.Status().Ahead != 0 {
		t.Errorf("%v, %+v", err, table.Status())
	}
}

// A stream of changes without a pause brings no bookmark: what was pushed and cannot be true
// is found by a change as well, whether its revision is far ahead or the stream has passed it.
func TestAFalsePushInABusyStream(t *testing.T) {
	for name, is := range map[string]struct {
		revision int64
		within   time.Duration
	}{"far ahead": {1 << 40, doubtAfter + 2*lookEvery}, "passed": {9, 2 * lookEvery}} {
		t.Run(name, func(t *testing.T) {
			now := time.Unix(0, 0)
			table := listed(t, 5, route("a", "10.8.0.5", api.Bound, 3))
			table.Now = func() time.Time { return now }
			push(t, table, route("a", "10.8.0.5", api.Cooling, is.revision), true)
			push(t, table, route("c", "10.8.0.7", api.Bound, 20), true) // the stream brings it
			at(t, table, "a", "")
			revision := int64(6)
			for ; now.Before(time.Unix(0, 0).Add(2 * doubtAfter)); revision++ {
				now = now.Add(time.Second / 4)
				r := route("b", "10.8.0.6", api.Bound, revision)
				if revision == 20 {
					r = route("c", "10.8.0.7", api.Bound, revision)
				}
				if err := table.Apply(epoch, r); errors.Is(err, ErrList) {
					break
				} else if err != nil {
					t.Fatal(err)
				}
			}
			if at := now.Sub(time.Unix(0, 0)); at > is.within {
				t.Fatalf("no list is asked for in %v", at)
			}
			if table.Status().Revision != revision {
				t.Errorf("the change of %d is not taken in: %+v", revision, table.Status())
			}
			if err := table.Replace(List{epoch, revision, []Route{route("a", "10.8.0.5", api.Bound, 3)}}); err != nil {
				t.Fatal(err)
			}
			at(t, table, "a", "10.8.0.5")
			for range 2 * doubtAfter / lookEvery { // and that was all
				now, revision = now.Add(lookEvery), revision+1
				apply(t, table, route("b", "10.8.0.6", api.Bound, revision))
			}
		})
	}
}

// An address of which pushes are always ahead of the stream has no list asked for: each
// revision comes to be the stream's.
func TestPushesWithoutEndAreNotDoubted(t *testing.T) {
	now := time.Unix(0, 0)
	table := listed(t, 5, route("a", "10.8.0.5", api.Bound, 3))
	table.Now = func() time.Time { return now }
	for revision := int64(10); now.Before(time.Unix(0, 0).Add(3 * doubtAfter)); revision++ {
		push(t, table, route("a", "10.8.0.5", api.Bound, revision), true)
		if err := table.Bookmark(epoch, revision-1); err != nil {
			t.Fatalf("after %v: %v", now.Sub(time.Unix(0, 0)), err)
		}
		now = now.Add(doubtAfter / 2)
	}
}
