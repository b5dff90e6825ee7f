package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/config"
	"github.com/ipamd/ipamd/config/reload"
	"github.com/ipamd/ipamd/internal/realtest"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb"
)

// Scenario P7: a reload takes over the pools that changed in the file, the bridge follows
// with its gateways, and leases stay. One pool that is refused leaves all as it was; what
// the file still says undoes no change that was made since, at a reload and at a start.
func TestAReloadOfPools(t *testing.T) {
	t.Parallel()
	w := prepare(t, func(c *config.Config) { c.Bridge.Manage = true; c.Pools[0].Prefix = "10.8.64.0/28" })
	asked := make(chan os.Signal, 1)
	file := w.cfg
	w.reload = &reload.Source{Asked: asked, Level: new(slog.LevelVar), Read: func(context.Context) (config.Config, error) {
		return file, nil
	}}
	w.start()
	held := w.give("a", "10.8.64.2").Leases[0]
	gateways := func() string { return w.ns.Exec("ip", "-o", "addr", "show", "dev", "rt0") }
	pools := func() string {
		var out []string
		for _, p := range w.program.book.Pools() {
			out = append(out, p.Name+" "+p.Prefix.String())
		}
		return strings.Join(out, ", ")
	}
	hup := func(says string) {
		t.Helper()
		before := strings.Count(w.log.String(), says)
		asked <- syscall.SIGHUP
		realtest.Eventually(t, wait, "the reload to say "+says, func() bool { return strings.Count(w.log.String(), says) > before })
	}
	reloaded := func(prefixes ...config.Pool) { file.Pools = slices.Clone(prefixes) }

	reloaded(config.Pool{Name: "default", Prefix: "10.8.64.0/24"}, config.Pool{Name: "second", Prefix: "10.9.0.0/24"})
	hup("configuration reloaded")
	realtest.Eventually(t, wait, "the bridge to follow", func() bool {
		now := gateways()
		return strings.Contains(now, "10.8.64.1/24") && strings.Contains(now, "10.9.0.1/24")
	})
	realtest.Eventually(t, wait, "an address of the new pool", func() bool {
		r, err := w.client.Allocate(ctx, api.AllocateRequest{Sandbox: "b", Pool: "second"})
		return err == nil && r.Leases[0].Address == "10.9.0.2"
	})
	if l, err := w.client.Lease(ctx, held.ID); err != nil || l.Lease.Revision != held.Revision {
		t.Errorf("%+v, %v", l, err)
	}

	reloaded(config.Pool{Name: "default", Prefix: "10.8.0.0/16"}, config.Pool{Name: "second", Prefix: "10.10.0.0/24"})
	hup("the old one stays")
	refused := func() string {
		d, err := w.client.Doctor(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range d.Findings {
			if f.Kind == "configuration_refused" && !f.Since.IsZero() {
				return f.Detail
			}
		}
		return ""
	}
	realtest.Eventually(t, wait, "a finding of the refusal", func() bool { return strings.Contains(refused(), "pool second, 10.9.0.0/24") })
	if now := pools(); now != "default 10.8.64.0/24, second 10.9.0.0/24" || !strings.Contains(w.log.String(), "pool second, 10.9.0.0/24") {
		t.Errorf("pools: %s", now)
	}
	reloaded(config.Pool{Name: "other", Prefix: "10.8.64.0/24"})
	hup("keys=pool")
	if got := refused(); !strings.Contains(got, "restart") {
		t.Errorf("a reload that needs a restart is the finding %q", got)
	}

	// A change of an operator's, and then the file as it was applied last.
	book := w.program.book
	spec := book.Pools()[0].PoolSpec
	spec.MTU = 1400
	if _, err := book.SetPool(ctx, ipam.Who{Actor: ipam.ByOperator}, netdb.PoolChange{Spec: spec}); err != nil {
		t.Fatal(err)
	}
	reloaded(config.Pool{Name: "default", Prefix: "10.8.64.0/24"}, config.Pool{Name: "second", Prefix: "10.9.0.0/24"})
	hup("configuration reloaded")
	if got := refused(); got != "" {
		t.Errorf("after a reload that was taken over: %s", got)
	}
	w.stopDaemon()
	w.cfg.Pools = file.Pools
	w.start()
	if p := w.program.book.Pools()[0]; p.MTU != 1400 || p.Generation != 3 {
		t.Errorf("%+v", p)
	}
	// And a removal: the unchanged file does not make the pool again.
	who := ipam.Who{Actor: ipam.ByOperator, Note: "it is not needed"}
	if _, err := w.program.book.RemovePool(ctx, who, w.program.book.Pools()[1].UID, true); err != nil {
		t.Fatal(err)
	}
	w.stopDaemon()
	w.start()
	if now := pools(); now != "default 10.8.64.0/24" || !strings.Contains(w.log.String(), "stays as it is") {
		t.Errorf("pools: %s", now)
	}
	if _, err := w.client.Allocate(ctx, api.AllocateRequest{Sandbox: "c", Pool: "second"}); err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Error("the removed pool gives")
	}
}
