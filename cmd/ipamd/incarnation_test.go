package main

import (
	"fmt"
	"testing"
	"time"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/config"
	"github.com/ipamd/ipamd/internal/ctrdtest"
	"github.com/ipamd/ipamd/internal/nstest"
)

// An incarnation is one life of a sandbox whose name lives several times.
type incarnation struct {
	held      api.Lease
	container string
	port      *nstest.Port
}

// incarnate allocates for a new life of a sandbox, and makes its port and its
// container. The labels are those that examples/sandbox writes, and more.
func (w *world) incarnate(d *ctrdtest.Daemon, sandbox, uid string, more map[string]string) *incarnation {
	w.t.Helper()
	r, err := w.client.Allocate(ctx, api.AllocateRequest{Sandbox: sandbox, UID: uid})
	if err != nil {
		w.t.Fatal(err)
	}
	one := &incarnation{held: r.Leases[0], container: sandbox + "-" + uid}
	one.port = w.ns.Port("rt0", fmt.Sprintf("%s/%d", one.held.Address, one.held.PrefixLen))
	named := labels(sandbox, one.held.Address)
	for label, value := range more {
		named[label] = value
	}
	if _, without := more["ipamd.dev/lease-id"]; !without {
		named["ipamd.dev/lease-id"] = one.held.ID
	}
	d.Run(w.t, ctrdtest.Spec{ID: one.container, Labels: named, Netns: one.port.NS.Path()})
	return one
}

func (w *world) bindIncarnation(one *incarnation) {
	w.t.Helper()
	if _, err := w.client.Bind(ctx, one.held.ID, api.BindRequest{Containers: []api.Container{{Namespace: "default", ID: one.container}},
		Netns: one.port.NS.Path(), HostInterface: one.port.HostName, MAC: one.port.MAC.String()}); err != nil {
		w.t.Fatal(err)
	}
}

// end removes what was made for it, as a runtime does whose upgrade failed.
func (one *incarnation) end(w *world, d *ctrdtest.Daemon) {
	one.port.Close()
	d.Delete(w.t, "default", one.container)
}

// F17: an upgrade of a sandbox fails five times, after its bind or before. Each
// younger incarnation is removed and released while the older one lives on under
// the same name: no address is kept by the older one's container, whose lease
// label names its own lease.
//
// F4: the younger one lives and the older one dies unseen: its lease is reaped,
// though the younger one's container has the same name.
func TestF4F17IncarnationsOfOneName(t *testing.T) {
	t.Parallel()
	ctrdtest.One(t, func(t *testing.T, d *ctrdtest.Daemon) {
		w := newWorld(t, withContainerd(d), quick, func(c *config.Config) {
			c.Allocation.Cooldown, c.Reconcile.Age = config.Duration(time.Hour), config.Duration(100*time.Millisecond)
		})
		old := w.incarnate(d, "s", "u0", nil)
		w.bindIncarnation(old)
		for i := range 5 {
			young := w.incarnate(d, "s", fmt.Sprint("u", i+1), nil)
			if i%2 == 0 {
				w.bindIncarnation(young)
			}
			young.end(w, d)
			if _, err := w.client.Release(ctx, young.held.ID, api.ReleaseRequest{}); err != nil {
				t.Fatal(err)
			}
			w.becomes(young.held.Address, api.Cooling)
		}
		if got := w.whois(old.held.Address); got.Lease.ID != old.held.ID || got.State != api.Bound {
			t.Fatalf("the older one has %+v", got.Lease)
		}

		young := w.incarnate(d, "s", "u9", map[string]string{"ipamd.dev/sandbox-uid": "u9", "ipamd.dev/lease-id": ""})
		w.stopDaemon() // no witness sees the older one end
		old.end(w, d)
		w.start()
		w.becomes(old.held.Address, api.Cooling)
		if got := w.whois(young.held.Address); got.Lease == nil || got.Lease.ID != young.held.ID || got.State != api.Bound {
			t.Errorf("the younger one has %+v, %s", got.Lease, got.State)
		}
	})
}
