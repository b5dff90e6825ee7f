package server_test

import (
	"testing"
	"time"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb"
	"github.com/ipamd/ipamd/netdb/netdbtest"
	"github.com/ipamd/ipamd/server/servertest"
)

// What a removed pool leaves is shown, since when and why, also of an address inside of a
// delegated prefix. As of every address that cools, nothing says whose it was.
func TestWithheldOverTheSocket(t *testing.T) {
	s := speak(t, servertest.Start(t))
	uid := described(t, s).UID
	cools := allocate(t, s, "cools")
	c, err := s.Book.PickPrefix(uid, 28, ipam.Policy{})
	if err != nil {
		t.Fatal(err)
	}
	made, err := s.Book.Reserve(t.Context(), netdbtest.Who(ipam.ByAllocator, "test"), netdb.Reservation{Candidate: c, Sandbox: "lab", UID: "lab", Interface: "eth0", Attempt: 1, BindWithin: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	prefix := made[0]
	want[api.LeaseReply](t, s, 200, "LeaseReply", "POST", "/v1/leases/"+cools.ID+"/bind", `{"host_interface":"veth1"}`)
	want[api.LeaseReply](t, s, 202, "LeaseReply", "POST", "/v1/leases/"+cools.ID+"/release", "")
	s.Confirm(t, cools.ID)
	want[api.LeaseReply](t, s, 200, "LeaseReply", "POST", "/v1/addresses/10.8.64.200/quarantine", `{"reason":"printer"}`)
	altered(t, s, "DELETE", defaultPool+"?uid="+uid+"&mode=force&reason=gone", "")

	list := want[api.WithheldList](t, s, 200, "WithheldList", "GET", "/v1/withheld?pool="+uid, "")
	if len(list.Withheld) != 3 {
		t.Fatalf("%+v", list)
	}
	if w := list.Withheld[0]; w.Address != cools.Address || w.State != api.Cooling || w.Sandbox != "" || w.Evidence != nil || w.LeaseID != cools.ID || w.Since.IsZero() {
		t.Errorf("what cools: %+v", w)
	}
	if w := list.Withheld[1]; w.Address != prefix.Addr.String() || w.PrefixLength != 28 || w.State != api.Quarantined || w.Sandbox != "lab" || len(w.Evidence) != 1 {
		t.Errorf("the prefix: %+v", w)
	}
	if w := list.Withheld[2]; w.Address != "10.8.64.200" || w.Hold != "printer" {
		t.Errorf("what is held: %+v", w)
	}
	if none := want[api.WithheldList](t, s, 200, "WithheldList", "GET", "/v1/withheld?pool=other", ""); len(none.Withheld) > 0 {
		t.Errorf("of another pool: %+v", none)
	}
	inside := want[api.WhoisReply](t, s, 200, "WhoisReply", "GET", "/v1/addresses/10.8.64.20", "")
	if inside.Withheld == nil || inside.Withheld.LeaseID != prefix.ID || inside.Note != "withheld since pool default was removed" || inside.Pool != "" {
		t.Errorf("an address of the prefix: %+v", inside)
	}
}
