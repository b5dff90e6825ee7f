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
// not by the id of a lease that the book has not given. Each is quarantined and reported,
// and the sandbox that is named gets another address. What the kernel shows to live
// with its address is adopted, also when it comes alive later; and so is what
// names a lease of the book whose row was lost.
func TestG6ALabelMovesNoAddress(t *testing.T) {
	t.Parallel()
	ctrdtest.One(t, func(t *testing.T, d *ctrdtest.Daemon) {
		w := newWorld(t, withContainerd(d), quick)
		first := w.allocate("first").Leases[0]
		first = w.bind(first, w.record(d, first, "first"))
		copied := w.allocate("copied").Leases[0]
		w.stopDaemon()
		w.edit(fmt.Sprintf(`DELETE FROM leases WHERE id IN ('%s', '%s')`, first.ID, copied.ID))
		w.edited = append(w.edited, netdb.RowsHaveTheirLast) // of copied

		at := func(n int) string { return addr(n) }
		stranger := func(n int) { w.ns.Port("rt0", at(n)+"/24") }
		behind := func(n int, id, owner, claims string) {
			port := w.ns.Port("rt0", at(n)+"/24")
			d.Run(t, ctrdtest.Spec{ID: id, Labels: labels(owner, claims), Netns: port.NS.Path()})
		}
		// By labels alone.
		stranger(50)
		d.Create(t, ctrdtest.Spec{ID: "impostor-50", Labels: labels("owner-50", at(50))})
		d.Create(t, ctrdtest.Spec{ID: "impostor-51", Labels: labels("owner-51", at(51))})
		stranger(52)
		behind(152, "impostor-52", "owner-52", at(52))
		behind(153, "impostor-53", "owner-53", at(53))
		unknown := labels("owner-54", at(54))
		unknown["ipamd.dev/lease-id"] = "01a2037d-8699-7e55-826a-e21d7061d121"
		d.Create(t, ctrdtest.Spec{ID: "impostor-54", Labels: unknown})
		anothers := labels("owner-55", at(55))
		anothers["ipamd.dev/lease-id"] = copied.ID
		d.Create(t, ctrdtest.Spec{ID: "impostor-55", Labels: anothers})
		d.Run(t, ctrdtest.Spec{ID: "impostor-56", Labels: labels("owner-56", at(56))})
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
			if !strings.Contains(f.Detail, "default/impostor-"+fmt.Sprint(n)) || !strings.Contains(f.Repair, "ipamctl quarantine adopt") || f.Since.IsZero() {
				t.Errorf("doctor says of %s: %+v", at(n), f)
			}
		}
		if r := w.allocate("owner-60"); !r.Existing || r.Leases[0].Address != at(60) {
			t.Errorf("what lives with its address gets %+v", r)
		}
		if r := w.allocate("first"); !r.Existing || r.Leases[0].ID != first.ID {
			t.Errorf("the sandbox whose row was lost had %+v, and gets %+v", first, r)
		}
		w.becomes(at(61), api.Quarantined) // its task runs, and has no address yet
		late.AddAddr(at(61) + "/24")
		w.becomes(at(61), api.Bound)
		if r := w.allocate("owner-61"); !r.Existing || r.Leases[0].Address != at(61) {
			t.Errorf("what came alive later gets %+v", r)
		}
		// Nothing of it is there for longer than its container.
		d.Delete(t, "default", "impostor-51")
		w.becomes(at(51), api.Cooling)
		if got := w.findings(); slices.Contains(got, "unleased "+at(51)) || slices.Contains(got, "unleased "+at(61)) {
			t.Errorf("doctor says %v", got)
		}
	})
}

// G6: a container that carries a sandbox's name alone is not recorded in its lease,
// and neither pauses nor resumes it, whether it has an address of its own or none, and
// whatever of ipamd starts again. What carries the lease's id is, though it is plugged
// nowhere, and so is what lives in the namespace that has the address, as soon as that
// does: a runtime may end between the start of a container and its bind.
func TestG6ALabelBindsNoLease(t *testing.T) {
	t.Parallel()
	ctrdtest.One(t, func(t *testing.T, d *ctrdtest.Daemon) {
		w := newWorld(t, withContainerd(d), quick)
		reserved := make(map[string]api.Lease)
		d.Run(t, ctrdtest.Spec{ID: "lone-past", Labels: map[string]string{"runtime.computer/entity-id": "past"}})
		for _, name := range []string{"waits", "named", "plugged", "past"} {
			r, err := w.client.Allocate(ctx, api.AllocateRequest{Sandbox: name, BindWithin: map[string]api.Duration{"past": "50ms"}[name]})
			if err != nil {
				t.Fatal(err)
			}
			reserved[name] = r.Leases[0]
		}
		home := w.ns.Port("rt0", addr(150)+"/24")
		for name, l := range reserved {
			d.Create(t, ctrdtest.Spec{ID: "other-" + name, Labels: labels("other", l.Address)})
			d.Run(t, ctrdtest.Spec{ID: "impostor-" + name, Labels: labels(name, l.Address), Netns: home.NS.Path()})
			if name != "past" {
				d.Run(t, ctrdtest.Spec{ID: "lone-" + name, Labels: labels(name, l.Address)})
			}
		}
		ported := w.box(d, "ported")
		if _, err := w.client.Bind(ctx, w.allocate("tapped").Leases[0].ID, api.BindRequest{HostInterface: w.ns.Port("rt0").HostName}); err != nil {
			t.Fatal(err)
		}
		tapped := w.allocate("tapped").Leases[0]
		d.Run(t, ctrdtest.Spec{ID: "impostor-tapped", Labels: labels("tapped", tapped.Address), Netns: home.NS.Path()})
		d.Run(t, ctrdtest.Spec{ID: "impostor-ported", Labels: labels("ported", ported.held.Address), Netns: home.NS.Path()})
		d.Pause(t, "default", "impostor-tapped")
		d.Pause(t, "default", "ported")
		w.becomes(ported.held.Address, api.Paused) // though impostor-ported runs

		still := func(when string) {
			t.Helper()
			for range 2 {
				w.pass()
			}
			for name, l := range reserved {
				if now := w.whois(l.Address); now.State != api.Reserved || now.Lease.ID != l.ID || len(now.Lease.Containers) != 0 {
					t.Errorf("%s: %s is %+v", when, name, now.Lease)
				}
			}
			if now := w.whois(tapped.Address).Lease; now.State != api.Bound || len(now.Containers) != 0 {
				t.Errorf("%s: tapped is %+v", when, now)
			}
			if s := w.state(ported.held.Address); s != api.Paused {
				t.Errorf("%s: ported is %s", when, s)
			}
			f := w.finding("reserved_past_deadline " + reserved["past"].Address)
			if !strings.Contains(f.Detail, "-past; only that label ties it to the address") {
				t.Errorf("%s: doctor says %+v", when, f)
			}
		}
		still("at first")
		w.stopDaemon()
		w.start()
		still("after a restart")
		d.Restart()
		realtest.Eventually(t, wait, "containerd to be read again", func() bool { return w.pass().Complete })
		still("after a restart of containerd")
		if begun := w.metric(`conflicts_total{witness="runtime"}`); begun != "0" {
			t.Errorf("%s conflicts are noted, on leases that nothing but labels contest", begun)
		}

		is := func(name string, ids ...string) *api.Lease {
			t.Helper()
			w.becomes(reserved[name].Address, api.Bound)
			now := w.whois(reserved[name].Address).Lease
			var got []string
			for _, c := range now.Containers {
				got = append(got, c.ID)
			}
			if now.ID != reserved[name].ID || !slices.Equal(got, ids) {
				t.Errorf("%s is bound to %v, want %v", name, got, ids)
			}
			return now
		}
		d.Run(t, ctrdtest.Spec{ID: "named", Labels: leased(reserved["named"])})
		if now := is("named", "named"); now.HostInterface != "" {
			t.Errorf("named is bound to %s", now.HostInterface)
		}
		port := w.ns.Port("rt0")
		d.Run(t, ctrdtest.Spec{ID: "plugged", Labels: labels("plugged", reserved["plugged"].Address), Netns: port.NS.Path()})
		port.AddAddr(reserved["plugged"].Address + "/24")
		if now := is("plugged", "plugged"); now.HostInterface != port.HostName {
			t.Errorf("plugged is bound to %s", now.HostInterface)
		}
		d.Resume(t, "default", "ported")
		w.becomes(ported.held.Address, api.Bound)
	})
}

// G7, G8: labels that cannot be read, and more labels than an address is worth, are
// findings about their containers, and concern no other: leases end and addresses
// are given beside them, whether the task never was, has stopped, or lives in a
// namespace that the kernel's witnesses read, or that is not on the bridge. Claims without anything behind them take
// a share of the pool, as other quarantines do. Only a task that lives in an unknown namespace,
// or in the host's own as a virtual machine's does, keeps what is released.
func TestG7G8LabelsConcernTheirOwnContainer(t *testing.T) {
	t.Parallel()
	ctrdtest.One(t, func(t *testing.T, d *ctrdtest.Daemon) {
		w := newWorld(t, withContainerd(d), quick, pool("10.8.64.0/25"))
		ends := func(name string) *box {
			t.Helper()
			b := w.box(d, name)
			b.port.Close()
			d.Delete(t, "default", name)
			if _, err := w.client.Release(ctx, b.held.ID, api.ReleaseRequest{}); err != nil {
				t.Fatal(err)
			}
			return b
		}
		many := labels("greedy", addr(10))
		for n := 11; n < 126; n++ {
			many[fmt.Sprint("runtime.computer/ip", n)] = addr(n)
		}
		d.Create(t, ctrdtest.Spec{ID: "greedy", Labels: many})
		d.Create(t, ctrdtest.Spec{ID: "record", Labels: labels("x", "x")})
		d.Run(t, ctrdtest.Spec{ID: "over", Labels: labels("x", "10.8.64.999")})
		d.StopTask(t, "default", "over")
		d.Run(t, ctrdtest.Spec{ID: "plugged", Labels: labels("x", "y"), Netns: w.ns.Port("rt0", addr(100)+"/24").NS.Path()})
		d.Run(t, ctrdtest.Spec{ID: "elsewhere", Labels: labels("x", "::")})
		odd := []string{"elsewhere", "greedy", "over", "plugged", "record"}
		named := func() (of []string) {
			doctor, err := w.client.Doctor(ctx)
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range doctor.Findings {
				if f.Kind == "labels_unreadable" && !f.Since.IsZero() && f.Address == "" && strings.HasPrefix(f.Repair, "ctr -n default containers info ") {
					_, id, _ := strings.Cut(strings.Fields(f.Detail)[1], "/")
					of = append(of, strings.TrimSuffix(id, ":"))
				}
			}
			return of
		}
		realtest.Eventually(t, wait, "doctor to name each", func() bool { return slices.Equal(named(), odd) })
		b := ends("leaves")
		realtest.Eventually(t, wait, "a release beside them to end", func() bool { return w.state(b.held.Address) != api.Releasing })
		if r := w.pass(); !r.Complete {
			t.Errorf("a pass is not complete: %+v", r.Silent)
		}
		// Of the record with a label for each address eight are quarantined.
		quarantined := func() int {
			pools, err := w.client.Pools(ctx)
			if err != nil {
				t.Fatal(err)
			}
			return pools.Pools[0].ByState["quarantined"]
		}
		for n := 10; n < 18; n++ {
			w.becomes(addr(n), api.Quarantined)
		}
		if seenBy(w, addr(18), "runtime") || quarantined() != 9 { // and what the port has
			t.Errorf("%d addresses are quarantined", quarantined())
		}
		// Many such records: their share, and no more.
		for i := range 8 {
			many := labels("greedy", addr(30+8*i))
			for n := 1; n < 8; n++ {
				many[fmt.Sprint("runtime.computer/ip", n)] = addr(30 + 8*i + n)
			}
			d.Create(t, ctrdtest.Spec{ID: fmt.Sprint("greedy-", i), Labels: many})
		}
		realtest.Eventually(t, wait, "the share to be full", func() bool { return slices.Contains(w.findings(), "quarantine_near_cap") })
		w.pass()
		if n := quarantined(); n > 31 { // a quarter of 125
			t.Errorf("%d addresses are quarantined", n)
		}
		w.allocate("other")

		waits := func(name, behind string) *box {
			t.Helper()
			realtest.Eventually(t, wait, "the silence", func() bool { return slices.Contains(w.findings(), "witness_silent") })
			b := ends(name)
			realtest.Eventually(t, wait, "the release to wait for it", func() bool {
				now, err := w.client.Lease(ctx, b.held.ID)
				return err == nil && len(now.Blockers) == 1 && now.Blockers[0].Kind == "silent" && strings.Contains(now.Blockers[0].Detail, "default/"+behind)
			})
			return b
		}
		d.Run(t, ctrdtest.Spec{ID: "hosted", Labels: labels("x", "z"), Netns: w.ns.Path()})
		b = waits("beside", "hosted")
		d.StopTask(t, "default", "hosted")
		realtest.Eventually(t, wait, "the release to end", func() bool { return w.state(b.held.Address) != api.Releasing })
		d.Delete(t, "default", "hosted")

		w.loseHomes()
		b = waits("stays", "elsewhere")
		d.Delete(t, "default", "elsewhere")
		d.StopTask(t, "default", "plugged")
		realtest.Eventually(t, wait, "the release to end", func() bool { return w.state(b.held.Address) != api.Releasing })
	})
}

// loseHomes leaves it unknown where a process lives, from the next whole reading on.
func (w *world) loseHomes() { w.homeless.Store(true) }

// finding waits for doctor to report a trouble, by its kind and address.
func (w *world) finding(kind string) (found api.Finding) {
	w.t.Helper()
	realtest.Eventually(w.t, wait, kind+" to be reported", func() bool {
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
