package workload

import (
	"slices"
	"testing"

	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/ipam"
)

// Another MAC behind the lease's own port is the record's mistake, as long as
// nothing at all speaks of another.
func TestF29Differs(t *testing.T) {
	const given, real, other = "fe:00:00:00:00:01", "02:00:00:00:00:01", "02:00:00:00:00:99"
	lease := func(more func(*ipam.Lease)) *ipam.Lease {
		l := &ipam.Lease{ID: "1", Sandbox: "a", UID: "a-1", State: ipam.Bound, MAC: given, HostInterface: "veth1", Netns: "/run/netns/blue"}
		if more != nil {
			more(l)
		}
		return l
	}
	own := census.Sighting{Witness: census.Netns, Bridge: "rt0", Port: "veth1", MAC: real, Netns: census.NewNetnsID(7, "blue")}
	type seen = []census.Sighting
	for name, tt := range map[string]struct {
		lease *ipam.Lease
		seen  seen
		more  *ipam.Lease // of the book
		want  bool
	}{
		"behind its port":                         {lease(nil), seen{own}, nil, true},
		"the wire says so, too":                   {lease(nil), seen{{Witness: census.Probe, MAC: real}, own, {Witness: census.Neighbour, Port: "veth1", MAC: real}, {Witness: census.Probe}}, nil, true},
		"a namespace without a name":              {lease(nil), seen{{Witness: census.Netns, Port: "veth1", MAC: real, Netns: census.NewNetnsID(7, "")}}, nil, true},
		"a recorded path that names no namespace": {lease(func(l *ipam.Lease) { l.Netns = "/proc/7/ns/net" }), seen{own}, nil, true},
		"one of the ports that lead there":        {lease(nil), seen{{Witness: census.Netns, Port: "veth3", MAC: real, Leads: census.NewPorts("veth1", "veth3")}}, nil, true},
		"its own container":                       {lease(nil), seen{own, {Witness: census.Runtime, Container: "c", LeaseID: "1"}}, nil, true},
		"the same sandbox's other family":         {lease(nil), seen{own}, &ipam.Lease{ID: "2", Sandbox: "a", UID: "a-1", State: ipam.Bound, MAC: real, HostInterface: "veth1"}, true},

		"nothing is seen":                        {lease(nil), nil, nil, false},
		"the recorded MAC":                       {lease(func(l *ipam.Lease) { l.MAC = real }), seen{own}, nil, false},
		"no MAC is recorded":                     {lease(func(l *ipam.Lease) { l.MAC = "" }), seen{own}, nil, false},
		"no port is recorded":                    {lease(func(l *ipam.Lease) { l.HostInterface = "" }), seen{own}, nil, false},
		"the wire alone":                         {lease(nil), seen{{Witness: census.Probe, Port: "veth1", MAC: real}, {Witness: census.Neighbour, Port: "veth1", MAC: real}}, nil, false},
		"another port":                           {lease(nil), seen{{Witness: census.Netns, Port: "veth2", MAC: real}}, nil, false},
		"another port with the recorded MAC":     {lease(nil), seen{{Witness: census.Netns, Port: "veth2", MAC: given}}, nil, false},
		"another port beside its own":            {lease(nil), seen{own, {Witness: census.Netns, Port: "veth2", MAC: other}}, nil, false},
		"another port that copies the MAC":       {lease(nil), seen{own, {Witness: census.Neighbour, Port: "veth2", MAC: real}}, nil, false},
		"the recorded MAC lives, too":            {lease(nil), seen{own, {Witness: census.Neighbour, Port: "veth1", MAC: given}}, nil, false},
		"an answer for the recorded MAC":         {lease(nil), seen{own, {Witness: census.Probe, Port: "veth1", MAC: real, Says: given}}, nil, false},
		"a third MAC behind its port":            {lease(nil), seen{own, {Witness: census.Probe, Port: "veth1", MAC: other}}, nil, false},
		"a third MAC somewhere":                  {lease(nil), seen{{Witness: census.Probe, MAC: other}, own}, nil, false},
		"an answer for a third MAC":              {lease(nil), seen{own, {Witness: census.Probe, Port: "veth1", MAC: real, Says: other}}, nil, false},
		"the host has it":                        {lease(nil), seen{own, {Witness: census.Host, Port: "rt0"}}, nil, false},
		"a container of another":                 {lease(nil), seen{own, {Witness: census.Runtime, Container: "c", Sandbox: "b"}}, nil, false},
		"another namespace behind the name":      {lease(nil), seen{{Witness: census.Netns, Port: "veth1", MAC: real, Netns: census.NewNetnsID(7, "red")}}, nil, false},
		"another's lease records the port":       {lease(nil), seen{own}, &ipam.Lease{ID: "2", Sandbox: "b", UID: "b", State: ipam.Bound, HostInterface: "veth1"}, false},
		"another's lease records the MAC":        {lease(nil), seen{own}, &ipam.Lease{ID: "2", Sandbox: "b", UID: "b", State: ipam.Releasing, MAC: real}, false},
		"the sandbox's successor has the port":   {lease(nil), seen{own}, &ipam.Lease{ID: "2", Sandbox: "a", UID: "a-2", State: ipam.Bound, HostInterface: "veth1"}, false},
		"a MAC that could not be read is no MAC": {lease(nil), seen{{Witness: census.Netns, Port: "veth1"}}, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			book := []*ipam.Lease{tt.lease}
			if tt.more != nil {
				book = append(book, tt.more)
			}
			before := slices.Clone(tt.seen)
			at, got := NewLeases(book).Differs(tt.lease, tt.seen)
			if got != tt.want || got && (at.MAC != real || at.Witness != census.Netns) {
				t.Errorf("differs: %v, %+v", got, at)
			}
			if !slices.Equal(before, tt.seen) {
				t.Errorf("what was seen became %+v", tt.seen)
			}
		})
	}
}
