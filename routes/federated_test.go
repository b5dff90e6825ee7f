package routes

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/ipamd/ipamd/api"
)

// placed is a sandbox's route of an attempt.
func placed(sandbox, addr string, attempt int64, s api.State, revision int64) Route {
	r := route(sandbox, addr, s, revision)
	r.Attempt = attempt
	return r
}

func where(t *testing.T, f *Federated, sandbox, want string) {
	t.Helper()
	got := ""
	if c, ok := f.Lookup(sandbox); ok {
		got = c.Runner + " " + c.Addr.String()
	}
	if got != want {
		t.Errorf("%s is at %q, and should be at %q", sandbox, got, want)
	}
}

// A sandbox moves from one runner to the next, and ends there. The first, which is cut
// off, still has it: it is not brought back, neither by its list nor by a new table.
func TestFederatedHighestAttempt(t *testing.T) {
	one, two := listed(t, 5, placed("a", "10.8.0.5", 1, api.Bound, 3)), listed(t, 900)
	var f Federated
	where(t, &f, "a", "")
	f.Join("two", two)
	f.Join("one", one)
	where(t, &f, "a", "one 10.8.0.5")
	apply(t, two, placed("a", "10.9.0.7", 2, api.Reserved, 901))
	where(t, &f, "a", "two 10.9.0.7")
	apply(t, two, placed("a", "10.9.0.7", 2, api.Bound, 902))
	where(t, &f, "a", "two 10.9.0.7")
	push(t, two, placed("a", "10.9.0.7", 2, api.Cooling, 905), true)
	where(t, &f, "a", "")
	for range 2 {
		if err := one.Replace(List{epoch, 6, []Route{placed("a", "10.8.0.5", 1, api.Bound, 6)}}); err != nil {
			t.Fatal(err)
		}
		where(t, &f, "a", "")
		one = &Table{}
		f.Join("one", one)
	}
	if err := one.Replace(List{epoch, 6, []Route{placed("a", "10.8.0.5", 3, api.Bound, 6)}}); err != nil {
		t.Fatal(err)
	}
	where(t, &f, "a", "one 10.8.0.5")
	f.Leave("one")
	where(t, &f, "a", "")
	if of := f.Runners(); len(of) != 1 || of["two"].Revision != 902 {
		t.Errorf("%+v", of)
	}
}

// A runner's book is restored, and knows its live sandbox by a lower attempt: the sandbox
// resolves. What the runner had before keeps others out all the same, and what is late of
// the former epoch undoes nothing.
func TestFederatedOverARestore(t *testing.T) {
	replace := func(table *Table, epoch string, revision int64, routes ...Route) {
		t.Helper()
		if err := table.Replace(List{epoch, revision, routes}); err != nil {
			t.Fatal(err)
		}
	}
	one := listed(t, 9, placed("a", "10.8.0.5", 7, api.Bound, 3), placed("b", "10.8.0.6", 7, api.Bound, 3), placed("c", "10.8.0.7", 7, api.Bound, 3))
	two := listed(t, 9, placed("a", "10.9.0.5", 6, api.Bound, 3), placed("b", "10.9.0.6", 6, api.Bound, 3))
	var f Federated
	f.Join("two", two)
	f.Join("one", one)
	f.Join("three", listed(t, 9, placed("c", "10.7.0.7", 8, api.Bound, 3)))
	apply(t, one, placed("b", "10.8.0.6", 7, api.Cooling, 10))
	expect := func(a, b string) {
		t.Helper()
		where(t, &f, "a", a)
		where(t, &f, "b", b)
		where(t, &f, "c", "three 10.7.0.7")
		if split := f.Split("a"); split != nil {
			t.Errorf("%+v", split)
		}
	}
	expect("one 10.8.0.5", "")

	replace(one, "restored", 4, placed("a", "10.8.0.5", 1, api.Bound, 2), placed("c", "10.8.0.7", 1, api.Bound, 2))
	expect("one 10.8.0.5", "")
	for _, late := range []Route{placed("a", "10.8.0.5", 7, api.Cooling, 11), placed("b", "10.8.0.6", 7, api.Bound, 12)} {
		push(t, one, late, false)
	}
	apply(t, two, placed("a", "10.9.0.5", 6, api.Bound, 10)) // two is cut off, and has it still
	apply(t, two, placed("b", "10.9.0.6", 6, api.Bound, 11))
	expect("one 10.8.0.5", "")
	f.Leave("one")
	expect("", "")
	f.Join("one", one)
	expect("one 10.8.0.5", "")

	replace(one, "restored", 5, placed("a", "10.8.0.8", 2, api.Bound, 5))
	expect("one 10.8.0.8", "")
	replace(one, "restored", 6, placed("a", "10.8.0.5", 1, api.Bound, 6)) // below what this epoch had
	expect("", "")
	replace(one, "again", 2, placed("a", "10.8.0.5", 1, api.Bound, 1))
	expect("one 10.8.0.5", "")
	apply(t, two, placed("a", "10.9.0.5", 8, api.Bound, 12))
	replace(one, "thrice", 2, placed("a", "10.8.0.5", 7, api.Bound, 1))
	expect("two 10.9.0.5", "")
}

// Two runners serve one attempt: each gateway prefers the same, and says so.
func TestFederatedSplit(t *testing.T) {
	for _, order := range [][]string{{"one", "two"}, {"two", "one"}} {
		var f Federated
		for _, runner := range order {
			f.Join(runner, listed(t, 5, placed("a", "10.8.0.5", 1, api.Bound, 3), placed("b", "10.8.0.6", 1, api.Bound, 3), placed("b", "fd00::6", 1, api.Bound, 4)))
		}
		f.Join("three", listed(t, 5, placed("b", "10.8.0.6", 2, api.Bound, 3), placed("b", "fd00::6", 2, api.Bound, 4)))
		where(t, &f, "a", "one 10.8.0.5")
		where(t, &f, "b", "three 10.8.0.6")
		if split := f.Split("a"); len(split) != 2 || split[0].Runner != "one" {
			t.Errorf("%+v", split)
		}
		if split := f.Split("b"); split != nil {
			t.Errorf("%+v", split)
		}
	}
}

// What is remembered of sandboxes without a route is bounded.
func TestFederatedForgetsTheOldest(t *testing.T) {
	var f Federated
	table := listed(t, 1)
	f.Join("one", table)
	for i := range mostGone + 10 {
		name := fmt.Sprint("s", i)
		apply(t, table, placed(name, "10.8.0.5", 1, api.Bound, int64(2*i+2)))
		apply(t, table, placed(name, "10.8.0.5", 1, api.Cooling, int64(2*i+3)))
	}
	if len(f.by) != mostGone || f.gone.Len() != mostGone {
		t.Errorf("%d sandboxes are known, %d without a route", len(f.by), f.gone.Len())
	}
}

// The attempts of others are remembered beside one sandbox that comes and goes without end.
func TestFederatedRemembersBesideOneThatComesAndGoes(t *testing.T) {
	var f Federated
	one, two := listed(t, 0), listed(t, 0)
	f.Join("one", one)
	f.Join("two", two)
	apply(t, two, placed("a", "10.9.0.5", 2, api.Bound, 1))
	apply(t, two, placed("a", "10.9.0.5", 2, api.Cooling, 2))
	for i := range mostGone + 1 {
		apply(t, one, placed("busy", "10.8.0.5", 1, api.Bound, int64(2*i+1)))
		apply(t, one, placed("busy", "10.8.0.5", 1, api.Cooling, int64(2*i+2)))
	}
	if err := one.Replace(List{epoch, 1 << 30, []Route{placed("a", "10.8.0.5", 1, api.Bound, 1)}}); err != nil {
		t.Fatal(err)
	}
	where(t, &f, "a", "")
}

// Tables change, join and leave at once; in the end each sandbox is where the highest
// attempt is.
func TestFederatedAtOnce(t *testing.T) {
	var f Federated
	tables := make([]*Table, 4)
	var writers sync.WaitGroup
	for i := range tables {
		tables[i] = listed(t, 0)
		writers.Go(func() {
			name := fmt.Sprint("runner", i)
			f.Join(name, tables[i])
			for n := range 3000 {
				r := placed(fmt.Sprint("s", rand.IntN(20)), fmt.Sprintf("10.8.%d.%d", i, rand.IntN(50)), 1, api.Bound, int64(n+1))
				if n%3 == 0 {
					r.State = api.Cooling
				}
				apply(t, tables[i], r)
				if n%1000 == 500 {
					f.Leave(name)
					f.Join(name, tables[i])
				}
				f.Lookup(r.Sandbox)
			}
		})
	}
	writers.Wait()
	for s := range 20 {
		sandbox, want := fmt.Sprint("s", s), ""
		for i, table := range tables {
			if r, ok := table.Lookup(sandbox); ok {
				want = fmt.Sprintf("runner%d %s", i, r.Addr)
				break
			}
		}
		where(t, &f, sandbox, want)
	}
}

// Of the tables that are joined as one runner at once, one is followed.
func TestFederatedJoinedAtOnce(t *testing.T) {
	for range 300 {
		var f Federated
		f.Join("one", listed(t, 5, placed("a", "10.8.0.5", 1, api.Bound, 3)))
		tables := make([]*Table, 3)
		var all sync.WaitGroup
		for i := range tables {
			tables[i] = listed(t, 5, placed("a", "10.8.0.6", 1, api.Bound, 3))
			all.Go(func() { f.Join("one", tables[i]) })
		}
		all.Wait()
		notified := 0
		for _, table := range tables {
			if table.notify != nil {
				notified++
			}
		}
		where(t, &f, "a", "one 10.8.0.6")
		if notified != 1 {
			t.Fatalf("%d tables of one runner are followed", notified)
		}
	}
}
