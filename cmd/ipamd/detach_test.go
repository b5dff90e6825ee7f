package main

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/client"
	"github.com/ipamd/ipamd/internal/nstest"
	"github.com/ipamd/ipamd/internal/realtest"
	"github.com/ipamd/ipamd/plumb"
)

// M1: a detach takes the port away that a release waits for, and is a success of a port that has
// gone, in each state that the lease may have by then.
func TestM1DetachBehindARelease(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.helper()
	attached := func(name string) api.Lease {
		t.Helper()
		r, err := w.client.Allocate(ctx, api.AllocateRequest{Sandbox: name, Attach: &api.AttachRequest{Netns: nstest.New(t).Path()}})
		if err != nil {
			t.Fatal(err)
		}
		return r.Leases[0]
	}
	detach := func(what string, l api.Lease, states ...api.State) {
		t.Helper()
		r, err := w.client.Detach(ctx, l.ID, api.DetachRequest{})
		if err != nil || !slices.Contains(states, r.Lease.State) || strings.Contains(w.rt0(), l.HostInterface) {
			t.Errorf("%s: %+v, %v, ports %q", what, r, err, w.rt0())
		}
	}
	released := func(l api.Lease) {
		t.Helper()
		r, err := w.client.Release(ctx, l.ID, api.ReleaseRequest{})
		if err != nil || r.Lease.State != api.Releasing || !strings.Contains(w.rt0(), l.HostInterface) {
			t.Fatalf("released: %+v, %v", r, err)
		}
	}
	a := attached("a")
	released(a)
	detach("while it is released", a, api.Releasing, api.Cooling)
	realtest.Eventually(t, wait, "its removal is confirmed", func() bool {
		now, err := w.client.Lease(ctx, a.ID)
		return err == nil && now.Lease.State == api.Cooling
	})
	detach("while its address rests", a, api.Cooling)

	forced := attached("forced")
	released(forced)
	if _, err := w.client.ForceRelease(ctx, forced.ID, api.ForceReleaseRequest{Reason: "a test"}); err != nil {
		t.Fatal(err)
	}
	detach("of an address that was quarantined for its port", forced, api.Quarantined)

	never := w.allocate("never").Leases[0]
	if r, err := w.client.Release(ctx, never.ID, api.ReleaseRequest{}); err != nil || r.Lease.State != api.Free {
		t.Fatalf("released: %+v, %v", r, err)
	}
	never.HostInterface = plumb.HostName("never/eth0")
	detach("once it is free", never, api.Free)
	next, err := w.client.Allocate(ctx, api.AllocateRequest{Sandbox: "next", Address: never.Address})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.client.Detach(ctx, never.ID, api.DetachRequest{}); !errors.Is(err, client.ErrLeaseGone) {
		t.Errorf("once its address is another's: %v", err)
	}
	if now, err := w.client.Lease(ctx, next.Leases[0].ID); err != nil || now.Lease.Revision != next.Leases[0].Revision {
		t.Errorf("the next one's lease is %+v, %v", now, err)
	}
}
