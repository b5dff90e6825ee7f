package allocator

import (
	"encoding/json"
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/ipam"
	. "github.com/ipamd/ipamd/netdb/netdbtest"
)

// A lease of before a rebuild is given back after the wire was asked, and where its
// address is seen only when something that it records shows that its own workload
// is there. One that recorded containers only was given back while another
// lived with its address.
func TestF30FormerLeaseIsRecognized(t *testing.T) {
	const mac = "02:00:00:00:00:01"
	addr := netip.MustParseAddr("10.8.64.9")
	containers := []ipam.Container{{Namespace: "n", ID: "c1"}}
	netns := census.Sighting{Addr: addr, Witness: census.Netns, Port: "veth1", MAC: mac, Bridge: "rt0", Netns: census.NewNetnsID(7, "blue")}
	imitated := netns
	imitated.Netns = census.NewNetnsID(7, "red) (blue")
	runtime := census.Sighting{Addr: addr, Witness: census.Runtime, Namespace: "n", Container: "c1", Sandbox: "a"}
	another := census.Sighting{Addr: addr, Witness: census.Netns, Port: "veth2", MAC: "02:00:00:00:00:99", Bridge: "rt0"}
	for name, tt := range map[string]struct {
		lease   ipam.Lease
		seen    []census.Sighting
		answers bool
		back    bool
	}{
		"nothing is seen":                         {lease: ipam.Lease{Containers: containers}, back: true},
		"nothing is seen, and a stranger answers": {lease: ipam.Lease{Containers: containers}, answers: true},
		"somewhere, containers are recorded":      {lease: ipam.Lease{Containers: containers}, seen: []census.Sighting{netns}},
		"somewhere, nothing is recorded":          {seen: []census.Sighting{netns}},
		"the recorded MAC":                        {lease: ipam.Lease{MAC: mac}, seen: []census.Sighting{netns}, back: true},
		"the recorded port":                       {lease: ipam.Lease{HostInterface: "veth1"}, seen: []census.Sighting{netns}, back: true},
		"the recorded port, and a stranger":       {lease: ipam.Lease{HostInterface: "veth1"}, seen: []census.Sighting{netns, another}},
		"the recorded namespace":                  {lease: ipam.Lease{Netns: "/run/netns/blue"}, seen: []census.Sighting{netns}, back: true},
		"another namespace":                       {lease: ipam.Lease{Netns: "/run/netns/lightblue"}, seen: []census.Sighting{netns}},
		"a namespace of that name elsewhere":      {lease: ipam.Lease{Netns: "/home/blue"}, seen: []census.Sighting{netns}},
		"a namespace whose name ends so":          {lease: ipam.Lease{Netns: "/run/netns/blue"}, seen: []census.Sighting{imitated}},
		"its container, and a port":               {lease: ipam.Lease{Containers: containers}, seen: []census.Sighting{netns, runtime}, back: true},
		"its container, and two ports":            {lease: ipam.Lease{Containers: containers}, seen: []census.Sighting{netns, runtime, another}},
		"its container, and an unplaced answer":   {lease: ipam.Lease{Containers: containers}, seen: []census.Sighting{runtime}, answers: true, back: true},
	} {
		t.Run(name, func(t *testing.T) {
			a, wire := newSlow(t)
			former := tt.lease
			former.Addr, former.ID, former.State = addr, "01a1fdb6-0028-705b-b6df-154185e9c682", ipam.Bound
			former.Sandbox, former.UID, former.Interface = "a", "a", "eth0"
			evidence, err := json.Marshal([]census.Sighting{{Addr: addr, Witness: census.Book}})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := a.Book.QuarantineFormer(ctx, Who(ipam.ByOperator, ipam.Rebuilt), &former, evidence); err != nil {
				t.Fatal(err)
			}
			a.former = formers(a.Book)
			for _, w := range []census.Witness{census.Netns, census.Runtime} {
				seen := slices.DeleteFunc(slices.Clone(tt.seen), func(s census.Sighting) bool { return s.Witness != w })
				a.Board.ReplaceScope(w, "x", seen)
			}
			if tt.answers {
				wire.live[addr] = 1
			}
			r, err := a.Allocate(ctx, Request{Sandbox: "a", Address: addr})
			if _, asked := wire.looks[addr]; !asked {
				t.Error("the wire was not asked")
			}
			switch {
			case tt.back && (err != nil || r.Leases[0].ID != former.ID || !r.Existing || len(r.Unprobed) != 0):
				t.Errorf("it is not given back: %+v, %v", r, err)
			case !tt.back && !errors.Is(err, ipam.ErrTaken):
				t.Errorf("got %+v, %v, want it refused", r, err)
			}
		})
	}
}

// The owner of a lease that was reserved and never bound before a rebuild gets another address, and nothing is wrong
// with that: no witness sees it, and nothing says what its address could be bound to.
func TestAFormerLeaseThatWasNeverBoundIsPassedOver(t *testing.T) {
	a, _ := newSlow(t)
	var log strings.Builder
	a.Log = slog.New(slog.NewTextHandler(&log, nil))
	former := ipam.Lease{Addr: netip.MustParseAddr("10.8.64.9"), ID: "01a1fdb6-0028-705b-b6df-154185e9c682", State: ipam.Reserved, Sandbox: "a", UID: "a", Interface: "eth0"}
	evidence, err := json.Marshal([]census.Sighting{{Addr: former.Addr, Witness: census.Book}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.Book.QuarantineFormer(ctx, Who(ipam.ByOperator, ipam.Rebuilt), &former, evidence); err != nil {
		t.Fatal(err)
	}
	a.former = formers(a.Book)
	r, err := a.Allocate(ctx, Request{Sandbox: "a"})
	if err != nil || r.Existing || r.Leases[0].Addr == former.Addr || log.Len() > 0 {
		t.Fatalf("got %+v, %v; the log has %s", r, err, &log)
	}
	row, err := a.Book.Lease(former.ID)
	if err != nil || row.State != ipam.Quarantined {
		t.Errorf("its row is %+v, %v", row, err)
	}
	if back, err := a.Reclaim(ctx, Who(ipam.ByClient, "bind"), former.ID, ipam.Binding{HostInterface: "veth1"}); !errors.Is(err, ipam.ErrState) {
		t.Errorf("a bind while the owner has another: %+v, %v", back, err)
	}
}
