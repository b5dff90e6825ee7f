package nstest

import (
	"fmt"
	"net"
	"testing"

	"github.com/vishvananda/netlink"
)

// A Port is a namespace of its own behind a port of a bridge, as a container
// has it: a veth pair, whose far end is eth0 in NS.
type Port struct {
	NS       *NS
	HostName string           // the near end, a port of the bridge
	MAC      net.HardwareAddr // of eth0

	host *NS
	t    testing.TB
}

// Port makes a namespace with an eth0 that has the given addresses and is a
// port of the bridge. Both ends are up, and eth0 can be used at once.
func (n *NS) Port(bridge string, cidrs ...string) *Port {
	n.t.Helper()
	br, err := n.nl.LinkByName(bridge)
	if err != nil {
		n.t.Fatalf("look up bridge %s in %s: %v", bridge, n.name, err)
	}
	n.mu.Lock()
	n.ports++
	i := n.ports
	n.mu.Unlock()

	p := &Port{
		NS:       New(n.t),
		HostName: fmt.Sprintf("veth%d", i),
		MAC:      net.HardwareAddr{0x02, 0, 0, byte(i >> 16), byte(i >> 8), byte(i)},
		host:     n,
		t:        n.t,
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name = p.HostName
	attrs.MasterIndex = br.Attrs().Index
	attrs.Flags = net.FlagUp
	veth := netlink.NewVeth(attrs)
	veth.PeerName = "eth0"
	veth.PeerHardwareAddr = p.MAC
	veth.PeerNamespace = netlink.NsFd(p.NS.ns)
	if err := n.nl.LinkAdd(veth); err != nil {
		n.t.Fatalf("add port %s to %s in %s: %v", p.HostName, bridge, n.name, err)
	}
	eth0, err := p.NS.nl.LinkByName("eth0")
	if err == nil {
		err = p.NS.nl.LinkSetUp(eth0)
	}
	if err != nil {
		n.t.Fatalf("set eth0 up in %s: %v", p.NS.name, err)
	}
	for _, cidr := range cidrs {
		p.AddAddr(cidr)
	}
	return p
}

// AddAddr puts an address ("10.8.0.7/24") on eth0, ready at once.
func (p *Port) AddAddr(cidr string) {
	p.t.Helper()
	p.NS.AddAddr("eth0", cidr)
}

// DelAddr takes an address off eth0.
func (p *Port) DelAddr(cidr string) {
	p.t.Helper()
	p.NS.DelAddr("eth0", cidr)
}

// Close takes the port off the bridge, at once, and its namespace away.
func (p *Port) Close() {
	p.t.Helper()
	l, err := p.host.nl.LinkByName(p.HostName)
	if err == nil {
		err = p.host.nl.LinkDel(l)
	}
	if err != nil {
		p.t.Fatalf("take port %s away in %s: %v", p.HostName, p.host.name, err)
	}
	p.NS.Delete()
}
