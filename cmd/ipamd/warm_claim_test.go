package main

import (
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/client"
	"github.com/ipamd/ipamd/internal/realtest"
	"github.com/ipamd/ipamd/ipam"
)

// asks is a request for a warm slot.
func asks(sandbox string, warm api.WarmRequest) api.AllocateRequest {
	return api.AllocateRequest{Sandbox: sandbox, Warm: &warm}
}

// warmFor has a sandbox given a slot over the socket.
func (w *world) warmFor(sandbox string) *api.AllocateReply {
	w.t.Helper()
	r, err := w.client.Allocate(ctx, asks(sandbox, api.WarmRequest{Policy: api.WarmRequire, OnEmpty: api.OnEmptyWait, Wait: "20s"}))
	if err != nil {
		w.t.Fatalf("a slot for %s: %v", sandbox, err)
	}
	if r.Slot == nil || len(r.Leases) != 1 || r.Leases[0].State != api.Bound || r.Leases[0].Netns != r.Slot.Netns || r.Leases[0].Sandbox != sandbox {
		w.t.Fatalf("a slot for %s: %+v, %+v", sandbox, r.Slot, r.Leases)
	}
	return r
}

func (w *world) releaseOf(r *api.AllocateReply) {
	w.t.Helper()
	if _, err := w.client.Release(ctx, r.Leases[0].ID, api.ReleaseRequest{}); err != nil {
		w.t.Error(err)
	}
}

// inside runs a command in a namespace.
func (w *world) inside(netns string, args ...string) string {
	return w.ns.Exec(append([]string{"nsenter", "--net=" + netns}, args...)...)
}

// A slot is a network that works: its namespace has the address and the routes of the lease, its
// neighbour answers, and it goes with its release. The same request again has the same slot.
func TestASlotIsGiven(t *testing.T) {
	t.Parallel()
	w := newWorld(t, quick)
	w.warmHelper()
	w.keepSlots(1400, &ipam.Warm{Size: 2, Max: 6})
	w.settled(2)
	a, b := w.warmFor("a"), w.warmFor("b")
	if a.Slot.Stale || a.Existing || a.Slot.Slot == b.Slot.Slot || a.Leases[0].Address == b.Leases[0].Address {
		t.Errorf("a has %+v, b has %+v", a.Slot, b.Slot)
	}
	if out := w.inside(a.Slot.Netns, "ip", "-4", "-o", "address", "show", "dev", "eth0"); !strings.Contains(out, a.Leases[0].Address+"/") {
		t.Errorf("a's namespace has %s", out)
	}
	// No one listens there: that it is refused came from b.
	knock := exec.Command("nsenter", "--net="+a.Slot.Netns, "timeout", "5", "bash", "-c", "exec 3<>/dev/tcp/"+b.Leases[0].Address+"/9")
	if out, _ := knock.CombinedOutput(); !strings.Contains(string(out), "refused") {
		t.Errorf("b does not answer a: %s", out)
	}
	again := w.warmFor("a")
	if !again.Existing || again.Leases[0].ID != a.Leases[0].ID || again.Slot.Slot != a.Slot.Slot {
		t.Errorf("a asked again, and has %+v, %+v", again.Slot, again.Leases[0])
	}
	list, err := w.client.Warm(ctx, "")
	if err != nil {
		t.Fatal(err)
	}
	of := map[string]api.Slot{}
	for _, s := range list.Slots {
		of[s.Slot] = s
	}
	if s := of[a.Slot.Slot]; s.State != api.SlotClaimed || s.Sandbox != "a" || s.Address != a.Leases[0].Address || s.SpecHash != a.Slot.SpecHash || s.Netns != a.Slot.Netns {
		t.Errorf("a's slot is listed as %+v", s)
	}
	w.settled(2)
	w.releaseOf(a)
	w.becomes(a.Leases[0].Address, api.Cooling)
	realtest.Eventually(t, wait, "a's namespace to go", func() bool { return !slices.Contains(w.namespaces(), a.Slot.Netns) })
	w.settled(2)
	if _, err := w.client.Attach(ctx, b.Leases[0].ID, api.AttachRequest{Netns: "/run/netns/elsewhere"}); !errors.Is(err, client.ErrInvalidArgument) {
		t.Errorf("an attach of a slot elsewhere: %v", err)
	}
}

// C12: a neighbour that has the MAC of who had a slot's address before has the slot's once it is made, behind
// its rules: it asks no witness for the address meanwhile.
func TestC12ASlotIsAnnounced(t *testing.T) {
	t.Parallel()
	w := dual(t, quick, enforced)
	w.warmHelper()
	peer := w.ns.Port("rt0", "10.8.64.250/24", "fd00:8:64::250/64").NS
	neighbour := func(addr string) string { return peer.Exec("ip", "neigh", "show", addr) }
	for n := 2; n < 8; n++ {
		for _, addr := range twin(fmt.Sprint(n)) {
			peer.Exec("ip", "neigh", "replace", addr, "lladdr", "02:00:00:00:00:55", "dev", "eth0", "nud", "reachable")
		}
	}
	for _, prefix := range []string{"10.8.64.0/24", "fd00:8:64::/64"} {
		if _, err := w.client.ApplyPool(ctx, "default", api.PoolRequest{Prefix: prefix, Warm: &api.PoolWarm{Size: 1}}); err != nil {
			t.Fatal(err)
		}
	}
	realtest.Eventually(t, wait, "a slot of each family", func() bool { return len(w.ready()) == 2 })
	for _, l := range w.ready() {
		addr := l.Addr.String()
		realtest.Eventually(t, wait, "the neighbour to have the MAC of "+addr, func() bool { return strings.Contains(neighbour(addr), l.MAC) })
		// No one listens there: that it is refused came from the slot.
		knock := exec.Command("nsenter", "--net="+peer.Path(), "timeout", "5", "bash", "-c", "exec 3<>/dev/tcp/"+addr+"/9")
		if out, _ := knock.CombinedOutput(); !strings.Contains(string(out), "refused") {
			t.Errorf("%s does not answer the neighbour, which has %s: %s", addr, neighbour(addr), out)
		}
	}
}

// M2: the pool's spec changes while slots of the one before are there; of twenty claims at once
// that began after that was answered none gets one of before. M4 is the same for each moment
// of the change, in netdb.
func TestM2NoSlotOfBefore(t *testing.T) {
	t.Parallel()
	w := newWorld(t, quick)
	w.warmHelper()
	w.keepSlots(1400, &ipam.Warm{Size: 5, Max: 30, Strategy: ipam.SlotsRecreate})
	w.settled(5)
	w.keepSlots(1300, &ipam.Warm{Size: 5, Max: 30, Strategy: ipam.SlotsRecreate})
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			r, err := w.client.Allocate(ctx, asks(fmt.Sprint("s", i), api.WarmRequest{Policy: api.WarmRequire, OnEmpty: api.OnEmptyWait, Wait: "30s"}))
			if err != nil {
				t.Errorf("s%d: %v", i, err)
				return
			}
			if out := w.inside(r.Slot.Netns, "ip", "-o", "link", "show", "dev", "eth0"); r.Slot.Stale || !strings.Contains(out, "mtu 1300") {
				t.Errorf("s%d has a slot of before: %+v, %s", i, r.Slot, out)
			}
		})
	}
	all.Wait()
}

// M3: under on_replenish a slot of the spec before may be given, and the answer says so; the next
// ones are of the new spec.
func TestM3ASlotOfBeforeMayBeGiven(t *testing.T) {
	t.Parallel()
	w := newWorld(t, quick)
	w.warmHelper()
	w.keepSlots(1400, &ipam.Warm{Size: 1, Strategy: ipam.SlotsOnReplenish}, ipam.Route{Destination: netip.MustParsePrefix("10.99.0.0/16"), Via: netip.MustParseAddr("10.8.64.1")})
	w.settled(1)
	p := w.keepSlots(1300, &ipam.Warm{Size: 1, Strategy: ipam.SlotsOnReplenish})
	now := p.Plumbing("eth0", w.program.slotProfile(p.Bridge)).Hash()
	if r, err := w.client.Allocate(ctx, asks("strict", api.WarmRequest{Policy: api.WarmRequire, ClientSpecHash: now})); !errors.Is(err, client.ErrNoWarmSlot) {
		t.Errorf("a slot of the new spec alone, and there is none: %+v, %v", r, err)
	}
	before := w.warmFor("before")
	if !before.Slot.Stale || before.Slot.SpecHash == now {
		t.Errorf("the slot of before: %+v, and the pool wants %s", before.Slot, now)
	}
	if after := w.warmFor("after"); after.Slot.Stale || after.Slot.SpecHash != now || after.Networks[0].MTU != 1300 || len(after.Networks[0].Routes) != 1 {
		t.Errorf("the next slot: %+v %+v, and the pool wants %s", after.Slot, after.Networks, now)
	}
	if n := before.Networks[0]; n.MTU != 1400 || len(n.Routes) != 2 || n.Routes[1].Destination != "10.99.0.0/16" { // as its namespace has it
		t.Errorf("the slot of before is of %+v", n)
	}
	if again := w.warmFor("before"); !again.Slot.Stale || again.Slot.Slot != before.Slot.Slot || !reflect.DeepEqual(again.Networks, before.Networks) {
		t.Errorf("the one of before asks again: %+v", again.Slot)
	}
}

// M5: with no slot ready the request says what happens. M14: nothing else needs the helper.
func TestM5NoSlotIsReady(t *testing.T) {
	t.Parallel()
	w := newWorld(t, quick)
	w.keepSlots(1400, &ipam.Warm{Size: 1})
	refused := func(what string, warm api.WarmRequest) {
		t.Helper()
		began := time.Now()
		r, err := w.client.Allocate(ctx, asks(what, warm))
		if !errors.Is(err, client.ErrNoWarmSlot) || !strings.Contains(err.Error(), "ipamctl warm") {
			t.Errorf("%s: %+v, %v", what, r, err)
		}
		if least, _ := time.ParseDuration(string(warm.Wait)); time.Since(began) < least {
			t.Errorf("%s did not wait", what)
		}
		if l, err := w.client.Leases(ctx, client.LeaseFilter{Sandbox: what}); err != nil || len(l.Leases) != 0 {
			t.Errorf("%s left %+v, %v", what, l.Leases, err)
		}
	}
	refused("require", api.WarmRequest{Policy: api.WarmRequire})
	refused("prefer-fail", api.WarmRequest{OnEmpty: api.OnEmptyFail})
	refused("require-wait", api.WarmRequest{Policy: api.WarmRequire, OnEmpty: api.OnEmptyWait, Wait: "50ms"})
	for what, warm := range map[string]api.WarmRequest{"prefer": {}, "prefer-wait": {OnEmpty: api.OnEmptyWait, Wait: "50ms"}, "never": {Policy: api.WarmNever}} {
		r, err := w.client.Allocate(ctx, asks(what, warm))
		if err != nil || r.Slot != nil || r.Leases[0].State != api.Reserved {
			t.Errorf("%s: %+v, %v", what, r, err)
		}
	}
	came := make(chan *api.AllocateReply, 1)
	go func() {
		r, err := w.client.Allocate(ctx, asks("waits", api.WarmRequest{Policy: api.WarmRequire, OnEmpty: api.OnEmptyWait, Wait: "60s"}))
		if err != nil {
			t.Error(err)
		}
		came <- r
	}()
	w.warmHelper()
	select {
	case r := <-came:
		if r == nil || r.Slot == nil {
			t.Errorf("the one that waits has %+v", r)
		}
	case <-time.After(40 * time.Second): // long before its own time is over
		t.Error("the slot that it waits for is ready, and it waits on")
	}
	for field, ask := range map[string]api.AllocateRequest{
		"warm.policy":           asks("x", api.WarmRequest{Policy: "perhaps"}),
		"warm.on_empty":         asks("x", api.WarmRequest{Policy: api.WarmRequire, OnEmpty: api.OnEmptyCold}),
		"warm.wait":             asks("x", api.WarmRequest{OnEmpty: api.OnEmptyWait}),
		"warm.client_spec_hash": asks("x", api.WarmRequest{ClientSpecHash: "sha256:00"}),
		"warm":                  {Sandbox: "x", Warm: &api.WarmRequest{}, Address: addr(9)},
	} {
		if _, err := w.client.Allocate(ctx, ask); !errors.Is(err, client.ErrInvalidArgument) || !strings.Contains(err.Error(), field) {
			t.Errorf("a bad %s: %v", field, err)
		}
	}
}

// M7: an answer is lost with the daemon, and the spec changes meanwhile: the same request again has
// the slot that the first one took.
func TestM7AnAnswerIsLost(t *testing.T) {
	t.Parallel()
	w := newWorld(t, quick)
	w.warmHelper()
	w.keepSlots(1400, &ipam.Warm{Size: 2})
	w.settled(2)
	lost := w.warmFor("a")
	w.stopDaemon()
	w.start()
	w.warmHelper()
	w.keepSlots(1300, &ipam.Warm{Size: 2})
	for _, ask := range []api.WarmRequest{{Policy: api.WarmRequire}, {}, {ClientSpecHash: lost.Slot.SpecHash}} {
		r, err := w.client.Allocate(ctx, asks("a", ask))
		if err != nil || !r.Existing || r.Slot == nil || r.Slot.Slot != lost.Slot.Slot || r.Leases[0].ID != lost.Leases[0].ID {
			t.Errorf("asked again by %+v: %+v, %v", ask, r, err)
		}
	}
	if next := w.warmFor("b"); next.Slot.Slot == lost.Slot.Slot {
		t.Errorf("b has a's slot: %+v", next.Slot)
	}
}

// M9: a hundred claims on ten slots: each slot is given once, and the others get what they asked for.
func TestM9AHundredClaims(t *testing.T) {
	t.Parallel()
	w := newWorld(t, quick)
	helper := w.warmHelper()
	w.keepSlots(1400, &ipam.Warm{Size: 10})
	w.settled(10)
	_ = helper.cmd.Process.Kill() // no slot is made anew
	<-helper.done
	realtest.Eventually(t, wait, "the helper to be gone", func() bool { return !w.program.warm.Helped() })
	var given sync.Map
	var warm, cold, refused atomic.Int32
	var all sync.WaitGroup
	for i := range 100 {
		all.Go(func() {
			ask := api.WarmRequest{}
			if i%2 == 0 {
				ask.Policy = api.WarmRequire
			}
			r, err := w.client.Allocate(ctx, asks(fmt.Sprint("s", i), ask))
			switch {
			case errors.Is(err, client.ErrNoWarmSlot) && ask.Policy == api.WarmRequire:
				refused.Add(1)
			case err != nil:
				t.Errorf("s%d: %v", i, err)
			case r.Slot == nil && ask.Policy != api.WarmRequire:
				cold.Add(1)
			case r.Slot == nil:
				t.Errorf("s%d has none: %+v", i, r)
			default:
				if other, twice := given.LoadOrStore(r.Slot.Slot, i); twice {
					t.Errorf("s%d and s%v have slot %s", i, other, r.Slot.Slot)
				}
				warm.Add(1)
			}
		})
	}
	all.Wait()
	if warm.Load() != 10 || warm.Load()+cold.Load()+refused.Load() != 100 {
		t.Errorf("%d slots given, %d cold, %d refused", warm.Load(), cold.Load(), refused.Load())
	}
}

// M13: a slot of a pool that was removed is never given for the new pool of its name.
func TestM13ASlotOfARemovedPool(t *testing.T) {
	t.Parallel()
	w := newWorld(t, quick)
	w.keepsNothing()
	helper := w.warmHelper()
	spec := w.program.book.Pools()[0].PoolSpec
	second := api.PoolRequest{Prefix: "10.9.0.0/24", Gateway: "none", Bridge: spec.Bridge, MTU: 1400, Warm: &api.PoolWarm{Size: 2}}
	if _, err := w.client.ApplyPool(ctx, "second", second); err != nil {
		t.Fatal(err)
	}
	ask := api.AllocateRequest{Sandbox: "a", Pool: "second", Warm: &api.WarmRequest{Policy: api.WarmRequire, OnEmpty: api.OnEmptyWait, Wait: "20s"}}
	first, err := w.client.Allocate(ctx, ask)
	if err != nil {
		t.Fatal(err)
	}
	_ = helper.cmd.Process.Kill()
	<-helper.done
	pools, err := w.client.Pool(ctx, "second")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.client.RemovePool(ctx, "second", client.Removal{UID: pools.Pools[0].UID, Mode: api.RemoveForce, Reason: "test"}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.client.ApplyPool(ctx, "second", second); err != nil {
		t.Fatal(err)
	}
	ask.Sandbox, ask.Warm = "b", &api.WarmRequest{Policy: api.WarmRequire}
	if r, err := w.client.Allocate(ctx, ask); !errors.Is(err, client.ErrNoWarmSlot) {
		t.Errorf("a slot of the removed pool, as %+v: %+v, %v", first.Slot, r, err)
	}
}
