package main

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/config"
	"github.com/ipamd/ipamd/internal/ctrdtest"
	"github.com/ipamd/ipamd/internal/realtest"
	"github.com/ipamd/ipamd/ipam"
)

// F22: a client that names its port alone, before or after the daemon took the
// containers from their labels, leaves them recorded. So a removal that is not
// reported is noticed by events, and no pass by the clock runs.
func TestF22ABindOfThePortKeepsTheContainers(t *testing.T) {
	t.Parallel()
	ctrdtest.One(t, func(t *testing.T, d *ctrdtest.Daemon) {
		w := newWorld(t, withContainerd(d), slow)
		for name, first := range map[string]bool{"a": true, "b": false} {
			b := &box{name: name, held: w.allocate(name).Leases[0]}
			b.port = w.ns.Port("rt0", fmt.Sprintf("%s/%d", b.held.Address, b.held.PrefixLen))
			recorded := func() bool {
				l, err := w.client.Lease(ctx, b.held.ID)
				return err == nil && len(l.Lease.Containers) == 1 && l.Lease.HostInterface == b.port.HostName
			}
			bind := func() {
				if _, err := w.client.Bind(ctx, b.held.ID, api.BindRequest{HostInterface: b.port.HostName}); err != nil {
					t.Fatal(err)
				}
			}
			if first {
				bind()
			}
			b.run(w, d)
			realtest.Eventually(t, wait, name+": its container to be recorded", recorded)
			if !first {
				bind()
			}
			if !recorded() {
				t.Errorf("%s: a bind of its port took its container away", name)
			}
			d.Delete(t, "default", name)
			b.port.Close()
			w.becomes(b.held.Address, api.Cooling)
		}
	})
}

// F21: a container that can never be confirmed to be gone is refused, by the
// field that is wrong. A lease that records one all the same, from when there was
// a runtime, is ended by an operator: quarantined with what was in the way, and
// given again once no witness has seen it for long enough.
func TestF21WhatCanNeverBeConfirmed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, quick, func(c *config.Config) { c.Allocation.Cooldown = config.Duration(time.Hour) })
	l := w.allocate("a").Leases[0]
	_, err := w.client.Bind(ctx, l.ID, api.BindRequest{HostInterface: "veth1", Containers: []api.Container{{Namespace: "default", ID: "a"}}})
	refused := new(api.Error)
	if !errors.As(err, &refused) || refused.Code != api.InvalidArgument || refused.Details["field"] != "containers[0].namespace" {
		t.Fatalf("a container without a runtime: %v", err)
	}
	if _, err := w.client.Quarantine(ctx, "10.8.64.99", "to adopt"); err != nil {
		t.Fatal(err)
	}
	_, err = w.client.Adopt(ctx, "10.8.64.99", api.AdoptRequest{Sandbox: "b", Reason: "it is ours", Containers: []api.Container{{Namespace: "default", ID: "b"}}})
	if !errors.As(err, &refused) || refused.Code != api.InvalidArgument || refused.Details["field"] != "containers[0].namespace" {
		t.Fatalf("adopted with a container, without a runtime: %v", err)
	}
	client := ipam.Who{Actor: ipam.ByClient, Reason: "bound"}
	if _, err := w.program.book.Bind(ctx, client, l.ID, 0, ipam.Binding{Containers: []ipam.Container{{Namespace: "default", ID: "a"}}}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.client.ForceRelease(ctx, l.ID, api.ForceReleaseRequest{Reason: "no runtime any more"}); err == nil {
		t.Error("forced before it was released")
	}
	if r, err := w.client.Release(ctx, l.ID, api.ReleaseRequest{}); err != nil || r.Lease.State != api.Releasing || r.Blockers[0].Kind != "container" && r.Blockers[0].Kind != "runtime" {
		t.Fatalf("released: %+v, %v", r, err)
	}
	f, err := w.client.ForceRelease(ctx, l.ID, api.ForceReleaseRequest{Reason: "no runtime any more"})
	if err != nil || f.Lease.State != api.Quarantined || f.Lease.Evidence[0].Container != "a" || f.Lease.Evidence[0].Note == "" {
		t.Fatalf("forced: %+v, %v", f, err)
	}
	w.becomes(l.Address, api.Cooling)
	if past := w.whois(l.Address).History; past[0].Reason != "not_seen" || past[1].Note != "no runtime any more" || past[1].Actor != "operator" {
		t.Errorf("its history: %+v", past)
	}
}
