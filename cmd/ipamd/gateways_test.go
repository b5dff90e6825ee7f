package main

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/client"
	"github.com/ipamd/ipamd/config"
	"github.com/ipamd/ipamd/internal/realtest"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb"
)

// A pool moves away while a sandbox is in it: the gateway that is its route stays until its
// lease has ended, and goes then. At a start nothing goes that no pool had.
func TestAGatewayStaysWhileASandboxNeedsIt(t *testing.T) {
	t.Parallel()
	w := prepare(t, quick, func(c *config.Config) {
		c.Bridge.Manage = true
		c.Bridge.Refresh = config.Duration(200 * time.Millisecond)
	})
	w.start()
	on := func(cidr string) bool {
		return strings.Contains(w.ns.Exec("ip", "-o", "addr", "show", "dev", "rt0"), " "+cidr+" ")
	}
	stays := w.give("stays", "10.8.64.2").Leases[0]
	if _, err := w.client.Bind(ctx, stays.ID, api.BindRequest{MAC: "02:00:00:00:00:01"}); err != nil {
		t.Fatal(err)
	}
	w.setPool(t, netdb.PoolChange{Spec: ipam.PoolSpec{Name: "default", Prefix: netip.MustParsePrefix("10.9.0.0/24"),
		Gateway: netip.MustParseAddr("10.9.0.1"), Bridge: "rt0"}, Drain: true})
	realtest.Eventually(t, wait, "the new gateway", func() bool { return on("10.9.0.1/24") })
	ofNew := w.give("new", "10.9.0.2").Leases[0]
	if !on("10.8.64.1/24") {
		t.Errorf("the sandbox that stays lost its gateway: %s", w.ns.Exec("ip", "addr", "show", "dev", "rt0"))
	}
	if _, err := w.client.Release(ctx, stays.ID, api.ReleaseRequest{}); err != nil {
		t.Fatal(err)
	}
	realtest.Eventually(t, wait, "the former gateway to go", func() bool { return !on("10.8.64.1/24") })
	// Within its prefix it is the bridge's that is seen to have the address, and no sandbox.
	next := w.give("next", "10.9.0.3").Leases[0]
	if _, err := w.client.ApplyPool(ctx, "default", api.PoolRequest{Prefix: "10.9.0.0/24", Gateway: "10.9.0.254"}); err != nil {
		t.Fatal(err)
	}
	w.pass()
	if !on("10.9.0.1/24") || !on("10.9.0.254/24") {
		t.Errorf("within the prefix: %s", w.ns.Exec("ip", "addr", "show", "dev", "rt0"))
	}
	for _, l := range []string{next.ID, ofNew.ID} {
		if _, err := w.client.Release(ctx, l, api.ReleaseRequest{}); err != nil {
			t.Fatal(err)
		}
	}
	realtest.Eventually(t, wait, "that to go too", func() bool { return !on("10.9.0.1/24") })

	w.stopDaemon()
	w.ns.AddAddr("rt0", "10.7.0.1/24")
	w.start()
	if !on("10.7.0.1/24") || !on("10.9.0.254/24") || on("10.9.0.1/24") {
		t.Errorf("after a start: %s", w.ns.Exec("ip", "addr", "show", "dev", "rt0"))
	}
}

// A gateway that went is an address like any, and may be a sandbox's by now, on this bridge or another:
// no change of the pools has the bridge take it back, or doctor ask for it.
func TestAFormerGatewayIsNotWantedAgain(t *testing.T) {
	t.Parallel()
	for _, manage := range []bool{true, false} {
		w := prepare(t, quick, func(c *config.Config) {
			c.Bridge.Manage = manage
			c.Bridge.Refresh = config.Duration(100 * time.Millisecond)
		})
		if !manage {
			w.ns.Bridge("rt0", "10.8.64.1/24")
		}
		w.start()
		on := func(cidr string) bool {
			return strings.Contains(w.ns.Exec("ip", "-o", "addr", "show", "dev", "rt0"), " "+cidr+" ")
		}
		apply := func(name, prefix, gateway, bridge string) {
			t.Helper()
			if _, err := w.client.ApplyPool(ctx, name, api.PoolRequest{Prefix: prefix, Gateway: gateway, Bridge: bridge}); err != nil {
				t.Fatal(err)
			}
			if cidr := gateway + prefix[strings.Index(prefix, "/"):]; manage && bridge == "" {
				realtest.Eventually(t, wait, "the gateway of "+name, func() bool { return on(cidr) })
			} else if !manage {
				w.ns.AddAddr("rt0", cidr)
			}
		}
		apply("lab", "10.9.0.0/24", "10.9.0.1", "")
		apply("lab", "10.9.0.0/24", "10.9.0.254", "")
		if !manage {
			w.ns.Exec("ip", "addr", "del", "10.9.0.1/24", "dev", "rt0") // and what is behind it of its prefix
			w.ns.Exec("ip", "addr", "replace", "10.9.0.254/24", "dev", "rt0")
		}
		realtest.Eventually(t, wait, "an address for a sandbox that was a gateway", func() bool {
			got, err := w.client.Allocate(ctx, api.AllocateRequest{Sandbox: "owner", Pool: "lab", Address: "10.9.0.1"})
			return err == nil && !on("10.9.0.1/24") && got.Leases[0].Address == "10.9.0.1"
		})
		if manage { // a pool leaves the bridge, and its sandboxes live on the other
			apply("six", "fd00:8::/64", "fd00:8::1", "")
			apply("six", "fd00:8::/56", "fd00:8::1", "")
			apply("six", "fd00:8::/64", "fd00:8::1", "")
			apply("away", "10.6.0.0/24", "10.6.0.1", "")
			apply("away", "10.6.0.0/24", "10.6.0.1", "br8")
			for _, pool := range []string{"six", "away"} {
				if _, err := w.client.Allocate(ctx, api.AllocateRequest{Sandbox: pool, Pool: pool, Family: map[string]api.Family{"six": api.V6}[pool]}); err != nil {
					t.Fatal(err)
				}
			}
			apply("six", "fd00:8::/64", "fd00:8::ff", "")
		}
		apply("other", "10.77.0.0/24", "10.77.0.1", "") // any change of any pool
		for _, gone := range []string{"10.9.0.1/24", "10.6.0.1/24", "fd00:8::1/56"} {
			if on(gone) {
				t.Errorf("managed %v: %s is on the bridge: %s", manage, gone, w.ns.Exec("ip", "-br", "addr", "show", "dev", "rt0"))
			}
		}
		if d, err := w.client.Doctor(ctx); err != nil || slices.ContainsFunc(d.Findings, func(f api.Finding) bool { return f.Kind == "bridge_not_ready" }) {
			t.Errorf("managed %v: doctor finds %+v, %v", manage, d, err)
		}
	}
}

// A pool moves to another bridge, or is removed and made again there: the bridge that it left has
// its gateway no more, so that the host has one way into the prefix, and is not made again where it
// is deleted. Where a sandbox may live there yet the gateway stays with it.
func TestTheBridgeThatAPoolLeftHasNoGateway(t *testing.T) {
	t.Parallel()
	w := prepare(t, quick, func(c *config.Config) {
		c.Bridge.Manage = true
		c.Bridge.Refresh = config.Duration(100 * time.Millisecond)
	})
	w.start()
	apply := func(bridge string) {
		t.Helper()
		if _, err := w.client.ApplyPool(ctx, "lab", api.PoolRequest{Prefix: "10.9.0.0/24", Bridge: bridge}); err != nil {
			t.Fatal(err)
		}
	}
	remove := func(mode api.RemoveMode) {
		t.Helper()
		if _, err := w.client.RemovePool(ctx, "lab", client.Removal{UID: w.poolNamed("lab").UID, Mode: mode, Reason: "test"}); err != nil {
			t.Fatal(err)
		}
	}
	way := func() string { return strings.TrimSpace(w.ns.Exec("ip", "-4", "-o", "route", "show", "10.9.0.0/24")) }
	only := func(bridge string) {
		t.Helper()
		realtest.Eventually(t, wait, bridge+" to be the one way", func() bool {
			return strings.HasPrefix(way(), "10.9.0.0/24 dev "+bridge+" ") && !strings.Contains(way(), "\n")
		})
	}
	apply("br7")
	only("br7")
	apply("br8")
	only("br8")
	w.ns.Exec("ip", "link", "del", "br7")
	remove("")
	realtest.Eventually(t, wait, "the gateway of a pool that was removed to go", func() bool { return way() == "" })
	apply("br9")
	only("br9")
	lives := w.wiredAt("br9", "lives", "10.9.0.5", "lab")
	remove(api.RemoveForce)
	apply("br8")
	realtest.Eventually(t, wait, "both", func() bool { return strings.Contains(way(), "dev br9 ") && strings.Contains(way(), "dev br8 ") })
	time.Sleep(500 * time.Millisecond) // more than one look
	if !strings.Contains(way(), "dev br9 ") {
		t.Errorf("a sandbox that may live lost its gateway: %s", way())
	}
	lives.port.Close()
	if _, err := w.client.Clear(ctx, "10.9.0.5"); err != nil {
		t.Fatal(err)
	}
	only("br8") // once no sandbox can need it
	if out := w.ns.Exec("ip", "-br", "link", "show", "type", "bridge"); strings.Contains(out, "br7") {
		t.Errorf("a bridge that was left and deleted is there again: %s", out)
	}
}

// A pool's bridge and another's gateway are edited while the daemon does not run: the next one takes
// the gateways away that the pools had, and nothing that a person put there.
func TestAStartLeavesNoGatewayBehind(t *testing.T) {
	t.Parallel()
	w := prepare(t, quick, func(c *config.Config) {
		c.Bridge.Manage = true
		c.Bridge.Refresh = config.Duration(100 * time.Millisecond)
		c.Pools = append(slices.Clone(c.Pools), config.Pool{Name: "lab", Prefix: "10.9.0.0/24", Bridge: "br7"})
	})
	w.start()
	w.stopDaemon()
	w.ns.AddAddr("br7", "10.7.0.1/24")
	w.cfg.Pools = slices.Clone(w.cfg.Pools)
	w.cfg.Pools[0].Gateway, w.cfg.Pools[1].Bridge = "10.8.64.254", "br8"
	w.start()
	realtest.Eventually(t, wait, "the new gateways alone", func() bool {
		all := w.ns.Exec("ip", "-4", "-o", "addr")
		return strings.Count(all, " 10.9.0.1/24 ") == 1 && strings.Contains(w.ns.Exec("ip", "-4", "-o", "addr", "show", "dev", "br8"), " 10.9.0.1/24 ") &&
			strings.Contains(all, " 10.8.64.254/24 ") && !strings.Contains(all, " 10.8.64.1/24 ")
	})
	if at := w.ns.Exec("ip", "-4", "-o", "addr", "show", "dev", "br7"); !strings.Contains(at, " 10.7.0.1/24 ") {
		t.Errorf("a person's address is gone: %s", at)
	}
}

func (w *world) setPool(t *testing.T, c netdb.PoolChange) {
	t.Helper()
	if _, err := w.program.book.SetPool(ctx, ipam.Who{Actor: ipam.ByOperator, Peer: "test"}, c); err != nil {
		t.Fatal(err)
	}
}
