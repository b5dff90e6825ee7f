package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/client"
	"github.com/ipamd/ipamd/config"
	"github.com/ipamd/ipamd/internal/realtest"
	"github.com/ipamd/ipamd/ipam"
)

func slots(size int) func(*config.Config) {
	return func(c *config.Config) { c.Pools[0].Warm.Size = size }
}

// pool is the first pool as the socket shows it.
func (w *world) pool() api.Pool {
	w.t.Helper()
	s, err := w.client.Status(ctx)
	if err != nil {
		w.t.Fatal(err)
	}
	return s.Pools[0]
}

// mtus counts the slots' interfaces by MTU, as the kernel has them.
func (w *world) mtus() map[string]int {
	w.t.Helper()
	out := make(map[string]int)
	for _, l := range w.ready() {
		// One that is being taken down has no link any more, and counts as none.
		f := strings.Fields(w.ns.Exec("sh", "-c", "nsenter --net="+l.Netns+" ip -o link show eth0 2>/dev/null || true"))
		for i, word := range f {
			if word == "mtu" {
				out[f[i+1]]++
			}
		}
	}
	return out
}

// M3: under on_replenish slots of the spec before stay and may be given, and new ones are of the
// new spec. Under recreate all are made anew.
func TestM3SlotsOfANewSpec(t *testing.T) {
	t.Parallel()
	w := newWorld(t, quick)
	w.warmHelper()
	w.keepSlots(1400, &ipam.Warm{Size: 4, Strategy: ipam.SlotsOnReplenish})
	w.settled(4)
	w.keepSlots(1300, &ipam.Warm{Size: 4, Strategy: ipam.SlotsOnReplenish})
	w.claim("a")
	w.settled(4)
	if got := fmt.Sprint(w.mtus()); got != "map[1300:1 1400:3]" {
		t.Errorf("after one was given: %s", got)
	}
	// A restart compares each with what it was made as, and not with what the pool wants now.
	w.stopDaemon()
	w.start()
	realtest.Eventually(t, wait, "the slots to be checked", func() bool { return w.program.warm.Checked() == 4 })
	if got := fmt.Sprint(w.mtus()); got != "map[1300:1 1400:3]" {
		t.Errorf("after a restart: %s", got)
	}
	w.keepSlots(1300, &ipam.Warm{Size: 4})
	realtest.Eventually(t, wait, "none to be of the spec before", func() bool {
		for _, l := range w.ready() {
			if stale, err := w.program.book.Slot(l.ID).Stale(w.program.book.Pools()[0], "eth0", w.program.slotProfile("rt0")); err != nil || stale {
				return false
			}
		}
		return true
	})
	w.settled(4)
	if got := fmt.Sprint(w.mtus()); got != "map[1300:4]" {
		t.Errorf("made anew: %s", got)
	}
}

// M11: slots leave the last addresses to sandboxes, give way where none is left, and are never
// why a sandbox is refused.
func TestM11SlotsGiveWay(t *testing.T) {
	t.Parallel()
	w := newWorld(t, quick, pool("10.8.64.0/28"), slots(12), func(c *config.Config) {
		c.Allocation.Cooldown, c.Allocation.CooldownMin = config.Duration(wait), config.Duration(wait)
	})
	w.keepsNothing()
	w.warmHelper()
	realtest.Eventually(t, wait, "half of 13 addresses", func() bool { return len(w.ready()) == 6 })
	if p := w.pool(); p.Slots == nil || p.Slots.Ready != 6 || p.Slots.Wanted != 6 || !strings.Contains(p.Slots.Why, "few addresses") || p.Warm.Size != 12 {
		t.Errorf("shown: %+v", p.Slots)
	}
	var callers sync.WaitGroup
	for i := range 13 {
		callers.Go(func() {
			if _, err := w.client.Allocate(ctx, api.AllocateRequest{Sandbox: fmt.Sprint("s-", i)}); err != nil {
				t.Errorf("sandbox %d: %v", i, err)
			}
		})
		if i%3 == 0 {
			callers.Wait()
		}
	}
	callers.Wait()
	if _, err := w.client.Allocate(ctx, api.AllocateRequest{Sandbox: "one too many"}); !errors.Is(err, client.ErrPoolExhausted) || strings.Contains(err.Error(), "slot") {
		t.Errorf("of a full pool: %v", err)
	}
	w.settled(0)
}

// M14: without the warm helper addresses are given as ever, and status says that slots are not
// made, and why. What slots hold then is said to whom it is refused for.
func TestM14WithoutTheWarmHelper(t *testing.T) {
	realtest.Long(t)
	t.Parallel()
	w := newWorld(t, quick, pool("10.8.64.0/29"), slots(2))
	w.keepsNothing()
	w.allocate("a")
	if p := w.pool(); p.Slots == nil || p.Slots.Ready != 0 || p.Slots.Wanted != 2 || !strings.Contains(p.Slots.Why, "the warm helper is not running") {
		t.Errorf("without a helper: %+v", p.Slots)
	}
	realtest.Eventually(t, wait, "it to be said", func() bool { return strings.Contains(w.log.String(), "warm slots are not made") })
	if n := strings.Count(w.log.String(), "warm slots are not made"); n != 1 {
		t.Errorf("it is said %d times", n)
	}
	helper := w.warmHelper()
	realtest.Eventually(t, wait, "two slots", func() bool { return len(w.ready()) == 2 })
	if p := w.pool(); p.Slots.Why != "" || p.Slots.Ready != 2 {
		t.Errorf("with a helper: %+v", p.Slots)
	}
	_ = helper.cmd.Process.Kill()
	<-helper.done
	realtest.Eventually(t, wait, "the helper to be missed", func() bool { return !w.program.warm.Helped() })
	w.allocate("b")
	w.allocate("c")
	if _, err := w.client.Allocate(ctx, api.AllocateRequest{Sandbox: "d"}); !errors.Is(err, client.ErrPoolExhausted) || !strings.Contains(err.Error(), "2 of its addresses are those of warm slots") ||
		!strings.Contains(err.Error(), "systemctl start ipamd-warm") {
		t.Errorf("with two slots that nothing can take down: %v", err)
	}
	w.warmHelper()
	w.allocate("d")
}

// keepsNothing takes the namespaces away that a test leaves.
func (w *world) keepsNothing() {
	w.t.Cleanup(func() { w.dropNamespaces() })
}

// A pool that drains has no slots, so that it can be removed; of one that is removed by force the
// slots are taken down.
func TestSlotsOfARemovedPool(t *testing.T) {
	t.Parallel()
	for _, mode := range []api.RemoveMode{api.RemoveDrain, api.RemoveForce} {
		w := newWorld(t, quick, slots(3))
		w.keepsNothing()
		w.warmHelper()
		w.settled(3)
		uid := w.pool().UID
		realtest.Eventually(t, wait, "the pool to go by "+string(mode), func() bool {
			r, err := w.client.RemovePool(ctx, "default", client.Removal{UID: uid, Mode: mode, Reason: "test"})
			if err != nil {
				t.Fatal(err)
			}
			return r.Pool.State == api.PoolRemoved
		})
		realtest.Eventually(t, wait, "namespaces and ports to go by "+string(mode), func() bool { return len(w.namespaces()) == 0 && w.rt0() == "" })
	}
}

// A sandbox that was given a slot lives on when its pool is removed by force, also once the
// pool is there again, on another bridge: its namespace stays, and its address is given to no other.
func TestAClaimedSlotOfARemovedPool(t *testing.T) {
	t.Parallel()
	w := newWorld(t, quick, slots(2))
	w.keepsNothing()
	w.warmHelper()
	w.settled(2)
	given := w.warmFor("lives")
	w.settled(2)
	if _, err := w.client.RemovePool(ctx, "default", client.Removal{UID: w.pool().UID, Mode: api.RemoveForce, Reason: "test"}); err != nil {
		t.Fatal(err)
	}
	alone := func() bool { return slices.Equal(w.namespaces(), []string{given.Slot.Netns}) }
	realtest.Eventually(t, wait, "the other slots to go", alone)
	w.ns.Bridge("br8", "10.8.64.1/24")
	for _, again := range []string{"br8", ""} {
		stays := time.Now().Add(time.Second)
		for time.Now().Before(stays) {
			if !alone() {
				t.Fatalf("the namespaces are %v, and a sandbox lives in %s", w.namespaces(), given.Slot.Netns)
			}
			time.Sleep(20 * time.Millisecond)
		}
		if again != "" {
			if _, err := w.client.ApplyPool(ctx, "default", api.PoolRequest{Prefix: "10.8.64.0/24", Bridge: again}); err != nil {
				t.Fatal(err)
			}
			if r, err := w.client.Allocate(ctx, api.AllocateRequest{Sandbox: "other", Address: given.Leases[0].Address}); err == nil {
				t.Errorf("its address is given: %+v", r.Leases)
			}
		}
	}
}

// A preview of a change says how many slots it ends, and ends none; the change says the same.
func TestSlotsOfAPreview(t *testing.T) {
	t.Parallel()
	w := newWorld(t, quick, slots(4))
	w.keepsNothing()
	w.warmHelper()
	w.settled(4)
	for _, c := range []struct {
		what string
		warm *api.PoolWarm
		mtu  int64
		want int
	}{
		{"more are kept", &api.PoolWarm{Size: 5}, 0, 0},
		{"fewer are kept", &api.PoolWarm{Size: 1}, 0, 3},
		{"another spec", &api.PoolWarm{Size: 4}, 1400, 4},
		{"another spec, and those of before may be given", &api.PoolWarm{Size: 4, Strategy: ipam.SlotsOnReplenish}, 1400, 0},
		{"none is kept", nil, 0, 4},
	} {
		r, err := w.client.ApplyPool(ctx, "default", api.PoolRequest{Prefix: "10.8.64.0/24", Warm: c.warm, MTU: c.mtu, Preview: true})
		if err != nil || r.SlotsEnded != c.want {
			t.Errorf("%s: %+v, %v", c.what, r, err)
		}
	}
	w.settled(4)
	r, err := w.client.ApplyPool(ctx, "default", api.PoolRequest{Prefix: "10.8.64.0/24", Warm: &api.PoolWarm{Size: 1}})
	if err != nil || r.SlotsEnded != 3 {
		t.Errorf("fewer are kept: %+v, %v", r, err)
	}
	w.settled(1)
}

// M11: a sandbox that names the address of a slot has it: the slot gives way. One for which the
// pool keeps a slot's address has that, too, and the other slots are given meanwhile.
func TestM11AnAddressThatASlotHas(t *testing.T) {
	t.Parallel()
	w := newWorld(t, quick)
	w.warmHelper()
	w.keepSlots(1400, &ipam.Warm{Size: 3, Max: 6})
	slot := w.settled(3)[0]
	named, err := w.client.Allocate(ctx, api.AllocateRequest{Sandbox: "named", Address: slot.Addr.String()})
	if err != nil || named.Leases[0].Address != slot.Addr.String() {
		t.Errorf("it has %+v, %v", named, err)
	}
	for range 3 { // each time one of those that are ready is kept
		reserved := w.settled(3)[1].Addr
		pool := w.program.book.Pools()[0].PoolSpec
		pool.Kept = []ipam.Kept{{Sandbox: "db", Address: reserved}}
		if _, err := w.program.book.EnsurePool(ctx, ipam.Who{Actor: ipam.ByOperator, Peer: "test", Reason: "pool_changed"}, pool); err != nil {
			t.Fatal(err)
		}
		for _, policy := range []api.WarmPolicy{api.WarmPrefer, api.WarmRequire} {
			realtest.Eventually(t, wait, fmt.Sprintf("a slot for %s, beside one whose address is kept", policy), func() bool { // a slot that a busy kernel does not show is not given
				r, err := w.client.Allocate(ctx, asks(fmt.Sprint(policy, reserved), api.WarmRequest{Policy: policy, OnEmpty: api.OnEmptyFail}))
				if err == nil && r.Leases[0].Address == reserved.String() {
					t.Fatalf("%s has the kept address: %+v", policy, r)
				}
				return err == nil && (r.Slot != nil || policy == api.WarmPrefer)
			})
		}
		w.settled(3)
		db, err := w.client.Allocate(ctx, api.AllocateRequest{Sandbox: "db"})
		if err != nil || db.Leases[0].Address != reserved.String() {
			t.Fatalf("db has %+v, %v", db, err)
		}
		w.releaseOf(db)
	}
}

// M3: a pool that grows may give the slots of before, as they were made.
func TestM3APoolThatGrowsGivesTheSlotsOfBefore(t *testing.T) {
	t.Parallel()
	w := newWorld(t, quick, func(c *config.Config) { c.Bridge.Manage = true })
	w.keepsNothing()
	w.warmHelper()
	warm := &api.PoolWarm{Size: 2, Max: 2, Strategy: ipam.SlotsOnReplenish}
	for _, prefix := range []string{"10.8.64.0/24", "10.8.64.0/23"} {
		if _, err := w.client.ApplyPool(ctx, "default", api.PoolRequest{Prefix: prefix, Warm: warm}); err != nil {
			t.Fatal(err)
		}
		w.settled(2)
	}
	r, err := w.client.Allocate(ctx, asks("a", api.WarmRequest{Policy: api.WarmRequire}))
	if err != nil || r.Slot == nil || !r.Slot.Stale {
		t.Errorf("it has %+v, %v", r, err)
	}
}
