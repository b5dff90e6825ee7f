package main

import (
	"fmt"
	"testing"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/internal/nstest"
	"github.com/ipamd/ipamd/internal/realtest"
	"github.com/ipamd/ipamd/workload"
)

// restored has a world go on as a virtual machine that was restored from an older snapshot: in the
// same boot of the kernel, with an uptime that is before what the book has, which begins an era.
func (w *world) restored() {
	w.t.Helper()
	w.stopDaemon()
	w.edit(`UPDATE changes SET uptime = uptime + 1000000000000000 WHERE rev = (SELECT max(rev) FROM changes)`)
	w.start()
}

// What lives in a boot of the machine lives on when a restored machine begins an era of it: a sandbox that
// no witness can see, and one whose tasks are frozen, which nothing shows either. As another boot
// it ended both, and each address went to a second sandbox while the first had it.
func TestWhatLivesInABootLivesInItsNextEra(t *testing.T) {
	t.Parallel()
	w := newWorld(t, hasty)
	w.ns.Bridge("br9")
	off := w.ns.Port("br9") // no witness watches br9
	unseen := w.boundAs("unseen", api.BindRequest{MAC: off.MAC.String()}, nil)
	off.AddAddr(unseen.Address + "/24")
	frozen := w.boundAs("frozen", api.BindRequest{MAC: "02:00:00:00:77:02"}, nil)
	if _, err := w.client.Pause(ctx, frozen.ID, api.PauseRequest{Mode: api.Freeze}); err != nil {
		t.Fatal(err)
	}
	w.restored()
	w.staysAs(unseen, api.Bound, "never seen")
	w.staysAs(frozen, api.Paused, "frozen")
}

// An era is no boot: that so many leases of the kernel's alone are absent at once is still held,
// while their namespaces are there.
func TestAnEraProvesNoNamespaceGone(t *testing.T) {
	t.Parallel()
	w := newWorld(t, hasty)
	var leases []api.Lease
	var ports []*nstest.Port
	for i := range 7 { // more than max_releases allows
		p := w.ns.Port("rt0")
		l := w.boundAs(fmt.Sprint("s", i), api.BindRequest{Netns: p.NS.Path(), HostInterface: p.HostName}, map[string]string{workload.ShownByLabel: "kernel"})
		p.AddAddr(l.Address + "/24")
		leases, ports = append(leases, l), append(ports, p)
	}
	w.seenInPlace(leases...)
	w.restored()
	for _, p := range ports {
		w.ns.Exec("ip", "link", "del", p.HostName) // its namespace stays
	}
	realtest.Eventually(t, wait, "the pass to be held", func() bool {
		r, err := w.client.Reconcile(ctx, api.ReconcileRequest{})
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range leases {
			if s := w.state(l.Address); s != api.Bound {
				t.Fatalf("%s is %s, and its namespace is there", l.Address, s)
			}
		}
		return r.Report.Held != nil
	})
}
