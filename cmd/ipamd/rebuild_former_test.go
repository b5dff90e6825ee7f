package main

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/client"
	"github.com/ipamd/ipamd/internal/nstest"
	"github.com/ipamd/ipamd/internal/realtest"
)

// F30: after a rebuild, live sandboxes that no label names ask for what was theirs: by allocate, by a wish, by a bind that
// names the lease and its port, by a person's hand. No other gets it, nor does
// the owner while the wire shows another there whom nothing shows to be the owner.
// Where the leases' rows were lost, nothing says which port was whose.
func TestF30WhatARebuildLostComesBackToItsOwner(t *testing.T) {
	for _, table := range []string{"changes", "leases"} {
		t.Run("the page of "+table, func(t *testing.T) { comesBack(t, table) })
	}
}

func comesBack(t *testing.T, table string) {
	w, recorded := newWorld(t, slow), table != "leases"
	held, ports := make(map[string]api.Lease), make(map[string]*nstest.Port)
	for _, name := range []string{"asks", "wishes", "binds", "byhand", "moved", "sleeps"} {
		l := w.allocate(name).Leases[0]
		held[name] = l
		port := w.ns.Port("rt0", l.Address+"/24")
		ports[name] = port
		if _, err := w.client.Bind(ctx, l.ID, api.BindRequest{HostInterface: port.HostName}); err != nil {
			t.Fatal(err)
		}
		if name == "sleeps" || name == "moved" {
			port.Close()
		}
	}
	if _, err := w.client.Pause(ctx, held["sleeps"].ID, api.PauseRequest{}); err != nil {
		t.Fatal(err)
	}
	w.stopDaemon()
	w.edit(`UPDATE leases SET plug = ''`) // as of another boot: else a link that is there speaks for its lease
	w.spoil(table)
	if _, err := w.rebuild(); err != nil {
		t.Fatal(err)
	}
	w.ns.Port("rt0", held["moved"].Address+"/24") // one that is not its own
	second := w.ns.Port("rt0", held["moved"].Address+"/24")
	w.start()
	realtest.Eventually(t, wait, "the wire to be read", func() bool { return seenBy(w, held["byhand"].Address, "netns") })
	for name, l := range held {
		if got := w.whois(l.Address); got.State != api.Quarantined || got.Lease.ID != l.ID || got.Lease.Sandbox != name {
			t.Fatalf("%s had %+v, and the rebuilt book has %+v", name, l, got.Lease)
		}
	}
	mine := func(name string, now *api.Lease, err error) {
		t.Helper()
		if was := held[name]; err != nil || now.ID != was.ID || now.Address != was.Address || now.State != api.Bound || now.UID != was.UID {
			t.Errorf("%s had %+v, and has %+v, %v", name, was, now, err)
		}
	}
	_, err := w.client.Allocate(ctx, api.AllocateRequest{Sandbox: "impostor", Address: held["wishes"].Address})
	if !errors.Is(err, client.ErrAddressQuarantined) {
		t.Errorf("another's wish: %v", err)
	}
	_, err = w.client.Allocate(ctx, api.AllocateRequest{Sandbox: "wishes", UID: "another life", Address: held["wishes"].Address})
	if !errors.Is(err, client.ErrAddressQuarantined) {
		t.Errorf("another incarnation's wish: %v", err)
	}
	r := w.allocate("asks")
	if recorded {
		mine("asks", &r.Leases[0], nil)
	} else if r.Leases[0].Address == held["asks"].Address {
		t.Errorf("an address that is seen at an unknown place was given back: %+v", r.Leases[0])
	}
	if again := w.allocate("asks"); r.Existing != recorded || again.Leases[0].ID != r.Leases[0].ID {
		t.Errorf("existing %v, and then %+v", r.Existing, again.Leases)
	}
	r, err = w.client.Allocate(ctx, api.AllocateRequest{Sandbox: "wishes", Address: held["wishes"].Address})
	bind := api.BindRequest{Netns: "/run/netns/binds"}
	if recorded && err == nil {
		mine("wishes", &r.Leases[0], nil)
	} else if recorded || !errors.Is(err, client.ErrAddressTaken) || !strings.Contains(err.Error(), "quarantine adopt") {
		t.Errorf("a wish, its port is recorded: %v: %v", recorded, err)
	}
	if !recorded {
		if _, err := w.client.Bind(ctx, held["binds"].ID, bind); !errors.Is(err, client.ErrAddressTaken) {
			t.Errorf("bound to a namespace that does not have the address: %v", err)
		}
		bind.HostInterface = ports["binds"].HostName
	}
	bound, err := w.client.Bind(ctx, held["binds"].ID, bind)
	if err != nil {
		t.Fatal(err)
	}
	mine("binds", &bound.Lease, nil)

	// The wire shows two others with the address of the one that moved.
	realtest.Eventually(t, wait, "both strangers to be seen", func() bool {
		return len(w.program.board.About(netip.MustParseAddr(held["moved"].Address)).Seen) >= 2
	})
	if other := w.allocate("moved").Leases[0]; other.Address == held["moved"].Address {
		t.Errorf("an address of two strangers was given back: %+v", other)
	}
	if _, err := w.client.Bind(ctx, held["moved"].ID, api.BindRequest{HostInterface: second.HostName}); !errors.Is(err, client.ErrAddressTaken) {
		t.Errorf("bound where the wire shows another one, too: %v", err)
	}
	if _, err := w.client.Adopt(ctx, held["moved"].Address, api.AdoptRequest{Sandbox: "x", Reason: "by hand"}); !errors.Is(err, client.ErrAddressTaken) {
		t.Errorf("adopted by hand against the wire: %v", err)
	}

	// A sleeper's release is answered, and a person gives it back.
	released, err := w.client.Release(ctx, held["sleeps"].ID, api.ReleaseRequest{})
	if err != nil || released.Lease.State != api.Quarantined {
		t.Errorf("release of a lease of before: %+v, %v", released, err)
	}
	for ask, want := range map[*api.AdoptRequest]error{
		{Reason: "x", LeaseID: bound.Lease.ID}:          client.ErrStateNotAllowed,
		{Reason: "x", Sandbox: "asks"}:                  client.ErrStateNotAllowed,
		{Reason: "x", MAC: "no MAC"}:                    client.ErrInvalidArgument,
		{Sandbox: "byhand"}:                             client.ErrInvalidArgument,
		{Reason: "x", Sandbox: "y", HostInterface: "z"}: client.ErrAddressTaken,
	} {
		if _, err := w.client.Adopt(ctx, held["byhand"].Address, *ask); !errors.Is(err, want) {
			t.Errorf("adopt %+v: %v, want %v", *ask, err, want)
		}
	}
	given, err := w.client.Adopt(ctx, held["byhand"].Address, api.AdoptRequest{Reason: "its labels were lost"})
	if err != nil {
		t.Fatal(err)
	}
	mine("byhand", &given.Lease, nil)
	if last := w.whois(given.Lease.Address).History[0]; last.Actor != "operator" || last.Reason != "adopted_by_hand" {
		t.Errorf("the history says %+v", last)
	}
	if _, err := w.client.Adopt(ctx, given.Lease.Address, api.AdoptRequest{Reason: "again"}); !errors.Is(err, client.ErrStateNotAllowed) {
		t.Errorf("adopted twice: %v", err)
	}
}
