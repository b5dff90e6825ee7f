package nstest

import (
	"net"

	"github.com/vishvananda/netlink"
)

// mostSources is how many MACs one request can give a link: its attributes end at 64 KiB.
const mostSources = 5000

// LongLink makes a macvlan on a link that takes in frames of so many MACs only, each of
// which adds 12 bytes to all that the kernel says of it. Beyond 5 000 each
// is a request of its own, and a message to all that listen. It returns its index.
func (n *NS) LongLink(parent, name string, sources int) int {
	n.t.Helper()
	up, err := n.nl.LinkByName(parent)
	if err != nil {
		n.t.Fatalf("look up %s in %s: %v", parent, n.name, err)
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.ParentIndex = name, up.Attrs().Index
	l := &netlink.Macvlan{LinkAttrs: attrs, Mode: netlink.MACVLAN_MODE_SOURCE}
	if err := n.nl.LinkAdd(l); err != nil {
		n.t.Fatalf("make %s in %s: %v", name, n.name, err)
	}
	var macs []net.HardwareAddr
	for i := range sources {
		macs = append(macs, net.HardwareAddr{0x02, 0x99, 0, byte(i >> 16), byte(i >> 8), byte(i)})
	}
	first := min(len(macs), mostSources)
	err = n.nl.MacvlanMACAddrSet(l, macs[:first])
	for _, m := range macs[first:] {
		if err == nil {
			err = n.nl.MacvlanMACAddrAdd(l, m)
		}
	}
	if err != nil {
		n.t.Fatalf("give %s in %s its sources: %v", name, n.name, err)
	}
	return l.Index
}
