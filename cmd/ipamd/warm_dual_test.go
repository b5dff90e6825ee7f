package main

import (
	"errors"
	"reflect"
	"slices"
	"testing"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/client"
	"github.com/ipamd/ipamd/internal/nstest"
	"github.com/ipamd/ipamd/internal/realtest"
)

// A slot has one address. A dual-stack request that must have one is refused with the field, and
// has nothing reserved; one that would rather have one gets two addresses at once without it.
func TestM5ADualStackRequestHasNoSlot(t *testing.T) {
	t.Parallel()
	w := dual(t)
	w.warmHelper()
	if _, err := w.client.ApplyPool(ctx, "default", api.PoolRequest{Prefix: "10.8.64.0/24", Warm: &api.PoolWarm{Size: 1}}); err != nil {
		t.Fatal(err)
	}
	realtest.Eventually(t, wait, "a slot", func() bool { return len(w.ready()) == 1 })
	slot := w.ready()[0].ID
	for _, warm := range []api.WarmRequest{{Policy: api.WarmRequire}, {Policy: api.WarmRequire, OnEmpty: api.OnEmptyWait, Wait: "1s"}, {OnEmpty: api.OnEmptyFail}} {
		_, err := w.client.Allocate(ctx, api.AllocateRequest{Sandbox: "a", Family: api.Dual, Warm: &warm})
		refused := new(api.Error)
		if !errors.As(err, &refused) || !errors.Is(err, client.ErrInvalidArgument) || refused.Details["field"] != "family" {
			t.Errorf("%+v: %v", warm, err)
		}
	}
	if all, err := w.client.Leases(ctx, client.LeaseFilter{Sandbox: "a"}); err != nil || len(all.Leases) != 0 {
		t.Errorf("left of what was refused: %+v, %v", all, err)
	}
	for name, warm := range map[string]api.WarmRequest{"b": {}, "c": {Policy: api.WarmPrefer, OnEmpty: api.OnEmptyWait, Wait: "60s"}, "d": {Policy: api.WarmNever}} {
		r, err := w.client.Allocate(ctx, api.AllocateRequest{Sandbox: name, Family: api.Dual, Warm: &warm})
		if err != nil || len(r.Leases) != 2 || r.Slot != nil {
			t.Errorf("%+v: %+v, %v", warm, r, err)
		}
	}
	if now := w.ready(); len(now) != 1 || now[0].ID != slot {
		t.Errorf("the slot is %+v", now)
	}
}

// The name servers of a pool are in the answer of an attach, as in that of an allocation.
func TestM1AttachSaysTheNameServers(t *testing.T) {
	t.Parallel()
	w := dual(t)
	w.helper()
	for prefix, dns := range map[string][]string{"10.8.64.0/24": {"10.8.64.53", "1.1.1.1"}, "fd00:8:64::/64": {"fd00:8:64::53"}} {
		if _, err := w.client.ApplyPool(ctx, "default", api.PoolRequest{Prefix: prefix, DNS: dns}); err != nil {
			t.Fatal(err)
		}
	}
	given, err := w.client.Allocate(ctx, api.AllocateRequest{Sandbox: "a", Family: api.Dual})
	if err != nil {
		t.Fatal(err)
	}
	ask := api.AttachRequest{Netns: nstest.New(t).Path()}
	for range 2 {
		r, err := w.client.Attach(ctx, given.Leases[1].ID, ask)
		if err != nil || !reflect.DeepEqual(r.Networks, given.Networks) || len(r.Networks) != 2 ||
			!slices.Equal(r.Networks[0].DNS, []string{"10.8.64.53", "1.1.1.1"}) || !slices.Equal(r.Networks[1].DNS, []string{"fd00:8:64::53"}) {
			t.Errorf("attached: %+v, %v, given: %+v", r, err, given.Networks)
		}
	}
}
