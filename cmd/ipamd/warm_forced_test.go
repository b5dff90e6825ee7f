package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/internal/realtest"
	"github.com/ipamd/ipamd/ipam"
)

// M1: the release of a sandbox in a warm slot is forced, as its container can never be confirmed to be
// gone. A detach takes the slot's port away, though the book has no slot any more: the address cools, and
// the namespace goes. A port of the sandbox that attach made beside the slot's is its own.
func TestM1DetachOfASlotWhoseReleaseWasForced(t *testing.T) {
	t.Parallel()
	w := newWorld(t, quick)
	w.helper()
	w.warmHelper()
	w.keepSlots(1400, &ipam.Warm{Size: 1, Max: 3})
	w.settled(1)
	given := w.warmFor("lost")
	l := given.Leases[0]
	second, err := w.client.Allocate(ctx, api.AllocateRequest{Sandbox: "lost", Interface: "eth1", Attach: &api.AttachRequest{Netns: given.Slot.Netns}})
	if err != nil {
		t.Fatal(err)
	}
	container := ipam.Binding{Containers: []ipam.Container{{Namespace: "default", ID: "lost"}}} // from when there was a runtime
	if _, err := w.program.book.Bind(ctx, ipam.Who{Actor: ipam.ByClient, Reason: "bound"}, l.ID, 0, container); err != nil {
		t.Fatal(err)
	}
	w.releaseOf(given)
	f, err := w.client.ForceRelease(ctx, l.ID, api.ForceReleaseRequest{Reason: "no runtime any more"})
	if err != nil || f.Lease.State != api.Quarantined || w.program.book.Slot(l.ID) != nil || !strings.Contains(w.rt0(), l.HostInterface) {
		t.Fatalf("forced: %+v, %v, ports %q", f, err, w.rt0())
	}
	for range 2 { // the second finds it gone
		if r, err := w.client.Detach(ctx, l.ID, api.DetachRequest{}); err != nil || strings.Contains(w.rt0(), l.HostInterface) {
			t.Fatalf("detached: %+v, %v, ports %q", r, err, w.rt0())
		}
	}
	w.becomes(l.Address, api.Cooling)

	other := second.Leases[0]
	if now := w.rt0(); !strings.Contains(now, other.HostInterface) || !slices.Contains(w.namespaces(), given.Slot.Netns) {
		t.Errorf("beside the port of eth1, which is %s: ports %q, namespaces %v", other.HostInterface, now, w.namespaces())
	}
	if r, err := w.client.Detach(ctx, other.ID, api.DetachRequest{}); err != nil || strings.Contains(w.rt0(), other.HostInterface) {
		t.Errorf("the port of eth1: %+v, %v, ports %q", r, err, w.rt0())
	}
	if _, err := w.client.Release(ctx, other.ID, api.ReleaseRequest{}); err != nil {
		t.Error(err)
	}
	realtest.Eventually(t, wait, "the namespace to go", func() bool { return !slices.Contains(w.namespaces(), given.Slot.Netns) })
	w.settled(1)
}

// A slot that no sandbox has is on its way out while nobody can take it down, and its release is forced. It is
// no sandbox's: it is taken down once the helper is there, and its address cools.
func TestASlotWhoseReleaseWasForcedIsTakenDown(t *testing.T) {
	t.Parallel()
	w := newWorld(t, quick)
	helper := w.warmHelper()
	w.keepSlots(1400, &ipam.Warm{Size: 1})
	slot := w.settled(1)[0]
	_ = helper.cmd.Process.Kill()
	<-helper.done
	realtest.Eventually(t, wait, "the helper to be gone", func() bool { return !w.program.warm.Helped() })
	w.keepSlots(1400, nil)
	addr := slot.Addr.String()
	w.becomes(addr, api.Releasing)
	if f, err := w.client.ForceRelease(ctx, slot.ID, api.ForceReleaseRequest{Reason: "a test"}); err != nil || f.Lease.State != api.Quarantined {
		t.Fatalf("forced: %+v, %v", f, err)
	}
	w.warmHelper()
	realtest.Eventually(t, wait, "the namespace to go", func() bool { return len(w.namespaces()) == 0 })
	w.becomes(addr, api.Cooling)
}
