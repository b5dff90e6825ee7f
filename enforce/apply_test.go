package enforce

import (
	"context"
	"log/slog"
	"net/netip"
	"testing"
	"time"

	"github.com/ipamd/ipamd/internal/nstest"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/nft"
)

// one is a book and a bridge whose ports each have a lease, as far as they are bound.
type one struct {
	leases []*ipam.Lease
	ports  []Port
}

func (w *one) Epoch() string                                           { return "epoch" }
func (w *one) Rev() int64                                              { return int64(len(w.leases)) }
func (w *one) Leases() ([]*ipam.Lease, int64)                          { return w.leases, w.Rev() }
func (w *one) Pools() []*ipam.Pool                                     { return nil }
func (w *one) Changed() <-chan struct{}                                { return nil }
func (w *one) Ports() []Port                                           { return w.ports }
func (w *one) Settle(context.Context, ...netip.Addr) error             { return nil }
func (w *one) PortsInto(_ context.Context, of ...RecordedNetns) []Into { return make([]Into, len(of)) }
func (w *one) SetGroups(context.Context, int, bool) error              { return nil }
func (w *one) Bridges() []Bridge                                       { return nil }
func (w *one) Unlearn(context.Context, int) error                      { return nil }
func (w *one) IsPort(context.Context, string, int) (bool, error)       { return false, nil }
func (w *one) LearnNoGroups(context.Context, int) error                { return nil }

func (w *one) PortNamed(name string) (Port, bool) {
	for _, p := range w.ports {
		if p.Name == name {
			return p, true
		}
	}
	return Port{}, false
}

func (w *one) Lease(id string) (*ipam.Lease, error) {
	for _, l := range w.leases {
		if l.ID == id {
			return l, nil
		}
	}
	return nil, ipam.ErrNotFound
}

func (w *one) bind(name string) string {
	n := len(w.leases)
	addr := netip.AddrFrom4([4]byte{10, 8, 0, byte(n + 2)})
	w.ports = append(w.ports, Port{Index: 70_000 + n, Name: name, Bridge: "rt0"})
	w.leases = append(w.leases, &ipam.Lease{ID: name, Addr: addr, State: ipam.Bound, Rev: int64(n + 1), HostInterface: name, MAC: "02:00:00:00:00:01"})
	return name
}

// What a bind adds to a table whose news were lost is no repair, and what others took from
// it is one, also where a bind comes upon it first.
func TestABindIsNoRepair(t *testing.T) {
	t.Parallel()
	w, ns := new(one), nstest.New(t)
	var k *Keeper
	var other *nft.Conn
	var err, otherErr error
	ns.Do(func() {
		k, err = Open(t.Context(), Config{Policy: Policy{Mode: Enforce}, Book: w, Kernel: w, Boot: "boot", Every: time.Hour, Log: slog.New(slog.DiscardHandler)})
		other, otherErr = nft.Open()
	})
	if err != nil || otherErr != nil {
		t.Fatal(err, otherErr)
	}
	t.Cleanup(func() { _ = k.Close(); _ = other.Close() })
	ensure := func(name string, repairs uint64) {
		t.Helper()
		if err := k.Ensure(t.Context(), w.bind(name)); err != nil {
			t.Fatal(err)
		}
		if s := k.Status(); !s.Held || s.Repairs != repairs {
			t.Fatalf("after the bind of %s: held %t, %d repairs, not %d", name, s.Held, s.Repairs, repairs)
		}
		differ, err := k.differences(t.Context())
		if err != nil || len(differ) > 0 {
			t.Fatalf("after the bind of %s: %v %v", name, differ, err)
		}
	}
	w.bind("first")
	if err := k.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	ensure("known", 0)
	k.unverified.Store(true) // by the reading of every so often, or news that were lost
	ensure("doubted", 0)
	k.held = false // a write of ours failed
	ensure("failed", 0)
	if err := other.Remove(t.Context(), nft.Bridge, TableName); err != nil {
		t.Fatal(err)
	}
	ensure("unheard", 1) // no news of it was read
	if err := other.Remove(t.Context(), nft.Bridge, TableName); err != nil {
		t.Fatal(err)
	}
	k.unverified.Store(true)
	ensure("received", 2)
}

// A bridged one has bridges.
type bridged struct {
	one
	bridges []Bridge
}

func (w *bridged) Bridges() []Bridge { return w.bridges }

// TestE1WhatIsLinkLocalFollowsItsBridge: whatever comes, goes or changes, ports and bridges, what is
// changed in the kernel is what follows from all of it.
func TestE1WhatIsLinkLocalFollowsItsBridge(t *testing.T) {
	t.Parallel()
	w := new(bridged)
	var k *Keeper
	var err error
	nstest.New(t).Do(func() {
		k, err = Open(t.Context(), Config{Policy: Policy{Mode: Enforce}, Book: w, Kernel: w, Boot: "boot", Every: time.Hour, Log: slog.New(slog.DiscardHandler)})
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = k.Close() })
	router := netip.MustParseAddr("fe80::1")
	has := func(name string, addrs ...netip.Addr) Bridge {
		return Bridge{Name: name, Addrs: addrs, MAC: "02:42:00:00:00:01"}
	}
	first := Port{Index: 80_001, Name: "first", Bridge: "rt0"}
	for _, step := range []struct {
		what string
		do   func()
		want int // elements of own6
	}{
		{"a lease's port", func() { w.bind("a") }, 0},
		{"one bridge has it", func() { w.bridges = []Bridge{has("rt0", router)} }, 0},
		{"another bridge", func() { w.bridges = append(w.bridges, has("rt1")) }, 1},
		{"a port", func() { w.ports = append(w.ports, first) }, 2},
		{"it gets another name", func() { w.ports[1].Name = "renamed" }, 2},
		{"it goes to the other bridge", func() { w.ports[1].Bridge = "rt1" }, 1},
		{"both have it", func() { w.bridges = []Bridge{has("rt0", router), has("rt1", router)} }, 0},
		{"the other alone", func() { w.bridges = []Bridge{has("rt0"), has("rt1", router)} }, 1},
		{"its port goes", func() { w.ports = w.ports[:1] }, 0},
		{"the first again, with the other's MAC", func() { w.bridges = []Bridge{has("rt0", router), has("rt1")} }, 1},
		{"no bridge", func() { w.bridges = nil }, 0},
	} {
		step.do()
		if err := k.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		have, err := k.look.Read(t.Context(), frame(k.cfg.Policy))
		if err != nil {
			t.Fatal(err)
		}
		if n := len(have.Set(setOwn6).Elements); n != step.want {
			t.Errorf("%s: %d elements, want %d", step.what, n, step.want)
		}
		if differ, err := k.differences(t.Context()); err != nil || len(differ) > 0 {
			t.Errorf("%s: %v %v", step.what, differ, err)
		}
	}
}
