package main

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/client"
	"github.com/ipamd/ipamd/internal/realtest"
	"github.com/ipamd/ipamd/ipam"
)

// A pool moves to another prefix, gateway or bridge although slots have its addresses, while no
// sandbox has one: these end first, a preview says how many, and the new ones are in the new place.
func TestAPoolMovesUnderItsSlots(t *testing.T) {
	t.Parallel()
	for move, to := range map[string]api.PoolRequest{
		"gateway": {Prefix: "10.8.64.0/24", Gateway: "10.8.64.2", Bridge: "rt0"}, // the first slot's
		"prefix":  {Prefix: "10.9.0.0/24", Gateway: "10.9.0.1", Bridge: "rt0"},
		"bridge":  {Prefix: "10.8.64.0/24", Gateway: "10.8.64.1", Bridge: "rt1"},
	} {
		for _, strategy := range []string{ipam.SlotsRecreate, ipam.SlotsOnReplenish} {
			t.Run(move+" "+strategy, func(t *testing.T) {
				t.Parallel()
				moved(t, to, strategy)
			})
		}
	}
}

func moved(t *testing.T, to api.PoolRequest, strategy string) {
	w := newWorld(t, quick)
	w.warmHelper()
	apply := func(ask api.PoolRequest) *api.PoolReply {
		t.Helper()
		ask.Warm = &api.PoolWarm{Size: 3, Strategy: strategy}
		r, err := w.client.ApplyPool(ctx, "default", ask)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	apply(api.PoolRequest{Prefix: "10.8.64.0/24"})
	w.settled(3)
	w.ns.Exec("ip", "link", "add", "rt1", "type", "bridge")
	w.ns.Exec("ip", "link", "set", "rt1", "up")
	look := to
	look.Preview = true
	ends := apply(look).SlotsEnded
	if n := len(w.ready()); ends == 0 || n != 3 {
		t.Errorf("a preview ends %d and leaves %d", ends, n)
	}
	if r := apply(to); r.SlotsEnded != ends || r.Change != api.PoolUpdate {
		t.Errorf("a preview says that %d end, and then %+v", ends, r)
	}
	for _, l := range w.ready() {
		if !inside(l, to) {
			t.Errorf("a slot has %s once the change is answered", l.Addr)
		}
	}
	w.ns.Exec("ip", "address", "replace", to.Gateway+"/24", "dev", to.Bridge)
	realtest.Eventually(t, wait, "three slots in the new place, and nothing else", func() bool {
		return len(w.ready()) == 3 && strings.Count(w.ns.Exec("ip", "-br", "link", "show", "master", to.Bridge), "sb") == 3 &&
			len(w.namespaces()) == 3 && strings.Count(w.rt0(), "sb") == 3
	})
	for _, l := range w.ready() {
		if ip := w.ns.Exec("nsenter", "--net="+l.Netns, "ip", "-o", "-4", "address", "show", "eth0"); !inside(l, to) || !strings.Contains(ip, l.Addr.String()+"/24") {
			t.Errorf("a slot of %s has %s", l.Addr, ip)
		}
	}
}

// inside says whether a pool of a description may give a slot's address.
func inside(l *ipam.Lease, p api.PoolRequest) bool {
	return netip.MustParsePrefix(p.Prefix).Contains(l.Addr) && l.Addr.String() != p.Gateway
}

// A slot that a sandbox has is a lease like any other: the pool does not move, and no other slot
// ends for it. Nor does it without a helper, which is said.
func TestAPoolThatASandboxKeepsInPlace(t *testing.T) {
	t.Parallel()
	w := newWorld(t, quick)
	helper := w.warmHelper()
	warm := &api.PoolWarm{Size: 3}
	if _, err := w.client.ApplyPool(ctx, "default", api.PoolRequest{Prefix: "10.8.64.0/24", Warm: warm}); err != nil {
		t.Fatal(err)
	}
	w.settled(3)
	given := w.claim("a")
	was := w.settled(3)
	for _, preview := range []bool{true, false} {
		_, err := w.client.ApplyPool(ctx, "default", api.PoolRequest{Prefix: "10.9.0.0/24", Warm: warm, Preview: preview})
		if !errors.Is(err, client.ErrPoolNotEmpty) || !strings.Contains(err.Error(), given.Addr.String()) || strings.Contains(err.Error(), "ipamd-slot:") {
			t.Errorf("under a sandbox, preview %v: %v", preview, err)
		}
	}
	for i, l := range w.settled(3) {
		if l.ID != was[i].ID {
			t.Errorf("slot %s is another one now, %s", was[i].Addr, l.Addr)
		}
	}
	if _, err := w.client.Release(ctx, given.ID, api.ReleaseRequest{}); err != nil {
		t.Fatal(err)
	}
	realtest.Eventually(t, wait, "the sandbox's address to be given up", func() bool { l, held := w.program.book.At(given.Addr); return !held || l.State == ipam.Cooling })
	w.settled(3)
	_ = helper.cmd.Process.Kill()
	<-helper.done
	realtest.Eventually(t, wait, "the helper to be missed", func() bool { return !w.program.warm.Helped() })
	if _, err := w.client.ApplyPool(ctx, "default", api.PoolRequest{Prefix: "10.9.0.0/24", Warm: warm}); !errors.Is(err, client.ErrPoolNotEmpty) || !strings.Contains(err.Error(), "systemctl start ipamd-warm") {
		t.Errorf("without a helper: %v", err)
	}
	if n := len(w.ready()); n != 3 {
		t.Errorf("%d slots are left", n)
	}
	w.warmHelper()
	if _, err := w.client.ApplyPool(ctx, "default", api.PoolRequest{Prefix: "10.9.0.0/24", Warm: warm}); err != nil {
		t.Errorf("with a helper: %v", err)
	}
}
