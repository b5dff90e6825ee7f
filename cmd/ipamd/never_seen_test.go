package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/internal/ctrdtest"
	"github.com/ipamd/ipamd/internal/nstest"
	"github.com/ipamd/ipamd/internal/realtest"
)

// A sandbox on a link where no witness looks, as on Docker's macvlan networks, is never
// seen. Its lease, which records no container, does not end for that, over restarts of the daemon
// too: its address was given to a second sandbox once. A lease of which something was seen ends.
func TestWhatWasNeverSeenIsNotGone(t *testing.T) {
	t.Parallel()
	w := newWorld(t, hasty)
	w.ns.Bridge("br9")
	bind := func(sandbox string, where api.BindRequest) api.Lease {
		t.Helper()
		r, err := w.client.Bind(ctx, w.allocate(sandbox).Leases[0].ID, where)
		if err != nil {
			t.Fatal(err)
		}
		return r.Lease
	}
	off := w.ns.Port("br9") // no witness watches br9
	unseen := map[string]api.Lease{
		"by its namespace": bind("netns", api.BindRequest{Netns: off.NS.Path()}),
		"by its MAC":       bind("mac", api.BindRequest{MAC: off.MAC.String()}),
		"by its port":      bind("port", api.BindRequest{HostInterface: "veth-none", MAC: "02:00:00:00:99:01"}),
	}
	off.AddAddr(unseen["by its MAC"].Address + "/24")

	there, later, moved := w.ns.Port("rt0"), w.ns.Port("br9"), w.ns.Port("rt0")
	w.ns.Exec("ip", "link", "set", moved.HostName, "nomaster")
	seen := map[string]api.Lease{
		"behind a port":          bind("there", api.BindRequest{Netns: there.NS.Path()}),
		"by a MAC that came":     bind("later", api.BindRequest{MAC: "02:00:00:00:99:02"}),
		"by a port that came":    bind("moved", api.BindRequest{HostInterface: moved.HostName}),
		"by its namespace, late": bind("late", api.BindRequest{Netns: later.NS.Path()}),
	}
	came := w.ns.Port("rt0", seen["by a MAC that came"].Address+"/24")
	came.NS.Exec("ip", "link", "set", "eth0", "address", "02:00:00:00:99:02")
	w.ns.Exec("ip", "link", "set", moved.HostName, "master", "rt0")
	w.ns.Exec("ip", "link", "set", later.HostName, "master", "rt0")
	later.AddAddr(seen["by its namespace, late"].Address + "/24")
	realtest.Eventually(t, wait, "what came to be recorded", func() bool {
		w.pass()
		for name, l := range seen {
			if now, err := w.program.book.Lease(l.ID); err != nil || now.Plug.Unseen {
				t.Logf("%s: %+v, %v", name, now, err)
				return false
			}
		}
		return true
	})
	for _, p := range []*nstest.Port{there, came, later, moved} {
		p.Close()
	}
	hostile := w.ns.Port("rt0") // a guest that takes MAC and address of another, at a port of its own lease
	bind("hostile", api.BindRequest{HostInterface: hostile.HostName})
	hostile.NS.Exec("ip", "link", "set", "eth0", "address", off.MAC.String())
	hostile.AddAddr(unseen["by its MAC"].Address + "/24")
	for range 3 {
		w.pass()
	}
	hostile.Close()
	for round := range 2 {
		realtest.Eventually(t, wait, "what was seen to be reaped", func() bool {
			w.pass()
			for _, l := range seen {
				if s := w.state(l.Address); s != api.Cooling {
					return false
				}
			}
			return true
		})
		for name, l := range unseen {
			if s := w.state(l.Address); s != api.Bound {
				t.Errorf("%s: %s is %s in round %d, and nothing was ever seen of it", name, l.Address, s, round)
			}
		}
		w.stopDaemon()
		w.start()
	}
	d, err := w.client.Doctor(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for name, l := range unseen {
		if !slices.ContainsFunc(d.Findings, func(f api.Finding) bool {
			return f.Kind == "bound_unseen" && f.LeaseID == l.ID && strings.HasSuffix(f.Repair, "ipamctl release "+l.ID)
		}) {
			t.Errorf("%s: doctor finds %+v", name, d.Findings)
		}
		if _, err := w.client.Release(ctx, l.ID, api.ReleaseRequest{}); err != nil {
			t.Errorf("%s: its owner's release: %v", name, err)
		}
	}
}

// A guest takes MAC and address of a sandbox that no witness can see, behind a port that no lease
// names: the lease of its own names its container alone. What lives there is that container, so the
// other lease counts as never seen yet, and does not end with the guest.
func TestWhatLivesInAnothersNamespaceIsNotSeen(t *testing.T) {
	t.Parallel()
	ctrdtest.One(t, func(t *testing.T, d *ctrdtest.Daemon) {
		w := newWorld(t, withContainerd(d), hasty)
		w.ns.Bridge("br9")
		off := w.ns.Port("br9") // no witness watches br9
		l := w.boundAs("off", api.BindRequest{MAC: off.MAC.String()}, nil)
		off.AddAddr(l.Address + "/24")
		guest := &box{name: "guest", held: w.allocate("guest").Leases[0], port: w.ns.Port("rt0")}
		guest.run(w, d)
		w.bind(guest.held, "guest")
		guest.port.NS.Exec("ip", "link", "set", "eth0", "address", off.MAC.String())
		guest.port.AddAddr(l.Address + "/24")
		realtest.Eventually(t, wait, "the guest to be seen with it", func() bool { return seenBy(w, l.Address, "netns") })
		for range 3 {
			w.pass()
		}
		if now, err := w.program.book.Lease(l.ID); err != nil || !now.Plug.Unseen {
			t.Errorf("it counts as seen: %+v, %v", now, err)
		}
		guest.port.DelAddr(l.Address + "/24")
		d.Delete(t, "default", "guest")
		guest.port.Close()
		w.staysAs(l, api.Bound, "the guest has ended")
	})
}
