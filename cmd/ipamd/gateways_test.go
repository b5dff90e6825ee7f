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
	w.setPool(t, netdb.PoolChange{Spec: netdb.PoolSpec{Name: "default", Prefix: netip.MustParsePrefix("10.9.0.0/24"),
		Gateway: netip.MustParseAddr("10.9.0.1"), Bridge: "rt0"}, Drain: true})
	realtest.Eventually(t, wait, "the new gateway", func() bool { return on("10.9.0.1/24") })
	w.give("new", "10.9.0.2")
	if !on("10.8.64.1/24") {
		t.Errorf("the sandbox that stays lost its gateway: %s", w.ns.Exec("ip", "addr", "show", "dev", "rt0"))
	}
	if _, err := w.client.Release(ctx, stays.ID, api.ReleaseRequest{}); err != nil {
		t.Fatal(err)
	}
	realtest.Eventually(t, wait, "the former gateway to go", func() bool { return !on("10.8.64.1/24") })

	w.stopDaemon()
	w.ns.AddAddr("rt0", "10.7.0.1/24")
	w.start()
	if !on("10.7.0.1/24") || !on("10.9.0.1/24") {
		t.Errorf("after a start: %s", w.ns.Exec("ip", "addr", "show", "dev", "rt0"))
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
	only("br8") // once nobody can need it
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
	if _, err := w.program.book.SetPool(ctx, netdb.Who{Actor: netdb.ByOperator, Peer: "test"}, c); err != nil {
		t.Fatal(err)
	}
}
