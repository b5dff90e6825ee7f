package enforce

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ipamd/ipamd/ipam"
)

// An asked one takes a while to say which ports lead into namespaces, or does not say it.
type asked struct {
	one
	takes  time.Duration
	silent func(RecordedNetns) bool // nil: none
	rounds [][]RecordedNetns        // as they were asked about
}

func (w *asked) PortsInto(_ context.Context, of ...RecordedNetns) []Into {
	time.Sleep(w.takes)
	w.rounds = append(w.rounds, slices.Clone(of))
	out := make([]Into, len(of))
	for i, n := range of {
		if out[i].Ports = []int{int(n.Inode)}; w.silent != nil && w.silent(n) {
			out[i] = Into{Err: context.DeadlineExceeded}
		}
	}
	return out
}

// in has leases bound by namespaces alone, of which port n leads into the n-th.
func in(leases, namespaces int) *asked {
	w := &asked{}
	for i := range leases {
		n := i%namespaces + 1
		w.leases = append(w.leases, &ipam.Lease{ID: fmt.Sprint(i), UID: fmt.Sprint(n), State: ipam.Bound, Netns: fmt.Sprint("/run/netns/", n),
			Plug: ipam.Plug{Boot: "boot", Inode: uint64(n)}})
	}
	for n := range namespaces {
		w.ports = append(w.ports, Port{Index: n + 1, Name: fmt.Sprint("veth", n+1)})
	}
	return w
}

func (w *asked) locator() locator { return locator{w, "boot"} }

// TestE3NamespacesAreAskedAboutAtOnce: the ports of leases that are bound by a namespace alone are asked for in one question,
// in which each namespace is once; again only of those of which the kernel did not say them, and of none that has no port anyway.
func TestE3NamespacesAreAskedAboutAtOnce(t *testing.T) {
	const namespaces = 500
	w := in(2*namespaces, namespaces)
	w.leases[0].State = ipam.Paused
	other, cooling, before := *w.leases[1], *w.leases[2], *w.leases[3]
	other.ID, other.HostInterface = "named", "veth2"
	other.Plug.Index = 2
	cooling.ID, cooling.Netns, cooling.State = "cooling", "/run/netns/cooling", ipam.Cooling
	before.ID, before.Netns, before.Plug.Boot = "before", "/run/netns/before", "another"
	w.leases = append(w.leases, &other, &cooling, &before)
	w.silent = func(n RecordedNetns) bool { return n.Inode <= 3 && len(w.rounds) < 3 }
	at, err := w.locator().places(t.Context(), w.leases, firstTries)
	if err != nil {
		t.Error(err)
	}
	if got := []int{len(w.rounds), len(w.rounds[0]), len(w.rounds[1]), len(w.rounds[2])}; !slices.Equal(got, []int{3, namespaces, 3, 3}) {
		t.Errorf("the rounds, and what the first ones asked about: %v", got)
	}
	for _, l := range w.leases[:2*namespaces] {
		if !slices.Equal(at[l.ID].ports, []int{int(l.Plug.Inode)}) {
			t.Fatalf("the lease of namespace %d has the ports %v", l.Plug.Inode, at[l.ID])
		}
	}
	if len(at["before"].ports) > 0 || len(at["cooling"].ports) > 0 || !slices.Equal(at["named"].ports, []int{2}) {
		t.Errorf("of another boot %v, cooling %v, by its link %v", at["before"], at["cooling"], at["named"])
	}
}

// TestE3TheFirstPlacesAreAskedForInTime: a kernel that says nothing is asked no more rounds before the first table than fit into
// firstWithin, and one, and no more than firstTries; what it says of the others stands.
func TestE3TheFirstPlacesAreAskedForInTime(t *testing.T) {
	for takes, rounds := range map[time.Duration]int{firstWithin / 2: 3, 2 * firstWithin: 1, firstWithin / 1000: firstTries} {
		synctest.Test(t, func(t *testing.T) {
			w := in(3, 3)
			w.takes, w.silent = takes, func(n RecordedNetns) bool { return n.Inode == 2 }
			at, err := w.locator().places(t.Context(), w.leases, firstTries)
			if len(w.rounds) != rounds || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("a round of %v: %d of them, want %d; %v", takes, len(w.rounds), rounds, err)
			}
			if len(at["0"].ports) != 1 || at["1"].err == nil || len(at["2"].ports) != 1 {
				t.Errorf("the places are %v", at)
			}
		})
	}
}
