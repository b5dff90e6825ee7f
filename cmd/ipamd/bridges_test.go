package main

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/client"
	"github.com/ipamd/ipamd/config"
	"github.com/ipamd/ipamd/internal/realtest"
)

// A pool on a second bridge, which others make. While it is missing that pool says which
// commands make it, and gives nothing; the other pool gives, its releases are confirmed, and
// /readyz is green as long as one of them can give. A lease on the bridge that is gone is not
// confirmed to be gone by that.
func TestAPoolOnAnotherBridge(t *testing.T) {
	t.Parallel()
	w := newWorld(t, quick)
	applied, err := w.client.ApplyPool(ctx, "other", api.PoolRequest{Prefix: "10.9.0.0/24", Bridge: "br9"})
	if err != nil {
		t.Fatal(err)
	}
	lines := []string{"ip link add br9 type bridge", "ip addr add 10.9.0.1/24 dev br9", "ip link set br9 up"}
	if applied.Pool.NotReady != "br9 is missing" || !slices.Equal(applied.Pool.Repair, lines) {
		t.Fatalf("applied: %q, %q", applied.Pool.NotReady, applied.Pool.Repair)
	}
	ours := w.give("a", "10.8.64.2").Leases[0]
	_, err = w.client.Allocate(ctx, api.AllocateRequest{Sandbox: "b", Pool: "other"})
	var refused *api.Error
	if !errors.Is(err, client.ErrBridgeNotReady) || !errors.As(err, &refused) || refused.Details["bridge"] != "br9" || refused.Details["pool"] != "other" {
		t.Errorf("%v", err)
	}
	if _, err := w.client.Ready(ctx); err != nil {
		t.Errorf("one pool gives, and yet: %v", err)
	}
	for name, want := range map[string]string{`pool_ready{family="v4",pool="other"}`: "0", `pool_ready{family="v4",pool="default"}`: "1",
		`bridge_ready{bridge="br9"}`: "0", `bridge_ready{bridge="rt0"}`: "1"} {
		if got := w.metric(name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	if d, err := w.client.Doctor(ctx); err != nil || !slices.ContainsFunc(d.Findings, func(f api.Finding) bool {
		return f.Kind == "pool_not_ready" && f.Repair == strings.Join(lines, " && ")
	}) {
		t.Errorf("doctor: %+v, %v", d, err)
	}
	for _, line := range lines {
		w.ns.Exec(strings.Fields(line)...)
	}
	var theirs api.Lease
	realtest.Eventually(t, wait, "the other pool to give", func() bool {
		r, err := w.client.Allocate(ctx, api.AllocateRequest{Sandbox: "b", Pool: "other"})
		if err == nil {
			theirs = r.Leases[0]
		}
		return err == nil
	})
	if theirs.Address != "10.9.0.2" {
		t.Errorf("it gave %s", theirs.Address)
	}
	if s, err := w.client.Status(ctx); err != nil || len(s.Bridges) != 2 || s.Bridge.Name != "rt0" || !s.Bridges[1].Ready {
		t.Errorf("%+v, %v", s.Bridges, err)
	}
	for _, l := range []api.Lease{ours, theirs} {
		if _, err := w.client.Bind(ctx, l.ID, api.BindRequest{MAC: "02:00:00:00:00:01"}); err != nil {
			t.Fatal(err)
		}
	}

	w.ns.Exec("ip", "link", "del", "br9")
	realtest.Eventually(t, wait, "the pool to notice", func() bool { return w.metric(`pool_ready{family="v4",pool="other"}`) == "0" })
	for _, l := range []api.Lease{theirs, ours} {
		if _, err := w.client.Release(ctx, l.ID, api.ReleaseRequest{}); err != nil {
			t.Fatal(err)
		}
	}
	realtest.Eventually(t, wait, "the release on rt0 to be confirmed", func() bool { s := w.state(ours.Address); return s == api.Cooling || s == api.Free })
	if s := w.state(theirs.Address); s != api.Releasing {
		t.Errorf("an address on a bridge that is gone is %s", s)
	}
	w.ns.Exec("ip", "link", "del", "rt0")
	realtest.Eventually(t, wait, "no pool to give", func() bool { _, err := w.client.Ready(ctx); return errors.Is(err, client.ErrNotReady) })
	w.ns.Bridge("br9", "10.9.0.1/24")
	realtest.Eventually(t, wait, "one to give again", func() bool { _, err := w.client.Ready(ctx); return err == nil })
	realtest.Eventually(t, wait, "the release on br9 to be confirmed", func() bool { return w.state(theirs.Address) != api.Releasing })
}

// A pool of the configuration names a bridge of its own: its gateway is on that one, and a
// reload moves it to none that it does not name.
func TestAConfiguredPoolOnAnotherBridge(t *testing.T) {
	t.Parallel()
	w := prepare(t, func(c *config.Config) {
		c.Bridge.Manage = true
		c.Pools = append(c.Pools, config.Pool{Name: "other", Prefix: "10.9.0.0/24", Bridge: "br9"})
	})
	w.start()
	r, err := w.client.Allocate(ctx, api.AllocateRequest{Sandbox: "b", Pool: "other"})
	if err != nil || r.Leases[0].Address != "10.9.0.2" {
		t.Fatalf("%+v, %v", r, err)
	}
	if is := w.ns.Exec("ip", "-o", "addr", "show", "dev", "br9"); !strings.Contains(is, "10.9.0.1/24") {
		t.Errorf("br9 has %s", is)
	}
	if is := w.ns.Exec("ip", "-o", "addr", "show", "dev", "rt0"); strings.Contains(is, "10.9.0.1") {
		t.Errorf("rt0 has %s", is)
	}
	w.stopDaemon()
	w.start()
	if p, err := w.client.Pool(ctx, "other"); err != nil || p.Pools[0].Bridge != "br9" || p.Pools[0].Generation != 1 {
		t.Errorf("%+v, %v", p, err)
	}
}

// On bridges that ipamd manages: the one of a pool that comes is made with its gateway before
// the answer, so the pool gives at once; the bridge of a pool that is removed stays, and is
// looked after no more.
func TestABridgeIsMadeForItsPool(t *testing.T) {
	t.Parallel()
	w := prepare(t, func(c *config.Config) { c.Bridge.Manage = true })
	w.start()
	applied, err := w.client.ApplyPool(ctx, "other", api.PoolRequest{Prefix: "fd00:9::/64", Bridge: "br9"})
	if err != nil || applied.Pool.NotReady != "" {
		t.Fatalf("%+v, %v", applied, err)
	}
	r, err := w.client.Allocate(ctx, api.AllocateRequest{Sandbox: "b", Pool: "other"})
	if err != nil || r.Leases[0].Address != "fd00:9::2" {
		t.Fatalf("%+v, %v", r, err)
	}
	w.ns.Exec("ip", "link", "del", "br9")
	realtest.Eventually(t, wait, "it to be made again", func() bool {
		return strings.Contains(w.ns.Exec("ip", "-o", "addr", "show"), "fd00:9::1/64") && w.program.bridge.Settle(context.Background()) == nil
	})
	if _, err := w.client.RemovePool(ctx, "other", client.Removal{UID: applied.Pool.UID, Mode: api.RemoveForce, Reason: "it is not needed"}); err != nil {
		t.Fatal(err)
	}
	if s, err := w.client.Status(ctx); err != nil || len(s.Bridges) != 1 || len(s.Silent) != 0 {
		t.Errorf("%+v, %v", s, err)
	}
	if !strings.Contains(w.ns.Exec("ip", "link"), "br9:") {
		t.Error("the bridge went with its pool")
	}
}
