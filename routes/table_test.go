package routes

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/ipamd/ipamd/api"
)

const epoch = "e1"

// route is "sandbox address state revision", as a change of the book says it.
func route(sandbox, addr string, s api.State, revision int64) Route {
	return Route{Sandbox: sandbox, UID: sandbox + "-uid", Interface: "eth0", Lease: fmt.Sprint(sandbox, addr),
		Addr: netip.MustParseAddr(addr), State: s, Revision: revision}
}

func listed(t testing.TB, revision int64, routes ...Route) *Table {
	t.Helper()
	table := &Table{}
	if err := table.Replace(List{epoch, revision, routes}); err != nil {
		t.Fatal(err)
	}
	return table
}

func push(t testing.TB, table *Table, r Route, want bool) {
	t.Helper()
	newer, err := table.Push(epoch, r)
	if err != nil || newer != want {
		t.Errorf("a push of %s %s at %d: newer %v, %v", r.Sandbox, r.State, r.Revision, newer, err)
	}
}

func apply(t testing.TB, table *Table, r Route) {
	t.Helper()
	if err := table.Apply(epoch, r); err != nil {
		t.Error(err)
	}
}

func at(t testing.TB, table *Table, sandbox, want string) {
	t.Helper()
	got := ""
	if r, ok := table.Lookup(sandbox); ok {
		got = r.Addr.String()
	}
	if got != want {
		t.Errorf("%s is at %q, and should be at %q", sandbox, got, want)
	}
}

// T1: a delete at 12, then an upsert of 10: stale. So it is when the stream has passed
// 12 and nothing is remembered of the delete, when the delete is the first that is
// received, and a year later.
func TestT1LateUpsertAfterDelete(t *testing.T) {
	now := time.Unix(0, 0)
	for _, first := range []bool{false, true} {
		table := listed(t, 5)
		table.Now = func() time.Time { return now }
		if !first {
			push(t, table, route("a", "10.8.0.5", api.Bound, 9), true)
		}
		push(t, table, route("a", "10.8.0.5", api.Cooling, 12), true)
		push(t, table, route("a", "10.8.0.5", api.Bound, 10), false)
		at(t, table, "a", "")
		for _, r := range []Route{route("a", "10.8.0.5", api.Bound, 9), route("a", "10.8.0.5", api.Cooling, 12)} {
			apply(t, table, r)
			at(t, table, "a", "")
		}
		if len(table.cells)+len(table.ahead) != 0 {
			t.Error("a delete is remembered that the stream has passed")
		}
		now = now.Add(365 * 24 * time.Hour)
		push(t, table, route("a", "10.8.0.5", api.Bound, 10), false)
		push(t, table, route("b", "10.8.0.6", api.Bound, 11), false)
		at(t, table, "a", "")
		at(t, table, "b", "")
	}
}

// T5: A has .5 and loses it at 20, B gets it at 25. Whatever comes late, and in
// whatever order, from 20 on A is not at .5; B's lease alone says so as well.
func TestT5AnAddressOfAnother(t *testing.T) {
	events := []Route{
		route("a", "10.8.0.5", api.Bound, 18), route("a", "10.8.0.5", api.Cooling, 20),
		route("b", "10.8.0.5", api.Reserved, 25), route("b", "10.8.0.5", api.Bound, 26),
	}
	for range 200 {
		table := listed(t, 17)
		highest := int64(0)
		for _, i := range rand.Perm(len(events)) {
			if _, err := table.Push(epoch, events[i]); err != nil {
				t.Fatal(err)
			}
			highest = max(highest, events[i].Revision)
			if r, ok := table.Lookup("a"); ok && highest >= 20 {
				t.Fatalf("a is at %s at %d", r.Addr, highest)
			}
		}
		at(t, table, "b", "10.8.0.5")
	}
}

// T3: each state through each entry point: what ended is absent, what is paused is kept
// and not served, what is not ready is not gone, and neither is a state of a later build.
func TestT3OnePredicate(t *testing.T) {
	entries := map[string]func(*Table, Route) error{
		"stream": func(table *Table, r Route) error { return table.Apply(epoch, r) },
		"push":   func(table *Table, r Route) error { _, err := table.Push(epoch, r); return err },
		"list":   func(table *Table, r Route) error { return table.Replace(List{epoch, r.Revision, []Route{r}}) },
		"early": func(table *Table, r Route) error {
			_, err := table.Push("e2", r)
			return errors.Join(err, table.Replace(List{Epoch: "e2", Revision: 1}))
		},
	}
	for state, want := range map[api.State]string{
		api.Free: "gone", api.Cooling: "gone", api.Quarantined: "gone", api.Cancelled: "gone",
		api.Reserved: "kept", api.Paused: "kept", api.Releasing: "kept", "waking": "kept", api.Bound: "served",
	} {
		for entry, give := range entries {
			table := listed(t, 1, route("a", "10.8.0.5", api.Bound, 1))
			if err := give(table, route("a", "10.8.0.5", state, 2)); err != nil {
				t.Fatal(err)
			}
			got := "gone"
			if r, ok := table.Lookup("a"); ok {
				got = "kept"
				if r.Served() {
					got = "served"
				}
			}
			if got != want {
				t.Errorf("%s by the %s is %s, and should be %s", state, entry, got, want)
			}
		}
	}
}

// T4: keys are whole names.
func TestT4WholeNames(t *testing.T) {
	random := make([]byte, longestName)
	for i := range random {
		random[i] = byte(rand.IntN(256))
	}
	names := []string{"a--b", "a", "b", "b--c", "a--b--c", "team/x--y", "team/x", "A", "a ", string(random), string(random[:252])}
	var routes []Route
	for i, name := range names {
		routes = append(routes, route(name, fmt.Sprintf("10.8.0.%d", 10+i), api.Bound, 1))
	}
	table := listed(t, 1, routes...)
	for i, name := range names {
		at(t, table, name, fmt.Sprintf("10.8.0.%d", 10+i))
	}
	apply(t, table, route("a", "10.8.0.11", api.Cooling, 2))
	at(t, table, "a", "")
	at(t, table, "a--b", "10.8.0.10")
}

// T6: a list replaces at once what is at its revision or below; newer pushes stay. An
// older list is refused.
func TestT6Relist(t *testing.T) {
	table := listed(t, 5, route("a", "10.8.0.5", api.Bound, 3), route("b", "10.8.0.6", api.Bound, 4))
	push(t, table, route("c", "10.8.0.7", api.Bound, 30), true)
	push(t, table, route("d", "10.8.0.8", api.Bound, 9), true)
	push(t, table, route("e", "10.8.0.9", api.Cooling, 31), true)
	if err := table.Replace(List{epoch, 20, []Route{route("b", "10.8.0.6", api.Paused, 12), route("e", "10.8.0.9", api.Bound, 15)}}); err != nil {
		t.Fatal(err)
	}
	for sandbox, want := range map[string]string{"a": "", "b": "10.8.0.6", "c": "10.8.0.7", "d": "", "e": ""} {
		at(t, table, sandbox, want)
	}
	before := table.Status()
	if before.Lag != 11 {
		t.Errorf("the table lags by %d, and what was pushed is 11 ahead of it", before.Lag)
	}
	if err := table.Replace(List{epoch, 19, nil}); !errors.Is(err, ErrOldList) {
		t.Error(err)
	}
	if after := table.Status(); after.String() != before.String() {
		t.Errorf("an old list made %s of %s", after, before)
	}
}

// T6: a list that is long on its way undoes no push that came meanwhile.
func TestT6ASlowListUndoesNoPush(t *testing.T) {
	now := time.Unix(0, 0)
	table := listed(t, 5, route("a", "10.8.0.5", api.Bound, 3))
	table.Now = func() time.Time { return now }
	push(t, table, route("a", "10.8.0.5", api.Cooling, 30), true)
	push(t, table, route("b", "10.8.0.5", api.Bound, 31), true)
	now = now.Add(2 * doubtAfter)
	if err := table.Replace(List{epoch, 20, []Route{route("a", "10.8.0.5", api.Bound, 3)}}); err != nil {
		t.Fatal(err)
	}
	at(t, table, "a", "")
	at(t, table, "b", "10.8.0.5")
}

// T7: revisions of two epochs are not compared. News of another epoch waits for its
// list, and that list replaces everything.
func TestT7NewEpoch(t *testing.T) {
	table := listed(t, 500, route("a", "10.8.0.5", api.Bound, 300))
	if err := table.Apply("e2", route("a", "10.8.0.5", api.Cooling, 501)); !errors.Is(err, ErrList) {
		t.Error(err)
	}
	if err := table.Bookmark("e2", 900); !errors.Is(err, ErrList) {
		t.Error(err)
	}
	for _, r := range []Route{route("b", "10.8.0.6", api.Bound, 7), route("c", "10.8.0.7", api.Bound, 2)} {
		if newer, err := table.Push("e2", r); newer || err != nil {
			t.Error(newer, err)
		}
	}
	if _, err := table.Push("e0", route("z", "10.8.0.9", api.Bound, 7000)); err != nil {
		t.Error(err)
	}
	push(t, table, route("d", "10.8.0.8", api.Bound, 600), true)
	at(t, table, "a", "10.8.0.5")
	at(t, table, "b", "")
	if err := table.Replace(List{"e2", 3, nil}); err != nil {
		t.Fatal(err)
	}
	for sandbox, want := range map[string]string{"a": "", "b": "10.8.0.6", "c": "", "d": "", "z": ""} {
		at(t, table, sandbox, want)
	}
	if s := table.Status(); s.Epoch != "e2" || s.Revision != 3 || s.Ahead != 1 || s.Lag != 4 || s.Routes != 1 {
		t.Errorf("%+v", s)
	}
}

// T8: news that changes nothing advances the revision all the same.
func TestT8Unchanged(t *testing.T) {
	table := listed(t, 5, route("a", "10.8.0.5", api.Bound, 3))
	apply(t, table, route("a", "10.8.0.5", api.Bound, 9))
	if r, _ := table.Lookup("a"); r.Revision != 9 || table.Status().Revision != 9 {
		t.Errorf("%+v, %+v", r, table.Status())
	}
	push(t, table, route("a", "10.8.0.5", api.Cooling, 8), false)
	at(t, table, "a", "10.8.0.5")
}

// T10: before the first list the table is not ready, and keeps pushes.
func TestT10BeforeTheList(t *testing.T) {
	var table Table
	if table.Ready() || table.Status().Ready || table.Routes("a") != nil && len(table.Routes("a")) > 0 {
		t.Error("an empty table is ready")
	}
	if err := table.Apply(epoch, route("a", "10.8.0.5", api.Bound, 3)); !errors.Is(err, ErrList) {
		t.Error(err)
	}
	push(t, &table, route("a", "10.8.0.5", api.Cooling, 7), false)
	push(t, &table, route("b", "10.8.0.6", api.Bound, 8), false)
	at(t, &table, "b", "")
	if err := table.Replace(List{epoch, 6, []Route{route("a", "10.8.0.5", api.Bound, 3)}}); err != nil {
		t.Fatal(err)
	}
	at(t, &table, "a", "")
	at(t, &table, "b", "10.8.0.6")
	if !table.Ready() {
		t.Error("a table with a list is not ready")
	}
}

// What pushes bring ahead of the stream is bounded, and what the stream brings is not.
func TestPushesAreBounded(t *testing.T) {
	table := listed(t, 1)
	addr := netip.MustParseAddr("10.0.0.0")
	r := route("a", "10.8.0.5", api.Cooling, 0)
	for i := range mostAhead + 2 {
		addr = addr.Next()
		r.Addr, r.Revision = addr, int64(10+i)
		if _, err := table.Push(epoch, r); (i >= mostAhead) != errors.Is(err, ErrFull) {
			t.Fatalf("push %d: %v", i, err)
		}
	}
	apply(t, table, route("b", "10.8.0.5", api.Bound, 2))
	at(t, table, "b", "10.8.0.5")
	addr = netip.MustParseAddr("10.0.0.0")
	for i := range mostAhead {
		addr = addr.Next()
		r.Addr, r.Revision = addr, int64(10+i)
		apply(t, table, r)
	}
	if len(table.cells) != 1 || len(table.ahead) != 0 {
		t.Errorf("%d cells, %d ahead", len(table.cells), len(table.ahead))
	}
}

// A sandbox with two families and an old incarnation: the served one, IPv4, the newest.
func TestTheBestOfSeveral(t *testing.T) {
	old, now, six := route("a", "10.8.0.5", api.Bound, 1), route("a", "10.8.0.6", api.Reserved, 2), route("a", "fd00::5", api.Bound, 3)
	old.Lease, now.Lease, six.Lease = "l1", "l2", "l3"
	table := listed(t, 3, old, now, six)
	at(t, table, "a", "10.8.0.5")
	now.State, now.Revision = api.Bound, 4
	apply(t, table, now)
	at(t, table, "a", "10.8.0.6")
	now.State, now.Revision = api.Paused, 5
	apply(t, table, now)
	old.State, old.Revision = api.Cooling, 6
	apply(t, table, old)
	at(t, table, "a", "fd00::5")
	if of := table.Routes("a"); len(of) != 2 || of[1].Addr != now.Addr {
		t.Errorf("%+v", of)
	}
}

// T2: the stream and pushes bring the same events, in different orders, at once. Both
// tables are equal to one that only the stream wrote, for the highest revision of each
// address stands.
func TestT2TwoWriters(t *testing.T) {
	history := randomHistory(rand.New(rand.NewPCG(1, 2)), 100_000)
	stream := listed(t, 0)
	for _, r := range history {
		apply(t, stream, r)
	}
	raced := listed(t, 0)
	var writers sync.WaitGroup
	writers.Go(func() {
		for _, r := range history {
			apply(t, raced, r)
		}
	})
	for w := range 2 {
		writers.Go(func() {
			events := slices.Clone(history)
			rand.New(rand.NewPCG(3, uint64(w))).Shuffle(len(events), func(i, j int) { events[i], events[j] = events[j], events[i] })
			for _, r := range events {
				if _, err := raced.Push(epoch, r); err != nil && !errors.Is(err, ErrFull) {
					t.Error(err)
				}
			}
		})
	}
	writers.Wait()
	if a, b := stream.Status(), raced.Status(); a.String() != b.String() || a.Routes == 0 {
		t.Errorf("two writers made\n%s, one made\n%s", b, a)
	}
}

// randomHistory is a book's: revisions without a gap, one sandbox an address at a time.
func randomHistory(rng *rand.Rand, n int) []Route {
	states := []api.State{api.Reserved, api.Bound, api.Paused, api.Releasing, api.Cooling, api.Quarantined, api.Free}
	history := make([]Route, n)
	for i := range history {
		history[i] = route(fmt.Sprint("s", rng.IntN(300)), fmt.Sprintf("10.8.%d.%d", rng.IntN(4), rng.IntN(250)), states[rng.IntN(len(states))], int64(i+1))
	}
	return history
}

// Random orders of stream, pushes, bookmarks and lists, old and new: of each address
// the table has what the highest revision says that it was given, or had to be given to
// be complete, and nothing is remembered that need not be.
func TestTableIsTheHighestRevisions(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var history []Route
		for i := range rapid.IntRange(1, 30).Draw(rt, "changes") {
			history = append(history, route(rapid.SampledFrom([]string{"a", "b", "c"}).Draw(rt, "sandbox"),
				rapid.SampledFrom([]string{"10.8.0.1", "10.8.0.2", "10.8.0.3", "fd00::1"}).Draw(rt, "address"),
				rapid.SampledFrom([]api.State{api.Reserved, api.Bound, api.Paused, api.Cooling, api.Free}).Draw(rt, "state"), int64(i+1)))
		}
		last := int64(len(history))
		table := &Table{}
		position, pushed := int64(-1), map[int64]bool{}
		truth := func(upTo int64, also map[int64]bool) map[netip.Addr]Route {
			of := make(map[netip.Addr]Route)
			for _, r := range history {
				if r.Revision <= upTo || also[r.Revision] {
					of[r.Addr] = r
				}
			}
			return of
		}
		for range rapid.IntRange(1, 60).Draw(rt, "steps") {
			revision := rapid.Int64Range(1, last).Draw(rt, "revision")
			switch rapid.SampledFrom([]string{"stream", "stream", "push", "push", "push", "bookmark", "list"}).Draw(rt, "step") {
			case "stream":
				if next := position + 1; position >= 0 && next <= last {
					apply(t, table, history[next-1])
					position = next
				}
			case "push":
				if _, err := table.Push(epoch, history[revision-1]); err != nil {
					rt.Fatal(err)
				}
				pushed[revision] = true
			case "bookmark":
				if position > 0 {
					if err := table.Bookmark(epoch, position); err != nil {
						rt.Fatal(err)
					}
				}
			case "list":
				list := List{Epoch: epoch, Revision: revision}
				for _, r := range truth(revision, nil) {
					if Kept(r.State) {
						list.Routes = append(list.Routes, r)
					}
				}
				err := table.Replace(list)
				if old := revision < position; old != errors.Is(err, ErrOldList) {
					rt.Fatalf("a list of %d at %d: %v", revision, position, err)
				}
				position = max(position, revision)
			}
			if position < 0 {
				continue
			}
			want, ahead := 0, 0
			for addr, r := range truth(position, pushed) {
				if r.Revision > position {
					ahead++
				}
				got := slices.ContainsFunc(table.Routes(r.Sandbox), func(x Route) bool { return x == r })
				if got != Kept(r.State) {
					rt.Fatalf("%s is %s for %s at %d, and the table has it: %v", addr, r.State, r.Sandbox, r.Revision, got)
				}
				if Kept(r.State) {
					want++
				}
			}
			if s := table.Status(); s.Routes != want || s.Ahead != ahead || s.Revision != position {
				rt.Fatalf("%+v; there are %d routes, %d ahead, at %d", s, want, ahead, position)
			}
			fresh := listed(t, position)
			for _, r := range truth(position, pushed) {
				if r.Revision > position {
					push(t, fresh, r, true)
				} else if Kept(r.State) {
					fresh.put(&r)
				}
			}
			if a, b := fresh.Status(), table.Status(); a.String() != b.String() {
				rt.Fatalf("the table is\n%s, one made anew\n%s", b, a)
			}
			for addr, c := range table.cells {
				if !c.kept && c.revision <= position {
					rt.Fatalf("the end of %s at %d is remembered at %d", addr, c.revision, position)
				}
			}
		}
	})
}

func TestStatusLine(t *testing.T) {
	table := listed(t, 5, route("a", "10.8.0.5", api.Bound, 3))
	other := listed(t, 5, route("a", "10.8.0.5", api.Paused, 3))
	a, b := table.Status().String(), other.Status().String()
	if a == b || !strings.HasPrefix(a, "epoch e1 revision 5 ahead 0 routes 1 checksum ") {
		t.Errorf("%s\n%s", a, b)
	}
}
