package main

import (
	"context"
	"log/slog"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/client"
	"github.com/ipamd/ipamd/config"
	"github.com/ipamd/ipamd/config/reload"
	"github.com/ipamd/ipamd/internal/ctrdtest"
	"github.com/ipamd/ipamd/internal/realtest"
)

// lab makes two bridges, and a pool on the first with a live sandbox.
func (w *world) lab() *box {
	w.t.Helper()
	w.ns.Bridge("br9", "10.9.0.1/24")
	w.ns.Bridge("br8", "10.9.0.1/24")
	if _, err := w.client.ApplyPool(ctx, "lab", api.PoolRequest{Prefix: "10.9.0.0/24", Bridge: "br9"}); err != nil {
		w.t.Fatal(err)
	}
	return w.liveIn("lab", "br9")
}

// liveIn gives a sandbox an address of a pool, and a port on its bridge.
func (w *world) liveIn(pool, bridge string) *box {
	w.t.Helper()
	var given *api.AllocateReply
	realtest.Eventually(w.t, wait, "an address of "+pool, func() bool {
		r, err := w.client.Allocate(ctx, api.AllocateRequest{Sandbox: "live", Pool: pool})
		given = r
		return err == nil
	})
	return w.wiredOn(bridge, given.Leases[0])
}

// keeps wants addresses to be in none of the states from which they are given, however often the
// daemon looks again, and then not to be given.
func (w *world) keeps(pool string, addresses ...string) {
	w.t.Helper()
	for until := time.Now().Add(2 * time.Second); time.Now().Before(until); time.Sleep(50 * time.Millisecond) {
		for _, a := range addresses {
			if s := w.state(a); s == api.Cooling || s == api.Free {
				w.t.Fatalf("%s is %s, and its sandbox lives", a, s)
			}
		}
	}
	for _, a := range addresses {
		if r, err := w.client.Allocate(ctx, api.AllocateRequest{Sandbox: "second", Pool: pool, Address: a}); err == nil {
			w.t.Errorf("%s is given twice: %+v", a, r.Leases[0])
		}
	}
}

// A pool is removed by force and made again, while sandboxes of the first live: on the same
// bridge the witnesses see one, and the tap of a machine is there; of another bridge they do not, and its address
// is held, as that is of which nothing was ever seen.
func TestAForcedRemovalAndAnotherBridge(t *testing.T) {
	t.Parallel()
	for _, again := range []string{"br9", "br8"} {
		t.Run(again, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, quick)
			live := w.lab()
			t.Cleanup(w.openTapIn(w.ns, "tap0", "br9"))
			lease := func(sandbox string, where api.BindRequest) api.Lease {
				r, err := w.client.Allocate(ctx, api.AllocateRequest{Sandbox: sandbox, Pool: "lab"})
				if err != nil {
					t.Fatal(err)
				}
				return w.bindTo(r.Leases[0].ID, where)
			}
			machine := lease("machine", api.BindRequest{HostInterface: "tap0", MAC: "02:00:00:00:77:01"})
			off := lease("off", api.BindRequest{MAC: "02:00:00:00:77:02"}) // nothing is ever seen of it
			if _, err := w.client.RemovePool(ctx, "lab", client.Removal{UID: w.poolNamed("lab").UID, Mode: api.RemoveForce, Reason: "x"}); err != nil {
				t.Fatal(err)
			}
			if _, err := w.client.ApplyPool(ctx, "lab", api.PoolRequest{Prefix: "10.9.0.0/24", Bridge: again}); err != nil {
				t.Fatal(err)
			}
			w.keeps("lab", live.held.Address, machine.Address, off.Address)
			l := w.whois(live.held.Address).Lease
			if l == nil || strings.Contains(l.Hold, "br9") != (again != "br9") {
				t.Errorf("%+v", l)
			}
		})
	}
}

// onTwoBridges prepares a daemon whose file has pool lab on br9, beside the daemon's own bridge.
func onTwoBridges(t *testing.T, change ...func(*config.Config)) *world {
	t.Helper()
	w := prepare(t, append(change, func(c *config.Config) {
		c.Pools = append(slices.Clone(c.Pools), config.Pool{Name: "lab", Prefix: "10.9.0.0/24", Bridge: "br9"})
		c.Reconcile.Misses, c.Reconcile.Age = 3, config.Duration(200*time.Millisecond)
	})...)
	w.ns.Bridge("rt0", "10.8.64.1/24")
	w.ns.Bridge("br9", "10.9.0.1/24")
	w.ns.Bridge("br8", "10.9.0.1/24")
	return w
}

// onBr8 is a configuration whose pool lab is on br8.
func onBr8(c config.Config) config.Config {
	c.Pools = slices.Clone(c.Pools)
	c.Pools[1].Bridge = "br8"
	return c
}

// refusal is the finding of a configuration that is not taken over, "" for none.
func (w *world) refusal() string {
	w.t.Helper()
	d, err := w.client.Doctor(ctx)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, f := range d.Findings {
		if f.Kind == "configuration_refused" {
			return f.Detail
		}
	}
	return ""
}

// A reload that moves a pool to another bridge is refused while a lease of it lives, and all
// stays as it was: nothing would see the sandbox from there. Once the lease cools, or the
// bridge is gone, it is taken over.
func TestAReloadMovesNoLivePool(t *testing.T) {
	t.Parallel()
	for _, end := range []string{"released", "the bridge is renamed"} {
		t.Run(end, func(t *testing.T) {
			t.Parallel()
			w := onTwoBridges(t, quick)
			asked := make(chan os.Signal, 1)
			file := w.cfg
			w.reload = &reload.Source{Asked: asked, Level: new(slog.LevelVar), Read: func(context.Context) (config.Config, error) { return file, nil }}
			w.start()
			live := w.liveIn("lab", "br9")
			file = onBr8(file)
			asked <- syscall.SIGHUP
			realtest.Eventually(t, wait, "a finding", func() bool { return strings.Contains(w.refusal(), "it is on bridge br9") })
			w.keeps("lab", live.held.Address)
			if p := w.poolNamed("lab"); p.Bridge != "br9" {
				t.Errorf("%+v", p)
			}
			if end == "released" {
				live.port.Close()
				if _, err := w.client.Release(ctx, live.held.ID, api.ReleaseRequest{}); err != nil {
					t.Fatal(err)
				}
				realtest.Eventually(t, wait, "the release", func() bool { s := w.state(live.held.Address); return s == api.Cooling || s == api.Free })
			} else {
				w.ns.Exec("ip", "link", "del", "br8")
				w.ns.Exec("ip", "link", "set", "br9", "name", "br8")
			}
			asked <- syscall.SIGHUP
			realtest.Eventually(t, wait, "the pool to move", func() bool { return w.poolNamed("lab").Bridge == "br8" })
			realtest.Eventually(t, wait, "no finding", func() bool { return w.refusal() == "" })
			if end != "released" {
				w.keeps("lab", live.held.Address)
			}
		})
	}
}

// A start with such a file goes on with the pool where it is, and the others as the file says:
// by a pool's own bridge, and by bridge.name. What is released meanwhile waits for its port.
func TestAStartMovesNoLivePool(t *testing.T) {
	t.Parallel()
	ctrdtest.One(t, func(t *testing.T, d *ctrdtest.Daemon) {
		w := onTwoBridges(t, slow, withContainerd(d))
		w.start()
		live, own := w.liveIn("lab", "br9"), w.wired("own")
		w.stopDaemon()
		before := w.cfg
		w.cfg = onBr8(w.cfg)
		w.ns.Bridge("rt1", "10.8.64.1/24")
		w.cfg.Bridge.Name = "rt1"
		w.cfg.Pools = append(w.cfg.Pools, config.Pool{Name: "third", Prefix: "10.10.0.0/24", Bridge: "br8"})
		w.start()
		if p := w.poolNamed("lab"); p.Bridge != "br9" || w.poolNamed("default").Bridge != "rt0" || w.poolNamed("third").Bridge != "br8" {
			t.Errorf("%+v", p)
		}
		wants(t, "finding", w.refusal(), "on bridge")
		wants(t, "log", w.log.String(), "it is on bridge br9", "it is on bridge rt0")
		for _, b := range []*box{live, own} {
			if _, err := w.client.Release(ctx, b.held.ID, api.ReleaseRequest{}); err != nil {
				t.Fatal(err)
			}
		}
		w.keeps("lab", live.held.Address)
		w.keeps("default", own.held.Address)
		live.port.Close()
		w.becomes(live.held.Address, api.Cooling)
		w.stopDaemon()
		w.cfg = before
		w.start()
		if got := w.refusal(); got != "" {
			t.Error(got)
		}
	})
}

// A port that is moved to a bridge that is not looked after is seen by no witness, and that is
// no proof that it has gone: its release waits until it is on no such bridge.
func TestAPortOnABridgeThatIsNotLookedAfter(t *testing.T) {
	t.Parallel()
	w := newWorld(t, slow)
	live := w.wired("live")
	w.ns.Bridge("br8", "10.9.0.1/24")
	w.ns.Exec("ip", "link", "set", live.port.HostName, "name", "moved", "master", "br8")
	if _, err := w.client.Release(ctx, live.held.ID, api.ReleaseRequest{}); err != nil {
		t.Fatal(err)
	}
	w.keeps("default", live.held.Address)
	l, err := w.client.Lease(ctx, live.held.ID)
	if err != nil || !slices.ContainsFunc(l.Blockers, func(b api.Blocker) bool { return strings.Contains(b.Detail, "moved is a port of br8") }) {
		t.Errorf("%+v, %v", l, err)
	}
	w.ns.Exec("ip", "link", "set", "moved", "nomaster")
	realtest.Eventually(t, wait, "its namespace to keep it", func() bool {
		l, err := w.client.Lease(ctx, live.held.ID)
		return err == nil && slices.ContainsFunc(l.Blockers, func(b api.Blocker) bool { return strings.Contains(b.Detail, "moved is a port of no bridge") })
	})
	live.port.DelAddr(live.held.Address + "/24")
	w.becomes(live.held.Address, api.Cooling)
}
