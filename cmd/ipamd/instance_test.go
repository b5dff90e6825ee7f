package main

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/config"
	"github.com/ipamd/ipamd/internal/ctrdtest"
	"github.com/ipamd/ipamd/internal/realtest"
)

// Another containerd answers on the same socket, before ipamd starts or while
// it runs, and knows none of the containers; all of them run. Nothing is released
// on its word, what it shows is believed, and an operator's word ends it.
func TestAnotherContainerd(t *testing.T) {
	for _, running := range []bool{false, true} {
		t.Run(map[bool]string{false: "before the start", true: "while it runs"}[running], func(t *testing.T) {
			socket := filepath.Join(t.TempDir(), "containerd")
			d := ctrdtest.Start(t, ctrdtest.V2)
			point(t, socket, d)
			w := newWorld(t, withContainerd(d), func(c *config.Config) {
				c.Runtime.Address = socket
				c.Reconcile.Every, c.Reconcile.Age = config.Duration(100*time.Millisecond), config.Duration(500*time.Millisecond)
			})
			var held []api.Lease
			for _, name := range []string{"a", "b", "c", "d"} {
				l := w.allocate(name).Leases[0]
				named := labels(name, l.Address)
				named["ipamd.dev/lease-id"] = l.ID
				d.Run(t, ctrdtest.Spec{ID: name, Labels: named})
				held = append(held, w.bind(l, name))
			}
			// Of these no container is on record, and its labels are in the list
			// of the containerd that has it only.
			unrecorded := []api.Lease{w.allocate("plugged").Leases[0], w.allocate("reserved").Leases[0]}
			for _, l := range unrecorded {
				named := labels(l.Sandbox, l.Address)
				named["ipamd.dev/lease-id"] = l.ID
				d.Create(t, ctrdtest.Spec{ID: l.Sandbox, Labels: named})
			}
			if _, err := w.client.Bind(ctx, unrecorded[0].ID, api.BindRequest{HostInterface: "veth-gone"}); err != nil {
				t.Fatal(err)
			}
			other := ctrdtest.Start(t, ctrdtest.V2)
			if !running {
				w.stopDaemon()
			}
			point(t, socket, other)
			if !running {
				w.start()
			} else {
				d.Kill9() // its containers go on
			}
			realtest.Eventually(t, wait, "doctor to report it", func() bool { return slices.Contains(w.findings(), "runtime_changed") })
			realtest.Eventually(t, wait, "a pass to hold what is missing", func() bool { return w.metric("reap_held_total") != "0" })

			wish, err := w.client.Release(ctx, held[0].ID, api.ReleaseRequest{})
			if err != nil || wish.Lease.State != api.Releasing {
				t.Errorf("release: %+v, %v", wish, err)
			}
			realtest.Eventually(t, wait, "a blocker of the runtime", func() bool {
				now, err := w.client.Lease(ctx, held[0].ID)
				return err == nil && now.Lease.State == api.Releasing && len(now.Blockers) > 0 && now.Blockers[0].Kind == "runtime"
			})
			for _, l := range unrecorded {
				got, err := w.client.Release(ctx, l.ID, api.ReleaseRequest{})
				if err != nil || got.Lease.State != api.Releasing {
					t.Errorf("release of %s, whose container is on no record: %+v, %v", l.Sandbox, got, err)
				}
				held = append(held, l)
			}
			port := w.ns.Port("rt0", addr(77)+"/24")
			other.Run(t, ctrdtest.Spec{ID: "n", Labels: labels("n", addr(77)), Netns: port.NS.Path()})
			w.becomes(addr(77), api.Bound)
			if given := w.allocate("e").Leases[0].Address; slices.ContainsFunc(held, func(l api.Lease) bool { return l.Address == given }) {
				t.Errorf("%s was given again", given)
			}
			for range 5 {
				if _, err := w.client.Reconcile(ctx, api.ReconcileRequest{}); err != nil {
					t.Fatal(err)
				}
			}
			for _, l := range held[1:4] {
				w.stays(l)
			}
			for _, l := range append(held[:1:1], unrecorded...) {
				if s := w.state(l.Address); s != api.Releasing {
					t.Errorf("%s, whose release was asked for, is %s", l.Sandbox, s)
				}
			}

			if _, err := w.client.Reconcile(ctx, api.ReconcileRequest{Confirm: true}); err != nil {
				t.Fatal(err)
			}
			for _, l := range held {
				w.becomes(l.Address, api.Cooling)
			}
			if f := w.findings(); slices.Contains(f, "runtime_changed") {
				t.Errorf("doctor: %q", f)
			}
		})
	}
}

// point makes a path lead to a containerd's socket, at once.
func point(t *testing.T, path string, d *ctrdtest.Daemon) {
	t.Helper()
	if err := os.Symlink(d.Address, path+".new"); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}
