package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/client"
	"github.com/ipamd/ipamd/internal/nstest"
	"github.com/ipamd/ipamd/ipam"
)

// M1: an attach takes no address away that a paused lease of the interface has, and does not end
// its pause. On another port it is recorded there, too: else its own address would be a stranger's.
func TestM1AttachBesideAPausedLease(t *testing.T) {
	t.Parallel()
	w := dual(t)
	w.helper()
	guest := nstest.New(t)
	r, err := w.client.Allocate(ctx, api.AllocateRequest{Sandbox: "a", Family: api.Dual, Attach: &api.AttachRequest{Netns: guest.Path()}})
	if err != nil {
		t.Fatal(err)
	}
	v4, v6 := r.Leases[0], r.Leases[1]
	if _, err := w.client.Pause(ctx, v4.ID, api.PauseRequest{}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.client.Attach(ctx, v6.ID, api.AttachRequest{Netns: guest.Path()}); err != nil {
		t.Fatal(err)
	}
	if has := guest.Exec("ip", "-br", "addr", "show", "dev", "eth0"); !strings.Contains(has, v4.Address+"/") || !strings.Contains(has, v6.Address+"/") {
		t.Errorf("the namespace has %s", has)
	}
	if l, err := w.client.Lease(ctx, v4.ID); err != nil || l.Lease.State != api.Paused {
		t.Errorf("the paused lease: %+v %v", l, err)
	}
	if _, err := w.client.Detach(ctx, v6.ID, api.DetachRequest{}); err != nil {
		t.Fatal(err)
	}
	other := nstest.New(t)
	again, err := w.client.Attach(ctx, v6.ID, api.AttachRequest{Netns: other.Path()})
	if err != nil {
		t.Fatal(err)
	}
	l, err := w.client.Lease(ctx, v4.ID)
	if err != nil || l.Lease.State != api.Paused || l.Lease.Netns != other.Path() || l.Lease.HostIndex != again.Lease.HostIndex || l.Lease.MAC != again.Lease.MAC {
		t.Errorf("the paused lease on another port, which is %+v: %+v %v", again.Lease, l, err)
	}
}

// M1: the other address of an interface that has a warm slot is attached in the slot or nowhere.
func TestM1AttachBesideASlot(t *testing.T) {
	t.Parallel()
	w := dual(t)
	w.helper()
	w.warmHelper()
	if _, err := w.client.ApplyPool(ctx, "default", api.PoolRequest{Prefix: "10.8.64.0/24", Warm: &api.PoolWarm{Size: 1}}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.dropNamespaces)
	v4 := w.warmFor("s")
	v6, err := w.client.Allocate(ctx, api.AllocateRequest{Sandbox: "s", Family: api.V6})
	if err != nil {
		t.Fatal(err)
	}
	link := "/run/netns/" + filepath.Base(v4.Slot.Netns) + "-link" // another path of the slot's namespace
	must(t, os.Symlink(v4.Slot.Netns, link))
	t.Cleanup(func() { os.Remove(link) })
	for i := range 3 { // also once it is in the slot, and while the slot's lease is being released
		if i == 2 {
			if r, err := w.client.Release(ctx, v4.Leases[0].ID, api.ReleaseRequest{}); err != nil || r.Lease.State != api.Releasing {
				t.Fatalf("released: %+v, %v", r, err)
			}
		}
		_, err := w.client.Attach(ctx, v6.Leases[0].ID, api.AttachRequest{Netns: nstest.New(t).Path()})
		if !errors.Is(err, client.ErrInvalidArgument) || !strings.Contains(err.Error(), "netns: ") {
			t.Errorf("attached beside the slot: %v", err)
		}
		for _, netns := range []string{v4.Slot.Netns, link} {
			if r, err := w.client.Attach(ctx, v6.Leases[0].ID, api.AttachRequest{Netns: netns}); err != nil || r.Lease.Netns != v4.Slot.Netns {
				t.Errorf("attached in the slot by %s: %+v, %v", netns, r, err)
			}
		}
		has := w.inside(v4.Slot.Netns, "ip", "-br", "addr", "show", "dev", "eth0")
		if strings.Contains(has, v4.Leases[0].Address+"/") != (i < 2) || !strings.Contains(has, v6.Leases[0].Address+"/") {
			t.Errorf("the slot has %s", has)
		}
	}
	if _, err := w.client.Detach(ctx, v6.Leases[0].ID, api.DetachRequest{}); err != nil || strings.Contains(w.rt0(), v4.Leases[0].HostInterface) {
		t.Errorf("detached: %v, %s", err, w.rt0())
	}
	if _, err := w.client.ApplyPool(ctx, "default", api.PoolRequest{Prefix: "10.8.64.0/24"}); err != nil {
		t.Error(err)
	}
}

// M1: a detach takes no port away that another sandbox is in, or a later life of the same.
func TestM1DetachOfAPortInUse(t *testing.T) {
	t.Parallel()
	w := dual(t)
	w.helper()
	guest := nstest.New(t)
	give := func(ask api.AllocateRequest) api.Lease {
		t.Helper()
		r, err := w.client.Allocate(ctx, ask)
		if err != nil {
			t.Fatal(err)
		}
		return r.Leases[0]
	}
	refused := func(what string, l api.Lease) {
		t.Helper()
		before := w.rt0()
		if _, err := w.client.Detach(ctx, l.ID, api.DetachRequest{}); !errors.Is(err, client.ErrStateNotAllowed) || w.rt0() != before {
			t.Errorf("%s: %v, ports %q, before %q", what, err, w.rt0(), before)
		}
	}
	ask := api.AllocateRequest{Sandbox: "s", Family: api.V4, Attach: &api.AttachRequest{Netns: guest.Path()}}
	former := give(ask)
	if _, err := w.client.Release(ctx, former.ID, api.ReleaseRequest{}); err != nil {
		t.Fatal(err)
	}
	now := give(ask)
	refused("the former life's", former)
	refused("another sandbox's with this uid", give(api.AllocateRequest{Sandbox: "other", UID: now.UID, Family: api.V6}))
	if _, err := w.client.Detach(ctx, now.ID, api.DetachRequest{}); err != nil || w.rt0() != "" {
		t.Errorf("its own: %v, ports %q", err, w.rt0())
	}
}

// M1: no port is made in a warm slot that no sandbox has: it would be given with it.
func TestM1AttachInAnUnclaimedSlot(t *testing.T) {
	t.Parallel()
	w := newWorld(t, quick)
	w.helper()
	w.warmHelper()
	w.keepSlots(1400, &ipam.Warm{Size: 1, Max: 2})
	slot := w.settled(1)[0]
	link := "/run/netns/" + filepath.Base(slot.Netns) + "-link"
	must(t, os.Symlink(slot.Netns, link))
	defer os.Remove(link)
	mounted := nstest.New(t).Path() // its namespace is covered by the slot's
	must(t, unix.Mount(slot.Netns, mounted, "", unix.MS_BIND, ""))
	defer func() { must(t, unix.Unmount(mounted, unix.MNT_DETACH)) }()
	for _, netns := range []string{slot.Netns, "/var" + slot.Netns, link, mounted} {
		_, err := w.client.Allocate(ctx, api.AllocateRequest{Sandbox: "a", Interface: "eth1", Attach: &api.AttachRequest{Netns: netns}})
		if !errors.Is(err, client.ErrInvalidArgument) || !strings.Contains(err.Error(), "netns: ") {
			t.Errorf("attached in %s: %v", netns, err)
		}
	}
	if has := w.inside(slot.Netns, "ip", "-br", "link"); strings.Contains(has, "eth1") {
		t.Errorf("the slot has %s", has)
	}
	for verb, ask := range map[string]func() (*api.LeaseReply, error){
		"attach": func() (*api.LeaseReply, error) {
			return w.client.Attach(ctx, slot.ID, api.AttachRequest{Netns: slot.Netns})
		},
		"detach": func() (*api.LeaseReply, error) { return w.client.Detach(ctx, slot.ID, api.DetachRequest{}) },
		"bind": func() (*api.LeaseReply, error) {
			return w.client.Bind(ctx, slot.ID, api.BindRequest{MAC: "02:00:00:00:00:98"})
		},
		"pause": func() (*api.LeaseReply, error) { return w.client.Pause(ctx, slot.ID, api.PauseRequest{}) },
		"freeze": func() (*api.LeaseReply, error) {
			return w.client.Pause(ctx, slot.ID, api.PauseRequest{Mode: api.Freeze})
		},
		"release": func() (*api.LeaseReply, error) {
			return w.client.Release(ctx, slot.ID, api.ReleaseRequest{})
		},
	} {
		refused := new(api.Error)
		if _, err := ask(); !errors.Is(err, client.ErrStateNotAllowed) || !errors.As(err, &refused) || refused.Details["slot"] == nil || !strings.Contains(refused.Message, "ipamctl pool apply default --warm") {
			t.Errorf("%s of an unclaimed slot's own lease: %v", verb, err)
		}
	}
	if _, err := w.client.Cancel(ctx, api.CancelRequest{UID: slot.UID, Attempt: 9}); !errors.Is(err, client.ErrInvalidArgument) {
		t.Errorf("cancelled as a sandbox: %v", err)
	}
	if now := w.ready(); len(now) != 1 || now[0].ID != slot.ID || now[0].Rev != slot.Rev {
		t.Errorf("the slot is %+v, was %+v", now, slot)
	}
}
