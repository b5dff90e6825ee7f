package main

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/internal/realtest"
)

// A guest with many addresses, and two loops that add and remove some, disturbs
// no other: all others are given addresses, their releases are confirmed, ipamd
// stays ready, and no witness is silent. The guest's own lease stays its own: it is
// not released for want of a sighting, and its address cools only when its port is
// gone.
func TestG1OthersGoOnBesideARestlessGuest(t *testing.T) {
	t.Parallel()
	w := newWorld(t, pool("10.8.0.0/16"), quick)
	hostile, own := w.boundPort("hostile", w.allocate("hostile").Leases[0].Address)
	hostile.NS.Fill(5000, 0)
	stop := hostile.NS.Restless()
	for i := range 12 {
		l := w.allocate(fmt.Sprint("other", i)).Leases[0]
		port, l := w.boundPort(l.Sandbox, l.Address)
		if code := w.get("/readyz"); code != 200 {
			t.Errorf("readyz says %d", code)
		}
		port.Close()
		if _, err := w.client.Release(ctx, l.ID, api.ReleaseRequest{}); err != nil {
			t.Fatal(err)
		}
		w.gone(l)
	}
	if strings.Contains(w.log.String(), "witness is silent") {
		t.Error("a witness was silent")
	}
	if _, err := w.client.Release(ctx, own.ID, api.ReleaseRequest{}); err != nil {
		t.Fatal(err)
	}
	realtest.Eventually(t, wait, "the guest's own address to be kept by its port", func() bool {
		got, err := w.client.Lease(ctx, own.ID)
		return err == nil && got.Lease.State == api.Releasing && slices.ContainsFunc(got.Blockers, func(b api.Blocker) bool { return b.Kind == "port" })
	})
	stop()
	hostile.Close()
	w.gone(own)
}

// gone waits until the removal of a lease is confirmed.
func (w *world) gone(l api.Lease) {
	w.t.Helper()
	realtest.Eventually(w.t, wait, "the removal of "+l.Sandbox+" to be confirmed", func() bool {
		got, err := w.client.Lease(ctx, l.ID)
		return err != nil || got.Lease.State == api.Cooling
	})
}

// A guest answers for a lease's address, with MACs that no port has. The owner, whom
// the kernel shows in its place, is answered when it asks again, with what is claimed;
// and when it is gone and releases, no caller waits for the claims to end: the address
// is quarantined, and not given.
func TestG3ClaimsDoNotBlockTheOwner(t *testing.T) {
	w := newFlooded(t, floods[0].prefixes)
	before, victim := w.resident("flooded")
	port := w.knownPort()
	newFlooder(t, w.ns, port, invented, netip.MustParsePrefix(floods[0].prefixes[0]))
	w.allClaimed(before)
	var again *api.AllocateReply
	realtest.Eventually(t, wait, "the lease's address to be claimed", func() (ok bool) {
		var err error
		if again, err = w.ask("flooded", before.Sandbox); err != nil {
			t.Fatalf("the owner asks again: %v", err)
		}
		return len(again.Claimed) > 0 && again.Claimed[0].Evidence[0].Port != ""
	})
	if l := again.Leases[0]; l.ID != before.ID || l.Address != before.Address || !again.Existing || again.Claimed[0].Address != before.Address {
		t.Errorf("the owner is answered %+v", again)
	}
	if s := again.Claimed[0].Evidence[0]; s.Port != port.HostName {
		t.Errorf("what is claimed: %+v", s)
	}
	victim.Close()
	if _, err := w.client.Release(ctx, before.ID, api.ReleaseRequest{}); err != nil {
		t.Fatal(err)
	}
	realtest.Eventually(t, wait, "the release to end", func() bool { return w.state(before.Address) == api.Quarantined })
	if past := w.whois(before.Address).History; past[0].Reason != "claimed_by_another" {
		t.Errorf("it ended by %+v", past[0])
	}
	w.refused("flooded", "next")
}
