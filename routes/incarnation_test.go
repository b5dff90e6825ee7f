package routes

import (
	"fmt"
	"testing"

	"github.com/ipamd/ipamd/api"
)

// lived is a route of a sandbox's incarnation. Of two leases the later one has the later id.
func lived(uid string, lease int, addr string, attempt int64, s api.State, revision int64) Route {
	r := placed("a", addr, attempt, s, revision)
	r.UID, r.Lease = uid, fmt.Sprintf("lease-%04d", lease)
	return r
}

// A sandbox whose name comes again with another uid counts attempts from 1 again: it resolves, on
// the runner that had the one before, and on another one.
func TestFederatedIncarnationsCountAttemptsAnew(t *testing.T) {
	for _, next := range []string{"one", "two"} {
		var f Federated
		tables := map[string]*Table{"one": listed(t, 0), "two": listed(t, 0)}
		f.Join("one", tables["one"])
		f.Join("two", tables["two"])
		apply(t, tables["one"], lived("u1", 1, "10.8.0.5", 1, api.Bound, 1))
		apply(t, tables["one"], lived("u1", 1, "10.8.0.5", 1, api.Cooling, 2))
		apply(t, tables["one"], lived("u1", 2, "10.8.0.6", 3, api.Bound, 3))
		apply(t, tables["one"], lived("u1", 2, "10.8.0.6", 3, api.Cooling, 4))
		where(t, &f, "a", "")

		apply(t, tables[next], lived("u2", 3, "10.8.0.7", 1, api.Bound, 5))
		where(t, &f, "a", next+" 10.8.0.7")
		apply(t, tables["two"], lived("u2", 4, "10.8.0.8", 2, api.Bound, 6)) // the next attempt
		where(t, &f, "a", "two 10.8.0.8")
		apply(t, tables["two"], lived("u2", 4, "10.8.0.8", 2, api.Cooling, 7))
		where(t, &f, "a", "")
	}
}

// An earlier incarnation does not undo a later one, in whatever order both are read: neither by a
// higher attempt, nor as a later lease of a book that was rebuilt, nor once the later one has ended,
// nor once it is not among those that are remembered.
func TestFederatedAnEarlierIncarnationStaysBehind(t *testing.T) {
	for _, order := range [][]string{{"one", "two"}, {"two", "one"}} {
		var f Federated
		tables := map[string]*Table{
			"one": listed(t, 5, lived("u1", 10, "10.8.0.5", 9, api.Bound, 3)), // which is cut off
			"two": listed(t, 5, lived("u2", 20, "10.9.0.5", 1, api.Bound, 3)),
		}
		for _, runner := range order {
			f.Join(runner, tables[runner])
		}
		where(t, &f, "a", "two 10.9.0.5")
		if split := f.Split("a"); split != nil {
			t.Errorf("%+v", split)
		}
		if err := tables["one"].Replace(List{"rebuilt", 2, []Route{lived("u1", 30, "10.8.0.5", 9, api.Bound, 1)}}); err != nil {
			t.Fatal(err)
		}
		where(t, &f, "a", "two 10.9.0.5")
		apply(t, tables["two"], lived("u2", 20, "10.9.0.5", 1, api.Paused, 6))
		where(t, &f, "a", "two 10.9.0.5")
		apply(t, tables["two"], lived("u2", 20, "10.9.0.5", 1, api.Cooling, 7))
		where(t, &f, "a", "")
		for n := range mostLives + 2 {
			apply(t, tables["two"], lived(fmt.Sprint("v", n), 40+n, "10.9.0.6", 1, api.Bound, int64(8+2*n)))
			where(t, &f, "a", "two 10.9.0.6")
			apply(t, tables["two"], lived(fmt.Sprint("v", n), 40+n, "10.9.0.6", 1, api.Cooling, int64(9+2*n)))
			where(t, &f, "a", "")
		}
		f.Leave("one")
		f.Join("one", listed(t, 5, lived("u1", 10, "10.8.0.5", 9, api.Bound, 3)))
		where(t, &f, "a", "")
		if n := len(f.by["a"].lives); n != mostLives {
			t.Errorf("%d incarnations are remembered", n)
		}
	}
}

// A book that was rebuilt has a live sandbox by a lease that is later than the next incarnation's:
// once an earlier lease of it is seen, it is known to be the earlier one.
func TestFederatedALateLeaseOfAnEarlierIncarnation(t *testing.T) {
	var f Federated
	f.Join("one", listed(t, 5, lived("u1", 30, "10.8.0.5", 1, api.Bound, 3)))
	f.Join("two", listed(t, 5, lived("u2", 20, "10.9.0.5", 1, api.Bound, 3)))
	where(t, &f, "a", "one 10.8.0.5")
	f.Join("three", listed(t, 5, lived("u1", 10, "10.7.0.5", 1, api.Reserved, 3)))
	where(t, &f, "a", "two 10.9.0.5")
}

// An upgrade of a sandbox fails on its runner: the incarnation that lives on there under the name
// is found again, also by a runner whose clock was set back. One of another runner is not, nor is it
// while another runner has the later one, too.
func TestFederatedAFailedUpgrade(t *testing.T) {
	var f Federated
	one := listed(t, 1, lived("u1", 10, "10.8.0.5", 4, api.Bound, 1))
	f.Join("one", one)
	f.Join("two", listed(t, 1, lived("u0", 5, "10.9.0.5", 7, api.Bound, 1)))
	where(t, &f, "a", "one 10.8.0.5")
	apply(t, one, lived("u2", 20, "10.8.0.6", 1, api.Bound, 2))
	where(t, &f, "a", "one 10.8.0.6")
	apply(t, one, lived("u2", 20, "10.8.0.6", 1, api.Releasing, 3))
	where(t, &f, "a", "one 10.8.0.6")
	apply(t, one, lived("u2", 20, "10.8.0.6", 1, api.Cooling, 4))
	where(t, &f, "a", "one 10.8.0.5")
	three := listed(t, 1, lived("u2", 21, "10.7.0.6", 1, api.Bound, 1))
	f.Join("three", three)
	where(t, &f, "a", "three 10.7.0.6")
	if err := three.Replace(List{"again", 1, nil}); err != nil {
		t.Fatal(err)
	}
	where(t, &f, "a", "")
	apply(t, one, lived("u2", 22, "10.8.0.6", 2, api.Bound, 5))
	apply(t, one, lived("u2", 22, "10.8.0.6", 2, api.Cooling, 6))
	where(t, &f, "a", "one 10.8.0.5")
	apply(t, one, lived("u1", 10, "10.8.0.5", 4, api.Cooling, 7))
	where(t, &f, "a", "")
	apply(t, one, lived("u3", 15, "10.8.0.7", 1, api.Bound, 8))
	where(t, &f, "a", "one 10.8.0.7")
}
