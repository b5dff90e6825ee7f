package workload

import (
	"testing"

	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/ipam"
)

// Frames and labels are claims. They do not speak against the owner while the kernel
// shows its own port and MAC with the address; what the kernel shows elsewhere does,
// and so does a frame while nothing shows the owner. A record without a task never
// does.
func TestG3Claims(t *testing.T) {
	const mac, other = "02:00:00:00:00:01", "02:00:00:00:00:99"
	l := &ipam.Lease{ID: "1", Sandbox: "a", UID: "a", State: ipam.Bound, MAC: mac, HostInterface: "veth1"}
	own := census.Sighting{Witness: census.Netns, Bridge: "rt0", Port: "veth1", MAC: mac}
	table := census.Sighting{Witness: census.Neighbour, Port: "veth1", MAC: mac}
	frame := census.Sighting{Witness: census.Probe, Port: "veth2", MAC: other}
	neighbour := census.Sighting{Witness: census.Neighbour, Port: "veth2", MAC: other}
	elsewhere := census.Sighting{Witness: census.Netns, Port: "veth2", MAC: other}
	host := census.Sighting{Witness: census.Host, Port: "rt0"}
	runs := census.Sighting{Witness: census.Runtime, Container: "b", Sandbox: "b", Task: "running"}
	record := census.Sighting{Witness: census.Runtime, Container: "b", Sandbox: "b"}
	unknown := record // the runtime could not say whether it has a task
	unknown.Note = "task state unknown: containerd could not say"
	unowned := census.Sighting{Witness: census.Runtime, Container: "n"}
	ours := census.Sighting{Witness: census.Runtime, Container: "a", Sandbox: "a"}
	type seen = []census.Sighting
	for name, tt := range map[string]struct {
		seen            seen
		against, beside int
		claimed         bool // once the own workload is gone
	}{
		"nothing":                               {nil, 0, 0, false},
		"the owner alone":                       {seen{own}, 0, 0, false},
		"the owner, and a frame":                {seen{own, frame}, 0, 1, false},
		"the owner, and a neighbour's entry":    {seen{own, neighbour}, 0, 1, false},
		"the owner, and a container that runs":  {seen{own, runs}, 0, 1, false},
		"the owner, and all of them":            {seen{runs, own, neighbour, frame}, 0, 3, false},
		"the owner in the table, and a frame":   {seen{table, frame}, 0, 1, false},
		"the owner, and another namespace":      {seen{own, elsewhere}, 1, 0, false},
		"the owner, and the host":               {seen{own, host, frame}, 1, 1, false},
		"a frame alone":                         {seen{frame}, 1, 0, true},
		"a neighbour's entry alone":             {seen{neighbour}, 1, 0, true},
		"a container alone that runs":           {seen{runs}, 1, 0, true},
		"a record alone":                        {seen{record}, 0, 1, true},
		"a record whose task is not known":      {seen{unknown}, 1, 0, true},
		"the owner, and such a record":          {seen{own, unknown}, 0, 1, false},
		"a record of no one":                    {seen{unowned, frame}, 1, 0, true},
		"its own container, and a frame":        {seen{ours, frame}, 1, 0, false},
		"another namespace alone":               {seen{elsewhere}, 1, 0, false},
		"another MAC behind its own port":       {seen{{Witness: census.Netns, Port: "veth1", MAC: other}, frame}, 2, 0, false},
		"its own MAC behind another port":       {seen{{Witness: census.Netns, Port: "veth2", MAC: mac}, frame}, 2, 0, false},
		"an answer that looks like the owner's": {seen{{Witness: census.Probe, Port: "veth1", MAC: mac}, frame}, 1, 0, false},
		"an answer of which nothing is known":   {seen{{Witness: census.Probe}}, 0, 0, false},
	} {
		x := NewLeases([]*ipam.Lease{l})
		against, beside := x.Contradicted(l, tt.seen)
		if len(against) != tt.against || len(beside) != tt.beside || x.Claimed(l, tt.seen) != tt.claimed {
			t.Errorf("%s: %d against it, %d beside it, claimed %v: want %+v", name, len(against), len(beside), x.Claimed(l, tt.seen), tt)
		}
	}
	// Without a port on record nothing shows the owner.
	if against, _ := new(Leases).Contradicted(&ipam.Lease{MAC: mac}, seen{own, frame}); len(against) != 1 {
		t.Errorf("against a lease without a port: %+v", against)
	}
}
