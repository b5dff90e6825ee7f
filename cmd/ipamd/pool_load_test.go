package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/client"
	"github.com/ipamd/ipamd/config"
	"github.com/ipamd/ipamd/config/reload"
	"github.com/ipamd/ipamd/internal/realtest"
)

// TestAPoolIsResizedUnder64Callers: while 64 callers allocate and release, the pool grows,
// shrinks over leases, drains an exclusion, grows back, and the configuration is read
// again, each time with another pool. The smallest pool has room for all of them, so no call may fail, and no address
// is given that the pool did not have when it was asked for.
func TestAPoolIsResizedUnder64Callers(t *testing.T) {
	const callers = 64
	asked := make(chan os.Signal)
	var reads atomic.Int64
	w := prepare(t)
	w.ns.Bridge("rt0", "10.8.64.1/25", "10.8.64.1/24", "10.8.64.1/23") // as an operator does before the pool grows
	w.reload = &reload.Source{Asked: asked, Level: new(slog.LevelVar), Read: func(context.Context) (config.Config, error) {
		cfg := w.cfg
		cfg.Pools = slices.Clone(w.cfg.Pools)
		n := reads.Add(1)
		if n%2 == 0 {
			return cfg, errors.New("every second time it cannot be read")
		}
		cfg.Pools[0].DNS = []string{fmt.Sprintf("10.8.64.%d", n)}
		return cfg, nil
	}}
	w.start()
	var done atomic.Bool
	var lives atomic.Int64
	var group sync.WaitGroup
	for c := range callers {
		group.Go(func() {
			for i := 0; !done.Load() && !t.Failed(); i++ {
				name := fmt.Sprintf("s-%d-%d", c, i)
				r, err := w.client.Allocate(ctx, api.AllocateRequest{Sandbox: name})
				if err != nil {
					t.Errorf("allocate for %s: %v", name, err)
					return
				}
				if _, err := w.client.Release(ctx, r.Leases[0].ID, api.ReleaseRequest{}); err != nil {
					t.Errorf("release of %s: %v", name, err)
					return
				}
				lives.Add(1)
			}
		})
	}
	// goOn waits until the callers came round a few times, so that each shape of the pool
	// meets calls that began in the one before.
	goOn := func() {
		t.Helper()
		until := lives.Load() + 2*callers
		realtest.Eventually(t, wait, "the callers to go on", func() bool { return lives.Load() > until || t.Failed() })
	}
	for range 3 {
		for _, ask := range []api.PoolRequest{
			{Prefix: "10.8.64.0/23"}, {Prefix: "10.8.64.0/25", Drain: true},
			{Prefix: "10.8.64.0/24", Exclude: []string{"10.8.64.2-10.8.64.40"}, Drain: true}, {Prefix: "10.8.64.0/24"},
		} {
			reply, err := w.client.ApplyPool(ctx, "default", ask)
			if err != nil {
				t.Fatal(err)
			}
			rev := reply.Revision
			goOn()
			prefix := netip.MustParsePrefix(ask.Prefix)
			list, err := w.client.Leases(ctx, client.LeaseFilter{})
			if err != nil {
				t.Fatal(err)
			}
			for _, l := range list.Leases {
				if !prefix.Contains(netip.MustParseAddr(l.Address)) && l.Revision > rev && l.State == api.Reserved {
					t.Errorf("%s was given at revision %d, after the pool became %s at %d", l.Address, l.Revision, prefix, rev)
				}
			}
			asked <- syscall.SIGHUP
			asked <- syscall.SIGHUP // it is taken when the one before it is over, and changes nothing
		}
	}
	done.Store(true)
	group.Wait()
	realtest.Eventually(t, wait, "the last releases outside to be confirmed", func() bool {
		pools, err := w.client.Pool(ctx, "default")
		return err == nil && pools.Pools[0].Generation >= 13 && pools.Pools[0].Outside == 0
	})
}

// A managed bridge follows a pool that gets another gateway, and calls that were under way wait for
// it: none is refused because the bridge had not followed yet.
func TestAGatewayMovesUnderCallers(t *testing.T) {
	t.Parallel()
	w := prepare(t, pool("10.8.0.0/16"), func(c *config.Config) { c.Bridge.Manage = true })
	w.start()
	var done atomic.Bool
	var lives atomic.Int64
	var group sync.WaitGroup
	for c := range 32 {
		group.Go(func() {
			for i := 0; !done.Load() && !t.Failed(); i++ {
				r, err := w.client.Allocate(ctx, api.AllocateRequest{Sandbox: fmt.Sprintf("s-%d-%d", c, i)})
				if err == nil {
					_, err = w.client.Release(ctx, r.Leases[0].ID, api.ReleaseRequest{})
				}
				if err != nil {
					t.Error(err)
				}
				lives.Add(1)
			}
		})
	}
	for i := range 10 {
		until := lives.Load() + 32
		realtest.Eventually(t, wait, "the callers to go on", func() bool { return lives.Load() > until || t.Failed() })
		if _, err := w.client.ApplyPool(ctx, "default", api.PoolRequest{Prefix: "10.8.0.0/16", Gateway: fmt.Sprintf("10.8.255.%d", 254-i)}); err != nil {
			t.Error(err)
		}
	}
	done.Store(true)
	group.Wait()
}
