package main

import (
	"strings"
	"testing"
	"time"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/client"
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

// keeps wants an address to be in none of the states from which it is given, however often the
// daemon looks again, and then not to be given.
func (w *world) keeps(pool, address string) {
	w.t.Helper()
	for until := time.Now().Add(2 * time.Second); time.Now().Before(until); time.Sleep(50 * time.Millisecond) {
		if s := w.state(address); s == api.Cooling || s == api.Free {
			w.t.Fatalf("%s is %s, and its sandbox lives", address, s)
		}
	}
	if r, err := w.client.Allocate(ctx, api.AllocateRequest{Sandbox: "second", Pool: pool, Address: address}); err == nil {
		w.t.Errorf("%s is given twice: %+v", address, r.Leases[0])
	}
}

// A pool is removed by force and made again, while a sandbox of the first lives: on the same
// bridge the witnesses see it; of another bridge they do not, and its address is held.
func TestAForcedRemovalAndAnotherBridge(t *testing.T) {
	t.Parallel()
	for _, again := range []string{"br9", "br8"} {
		t.Run(again, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, quick)
			live := w.lab()
			if _, err := w.client.RemovePool(ctx, "lab", client.Removal{UID: w.poolNamed("lab").UID, Mode: api.RemoveForce, Reason: "x"}); err != nil {
				t.Fatal(err)
			}
			if _, err := w.client.ApplyPool(ctx, "lab", api.PoolRequest{Prefix: "10.9.0.0/24", Bridge: again}); err != nil {
				t.Fatal(err)
			}
			w.keeps("lab", live.held.Address)
			l := w.whois(live.held.Address).Lease
			if l == nil || strings.Contains(l.Hold, "br9") != (again != "br9") {
				t.Errorf("%+v", l)
			}
		})
	}
}
