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
