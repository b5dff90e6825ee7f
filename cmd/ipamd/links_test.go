package main

import (
	"fmt"
	"testing"
	"time"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/config"
	"github.com/ipamd/ipamd/internal/nstest"
	"github.com/ipamd/ipamd/workload"
)

// staleLink returns the index of a link that has ended, and that the lease of a hibernated sandbox records.
func (w *world) staleLink() (stale api.Lease, index int) {
	w.t.Helper()
	box := nstest.New(w.t)
	w.asCNI(box, "vethS")
	stale = w.boundAs("stale", api.BindRequest{HostInterface: "vethS", Netns: box.Path()}, nil)
	index = w.linkIndex("vethS")
	if _, err := w.client.Pause(ctx, stale.ID, api.PauseRequest{Mode: api.Hibernate}); err != nil {
		w.t.Fatal(err)
	}
	box.Delete()
	w.linkless(index)
	return stale, index
}

// asCNIAt is asCNI of a link with an index that no link of the host has.
func (w *world) asCNIAt(index int, box *nstest.NS, name string) {
	w.t.Helper()
	for range index - 3 {
		box.Exec("ip", "link", "add", "type", "bridge")
	}
	w.asCNI(box, name)
	if got := w.linkIndex(name); got != index {
		w.t.Fatalf("%s has index %d, want %d", name, got, index)
	}
}

// A lease whose link ended goes on to record its index, which the link of another sandbox has by now. It says
// nothing of that one: what was recorded later is so.
func TestAStaleLeaseHasNoLinkOfALaterOne(t *testing.T) {
	t.Parallel()
	for name, lives := range map[string]func(w *world, index int) api.Lease{
		"a machine in a namespace without a name": func(w *world, index int) api.Lease {
			box := nstest.New(w.t)
			w.asCNIAt(index, box, "vethL")
			box.Bridge("in0")
			box.Exec("ip", "link", "set", "eth0", "master", "in0")
			w.t.Cleanup(w.openTapIn(box, "tap0", "in0"))
			l := w.boundAs("lives", api.BindRequest{Netns: box.Path()}, nil)
			box.Hide()
			return l
		},
		"a tap that was renamed while no daemon ran": func(w *world, index int) api.Lease {
			box := nstest.New(w.t)
			for range index - 3 {
				box.Exec("ip", "link", "add", "type", "bridge")
			}
			box.Bridge("in0")
			w.t.Cleanup(w.openTapIn(box, "tapL", "in0"))
			box.Exec("ip", "link", "set", "tapL", "nomaster")
			box.Exec("ip", "link", "set", "tapL", "netns", w.ns.Name())
			w.ns.Exec("ip", "link", "set", "tapL", "master", "rt0", "up")
			if got := w.linkIndex("tapL"); got != index {
				w.t.Fatalf("tapL has index %d, want %d", got, index)
			}
			l := w.boundAs("lives", api.BindRequest{HostInterface: "tapL", MAC: "02:00:00:00:77:01"}, nil)
			w.stopDaemon()
			w.ns.Exec("ip", "link", "set", "tapL", "name", "tapM")
			w.start()
			return l
		},
		"a veth without a MAC that was renamed, and a machine behind it": func(w *world, index int) api.Lease {
			box := nstest.New(w.t)
			w.asCNIAt(index, box, "vethL")
			box.Bridge("in0")
			box.Exec("ip", "link", "set", "eth0", "master", "in0")
			w.t.Cleanup(w.openTapIn(box, "tap0", "in0"))
			l := w.boundAs("lives", api.BindRequest{HostInterface: "vethL"}, nil)
			w.stopDaemon()
			w.ns.Exec("ip", "link", "set", "vethL", "name", "vethM")
			w.start()
			return l
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, hasty)
			_, index := w.staleLink()
			l := lives(w, index)
			w.staysAs(l, api.Bound, "it lives")
			if now := w.state(l.Address); now != api.Bound {
				return
			}
			if _, err := w.client.Release(ctx, l.ID, api.ReleaseRequest{Wait: "300ms"}); err != nil {
				t.Fatal(err)
			}
			w.staysAs(l, api.Releasing, "it lives, and is released")
		})
	}
}

// Two leases of one namespace that has no name any more, with a machine in it: neither is the other sandbox's.
func TestLeasesOfOneNamespaceKeepEachOther(t *testing.T) {
	t.Parallel()
	w := newWorld(t, hasty)
	box := nstest.New(t)
	w.asCNI(box, "vethL")
	box.Bridge("in0")
	box.Exec("ip", "link", "set", "eth0", "master", "in0")
	t.Cleanup(w.openTapIn(box, "tap0", "in0"))
	first := w.boundAs("first", api.BindRequest{Netns: box.Path()}, nil)
	second := w.boundAs("second", api.BindRequest{Netns: box.Path()}, nil)
	box.Hide()
	w.staysAs(first, api.Bound, "the first")
	w.staysAs(second, api.Bound, "the second")
}

// A sandbox that is bound by its namespace before its port comes counts as seen with it, though a lease whose link has
// ended records the index that the port has.
func TestAPortThatComesWithAnIndexUsedAgainIsSeen(t *testing.T) {
	t.Parallel()
	w := newWorld(t, hasty)
	_, index := w.staleLink()
	box := nstest.New(t)
	l := w.boundAs("late", api.BindRequest{Netns: box.Path()}, nil)
	w.asCNIAt(index, box, "vethL")
	box.Exec("ip", "addr", "add", l.Address+"/24", "dev", "eth0")
	w.seenInPlace(l)
	box.Delete()
	w.endsAs(l, api.Cooling, "its namespace has ended")
}

// A namespace that no link of the host ever led into has its sandbox's address, and its path is gone: unmounted by its owner, while
// a process lives in there. The lease neither ends by the kernel's word nor is its release confirmed.
func TestANamespaceWithoutAPathKeepsItsLease(t *testing.T) {
	t.Parallel()
	w := newWorld(t, hasty)
	other := nstest.New(t)
	var leases []api.Lease
	var boxes []*nstest.NS
	for i := range 2 {
		box := nstest.New(t)
		l := w.boundAs(fmt.Sprint("s", i), api.BindRequest{HostInterface: fmt.Sprint("vethA", i), Netns: box.Path()}, map[string]string{workload.ShownByLabel: "kernel"})
		box.Exec("ip", "link", "add", fmt.Sprint("up", i), "type", "veth", "peer", "name", "eth0")
		box.Exec("ip", "link", "set", fmt.Sprint("up", i), "netns", other.Name())
		box.Exec("ip", "addr", "add", l.Address+"/24", "dev", "eth0")
		box.Hide()
		leases, boxes = append(leases, l), append(boxes, box)
	}
	if _, err := w.client.Release(ctx, leases[1].ID, api.ReleaseRequest{Wait: "300ms"}); err != nil {
		t.Fatal(err)
	}
	w.staysAs(leases[0], api.Bound, "it lives")
	w.staysAs(leases[1], api.Releasing, "it lives, and is released")
	for i, box := range boxes {
		box.Delete()
		w.endsAs(leases[i], api.Cooling, "its namespace has ended")
	}
}

// A tap that outlives its machine is given to the next: the quarantine of the first one's address, of which a rebuild knows no
// end, ends though the tap is there.
func TestATapThatIsPassedOnKeepsNoQuarantine(t *testing.T) {
	t.Parallel()
	w := newWorld(t, hasty, func(c *config.Config) { c.Allocation.Quarantine = config.Duration(time.Millisecond) })
	w.ns.Exec("ip", "tuntap", "add", "tap0", "mode", "tap")
	w.ns.Exec("ip", "link", "set", "tap0", "master", "rt0", "up")
	a := w.boundAs("a", api.BindRequest{HostInterface: "tap0", MAC: "02:00:00:00:77:01"}, nil)
	w.seenInPlace(a)
	w.stopDaemon()
	w.edit(`DELETE FROM changes`)
	if _, err := w.rebuild(force); err != nil {
		t.Fatal(err)
	}
	w.start()
	w.staysAs(a, api.Quarantined, "its tap is there")
	b := w.boundAs("b", api.BindRequest{HostInterface: "tap0", MAC: "02:00:00:00:77:02"}, nil)
	w.endsAs(a, api.Cooling, "its tap is another's")
	w.staysAs(b, api.Bound, "it has the tap")
}
