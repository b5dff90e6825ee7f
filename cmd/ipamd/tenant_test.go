package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/internal/ctrdtest"
	"github.com/ipamd/ipamd/internal/realtest"
	"github.com/ipamd/ipamd/netdb"
)

// G6: a label is a claim of who wrote it. No address moves by it: not to the owner
// that a record without a task names, not to a task that lives behind another port,
// not by the id of a lease that the book has not given. Each is set aside and told,
// and the sandbox that is named gets another address. What the kernel shows to live
// with its address is adopted, also when it comes alive later; and so is what
// names a lease of the book whose row was lost.
func TestG6ALabelMovesNoAddress(t *testing.T) {
	ctrdtest.Each(t, func(t *testing.T, d *ctrdtest.Daemon) {
		w := newWorld(t, withContainerd(d), quick)
		kept := w.allocate("kept").Leases[0]
		kept = w.bind(kept, w.record(d, kept, "kept"))
		copied := w.allocate("copied").Leases[0]
		w.stopDaemon()
		w.edit(fmt.Sprintf(`DELETE FROM leases WHERE id IN ('%s', '%s')`, kept.ID, copied.ID))
		w.edited = append(w.edited, netdb.RowsHaveTheirLast) // of copied

		at := func(n int) string { return addr(n) }
		stranger := func(n int) { w.ns.Port("rt0", at(n)+"/24") }
		behind := func(n int, id, owner, claims string) {
			port := w.ns.Port("rt0", at(n)+"/24")
			d.Run(t, ctrdtest.Spec{ID: id, Labels: labels(owner, claims), Netns: port.NS.Path()})
		}
		// By labels alone.
		stranger(50)
		d.Create(t, ctrdtest.Spec{ID: "thief-50", Labels: labels("owner-50", at(50))})
		d.Create(t, ctrdtest.Spec{ID: "thief-51", Labels: labels("owner-51", at(51))})
		stranger(52)
		behind(152, "thief-52", "owner-52", at(52))
		behind(153, "thief-53", "owner-53", at(53))
		unknown := labels("owner-54", at(54))
		unknown["ipamd.dev/lease-id"] = "01a2037d-8699-7e55-826a-e21d7061d121"
		d.Create(t, ctrdtest.Spec{ID: "thief-54", Labels: unknown})
		anothers := labels("owner-55", at(55))
		anothers["ipamd.dev/lease-id"] = copied.ID
		d.Create(t, ctrdtest.Spec{ID: "thief-55", Labels: anothers})
		d.Run(t, ctrdtest.Spec{ID: "thief-56", Labels: labels("owner-56", at(56))})
		// What lives.
		behind(60, "owner-60", "owner-60", at(60))
		late := w.ns.Port("rt0")
		d.Run(t, ctrdtest.Spec{ID: "owner-61", Labels: labels("owner-61", at(61)), Netns: late.NS.Path()})

		w.start()
		for n := 50; n <= 56; n++ {
			w.becomes(at(n), api.Quarantined)
			owner := fmt.Sprint("owner-", n)
			if r := w.allocate(owner); r.Existing || r.Leases[0].Address == at(n) {
				t.Errorf("%s asks, and is answered with what a label says: %+v", owner, r)
			}
			f := w.finding("unleased " + at(n))
			if !strings.Contains(f.Detail, "default/thief-"+fmt.Sprint(n)) || !strings.Contains(f.Mend, "ipamctl quarantine adopt") || f.Since.IsZero() {
				t.Errorf("doctor says of %s: %+v", at(n), f)
			}
		}
		if r := w.allocate("owner-60"); !r.Existing || r.Leases[0].Address != at(60) {
			t.Errorf("what lives with its address gets %+v", r)
		}
		if r := w.allocate("kept"); !r.Existing || r.Leases[0].ID != kept.ID {
			t.Errorf("the sandbox whose row was lost had %+v, and gets %+v", kept, r)
		}
		w.becomes(at(61), api.Quarantined) // its task runs, and has no address yet
		late.AddAddr(at(61) + "/24")
		w.becomes(at(61), api.Bound)
		if r := w.allocate("owner-61"); !r.Existing || r.Leases[0].Address != at(61) {
			t.Errorf("what came alive later gets %+v", r)
		}
		// Nothing of it is there for longer than its container.
		d.Delete(t, "default", "thief-51")
		w.becomes(at(51), api.Cooling)
		if got := w.findings(); slices.Contains(got, "unleased "+at(51)) || slices.Contains(got, "unleased "+at(61)) {
			t.Errorf("doctor says %v", got)
		}
	})
}

// finding waits for doctor to tell of a trouble, by its kind and address.
func (w *world) finding(kind string) (found api.Finding) {
	w.t.Helper()
	realtest.Eventually(w.t, wait, kind+" to be told", func() bool {
		doctor, err := w.client.Doctor(ctx)
		if err != nil {
			w.t.Fatal(err)
		}
		at := slices.IndexFunc(doctor.Findings, func(f api.Finding) bool { return strings.TrimSpace(f.Kind+" "+f.Address) == kind })
		if at >= 0 {
			found = doctor.Findings[at]
		}
		return at >= 0
	})
	return found
}
