package catch

import (
	"testing"

	"github.com/ipamd/ipamd/ipam"
)

// inBook are leases, and a book of which nothing else is asked.
type inBook struct {
	Book
	leases []*ipam.Lease
}

func (b inBook) InState(s ipam.State) (out []*ipam.Lease) {
	for _, l := range b.leases {
		if l.State == s {
			out = append(out, l)
		}
	}
	return out
}

// TestZ2WhosePortIsWatched: the link that a lease records, and else the one of its name, which
// may be another sandbox's since: what reaches that one is not watched, nor held back.
func TestZ2WhosePortIsWatched(t *testing.T) {
	boot := ipam.Now().BootID
	p := &ports{names: map[string]int{"veth3": 3, "veth6": 6}}
	c := &Catcher{cfg: Config{Ports: p, Book: inBook{leases: []*ipam.Lease{
		{ID: "a", UID: "another", State: ipam.Bound, Plug: ipam.Plug{Boot: boot, Index: 6}},
		{ID: "e", UID: "another", State: ipam.Cooling, Plug: ipam.Plug{Boot: boot, Index: 3}},
	}}}}
	then := ipam.Plug{Boot: "then", Index: 6}
	for what, of := range map[string]struct {
		l    ipam.Lease
		want string
	}{
		"by its name":                    {ipam.Lease{HostInterface: "veth3"}, "veth3"},
		"recorded before the last boot":  {ipam.Lease{HostInterface: "veth3", Plug: then}, "veth3"},
		"renamed since":                  {ipam.Lease{HostInterface: "veth5", Plug: ipam.Plug{Boot: boot, Index: 3}}, "veth3"},
		"a new link of its name":         {ipam.Lease{HostInterface: "veth3", Plug: ipam.Plug{Boot: boot, Index: 9}}, ""},
		"its name is another sandbox's":  {ipam.Lease{HostInterface: "veth6"}, ""},
		"the same since the last boot":   {ipam.Lease{HostInterface: "veth6", Plug: then}, ""},
		"the other lease of its sandbox": {ipam.Lease{HostInterface: "veth6", UID: "another"}, "veth6"},
		"no port of its name":            {ipam.Lease{HostInterface: "veth5"}, ""},
		"no name":                        {ipam.Lease{}, ""},
	} {
		if got, _ := c.portOf()(&of.l); got.Name != of.want || got.Index != p.names[of.want] {
			t.Errorf("%s: %v, want %q", what, got, of.want)
		}
	}
}
