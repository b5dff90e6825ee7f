package main

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/config"
	"github.com/ipamd/ipamd/ipam"
)

// A pool that the configuration no longer names is reported at the start and by
// doctor, by its name, and its leases stay.
func TestPoolThatTheConfigurationDoesNotName(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *config.Config) {
		c.Pools = append(c.Pools, config.Pool{Name: "old", Prefix: "10.9.0.0/24", Gateway: config.NoGateway})
	})
	given, err := w.client.Allocate(ctx, api.AllocateRequest{Sandbox: "a", Pool: "old"})
	if err != nil {
		t.Fatal(err)
	}
	if got := w.findings(); slices.Contains(got, "pool_not_configured") {
		t.Errorf("while it is named: %v", got)
	}
	w.stopDaemon()
	w.cfg.Pools = w.cfg.Pools[:1]
	w.start()
	wants(t, "log", w.log.String(), "the configuration does not name a pool", "pool=old", "10.9.0.0/24", "next=")
	d, err := w.client.Doctor(ctx)
	if err != nil || len(d.Findings) != 1 || d.Findings[0].Kind != "pool_not_configured" || !strings.Contains(d.Findings[0].Detail, "pool old") || d.Findings[0].Since.IsZero() {
		t.Errorf("doctor: %+v, %v", d, err)
	}
	if l, err := w.client.Lease(ctx, given.Leases[0].ID); err != nil || l.Lease.State != api.Reserved {
		t.Errorf("its lease: %+v, %v", l, err)
	}
}

// Scenario P7: a prefix that cannot change says what can be done, and that can be done. A
// pool whose sandboxes are all gone is none the less one that was used: its
// addresses rest.
func TestPrefixOfAPoolInUse(t *testing.T) {
	t.Parallel()
	w := newWorld(t, quick, func(c *config.Config) { c.Allocation.Cooldown = config.Duration(wait) })
	bindAndRelease(w, w.give("gone", "10.8.64.2").Leases[0])
	w.stopDaemon()
	refused := func(change func(*config.Config), want error, says ...string) {
		t.Helper()
		was := w.cfg
		defer func() { w.cfg = was }()
		w.cfg.Pools = slices.Clone(was.Pools)
		change(&w.cfg)
		err := w.newProgram().open(ctx)
		if !errors.Is(err, want) {
			t.Fatalf("open: %v", err)
		}
		wants(t, "error", err.Error(), says...)
	}
	for _, prefix := range []string{"10.8.64.0/31", "10.9.0.0/24"} {
		refused(pool(prefix), ipam.ErrPoolNotEmpty, "pool default", "10.8.64.0/24", prefix, "10.8.64.2", "gone", "set its prefix back", "does not overlap", "another name")
	}
	wider := func(c *config.Config) { c.Pools[0].Name, c.Pools[0].Prefix = "wider", "10.8.64.0/23" }
	refused(wider, ipam.ErrOverlap, "pool wider", "default has 10.8.64.0/24")

	w.cfg.Pools = slices.Insert(w.cfg.Pools, 0, config.Pool{Name: "second", Prefix: "10.9.0.0/24"})
	w.ns.AddAddr("rt0", "10.9.0.1/24")
	w.start()
	w.give("names none", "10.9.0.2")
	if r, err := w.client.Allocate(ctx, api.AllocateRequest{Sandbox: "names it", Pool: "default"}); err != nil || r.Leases[0].Address != "10.8.64.3" {
		t.Errorf("of the first pool: %+v, %v", r, err)
	}
}

// A group that this machine does not have is found before there is a book.
func TestMissingGroupLeavesNoBook(t *testing.T) {
	w := prepare(t)
	w.cfg.Socket.Group = "no-such-group"
	err := w.newProgram().open(ctx)
	if err == nil {
		t.Fatal("it opened")
	}
	wants(t, "error", err.Error(), "socket.group", "groupadd --system no-such-group")
	for _, path := range []string{w.cfg.Book.Path, w.cfg.Book.Path + "-mark"} {
		if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is there: %v", path, err)
		}
	}
}
