package workload

import (
	"testing"

	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/netdb"
)

// What shows that a lease's workload lives, by what its bind named: its MAC, or the link and
// the namespace that the names were of, in this boot.
func TestPlugged(t *testing.T) {
	const mac, other, path = "02:00:00:00:00:01", "02:00:00:00:00:99", "/run/netns/blue"
	boot := netdb.Now().BootID
	plug := netdb.Plug{Boot: boot, Index: 7, Inode: 70}
	seen := census.Sighting{Witness: census.Netns, Port: "veth1", MAC: mac, Netns: "nsid:3 (blue)", Index: 7, Inode: 70}
	like := func(change func(*census.Sighting)) census.Sighting { s := seen; change(&s); return s }
	for name, tt := range map[string]struct {
		lease netdb.Lease
		seen  census.Sighting
		live  bool
	}{
		"its MAC and port":                         {netdb.Lease{HostInterface: "veth1", MAC: mac}, seen, true},
		"its MAC, another port":                    {netdb.Lease{HostInterface: "veth2", MAC: mac, Plug: plug}, seen, false},
		"another MAC in its place":                 {netdb.Lease{HostInterface: "veth1", MAC: other, Plug: plug}, seen, false},
		"no MAC is recorded":                       {netdb.Lease{HostInterface: "veth1", Netns: path, Plug: plug}, seen, true},
		"its MAC could not be read":                {netdb.Lease{HostInterface: "veth1", MAC: mac, Plug: plug}, like(func(s *census.Sighting) { s.MAC = "" }), true},
		"the names alone":                          {netdb.Lease{HostInterface: "veth1", Netns: path}, seen, false},
		"the names, of another boot":               {netdb.Lease{HostInterface: "veth1", Netns: path, Plug: netdb.Plug{Boot: "another", Index: 7, Inode: 70}}, seen, false},
		"a later link of the name":                 {netdb.Lease{HostInterface: "veth1", Plug: plug}, like(func(s *census.Sighting) { s.Index = 8 }), false},
		"a later namespace of the name":            {netdb.Lease{HostInterface: "veth1", Netns: path, Plug: plug}, like(func(s *census.Sighting) { s.Inode = 71 }), false},
		"a namespace without a name":               {netdb.Lease{HostInterface: "veth1", Netns: path, Plug: plug}, like(func(s *census.Sighting) { s.Inode = 0 }), true},
		"the namespace alone is recorded":          {netdb.Lease{Netns: path, Plug: netdb.Plug{Boot: boot, Inode: 70}}, seen, true},
		"neither is known to be the same":          {netdb.Lease{Netns: path, Plug: netdb.Plug{Boot: boot, Inode: 70}}, like(func(s *census.Sighting) { s.Inode = 0 }), false},
		"its link, renamed":                        {netdb.Lease{HostInterface: "veth2", Plug: plug}, seen, false},
		"on the wire alone":                        {netdb.Lease{HostInterface: "veth1", Plug: plug}, like(func(s *census.Sighting) { s.Witness = census.Neighbour }), false},
		"one of its prefix, with a MAC of its own": {netdb.Lease{HostInterface: "veth1", MAC: other, PrefixLen: 28, Plug: plug}, seen, true},
	} {
		t.Run(name, func(t *testing.T) {
			l := tt.lease
			l.Sandbox, l.State = "a", netdb.Bound
			if live := len(new(Leases).Live(&l, []census.Sighting{tt.seen}, nil)) > 0; live != tt.live {
				t.Errorf("it lives: %v", live)
			}
		})
	}
}
