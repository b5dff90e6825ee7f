package routes

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/ipamd/ipamd/api"
)

// T5: a list that gives each address to the next sandbox is taken in by Federated in many steps.
// Between any two of them no address has two sandboxes, and who keeps its address has it.
func TestT5AListReachesFederatedInOrder(t *testing.T) {
	const n = 50
	list := func(revision int64, shift int) List {
		l := List{Epoch: epoch, Revision: revision}
		for i := range n {
			l.Routes = append(l.Routes, route(fmt.Sprint("s", i), fmt.Sprint("10.8.0.", 10+(i+shift)%n), api.Bound, revision))
		}
		return l
	}
	stays := []Route{route("stays", "10.8.1.1", api.Bound, 1), route("stays", "fd00::2", api.Bound, 1)}
	first := list(1, 0)
	table := listed(t, 1, append(first.Routes, stays...)...)
	var f Federated
	f.Join("one", table)
	look, steps := table.notify, 0
	table.notify = func(sandbox string, has []Route) {
		look(sandbox, has)
		steps++
		where(t, &f, "stays", "one 10.8.1.1")
		of := map[netip.Addr]string{}
		for i := range n {
			c, ok := f.Lookup(fmt.Sprint("s", i))
			if other, twice := of[c.Addr]; ok && twice {
				t.Fatalf("%s and %s resolve to %s", other, c.Sandbox, c.Addr)
			}
			of[c.Addr] = c.Sandbox
		}
	}
	for shift := 1; shift < 5; shift++ {
		l := list(int64(shift+1), shift)
		l.Routes = append(l.Routes, stays[0])
		if err := table.Replace(l); err != nil {
			t.Fatal(err)
		}
		for i := range n {
			where(t, &f, fmt.Sprint("s", i), fmt.Sprint("one 10.8.0.", 10+(i+shift)%n))
		}
	}
	if steps < n {
		t.Errorf("%d steps", steps)
	}
}
