package enforce_test

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/ipamd/ipamd/enforce"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/workload"
)

// TestE8WhichPortIsALeases: by the link that it records, while that is of this boot, and
// else by name, which may be another sandbox's now; a state that ends a lease ends its grants.
func TestE8WhichPortIsALeases(t *testing.T) {
	ports := []enforce.Port{{Index: 3, Name: "veth3"}, {Index: 4, Name: "veth4"}, {Index: 6, Name: "veth6"}}
	now := func(index int) ipam.Plug { return ipam.Plug{Boot: "now", Index: index} }
	recorded := workload.RecordedBy([]*ipam.Lease{
		{ID: "a", UID: "another", State: ipam.Bound, Plug: now(6)},
		{ID: "e", UID: "another", State: ipam.Cooling, Plug: now(3)},
		{ID: "o", UID: "another", State: ipam.Bound, Plug: ipam.Plug{Boot: "then", Index: 3}},
		{ID: "n", UID: "another", State: ipam.Bound},
		{ID: "w", UID: "another", State: ipam.Bound, HostInterface: "veth4", Created: ipam.Stamp{BootID: "now"}},
		{ID: "q", UID: "another", State: ipam.Bound, HostInterface: "veth3", Created: ipam.Stamp{BootID: "then"}, Since: ipam.Stamp{BootID: "then"}},
	}, "now")
	bound := func(change func(*ipam.Lease)) *ipam.Lease {
		l := &ipam.Lease{ID: "l", UID: "own", Addr: b6, State: ipam.Bound, HostInterface: "veth3"}
		change(l)
		return l
	}
	for what, c := range map[string]struct {
		l    *ipam.Lease
		want []int
	}{
		"by its name":   {bound(func(*ipam.Lease) {}), []int{3}},
		"renamed since": {bound(func(l *ipam.Lease) { l.Plug = ipam.Plug{Boot: "now", Index: 4} }), []int{4}},
		"renamed, and another leads into its namespace":      {bound(func(l *ipam.Lease) { l.Netns, l.Plug = "/ns", ipam.Plug{Boot: "now", Index: 6, At: 9} }), nil},
		"a new link of its name":                             {bound(func(l *ipam.Lease) { l.Plug = ipam.Plug{Boot: "now", Index: 9} }), nil},
		"recorded before the last boot":                      {bound(func(l *ipam.Lease) { l.Plug = ipam.Plug{Boot: "then", Index: 9} }), []int{3}},
		"its name is another sandbox's":                      {bound(func(l *ipam.Lease) { l.HostInterface = "veth6" }), nil},
		"the same since the last boot":                       {bound(func(l *ipam.Lease) { l.HostInterface, l.Plug = "veth6", ipam.Plug{Boot: "then", Index: 6} }), nil},
		"the other lease of its sandbox":                     {bound(func(l *ipam.Lease) { l.HostInterface, l.UID = "veth6", "another" }), []int{6}},
		"a link that another records too":                    {bound(func(l *ipam.Lease) { l.HostInterface, l.Plug = "veth6", now(6) }), []int{6}},
		"another sandbox was bound to its name in this boot": {bound(func(l *ipam.Lease) { l.HostInterface = "veth4" }), nil},
		"both were":                       {bound(func(l *ipam.Lease) { l.HostInterface, l.Plug = "veth4", now(0) }), []int{4}},
		"no port of its name":             {bound(func(l *ipam.Lease) { l.HostInterface = "veth5" }), nil},
		"by its namespace":                {bound(func(l *ipam.Lease) { l.HostInterface, l.Netns = "", "/ns" }), []int{4}},
		"neither":                         {bound(func(l *ipam.Lease) { l.HostInterface = "" }), nil},
		"paused":                          {bound(func(l *ipam.Lease) { l.State = ipam.Paused }), []int{3}},
		"released, and not confirmed yet": {bound(func(l *ipam.Lease) { l.State = ipam.Releasing }), []int{3}},
		"cooling":                         {bound(func(l *ipam.Lease) { l.State = ipam.Cooling }), nil},
		"quarantined":                     {bound(func(l *ipam.Lease) { l.State = ipam.Quarantined }), nil},
	} {
		if got := enforce.Where(c.l, ports, recorded, func(*ipam.Lease) []int { return []int{4, 77} }); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", what, got, c.want)
		}
	}
}

// TestGrantsOfADelegatedPrefix: a lease of a prefix allows all of it.
func TestGrantsOfADelegatedPrefix(t *testing.T) {
	l := &ipam.Lease{ID: "l", Addr: netip.MustParseAddr("fd00:9::"), PrefixLen: 64, MAC: "02:00:00:00:00:01"}
	got := enforce.Grants(l, []int{3})
	if want := []enforce.Grant{{Lease: "l", Port: 3, MAC: l.MAC, Addr: netip.MustParsePrefix("fd00:9::/64")}}; !slices.Equal(got, want) {
		t.Errorf("grants are %+v, want %+v", got, want)
	}
	l.PrefixLen, l.State, l.HostInterface = 0, ipam.Paused, "veth3"
	if got := enforce.Grants(l, nil); len(got) != 1 || got[0].Port != 0 {
		t.Errorf("of a lease whose port is gone: %+v", got)
	}
	l.HostInterface, l.Netns = "", "/ns"
	if got := enforce.Grants(l, nil); len(got) != 1 || got[0].Port != 0 {
		t.Errorf("of a paused lease whose namespace is gone: %+v", got)
	}
	l.State = ipam.Bound
	if got := enforce.Grants(l, nil); len(got) != 0 {
		t.Errorf("of a bound lease into whose namespace no port leads: %+v", got)
	}
	l.Netns = ""
	if got := enforce.Grants(l, nil); len(got) != 0 {
		t.Errorf("of a lease that never named one: %+v", got)
	}
	l.State = ipam.Cooling
	if got := enforce.Grants(l, nil); len(got) != 0 {
		t.Errorf("of a lease that has ended: %+v", got)
	}
	if got := enforce.Grants(l, []int{3}); got[0].Addr != netip.MustParsePrefix("fd00:9::/128") {
		t.Errorf("of one address: %+v", got)
	}
}
