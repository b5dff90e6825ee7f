package workload

import (
	"testing"

	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/ipam"
)

// Who counts as a stranger on a lease's address. What is unknown on either
// side proves nothing.
func TestStrangers(t *testing.T) {
	const id, mac, other = "01a1fdb6-0028-705b-b6df-154185e9c682", "02:00:00:00:00:01", "02:00:00:00:00:99"
	unbound := ipam.Lease{ID: id, Sandbox: "a", UID: "a-1", State: ipam.Reserved}
	bound := ipam.Lease{ID: id, Sandbox: "a", UID: "a-1", State: ipam.Bound, MAC: mac, HostInterface: "veth1",
		Containers: []ipam.Container{{Namespace: "default", ID: "c1"}}}
	for name, tt := range map[string]struct {
		lease    ipam.Lease
		seen     census.Sighting
		stranger bool
	}{
		"an address of the host":                 {bound, census.Sighting{Witness: census.Host, Port: "veth1", MAC: mac}, true},
		"its own container":                      {bound, census.Sighting{Witness: census.Runtime, Namespace: "default", Container: "c1", Sandbox: "renamed"}, false},
		"a container of that id elsewhere":       {bound, census.Sighting{Witness: census.Runtime, Namespace: "k8s.io", Container: "c1", Sandbox: "b"}, true},
		"another container, its lease's id":      {bound, census.Sighting{Witness: census.Runtime, Container: "c2", Sandbox: "b", LeaseID: id}, false},
		"another container, its sandbox's name":  {bound, census.Sighting{Witness: census.Runtime, Container: "c2", Sandbox: "a"}, false},
		"another container, its sandbox's uid":   {bound, census.Sighting{Witness: census.Runtime, Container: "c2", Sandbox: "a-1"}, false},
		"a container of another sandbox":         {unbound, census.Sighting{Witness: census.Runtime, Container: "c2", Sandbox: "b"}, true},
		"another sandbox, another lease":         {unbound, census.Sighting{Witness: census.Runtime, Container: "c2", Sandbox: "b", LeaseID: "other"}, true},
		"a sandbox whose name begins the same":   {unbound, census.Sighting{Witness: census.Runtime, Container: "c2", Sandbox: "a-"}, true},
		"a container without an owner":           {unbound, census.Sighting{Witness: census.Runtime, Container: "c2"}, false},
		"its own port and MAC":                   {bound, census.Sighting{Witness: census.Netns, Port: "veth1", MAC: mac}, false},
		"its own port, another MAC":              {bound, census.Sighting{Witness: census.Netns, Port: "veth1", MAC: other}, true},
		"another port, its own MAC":              {bound, census.Sighting{Witness: census.Netns, Port: "veth2", MAC: mac}, true},
		"its own MAC, the port unknown":          {bound, census.Sighting{Witness: census.Neighbour, MAC: mac}, false},
		"nothing known but the address":          {bound, census.Sighting{Witness: census.Probe}, false},
		"somewhere, before the lease was bound":  {unbound, census.Sighting{Witness: census.Netns, Port: "veth7", MAC: other}, false},
		"another MAC, the lease names none":      {ipam.Lease{HostInterface: "veth1"}, census.Sighting{Witness: census.Probe, MAC: other}, false},
		"another MAC answers the probe":          {bound, census.Sighting{Witness: census.Probe, Port: "veth1", MAC: other}, true},
		"an answer for its own MAC":              {bound, census.Sighting{Witness: census.Probe, Port: "veth1", MAC: other, Says: mac}, false},
		"the same, the port unknown":             {bound, census.Sighting{Witness: census.Probe, MAC: other, Says: mac}, false},
		"its own answer for another MAC":         {bound, census.Sighting{Witness: census.Probe, Port: "veth1", MAC: mac, Says: other}, false},
		"another port answers for its MAC":       {bound, census.Sighting{Witness: census.Probe, Port: "veth2", MAC: other, Says: mac}, true},
		"two other MACs":                         {bound, census.Sighting{Witness: census.Probe, Port: "veth1", MAC: other, Says: "02:00:00:00:00:98"}, true},
		"a witness of the future, its own place": {bound, census.Sighting{Witness: "divination", Port: "veth1"}, false},
		"nothing at all":                         {ipam.Lease{}, census.Sighting{}, false},
	} {
		t.Run(name, func(t *testing.T) {
			seen := []census.Sighting{{Witness: census.Probe}, tt.seen}
			got := new(Leases).Strangers(&tt.lease, seen)
			if (len(got) == 1) != tt.stranger || len(got) > 1 {
				t.Errorf("strangers: %+v, want one: %v", got, tt.stranger)
			}
			if seen[0] != (census.Sighting{Witness: census.Probe}) || seen[1] != tt.seen {
				t.Errorf("what was seen became %+v", seen)
			}
		})
	}
	if got := new(Leases).Strangers(&bound, nil); len(got) != 0 {
		t.Errorf("none was seen, and there are strangers: %+v", got)
	}
}
