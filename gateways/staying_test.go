package gateways

import (
	"context"
	"log/slog"
	"net/netip"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ipamd/ipamd/bridge"
	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/internal/nstest"
	"github.com/ipamd/ipamd/internal/realtest"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb/netdbtest"
)

// without calls f on a thread that has no CAP_NET_ADMIN.
func without(t *testing.T, f func()) {
	t.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // it ends with the goroutine
		head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var caps [2]unix.CapUserData
		err := unix.Capget(&head, &caps[0])
		if err == nil {
			caps[0].Effective &^= 1 << unix.CAP_NET_ADMIN
			err = unix.Capset(&head, &caps[0])
		}
		if err == nil {
			f()
		}
		done <- err
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// A gateway that the kernel does not take off the bridge that a pool left is reported, and goes
// once it can.
func TestAFormerGatewayThatStays(t *testing.T) {
	realtest.Root(t)
	t.Parallel()
	ns, book, board := nstest.New(t), netdbtest.Open(t), census.NewBoard()
	log := slog.New(slog.DiscardHandler)
	f := New(Config{Book: book, Bridge: "rt0", Manage: true, Every: 50 * time.Millisecond, Log: log,
		Missing:    func(names ...string) ([]string, error) { return bridge.Missing(ns.Path(), names...) },
		Configured: func() ([]ipam.PoolSpec, error) { return nil, nil }})
	lab := ipam.PoolSpec{Name: "lab", Prefix: netip.MustParsePrefix("10.9.0.0/24"), Gateway: netip.MustParseAddr("10.9.0.1"), Bridge: "br7"}
	on := func(name string) {
		t.Helper()
		lab.Bridge = name
		if _, err := book.EnsurePool(t.Context(), netdbtest.Who(ipam.ByOperator, "pool_changed"), lab); err != nil {
			t.Fatal(err)
		}
	}
	on("br7")
	g, err := f.Open(t.Context(), nil, func(ctx context.Context, wants ...bridge.Want) (*bridge.Group, error) {
		return bridge.OpenGroup(ctx, bridge.Config{Name: "rt0", Netns: ns.Path(), Manage: true, Every: 50 * time.Millisecond, Log: log}, board, wants...)
	})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	if err := g.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	there := func() bool {
		return strings.Contains(ns.Exec("ip", "-4", "-o", "addr", "show", "dev", "br7"), " 10.9.0.1/24 ")
	}
	if !there() {
		t.Fatal("the gateway is not there")
	}
	on("br8")
	without(t, func() { err = f.Follow(t.Context()) })
	if err == nil || !strings.Contains(err.Error(), "10.9.0.1/24") || !there() {
		t.Errorf("%v, and there %v", err, there())
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 2)
	go func() { ended <- g.Run(ctx) }()
	go func() { ended <- f.Run(ctx) }()
	realtest.Eventually(t, time.Minute, "it to go, and the bridge to be left", func() bool {
		return !there() && len(g.Statuses()) == 2
	})
	stop()
	for range 2 {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}
