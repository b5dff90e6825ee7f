package bridge

import (
	"context"
	"net/netip"
	"testing"

	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/internal/nstest"
)

// What the kernel says has ended, and what says nothing: a recorded index may be of another sandbox's
// link by now, and a name alone, or a link alone, is not the whole of a sandbox.
func TestEnded(t *testing.T) {
	t.Parallel()
	ns := nstest.New(t)
	ns.Bridge("rt0", "10.8.0.1/24")
	p := ns.Port("rt0")
	v := open(t, ns)
	link, err := ns.Netlink().LinkByName(p.HostName)
	if err != nil {
		t.Fatal(err)
	}
	index, inode := link.Attrs().Index, uint64(1)
	_, its := v.PlugOf(context.Background(), "", p.NS.Path())
	const gone, nowhere = 9999, "/run/netns/ipamd-no-such-namespace"
	another := func(int) bool { return true }
	for name, tt := range map[string]struct {
		at    census.LastKnown
		ended bool
	}{
		"nothing is recorded":                                           {census.LastKnown{}, false},
		"a link without a namespace":                                    {census.LastKnown{Link: gone}, false},
		"a namespace without a link":                                    {census.LastKnown{Netns: nowhere, Inode: inode}, false},
		"a namespace whose number is not known":                         {census.LastKnown{Link: gone, Netns: nowhere}, false},
		"link and namespace":                                            {census.LastKnown{Link: gone, Netns: nowhere, Inode: inode}, true},
		"the path leads to another":                                     {census.LastKnown{Link: gone, Netns: p.NS.Path(), Inode: its + 1}, true},
		"the namespace is there":                                        {census.LastKnown{Link: gone, Netns: p.NS.Path(), Inode: its}, false},
		"a link of the name":                                            {census.LastKnown{Link: gone, Name: p.HostName, Netns: nowhere, Inode: inode}, false},
		"a link of the index":                                           {census.LastKnown{Link: index, Name: "gone0", Netns: nowhere, Inode: inode}, false},
		"the index is another sandbox's":                                {census.LastKnown{Link: index, Name: "gone0", Netns: nowhere, Inode: inode, Taken: another}, true},
		"the MAC at its far end is another":                             {census.LastKnown{Link: index, Name: "gone0", Netns: nowhere, Inode: inode, MAC: "02:00:00:00:99:99"}, true},
		"the MAC at its far end is the sandbox's":                       {census.LastKnown{Link: index, Name: "gone0", Netns: nowhere, Inode: inode, MAC: p.MAC.String(), Taken: another}, false},
		"the port that it was last seen behind":                         {census.LastKnown{Behind: index, Netns: nowhere, Inode: inode}, false},
		"that port is another sandbox's":                                {census.LastKnown{Behind: index, Netns: nowhere, Inode: inode, Taken: another}, true},
		"that port leads to another MAC, which a guest may have chosen": {census.LastKnown{Behind: index, Netns: nowhere, Inode: inode, MAC: "02:00:00:00:99:99"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			if ended, err := v.Ended(context.Background(), tt.at); ended != tt.ended || err != nil {
				t.Errorf("%v, %v", ended, err)
			}
		})
	}
	if says, err := v.Beside(context.Background(), func(a netip.Addr) bool { return a == netip.MustParseAddr("10.8.0.1") }); says != "" || err != nil {
		t.Errorf("the host's own address is beside the bridge: %q, %v", says, err)
	}
}
