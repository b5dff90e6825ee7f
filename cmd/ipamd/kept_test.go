package main

import (
	"errors"
	"slices"
	"testing"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/config"
)

// An address that the configuration reserves for a sandbox by its name is that
// sandbox's: without a wish, over its incarnations and restarts, and no other's. A
// reservation over another's lease waits for its end, and doctor reports it.
func TestReservationsBySandboxName(t *testing.T) {
	t.Parallel()
	w := newWorld(t, quick, func(c *config.Config) {
		c.Pools[0].Kept = []config.Kept{{Sandbox: "db", Address: "10.8.64.9"}}
	})
	refusedFor := func(sandbox, owner string, r api.AllocateRequest) {
		t.Helper()
		r.Sandbox = sandbox
		_, err := w.client.Allocate(ctx, r)
		if e := new(api.Error); !errors.As(err, &e) || e.Code != api.AddressTaken || owner != "" && (e.Details["field"] != "address" || e.Details["kept_for"] != owner) {
			t.Errorf("%s: %v", sandbox, err)
		}
	}
	w.give("web", "10.8.64.2")
	refusedFor("web-2", "db", api.AllocateRequest{Address: "10.8.64.9"})
	who, err := w.client.Whois(ctx, "10.8.64.9")
	if err != nil || who.State != api.Free || who.KeptFor != "db" {
		t.Errorf("whois: %+v, %v", who, err)
	}
	pools, err := w.client.Pools(ctx)
	if p := pools.Pools[0]; err != nil || p.Kept != 1 || p.Free != p.Size-2 || !slices.Equal(p.Reservation, []api.PoolReservation{{Sandbox: "db", Address: "10.8.64.9"}}) {
		t.Errorf("pools: %+v, %v", p, err)
	}
	first := w.give("db", "10.8.64.9")
	if again := w.give("db", "10.8.64.9"); again.Leases[0].ID != first.Leases[0].ID || !again.Existing {
		t.Errorf("again: %+v", again)
	}
	bindAndRelease(w, first.Leases[0])
	w.give("db", "10.8.64.9")

	// web's own address is reserved for another sandbox, while web has it.
	w.stopDaemon()
	w.cfg.Pools = slices.Clone(w.cfg.Pools)
	w.cfg.Pools[0].Kept = append(slices.Clone(w.cfg.Pools[0].Kept), config.Kept{Sandbox: "next", Address: "10.8.64.2"})
	w.start()
	w.give("web", "10.8.64.2")
	refusedFor("next", "", api.AllocateRequest{})
	if got := w.findings(); !slices.Contains(got, "kept_for_another 10.8.64.2") {
		t.Errorf("doctor finds %v", got)
	}
	w.give("db", "10.8.64.9")
}
