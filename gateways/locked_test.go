package gateways

import (
	"context"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/ipamd/ipamd/bridge"
	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/internal/nstest"
	"github.com/ipamd/ipamd/internal/realtest"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb/netdbtest"
)

// Another process has the bridge of one pool, from the start on. The bridges of the other pools follow
// these all the same: one that comes is made, and one that its pool left loses its gateway and is left.
// Where the pool on the bridge of that process is removed, that bridge is left at once, with all that is
// on it. A bridge that the process gives back is looked after by itself: no pool has to change for it.
func TestABridgeThatAnotherProcessHas(t *testing.T) {
	realtest.Root(t)
	t.Parallel()
	ns, book, board := nstest.New(t), netdbtest.Open(t), census.NewBoard()
	log := slog.New(slog.DiscardHandler)
	f := New(Config{Book: book, Bridge: "rt0", Manage: true, Every: 50 * time.Millisecond, Log: log,
		Missing:    func(names ...string) ([]string, error) { return bridge.Missing(ns.Path(), names...) },
		Configured: func() ([]ipam.PoolSpec, error) { return nil, nil }})
	pool := func(name, prefix, gateway, on string) {
		t.Helper()
		spec := ipam.PoolSpec{Name: name, Prefix: netip.MustParsePrefix(prefix), Gateway: netip.MustParseAddr(gateway), Bridge: on}
		if _, err := book.EnsurePool(t.Context(), netdbtest.Who(ipam.ByOperator, "pool_changed"), spec); err != nil {
			t.Fatal(err)
		}
	}
	others := make(map[string]*bridge.Bridge) // as another process has them
	for _, name := range []string{"br5", "br6"} {
		ns.Bridge(name)
		b, err := bridge.Open(bridge.Config{Name: name, Netns: ns.Path(), Board: census.NewBoard()})
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		others[name] = b
	}
	pool("five", "10.5.0.0/24", "10.5.0.1", "br5")
	pool("six", "10.6.0.0/24", "10.6.0.1", "br6")
	pool("seven", "10.7.0.0/24", "10.7.0.1", "br7")
	g, err := f.Open(t.Context(), nil, func(ctx context.Context, wants ...bridge.Want) (*bridge.Group, error) {
		return bridge.OpenGroup(ctx, bridge.Config{Name: "rt0", Netns: ns.Path(), Manage: true, Every: 50 * time.Millisecond, Log: log}, board, wants...)
	})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 2)
	go func() { ended <- g.Run(ctx) }()
	defer func() {
		stop()
		for range 2 {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
	}()
	names := func() (all []string) {
		for _, s := range g.Statuses() {
			all = append(all, s.Name)
		}
		return all
	}
	on := func(link, addr string) bool {
		return strings.Contains(ns.Exec("ip", "-4", "-o", "addr", "show", "dev", link), " "+addr+" ")
	}
	go func() { ended <- f.Run(ctx) }()
	realtest.Eventually(t, time.Minute, "the gateway of the pool on br7", func() bool { return g.Ready("br7", netip.MustParseAddr("10.7.0.1")) == nil })

	pool("seven", "10.7.0.0/24", "10.7.0.1", "br8")
	realtest.Eventually(t, time.Minute, "br8 to be made, and br7 to be left", func() bool {
		return g.Ready("br8", netip.MustParseAddr("10.7.0.1")) == nil && len(names()) == 4
	})
	if on("br7", "10.7.0.1/24") || !on("br8", "10.7.0.1/24") {
		t.Error("the gateway is on the bridge that its pool left")
	}

	pool("six", "10.6.0.0/24", "10.6.0.1", "br8")
	realtest.Eventually(t, time.Minute, "br6 to be left", func() bool { return len(names()) == 3 })

	if err := others["br5"].Close(); err != nil {
		t.Fatal(err)
	}
	realtest.Eventually(t, time.Minute, "br5 to be looked after", func() bool { return g.Ready("br5", netip.MustParseAddr("10.5.0.1")) == nil })
	if !on("br5", "10.5.0.1/24") || on("br6", "10.6.0.1/24") {
		t.Error("the gateways are not where the pools are")
	}
}
