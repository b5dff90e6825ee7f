package workload

import (
	"testing"

	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/ipam"
)

// What shows that a lease's workload lives, by what its bind named: its MAC, or the link and
// the namespace that the names were of, in this boot.
func TestPlugged(t *testing.T) {
	const mac, other, path = "02:00:00:00:00:01", "02:00:00:00:00:99", "/run/netns/blue"
	boot := ipam.Now().BootID
	plug := ipam.Plug{Boot: boot, Index: 7, Inode: 70}
	seen := census.Sighting{Witness: census.Netns, Port: "veth1", MAC: mac, Netns: census.NewNetnsID(3, "blue"), Index: 7, Inode: 70}
	like := func(change func(*census.Sighting)) census.Sighting { s := seen; change(&s); return s }
	for name, tt := range map[string]struct {
		lease ipam.Lease
		seen  census.Sighting
		live  bool
	}{
		"its MAC and port":                         {ipam.Lease{HostInterface: "veth1", MAC: mac}, seen, true},
		"its MAC, another port":                    {ipam.Lease{HostInterface: "veth2", MAC: mac, Plug: plug}, seen, false},
		"another MAC in its place":                 {ipam.Lease{HostInterface: "veth1", MAC: other, Plug: plug}, seen, false},
		"no MAC is recorded":                       {ipam.Lease{HostInterface: "veth1", Netns: path, Plug: plug}, seen, true},
		"its MAC could not be read":                {ipam.Lease{HostInterface: "veth1", MAC: mac, Plug: plug}, like(func(s *census.Sighting) { s.MAC = "" }), true},
		"the names alone":                          {ipam.Lease{HostInterface: "veth1", Netns: path}, seen, false},
		"the names, of another boot":               {ipam.Lease{HostInterface: "veth1", Netns: path, Plug: ipam.Plug{Boot: "another", Index: 7, Inode: 70}}, seen, false},
		"a later link of the name":                 {ipam.Lease{HostInterface: "veth1", Plug: plug}, like(func(s *census.Sighting) { s.Index = 8 }), false},
		"a later namespace of the name":            {ipam.Lease{HostInterface: "veth1", Netns: path, Plug: plug}, like(func(s *census.Sighting) { s.Inode = 71 }), false},
		"a namespace without a name":               {ipam.Lease{HostInterface: "veth1", Netns: path, Plug: plug}, like(func(s *census.Sighting) { s.Inode = 0 }), true},
		"the namespace alone is recorded":          {ipam.Lease{Netns: path, Plug: ipam.Plug{Boot: boot, Inode: 70}}, seen, true},
		"neither is known to be the same":          {ipam.Lease{Netns: path, Plug: ipam.Plug{Boot: boot, Inode: 70}}, like(func(s *census.Sighting) { s.Inode = 0 }), false},
		"its link, renamed":                        {ipam.Lease{HostInterface: "veth2", Plug: plug}, seen, false},
		"on the wire alone":                        {ipam.Lease{HostInterface: "veth1", Plug: plug}, like(func(s *census.Sighting) { s.Witness = census.Neighbour }), false},
		"one of its prefix, with a MAC of its own": {ipam.Lease{HostInterface: "veth1", MAC: other, PrefixLen: 28, Plug: plug}, seen, true},
	} {
		t.Run(name, func(t *testing.T) {
			l := tt.lease
			l.Sandbox, l.State = "a", ipam.Bound
			if live := len(new(Leases).Live(&l, []census.Sighting{tt.seen}, nil)) > 0; live != tt.live {
				t.Errorf("it lives: %v", live)
			}
		})
	}
}
