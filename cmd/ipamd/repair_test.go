package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/client"
	"github.com/ipamd/ipamd/internal/ctrdtest"
	"github.com/ipamd/ipamd/internal/realtest"
)

// R6: a lease's container has lost its record, and its shim is frozen, so
// nobody can tell whether its task runs. Every pass tries to reap the lease
// and keeps it, doctor tells of it, and it ends once the runtime can answer.
func TestR6ReapThatFails(t *testing.T) {
	ctrdtest.Each(t, func(t *testing.T, d *ctrdtest.Daemon) {
		w := newWorld(t, withContainerd(d), hasty, func(c *Config) { c.Runtime.Timeout = duration{200 * time.Millisecond} })
		a := w.box(d, "a")
		d.FreezeShim(t, "default", "a")
		d.DeleteRecord(t, "default", "a")
		a.port.Close()
		w.pass() // misses it first
		for range 4 {
			r := w.pass()
			if len(r.Actions) != 1 || r.Actions[0].Kind != "reap" || r.Actions[0].Result != "skipped" ||
				!strings.Contains(r.Actions[0].Reason, "container default/a could not be asked about") || r.Absent != 1 {
				t.Errorf("a pass: %+v", r)
			}
		}
		if !slices.Contains(w.findings(), "bound_unseen "+a.held.Address) || w.state(a.held.Address) != api.Bound {
			t.Errorf("doctor says %v", w.findings())
		}
		d.ThawShim(t, "default", "a")
		d.KillShim(t, "default", "a")
		realtest.Eventually(t, wait, "the lease to end", func() bool {
			w.pass()
			return w.state(a.held.Address) == api.Cooling
		})
		if got := ends(w, a); got != "reaped, removal_confirmed" && got != "removed, removal_confirmed" {
			t.Errorf("it ended by: %s", got)
		}
	})
}

// R11: the machine boots again. rt0 is empty, containerd has its records and
// no task. Nothing is let go for that. Records that were deleted while the
// daemon was down, and those that are deleted later, end their leases one by
// one, far beyond the brake; what they held can be given after its cooldown.
func TestR11Reboot(t *testing.T) {
	ctrdtest.Each(t, func(t *testing.T, d *ctrdtest.Daemon) {
		w := newWorld(t, withContainerd(d), hasty, func(c *Config) {
			c.Reconcile.Misses = 3
			c.Allocation.Cooldown, c.Allocation.CooldownMin = duration{200 * time.Millisecond}, duration{200 * time.Millisecond}
		})
		const all, dead = 253, 250
		name := func(i int) string { return fmt.Sprint("s", i) }
		var held []api.Lease
		for i := range all {
			l := w.bind(w.allocate(name(i)).Leases[0], name(i))
			held = append(held, l)
			d.Create(t, ctrdtest.Spec{ID: name(i), Labels: labels(name(i), l.Address)})
		}
		w.stopDaemon()
		const other = "00000000-0000-4000-8000-000000000001"
		w.edit(`UPDATE book SET boot_id = ?1; UPDATE leases SET created_boot_id = ?1, since_boot_id = ?1;
			UPDATE changes SET boot_id = ?1; UPDATE pools SET created_boot_id = ?1`, other)
		w.start()
		count := func(s api.State) int {
			t.Helper()
			list, err := w.client.Leases(ctx, client.LeaseFilter{State: string(s)})
			if err != nil {
				t.Fatal(err)
			}
			return len(list.Leases)
		}
		for range 4 {
			if r := w.pass(); r.Absent != 0 || len(r.Actions) != 0 {
				t.Fatalf("a pass after the boot: %+v", r)
			}
		}
		if n := count(api.Bound); n != all {
			t.Fatalf("after the boot %d leases are bound", n)
		}
		w.stopDaemon()
		for i := range dead / 2 {
			d.Delete(t, "default", name(i))
		}
		w.start()
		for range 3 { // no person's word: the runtime's, by id, is enough
			if r, err := w.client.Reconcile(ctx, api.ReconcileRequest{}); err != nil || r.Report.Held != nil {
				t.Errorf("a pass: %+v, %v", r, err)
			}
		}
		for i := dead / 2; i < dead; i++ {
			d.Delete(t, "default", name(i))
		}
		realtest.Eventually(t, within, "the dead to be let go", func() bool { return count(api.Cooling) == dead })
		for i, why := range map[int]string{0: "reaped, removal_confirmed", dead - 1: "removed, removal_confirmed"} {
			if got := ends(w, &box{held: held[i]}); got != why {
				t.Errorf("%s ended by: %s", name(i), got)
			}
		}
		for i := range dead {
			var r *api.AllocateReply
			realtest.Eventually(t, wait, "an address to be given", func() (ok bool) {
				var err error
				r, err = w.client.Allocate(ctx, api.AllocateRequest{Sandbox: fmt.Sprint("new", i)})
				return err == nil
			})
			if r.EarlyReuse {
				t.Errorf("%s was given before its time", r.Leases[0].Address)
			}
		}
		if n, m := count(api.Bound), count(api.Reserved); n != all-dead || m != dead {
			t.Errorf("%d are bound, %d reserved", n, m)
		}
	})
}

// C4 on the way out: a stopped container whose record is there keeps its
// released lease from cooling, and is named; when the record goes, events say
// so, and no pass is made.
func TestC4StoppedContainerKeepsItsRelease(t *testing.T) {
	ctrdtest.Each(t, func(t *testing.T, d *ctrdtest.Daemon) {
		w := newWorld(t, withContainerd(d), slow)
		a := w.box(d, "a")
		d.StopTask(t, "default", "a")
		a.port.Close()
		if _, err := w.client.Release(ctx, a.held.ID, api.ReleaseRequest{}); err != nil {
			t.Fatal(err)
		}
		realtest.Eventually(t, wait, "the stopped container to be all that is left", func() bool {
			now, err := w.client.Lease(ctx, a.held.ID)
			return err == nil && now.Lease.State == api.Releasing && len(now.Blockers) == 1 && now.Blockers[0].Kind == "container" &&
				strings.Contains(now.Blockers[0].Detail, "default/a is there (task stopped)")
		})
		r, err := w.client.Release(ctx, a.held.ID, api.ReleaseRequest{Wait: "100ms"})
		if err != nil || r.Lease.State != api.Releasing {
			t.Errorf("waited for: %+v, %v", r, err)
		}
		d.Delete(t, "default", "a")
		w.becomes(a.held.Address, api.Cooling)
	})
}

// C6 on the way out: the labels of one container cannot be read, so nobody
// knows what it claims. No lease ends, be it released, removed, absent or past
// its deadline, not by a person's word either; doctor names the container. When
// it is gone, all of them end.
func TestC6UnreadableLabelFreesNothing(t *testing.T) {
	ctrdtest.Each(t, func(t *testing.T, d *ctrdtest.Daemon) {
		w := newWorld(t, withContainerd(d), hasty)
		released, removed := w.box(d, "released"), w.box(d, "removed")
		absent := w.bind(w.allocate("absent").Leases[0], "never-made")
		late, err := w.client.Allocate(ctx, api.AllocateRequest{Sandbox: "late", BindWithin: "1s"})
		if err != nil {
			t.Fatal(err)
		}
		d.Create(t, ctrdtest.Spec{ID: "odd", Labels: labels("x", "10.8.64.999")})
		realtest.Eventually(t, wait, "the silence", func() bool { return slices.Contains(w.findings(), "witness_silent") })
		for _, b := range []*box{released, removed} {
			b.port.Close()
			d.Delete(t, "default", b.name)
		}
		if r, err := w.client.Release(ctx, released.held.ID, api.ReleaseRequest{Wait: "100ms"}); err != nil || r.Lease.State != api.Releasing {
			t.Errorf("release: %+v, %v", r, err)
		}
		overdue := "reserved_past_deadline " + late.Leases[0].Address
		realtest.Eventually(t, wait, "the deadline", func() bool { return slices.Contains(w.findings(), overdue) })
		for range 5 {
			if r := w.pass(); r.Complete || len(r.Actions) != 0 || len(r.Silent) != 1 || !strings.Contains(r.Silent[0].Reason, "default/odd") {
				t.Errorf("a pass: %+v", r)
			}
		}
		for addr, want := range map[string]api.State{released.held.Address: api.Releasing, removed.held.Address: api.Bound,
			absent.Address: api.Bound, late.Leases[0].Address: api.Reserved} {
			if got := w.state(addr); got != want {
				t.Errorf("%s is %s, want %s", addr, got, want)
			}
		}
		doctor, err := w.client.Doctor(ctx)
		if err != nil || !slices.ContainsFunc(doctor.Findings, func(f api.Finding) bool {
			return f.Kind == "witness_silent" && strings.Contains(f.Detail, "default/odd") && !f.Since.IsZero()
		}) {
			t.Errorf("doctor says %+v, %v", doctor, err)
		}
		d.Delete(t, "default", "odd")
		w.becomes(released.held.Address, api.Cooling)
		realtest.Eventually(t, wait, "all to end", func() bool {
			w.pass()
			return w.state(removed.held.Address) == api.Cooling && w.state(absent.Address) == api.Cooling &&
				w.state(late.Leases[0].Address) == api.Free
		})
	})
}
