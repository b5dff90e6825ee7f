package main

import (
	"slices"
	"testing"
	"time"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/config"
	"github.com/ipamd/ipamd/internal/ctrdtest"
	"github.com/ipamd/ipamd/internal/ownertest"
	"github.com/ipamd/ipamd/internal/realtest"
)

// Two claimed an address, and one of them is gone: whose it is, a person has
// to say. A claim gets no younger by a task that stops, or a daemon that starts
// again.
func TestClaimThatAPersonHasToJudge(t *testing.T) {
	t.Parallel()
	ctrdtest.One(t, func(t *testing.T, d *ctrdtest.Daemon) {
		w := newWorld(t, withContainerd(d), func(c *config.Config) { c.Reconcile.Every = config.Duration(100 * time.Millisecond) })
		a := w.box(d, "a")
		at := a.held.Address
		d.Run(t, ctrdtest.Spec{ID: "z", Labels: map[string]string{"runtime.computer/entity-id": "z"}})
		d.SetLabels(t, "default", "z", map[string]string{"runtime.computer/ip": at})
		realtest.Eventually(t, wait, "two to claim it", func() bool { return slices.Contains(w.findings(), "two_claimants "+at) })
		if _, err := w.client.Release(ctx, a.held.ID, api.ReleaseRequest{}); err != nil {
			t.Fatal(err)
		}
		a.port.Close()
		d.Delete(t, "default", "a")
		w.becomes(at, api.Quarantined)
		waits := func(when string) {
			t.Helper()
			for range 3 {
				if _, err := w.client.Reconcile(ctx, api.ReconcileRequest{}); err != nil {
					t.Fatal(err)
				}
			}
			if f := w.findings(); w.state(at) != api.Quarantined || !slices.Contains(f, "unleased "+at) {
				t.Errorf("%s: it is %s; doctor: %q", when, w.state(at), f)
			}
		}
		waits("at first")
		d.StopTask(t, "default", "z")
		realtest.Eventually(t, wait, "z to be seen stopped", func() bool {
			return slices.ContainsFunc(w.whois(at).Witnesses, func(a api.WitnessAnswer) bool {
				return slices.ContainsFunc(a.Seen, func(s api.Sighting) bool { return s.Task == "stopped" })
			})
		})
		waits("with its task stopped")
		w.stopDaemon()
		w.start()
		waits("after a restart")
	})
}

// R2: the book is lost while containerd is down, so all that is seen are
// addresses on ports, and they are quarantined. When containerd is back, its
// containers explain them and get their leases, whatever a label beside them claims.
func TestR2BookLostAndContainerdDown(t *testing.T) {
	t.Parallel()
	ctrdtest.One(t, func(t *testing.T, d *ctrdtest.Daemon) {
		w := newWorld(t, withContainerd(d), slow)
		a, b := w.box(d, "a"), w.box(d, "b")
		w.stopDaemon()
		d.Create(t, ctrdtest.Spec{ID: "label", Labels: labels("other", a.held.Address)})
		d.Kill9()
		w.loseBook()
		w.start()
		for _, box := range []*box{a, b} {
			w.becomes(box.held.Address, api.Quarantined)
		}
		d.Restart()
		for _, box := range []*box{a, b} {
			w.becomes(box.held.Address, api.Bound)
			if who := w.whois(box.held.Address); who.Lease.Sandbox != box.name || who.Lease.ID != box.held.ID {
				t.Errorf("%s went to %+v", box.held.Address, who.Lease)
			}
		}
	})
}

// An owner that lists nothing while its sandboxes run has lost its memory:
// doctor says so, beside the log.
func TestOwnerThatForgets(t *testing.T) {
	t.Parallel()
	d := ctrdtest.Start(t, ctrdtest.V2)
	o := ownertest.Start(t)
	w := newWorld(t, withContainerd(d), slow, func(c *config.Config) {
		c.Owner.Socket, c.Owner.Every = o.Socket, config.Duration(100*time.Millisecond)
	})
	a := w.box(d, "a")
	realtest.Eventually(t, wait, "doctor to report it", func() bool { return slices.Contains(w.findings(), "owner_unclear") })
	o.Set("valid", "a")
	realtest.Eventually(t, wait, "that to end", func() bool { return len(w.findings()) == 0 })
	if s := w.state(a.held.Address); s != api.Bound {
		t.Errorf("it is %s", s)
	}
}
