package main

import (
	"fmt"
	"testing"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/internal/nstest"
	"github.com/ipamd/ipamd/internal/realtest"
	"github.com/ipamd/ipamd/workload"
)

// R9 and N5: more DELs of CNI than a pass may release find no daemon. Each link and each namespace
// is known to be gone, so the leases end and no person is asked. Where only the link is gone,
// or only the name of the namespace, that may be a loss of sight, and the brake holds.
func TestLostEndsAreNotHeld(t *testing.T) {
	t.Parallel()
	const more = 7 // than a pass may
	w := newWorld(t, hasty)
	var leases []api.Lease
	var ports []*nstest.Port
	for i := range more {
		p := w.ns.Port("rt0")
		a, err := w.client.Allocate(ctx, api.AllocateRequest{Sandbox: fmt.Sprint("s", i), Labels: map[string]string{workload.ShownByLabel: "kernel"}})
		if err != nil {
			t.Fatal(err)
		}
		where := api.BindRequest{Netns: p.NS.Path(), HostInterface: p.HostName}
		if i%2 == 1 { // as below a main plugin, which says no port
			where.HostInterface = ""
		}
		r, err := w.client.Bind(ctx, a.Leases[0].ID, where)
		if err != nil {
			t.Fatal(err)
		}
		p.AddAddr(r.Lease.Address + "/24")
		leases, ports = append(leases, r.Lease), append(ports, p)
	}
	alone := func() api.Report { // without a person's word
		t.Helper()
		r, err := w.client.Reconcile(ctx, api.ReconcileRequest{})
		if err != nil {
			t.Fatal(err)
		}
		return r.Report
	}
	realtest.Eventually(t, wait, "each to be seen in its place", func() bool {
		alone()
		for _, l := range leases {
			if now, err := w.program.book.Lease(l.ID); err != nil || now.Plug.Unseen || now.Plug.Index == 0 && now.Plug.Behind == 0 {
				return false
			}
		}
		return true
	})
	index := w.linkIndex(ports[0].HostName)
	for _, p := range ports {
		w.ns.Exec("ip", "link", "del", p.HostName) // its namespace is there
	}
	realtest.Eventually(t, wait, "the absent ones to be held", func() bool {
		r := alone()
		return r.Held != nil && r.Held.Releases == more
	})
	for _, l := range leases {
		if s := w.state(l.Address); s != api.Bound {
			t.Fatalf("%s is %s, and its namespace is there", l.Address, s)
		}
	}
	for _, p := range ports {
		p.NS.Delete()
	}
	next := nstest.New(t) // its link has the index of one that ended
	for range index - w.linkIndex("rt0") - 1 {
		next.Exec("ip", "link", "add", "type", "dummy")
	}
	w.asCNI(next, "vethN")
	if got := w.linkIndex("vethN"); got != index {
		t.Fatalf("the next link has index %d, and the first had %d", got, index)
	}
	w.boundAs("next", api.BindRequest{HostInterface: "vethN", Netns: next.Path()}, nil)
	realtest.Eventually(t, wait, "the leases to end", func() bool {
		if r := alone(); r.Held != nil {
			t.Fatalf("held: %+v", r.Held)
		}
		for _, l := range leases {
			if w.state(l.Address) != api.Cooling {
				return false
			}
		}
		return true
	})
}

// N5: a plugin is killed after its bind and before its port is there, and its DEL finds no daemon: no
// witness ever saw the container, and it ends once the kernel has neither its namespace nor a link of its
// name. Where its owner has not said that these are all that there is, or either is there, it stays.
func TestOneThatNeverCameEndsWithItsNamespace(t *testing.T) {
	t.Parallel()
	w := newWorld(t, hasty)
	kernel := map[string]string{workload.ShownByLabel: "kernel"}
	gone, living, other, plugged := nstest.New(t), nstest.New(t), nstest.New(t), nstest.New(t)
	never := w.boundAs("never", api.BindRequest{HostInterface: "vethA", Netns: gone.Path()}, kernel)
	here := w.boundAs("its namespace is there", api.BindRequest{HostInterface: "vethB", Netns: living.Path()}, kernel)
	unsaid := w.boundAs("its owner has not said so", api.BindRequest{HostInterface: "vethC", Netns: other.Path()}, nil)
	named := w.boundAs("a link of its name is there", api.BindRequest{HostInterface: "vethD", Netns: plugged.Path()}, kernel)
	late := w.boundAs("bound when all was gone", api.BindRequest{HostInterface: "vethF", Netns: nstest.New(t).Path() + "-gone"}, kernel)
	w.ns.Exec("ip", "link", "add", "vethD", "type", "veth", "peer", "name", "vethE")
	for _, l := range []api.Lease{never, here, unsaid, named} {
		w.staysAs(l, api.Bound, "its namespace is there")
	}
	for _, box := range []*nstest.NS{gone, other, plugged} {
		box.Delete()
	}
	w.endsAs(never, api.Cooling, "nothing of it is left")
	w.endsAs(late, api.Cooling, "nothing of it was there")
	w.staysAs(here, api.Bound, "its namespace is there")
	w.staysAs(unsaid, api.Bound, "its owner has not said so")
	w.staysAs(named, api.Bound, "a link of its name is there")
	w.ns.Exec("ip", "link", "del", "vethD")
	living.Delete()
	w.endsAs(here, api.Cooling, "its namespace has ended")
	w.endsAs(named, api.Cooling, "the link of its name has ended")
	w.staysAs(unsaid, api.Bound, "its owner has not said so")
}
