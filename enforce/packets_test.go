package enforce_test

import (
	"bytes"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/ipamd/ipamd/enforce"
	"github.com/ipamd/ipamd/internal/icmp6"
	"github.com/ipamd/ipamd/internal/nstest"
	"github.com/ipamd/ipamd/nft"
)

const wait = 60 * time.Second

// A scene is a bridge with ports: a has a lease of each family and a delegated prefix, b
// one, c one that records no MAC, d none; the listener is on e. A hibernated lease has no
// port.
type scene struct {
	t          *testing.T
	ns         *nstest.NS
	conn       *nft.Conn
	a, b, c, d *nstest.Port
	wires      map[*nstest.Port]*nstest.Wire
	raw        *nstest.Wire
	grants     []enforce.Grant
	ports      []enforce.Port
	bridges    []enforce.Bridge
	marks      int
	trunk      bool // d may send frames with VLAN tags
}

var (
	gateway  = netip.MustParseAddr("10.8.0.1")
	gateway6 = netip.MustParseAddr("fd00:8::1")
	a4, b4   = netip.MustParseAddr("10.8.0.2"), netip.MustParseAddr("10.8.0.3")
	c4, x4   = netip.MustParseAddr("10.8.0.4"), netip.MustParseAddr("10.8.0.99")
	a6, b6   = netip.MustParseAddr("fd00:8::2"), netip.MustParseAddr("fd00:8::3")
	p6, x6   = netip.MustParseAddr("fd00:9::77"), netip.MustParseAddr("fd00:8::99")
	p4, q4   = netip.MustParseAddr("10.8.0.70"), netip.MustParseAddr("10.8.0.143")
	h4       = netip.MustParseAddr("10.8.0.5")
	private  = netip.MustParseAddr("fe80::1234")

	bridgeMAC = net.HardwareAddr{0x02, 0x42, 0, 0, 0, 1} // as nstest gives it to a bridge
)

func newScene(t *testing.T) *scene {
	s := &scene{t: t, ns: nstest.New(t), wires: map[*nstest.Port]*nstest.Wire{}}
	s.ns.Bridge("rt0", "10.8.0.1/24")
	s.bridges = []enforce.Bridge{{Name: "rt0", MAC: bridgeMAC.String()}}
	s.a, s.b, s.c, s.d = s.ns.Port("rt0"), s.ns.Port("rt0"), s.ns.Port("rt0"), s.ns.Port("rt0")
	e := s.ns.Port("rt0")
	s.raw = e.NS.Wire("eth0")
	for _, p := range []*nstest.Port{s.a, s.b, s.c, s.d, e} {
		s.ports = append(s.ports, enforce.Port{Index: s.index(p), Name: p.HostName, Bridge: "rt0"})
		s.wires[p] = p.NS.Wire("eth0")
	}
	grant := func(lease string, p *nstest.Port, mac net.HardwareAddr, cidr string) {
		g := enforce.Grant{Lease: lease, Port: s.index(p), Addr: netip.MustParsePrefix(cidr)}
		if mac != nil {
			g.MAC = mac.String()
		}
		s.grants = append(s.grants, g)
	}
	grant("a", s.a, s.a.MAC, "10.8.0.2/32")
	grant("a6", s.a, s.a.MAC, "fd00:8::2/128")
	grant("ap", s.a, s.a.MAC, "fd00:9::/64")
	grant("ap4", s.a, s.a.MAC, "10.8.0.64/28")
	grant("cp4", s.c, nil, "10.8.0.128/28")
	grant("b", s.b, s.b.MAC, "10.8.0.3/32")
	grant("b6", s.b, s.b.MAC, "fd00:8::3/128")
	grant("c", s.c, nil, "10.8.0.4/32")
	s.grants = append(s.grants, enforce.Grant{Lease: "h", MAC: "02:00:00:00:00:05", Addr: netip.MustParsePrefix("10.8.0.5/32")})
	s.ns.Do(func() {
		var err error
		if s.conn, err = nft.Open(); err != nil {
			t.Fatal(err)
		}
	})
	t.Cleanup(func() { _ = s.conn.Close() })
	return s
}

func (s *scene) index(p *nstest.Port) int {
	s.t.Helper()
	l, err := s.ns.Netlink().LinkByName(p.HostName)
	if err != nil {
		s.t.Fatal(err)
	}
	return l.Attrs().Index
}

func (s *scene) world() enforce.World {
	return enforce.World{Epoch: "e", Revision: 7, Grants: s.grants, Ports: s.ports, Gateways: []netip.Addr{gateway, gateway6}, Bridges: s.bridges}
}

func (s *scene) apply(p enforce.Policy) *nft.Table {
	s.t.Helper()
	want := enforce.Ruleset(p, s.world())
	have, err := s.conn.Read(s.t.Context(), want)
	if err == nil {
		err = s.conn.Apply(s.t.Context(), have, want)
	}
	if err != nil {
		s.t.Fatal(err)
	}
	return want
}

// passes sends a frame and, behind it, one that anybody on that port may send, and reports
// whether the first was received before the second.
func (s *scene) passes(p *nstest.Port, frame []byte) bool {
	s.t.Helper()
	s.marks++
	own := map[*nstest.Port]netip.Addr{s.a: a4, s.b: b4, s.c: c4, s.d: x4}[p]
	frame = longer(frame, fmt.Sprintf("frame %d", s.marks))
	last := longer(ip4(p.MAC, own, gateway), fmt.Sprintf("behind it %d", s.marks))
	s.wires[p].Send(frame, last)
	arrived := false
	for {
		got, ok := s.raw.Receive(wait)
		if !ok {
			s.t.Fatal("the frame behind it was not received")
		}
		arrived = arrived || bytes.Equal(got, frame) || bytes.Equal(got, untagged(frame))
		if bytes.Equal(got, last) {
			return arrived
		}
	}
}

func (s *scene) counted(of *nft.Table, p *nstest.Port, r enforce.Reason) (n uint64) {
	s.t.Helper()
	list, err := s.conn.Counters(of, of.Set("refused_"+string(r)))
	if err != nil {
		s.t.Fatal(err)
	}
	for _, c := range list {
		if c.Key == nft.Key(s.index(p)) {
			n += c.Packets
		}
	}
	return n
}

// A packet is one that a port sends; reason is why it is refused, "" if it passes.
type packet struct {
	what   string
	from   *nstest.Port
	frame  []byte
	reason enforce.Reason
}

func (s *scene) packets() []packet {
	am, bm, cm := s.a.MAC, s.b.MAC, s.c.MAC
	strange := net.HardwareAddr{2, 0, 0, 0, 0xee, 1}
	ownLL, otherLL := icmp6.LinkLocal(am), icmp6.LinkLocal(bm)
	any4 := netip.MustParseAddr("10.8.0.255")
	ff := netip.MustParseAddr("ff02::1")
	hibernated := net.HardwareAddr{2, 0, 0, 0, 0, 5}
	trunk := enforce.OtherType
	if s.trunk {
		trunk = ""
	}
	var beside []packet // by one byte each: a kernel's set of ranges may compare fewer
	for i := range 8 {
		from := p6.As16()
		from[i] ^= 1
		beside = append(beside, packet{fmt.Sprintf("IPv6 beside its prefix by byte %d", i), s.a, udp6(am, netip.AddrFrom16(from), ff), enforce.NotItsIPv6})
	}
	return append(beside, []packet{
		{"its IPv4", s.a, ip4(am, a4, any4), ""},
		{"its ARP request", s.a, arp(1, am, am, a4, b4), ""},
		{"its ARP reply", s.a, arp(2, am, am, a4, gateway), ""},
		{"its gratuitous ARP", s.a, arp(1, am, am, a4, a4), ""},
		{"its ARP probe", s.a, arp(1, am, am, zero, a4), ""},
		{"its IPv6", s.a, udp6(am, a6, ff), ""},
		{"IPv6 in its prefix", s.a, udp6(am, p6, ff), ""},
		{"IPv4 in its prefix", s.a, ip4(am, p4, any4), ""},
		{"IPv4 in its prefix, without a MAC", s.c, ip4(strange, q4, any4), ""},
		{"ARP in its prefix", s.a, arp(2, am, am, p4, gateway), ""},
		{"an ARP probe in its prefix", s.a, arp(1, am, am, zero, p4), ""},
		{"ARP in its prefix, without a MAC", s.c, arp(2, strange, strange, q4, gateway), ""},
		{"its link-local address", s.a, udp6(am, ownLL, ff), ""},
		{"a link-local address that no lease has", s.a, udp6(am, private, ff), ""},
		{"its DAD", s.a, nd(am, 135, zero6, a6, false), ""},
		{"its link-local DAD", s.a, nd(am, 135, zero6, ownLL, false), ""},
		{"DAD in its prefix", s.a, nd(am, 135, zero6, p6, false), ""},
		{"the groups that go with it", s.a, mld(am), ""},
		{"its question for a neighbour", s.a, nd(am, 135, a6, b6, false), ""},
		{"its advertisement", s.a, nd(am, 136, a6, a6, false), ""},
		{"its link-local advertisement", s.a, nd(am, 136, ownLL, ownLL, false), ""},
		{"IPv4 of a lease without a MAC", s.c, ip4(cm, c4, any4), ""},
		{"ARP of a lease without a MAC, by any", s.c, arp(1, strange, strange, c4, b4), ""},
		{"what no lease has, without a lease", s.d, ip4(s.d.MAC, x4, any4), ""},
		{"IPv6 that no lease has, without a lease", s.d, udp6(s.d.MAC, x6, ff), ""},

		{"a neighbour's IPv4", s.a, ip4(am, b4, any4), enforce.NotItsIPv4},
		{"IPv4 that no lease has", s.a, ip4(am, x4, any4), enforce.NotItsIPv4},
		{"the gateway's IPv4", s.a, ip4(am, gateway, any4), enforce.NotItsIPv4},
		{"0.0.0.0, as DHCP", s.a, ip4(am, zero, any4), enforce.NotItsIPv4},
		{"0.0.0.0 by a neighbour's MAC", s.a, ip4(bm, zero, any4), enforce.NotItsMAC},
		{"its IPv4 by a neighbour's MAC", s.a, ip4(bm, a4, any4), enforce.NotItsMAC},
		{"its IPv4 by a strange MAC", s.a, ip4(strange, a4, any4), enforce.NotItsMAC},
		{"a neighbour's IPv4 by its MAC", s.a, ip4(bm, b4, any4), enforce.NotItsMAC},
		{"ARP for a neighbour", s.a, arp(2, am, am, b4, gateway), enforce.NotItsARP},
		{"ARP for the gateway", s.a, arp(2, am, am, gateway, b4), enforce.NotItsARP},
		{"ARP that names a neighbour's MAC", s.a, arp(2, am, bm, a4, gateway), enforce.NotItsARP},
		{"an ARP probe for a neighbour's", s.a, arp(1, am, am, zero, b4), enforce.NotItsARP},
		{"ARP of another length", s.a, nstest.Frame(everyone, am, 0x0806, make([]byte, 46)...), enforce.NotItsARP},
		{"a neighbour's IPv6", s.a, udp6(am, b6, ff), enforce.NotItsIPv6},
		{"the gateway's IPv6", s.a, udp6(am, gateway6, ff), enforce.NotItsIPv6},
		{"IPv6 beside its prefix", s.a, udp6(am, netip.MustParseAddr("fd00:9:0:1::1"), ff), enforce.NotItsIPv6},
		{"IPv4 beside its prefix", s.a, ip4(am, netip.MustParseAddr("10.8.0.80"), any4), enforce.NotItsIPv4},
		{"IPv4 in a neighbour's prefix", s.b, ip4(bm, p4, any4), enforce.NotItsIPv4},
		{"ARP in a neighbour's prefix", s.b, arp(2, bm, bm, p4, gateway), enforce.NotItsARP},
		{"ARP in its prefix that names a neighbour's MAC", s.a, arp(2, am, bm, p4, gateway), enforce.NotItsARP},
		{"an ARP probe in a neighbour's prefix", s.b, arp(1, bm, bm, zero, p4), enforce.NotItsARP},
		{"IPv4 in a lease's prefix, without a lease", s.d, ip4(s.d.MAC, p4, any4), enforce.NotItsIPv4},
		{"ARP in a lease's prefix, without a lease", s.d, arp(2, s.d.MAC, s.d.MAC, p4, gateway), enforce.NotItsARP},
		{"IPv6 in a lease's prefix, without a lease", s.d, udp6(s.d.MAC, p6, ff), enforce.NotItsIPv6},
		{"an advertisement in a lease's prefix, without one", s.d, nd(s.d.MAC, 136, x6, p6, false), enforce.NotItsND},
		{"DAD in a lease's prefix, without one", s.d, nd(s.d.MAC, 135, zero6, p6, false), enforce.NotItsND},
		{"a neighbour's link-local address", s.a, udp6(am, otherLL, ff), enforce.NotItsIPv6},
		{":: with data", s.a, udp6(am, zero6, ff), enforce.NotItsIPv6},
		{"an advertisement for a neighbour", s.a, nd(am, 136, a6, b6, false), enforce.NotItsND},
		{"the same behind a hop-by-hop header", s.a, nd(am, 136, a6, b6, true), enforce.NotItsND},
		{"an advertisement for the gateway", s.a, nd(am, 136, ownLL, gateway6, false), enforce.NotItsND},
		{"one for a neighbour's link-local address", s.a, nd(am, 136, ownLL, otherLL, false), enforce.NotItsND},
		{"DAD for a neighbour's", s.a, nd(am, 135, zero6, b6, false), enforce.NotItsND},
		{"a router's advertisement", s.a, nd(am, 134, ownLL, a6, false), enforce.NotItsND},
		{"a redirect", s.a, nd(am, 137, ownLL, a6, false), enforce.NotItsND},
		{"its IPv4 with a VLAN tag", s.a, tagged(ip4(am, a4, any4), 0x8100, 7), enforce.OtherType},
		{"ARP for a neighbour with a VLAN tag", s.a, tagged(arp(2, am, am, b4, gateway), 0x8100, 7), enforce.OtherType},
		{"a neighbour's IPv4, without a MAC", s.c, ip4(cm, b4, any4), enforce.NotItsIPv4},
		{"ARP for a neighbour, without a MAC", s.c, arp(2, cm, cm, b4, gateway), enforce.NotItsARP},
		{"a lease's IPv4, without a lease", s.d, ip4(s.d.MAC, b4, any4), enforce.NotItsIPv4},
		{"the gateway's, without a lease", s.d, arp(2, s.d.MAC, s.d.MAC, gateway, b4), enforce.NotItsARP},
		{"a lease's ARP, without a lease", s.d, arp(2, s.d.MAC, s.d.MAC, b4, gateway), enforce.NotItsARP},
		{"a lease's IPv6, without a lease", s.d, udp6(s.d.MAC, b6, ff), enforce.NotItsIPv6},
		{"an ARP probe for a lease's, without a lease", s.d, arp(1, s.d.MAC, s.d.MAC, zero, b4), ""},
		{"an ARP probe in a lease's prefix, without a lease", s.d, arp(1, s.d.MAC, s.d.MAC, zero, p4), ""},
		{"an ARP probe for an address that no lease has, without a lease", s.d, arp(1, s.d.MAC, s.d.MAC, zero, x4), ""},
		{"ARP for an address that no lease has, which names a lease's MAC, without a lease", s.d, arp(2, s.d.MAC, bm, x4, gateway), enforce.NotItsARP},
		{"its ARP that names a neighbour's MAC, without a MAC of its own", s.c, arp(2, cm, bm, c4, gateway), enforce.NotItsARP},
		{"a probe for its own that names a neighbour's MAC, without one of its own", s.c, arp(1, cm, bm, zero, c4), enforce.NotItsARP},
		{"a router's advertisement, without a lease", s.d, nd(s.d.MAC, 134, private, x6, false), ""},
		{"an advertisement for a lease, without one", s.d, nd(s.d.MAC, 136, x6, b6, false), enforce.NotItsND},
		{"a VLAN tag, without a lease", s.d, tagged(ip4(s.d.MAC, x4, any4), 0x8100, 7), trunk},
		{"a VLAN tag that is none, without a lease", s.d, tagged(arp(2, s.d.MAC, s.d.MAC, b4, gateway), 0x8100, 0), enforce.OtherType},
		{"one of 802.1ad", s.d, tagged(arp(2, s.d.MAC, s.d.MAC, b4, gateway), 0x88a8, 0), enforce.OtherType},
		{"IPv4 that no lease has by a lease's MAC, without one", s.d, ip4(bm, x4, any4), enforce.NotItsMAC},
		{"what is not IP by a lease's MAC, without one", s.d, nstest.Frame(everyone, bm, 0x8137, make([]byte, 46)...), enforce.NotItsMAC},
		{"its IPv4 by a neighbour's MAC, without a MAC of its own", s.c, ip4(bm, c4, any4), enforce.NotItsMAC},
		{"a hibernated lease's IPv4, without a lease", s.d, ip4(s.d.MAC, h4, any4), enforce.NotItsIPv4},
		{"a hibernated lease's ARP, without a lease", s.d, arp(2, s.d.MAC, s.d.MAC, h4, gateway), enforce.NotItsARP},
		{"by a hibernated lease's MAC, without a lease", s.d, ip4(hibernated, x4, any4), enforce.NotItsMAC},
		{"DAD for a lease, without one", s.d, nd(s.d.MAC, 135, zero6, b6, false), enforce.NotItsND},
	}...)
}

// TestE1APortSendsWhatItsLeasesAllow: every kind of packet, received or not on another port,
// and counted for the port and the reason.
func TestE1APortSendsWhatItsLeasesAllow(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	table := s.apply(enforce.Policy{Mode: enforce.Enforce})
	s.each(table, func(p packet) bool { return p.reason == "" })
}

// TestE7ObserveCountsAndDropsNothing: the same packets, the same counters, and all of them
// are received.
func TestE7ObserveCountsAndDropsNothing(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	table := s.apply(enforce.Policy{Mode: enforce.Observe})
	s.each(table, func(packet) bool { return true })
}

func (s *scene) each(table *nft.Table, passes func(packet) bool) {
	s.t.Helper()
	for _, p := range s.packets() {
		before := map[enforce.Reason]uint64{}
		for _, r := range enforce.Reasons() {
			before[r] = s.counted(table, p.from, r)
		}
		if got := s.passes(p.from, p.frame); got != passes(p) {
			s.t.Errorf("%s: received is %v", p.what, got)
		}
		for _, r := range enforce.Reasons() {
			want := before[r]
			if r == p.reason {
				want++
			}
			// A port's own kernel sends too, and may be refused: never less.
			if got := s.counted(table, p.from, r); got < want || r != p.reason && p.reason != "" && got > want+8 {
				s.t.Errorf("%s: %d are refused as %s, and were %d", p.what, got, r, before[r])
			}
		}
	}
}

// TestE8GroupFramesWithoutALease: frames to the group addresses that a bridge does not forward
// reach the host itself, and by them too a port without a lease says nothing that is a
// lease's. Those to 00, where the bridge speaks STP, and to 0E no hook sees.
func TestE8GroupFramesWithoutALease(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	table := s.apply(enforce.Policy{Mode: enforce.Enforce})
	for _, last := range []byte{2, 3, 5, 0x0d, 0x0f} {
		for what, p := range map[string]packet{
			"a lease's ARP":           {frame: arp(2, s.d.MAC, s.d.MAC, b4, gateway), reason: enforce.NotItsARP},
			"a lease's IPv4":          {frame: ip4(s.d.MAC, b4, gateway), reason: enforce.NotItsIPv4},
			"by a lease's MAC":        {frame: ip4(s.b.MAC, x4, gateway), reason: enforce.NotItsMAC},
			"a VLAN tag that is none": {frame: tagged(ip4(s.d.MAC, b4, gateway), 0x8100, 0), reason: enforce.OtherType},
		} {
			before := s.counted(table, s.d, p.reason)
			copy(p.frame, []byte{1, 0x80, 0xc2, 0, 0, last})
			s.passes(s.d, p.frame)
			if got := s.counted(table, s.d, p.reason); got <= before {
				t.Errorf("01-80-C2-00-00-%02X, %s: nothing is refused", last, what)
			}
		}
		if at := s.ns.Exec("bridge", "fdb", "show", "br", "rt0"); strings.Contains(at, fmt.Sprintf("%s dev %s ", s.b.MAC, s.d.HostName)) {
			t.Errorf("01-80-C2-00-00-%02X: the bridge has b's MAC at d:\n%s", last, at)
		}
	}
}

// TestE8PortsWithoutALeaseDropAll: with unleased = drop such a port sends nothing at all.
func TestE8PortsWithoutALeaseDropAll(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.dropsAll(s.apply(enforce.Policy{Mode: enforce.Enforce, DropUnleased: true}))
}

// TestE8APortThatIsNotKnownYet: by a port in no set, plugged while no daemon runs, no other
// port receives a lease's address, and with unleased = drop nothing at all.
func TestE8APortThatIsNotKnownYet(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	for _, drop := range []bool{false, true} {
		table := s.apply(enforce.Policy{Mode: enforce.Enforce, DropUnleased: drop})
		p := s.ns.Port("rt0")
		wire := p.NS.Wire("eth0")
		claim := longer(arp(2, p.MAC, p.MAC, b4, gateway), fmt.Sprint("of a lease's ", drop))
		free := longer(arp(2, p.MAC, p.MAC, x4, gateway), fmt.Sprint("of none ", drop))
		reason, all := enforce.NotItsARP, uint64(1)
		if drop {
			reason, all = enforce.NoLease, 2
		}
		for end := time.Now().Add(wait); s.counted(table, p, reason) < all; time.Sleep(10 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("drop is %t, and nothing is refused", drop)
			}
			wire.Send(claim, free) // again: what comes before the port forwards is lost
		}
		last := longer(ip4(s.a.MAC, a4, gateway), fmt.Sprint("behind it ", drop))
		s.wires[s.a].Send(last)
		received := false
		for {
			got, ok := s.raw.Receive(wait)
			if !ok {
				t.Fatal("the frame behind it was not received")
			}
			if bytes.Equal(got, claim) {
				t.Errorf("drop is %t: a lease's address is received from a port that is not known", drop)
			}
			received = received || bytes.Equal(got, free)
			if bytes.Equal(got, last) {
				break
			}
		}
		if received == drop {
			t.Errorf("drop is %t, and an address that is no lease's is received: %t", drop, received)
		}
	}
}

// TestE1WhatIsForALeaseIsItsPortsAlone: a port in no set yet, plugged while no daemon runs, sends
// by a lease's MAC, and the bridge takes that to be there before any hook sees the frame. What
// is for the lease it does not receive, neither before the port is known nor after; and no
// other port does when the bridge does not know where the MAC is.
func TestE1WhatIsForALeaseIsItsPortsAlone(t *testing.T) {
	t.Parallel()
	for _, p := range []enforce.Policy{{Mode: enforce.Enforce}, {Mode: enforce.Enforce, DropUnleased: true}, {Mode: enforce.Observe}} {
		s := newScene(t)
		s.apply(p)
		impostor := s.ns.Port("rt0")
		listeners := map[string]*nstest.Wire{"b": s.wires[s.b], "the impostor": impostor.NS.Wire("eth0"), "d": s.wires[s.d]}
		s.wires[impostor] = listeners["the impostor"]
		s.b.NS.Do(func() { // its kernel sends nothing by itself
			if err := os.WriteFile("/proc/sys/net/ipv6/conf/eth0/disable_ipv6", []byte("1"), 0); err != nil {
				t.Fatal(err)
			}
		})
		s.ns.Exec("ip", "neigh", "replace", b4.String(), "lladdr", s.b.MAC.String(), "dev", "rt0")
		marks := 0
		// receive are those that receive what a, or the host, sends to b's MAC, and a behind that to all.
		receive := func(host bool) (who string) {
			t.Helper()
			marks++
			f := longer(ip4(s.a.MAC, a4, b4), fmt.Sprint("for b alone ", marks))
			copy(f, s.b.MAC)
			last := longer(ip4(s.a.MAC, a4, gateway), fmt.Sprint("for all ", marks))
			if host {
				f = fmt.Append(nil, "of the host for b alone ", marks)
				s.datagram(b4, f)
				s.wires[s.a].Send(last)
			} else {
				s.wires[s.a].Send(f, last)
			}
			for _, name := range []string{"b", "d", "the impostor"} {
				for end := false; !end; {
					got, ok := listeners[name].Receive(wait)
					if !ok {
						t.Fatal("the frame behind it was not received")
					}
					if bytes.Equal(got, f) || host && bytes.HasSuffix(got, f) {
						who += name + ", "
					}
					end = bytes.Equal(got, last)
				}
			}
			return who
		}
		want := func(what, who string) {
			t.Helper()
			for _, host := range []bool{false, true} {
				if got := receive(host); got != who {
					t.Errorf("%s, drop %t: %s, of the host %t: it is received by %q, and should be by %q", p.Mode, p.DropUnleased, what, host, got, who)
				}
			}
		}
		at := func(of *nstest.Port) bool {
			return strings.Contains(s.ns.Exec("bridge", "fdb", "show", "br", "rt0"), fmt.Sprintf("%s dev %s ", s.b.MAC, of.HostName))
		}
		known := func(of *nstest.Port, sends []byte) {
			t.Helper()
			for end := time.Now().Add(wait); !at(of); time.Sleep(10 * time.Millisecond) {
				if time.Now().After(end) {
					t.Fatal("the bridge does not take b's MAC to be at ", of.HostName)
				}
				s.wires[of].Send(sends)
			}
		}
		own, lie := ip4(s.b.MAC, b4, gateway), nstest.Frame(everyone, s.b.MAC, 0x0806, make([]byte, 46)...)
		none, flooded := "", "b, "
		if p.Mode == enforce.Observe {
			none, flooded = "the impostor, ", "b, d, the impostor, "
		}
		probe := longer(ip4(s.a.MAC, a4, gateway), "until the new port forwards")
		for end := time.Now().Add(wait); ; s.wires[s.a].Send(probe) {
			if got, ok := listeners["the impostor"].Receive(20 * time.Millisecond); ok && bytes.Equal(got, probe) {
				break
			}
			if time.Now().After(end) {
				t.Fatal("the new port receives nothing")
			}
		}
		known(s.b, own)
		want("before", "b, ")
		known(impostor, lie)
		want("stolen by a port that is not known", none)
		s.ports = append(s.ports, enforce.Port{Index: s.index(impostor), Name: impostor.HostName, Bridge: "rt0"})
		s.apply(p)
		want("and known since", none)
		known(s.b, own)
		want("received from b again", "b, ")
		s.ns.Exec("bridge", "fdb", "del", s.b.MAC.String(), "dev", s.b.HostName, "master")
		want("not learned", flooded)
	}
}

// TestE1WhatAnUnknownPortSendsALease: the bridge has a lease's MAC at another port since before the
// lease was bound, and by a port in no set a frame is sent to it: none receives it.
func TestE1WhatAnUnknownPortSendsALease(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.apply(enforce.Policy{Mode: enforce.Enforce})
	s.ns.Exec("bridge", "fdb", "replace", s.b.MAC.String(), "dev", s.d.HostName, "master", "static")
	p := s.ns.Port("rt0")
	wire := p.NS.Wire("eth0")
	f := longer(ip4(p.MAC, x4, b4), "for b alone")
	copy(f, s.b.MAC)
	last := longer(ip4(p.MAC, x4, gateway), "behind it")
	for end, twice := time.Now().Add(wait), 0; twice < 2; {
		wire.Send(f, last) // again: what comes before the port forwards is lost
		for behind := false; !behind; {
			got, ok := s.wires[s.d].Receive(0)
			if !ok {
				break
			}
			if bytes.Equal(got, f) {
				t.Fatal("another port receives it")
			}
			if behind = bytes.Equal(got, last); behind {
				twice++
			}
		}
		if time.Now().After(end) {
			t.Fatal("the frame behind it was not received")
		}
	}
}

// TestE1TheHostAndAPortThatIsNotKnownYet: by a port in no set yet the host receives no frame to a
// bridge's MAC that a port without a lease could not send. An ARP request to all it does receive,
// and takes what that says of a lease's address; but what it then sends to that address goes to
// the lease's port or to none, neither before the port is known nor after.
func TestE1TheHostAndAPortThatIsNotKnownYet(t *testing.T) {
	t.Parallel()
	for _, p := range []enforce.Policy{{Mode: enforce.Enforce}, {Mode: enforce.Enforce, DropUnleased: true}, {Mode: enforce.Observe}} {
		s := newScene(t)
		table := s.apply(p)
		impostor, host := s.ns.Port("rt0"), s.ns.Wire("rt0")
		raw := impostor.NS.Wire("eth0")
		toHost := func(f []byte, data string) []byte {
			f = longer(f, data)
			copy(f, bridgeMAC)
			return f
		}
		claim, reason := toHost(ip4(impostor.MAC, b4, gateway), "of a lease's address"), enforce.NotItsIPv4
		if p.DropUnleased {
			reason = enforce.NoLease
		}
		for end := time.Now().Add(wait); s.counted(table, impostor, reason) == 0; time.Sleep(10 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%s, drop %t: nothing is refused", p.Mode, p.DropUnleased)
			}
			raw.Send(claim)
		}
		last := toHost(ip4(s.a.MAC, a4, gateway), "behind it")
		s.wires[s.a].Send(last)
		for received, end := false, false; !end; {
			got, ok := host.Receive(wait)
			if !ok {
				t.Fatal("the frame behind it was not received")
			}
			received = received || bytes.Equal(got, claim)
			if end = bytes.Equal(got, last); end && received != (p.Mode == enforce.Observe) {
				t.Errorf("%s, drop %t: the host receives a lease's address from a port that is not known: %t", p.Mode, p.DropUnleased, received)
			}
		}
		s.ns.Exec("ip", "neigh", "replace", b4.String(), "lladdr", s.b.MAC.String(), "dev", "rt0", "nud", "stale")
		for end := time.Now().Add(wait); !strings.Contains(s.ns.Exec("ip", "neigh", "show", b4.String()), impostor.MAC.String()); time.Sleep(10 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("the host does not take b's address to be there")
			}
			raw.Send(arp(1, impostor.MAC, impostor.MAC, b4, gateway))
		}
		want := func(what string) {
			t.Helper()
			s.datagram(b4, []byte("for b alone, "+what))
			last := longer(ip4(s.a.MAC, a4, gateway), "for all, "+what)
			s.wires[s.a].Send(last)
			for received, end := false, false; !end; {
				got, ok := raw.Receive(wait)
				if !ok {
					t.Fatal("the frame behind it was not received")
				}
				received = received || bytes.HasSuffix(got, []byte("for b alone, "+what))
				if end = bytes.Equal(got, last); end && received != (p.Mode == enforce.Observe) {
					t.Errorf("%s, drop %t: %s: the port receives what the host sends to b: %t", p.Mode, p.DropUnleased, what, received)
				}
			}
		}
		want("not known")
		s.ports = append(s.ports, enforce.Port{Index: s.index(impostor), Name: impostor.HostName, Bridge: "rt0"})
		s.apply(p)
		want("known since")
	}
}

// TestE1ALinkLocalAddressIsOfItsBridge: no port of rt0 is fe80::1 or 169.254.169.254, which the bridge
// has, also one that is in no set; on rt9, which has neither, a guest may be either.
func TestE1ALinkLocalAddressIsOfItsBridge(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.ns.Bridge("rt9")
	router, metadata := netip.MustParseAddr("fe80::1"), netip.MustParseAddr("169.254.169.254")
	s.bridges[0].Addrs = []netip.Addr{router, metadata}
	s.bridges = append(s.bridges, enforce.Bridge{Name: "rt9"})
	leased, unleased, raw := s.ns.Port("rt9"), s.ns.Port("rt9"), s.ns.Port("rt9")
	for _, p := range []*nstest.Port{leased, unleased, raw} {
		s.ports = append(s.ports, enforce.Port{Index: s.index(p), Name: p.HostName, Bridge: "rt9"})
		s.wires[p] = p.NS.Wire("eth0")
	}
	s.grants = append(s.grants, enforce.Grant{Lease: "l", Port: s.index(leased), MAC: leased.MAC.String(), Addr: netip.MustParsePrefix("10.9.0.2/32")})
	s.apply(enforce.Policy{Mode: enforce.Enforce})
	unknown, unknown9 := s.ns.Port("rt0"), s.ns.Port("rt9")
	s.wires[unknown], s.wires[unknown9] = unknown.NS.Wire("eth0"), unknown9.NS.Wire("eth0")
	for _, c := range []struct {
		what   string
		from   *nstest.Port
		on     *nstest.Wire
		passes bool
		ip4    bool
	}{
		{"a lease of rt0", s.a, s.raw, false, false}, {"a lease of rt9", leased, s.wires[raw], true, false},
		{"a port of rt0", s.d, s.raw, false, true}, {"a port of rt9", unleased, s.wires[raw], true, true},
		{"a port of rt0 that is not known", unknown, s.raw, false, true}, {"a port of rt9 that is not known", unknown9, s.wires[raw], true, true},
	} {
		mac := c.from.MAC
		frames := map[string][]byte{"an advertisement": nd(mac, 136, private, router, false), "DAD": nd(mac, 135, zero6, router, false), "IPv6": udp6(mac, router, netip.MustParseAddr("ff02::1"))}
		if c.ip4 {
			frames["ARP"], frames["IPv4"] = arp(2, mac, mac, metadata, x4), ip4(mac, metadata, x4)
		}
		for kind, f := range frames {
			f = longer(f, c.what)
			last := longer(nd(mac, 136, private, private, false), c.what+kind)
			received := false
			for behind, end := 0, time.Now().Add(wait); behind < 2; {
				s.wires[c.from].Send(f, last) // again: what comes before a port forwards is lost
				for {
					got, ok := c.on.Receive(0)
					if !ok {
						break
					}
					received = received || bytes.Equal(got, f)
					if bytes.Equal(got, last) {
						behind++
						break
					}
				}
				if time.Now().After(end) {
					t.Fatalf("%s, %s: the frame behind it was not received", c.what, kind)
				}
			}
			if received != c.passes {
				t.Errorf("%s, %s: received is %t", c.what, kind, received)
			}
		}
	}
}

// datagram sends one of the host's own.
func (s *scene) datagram(to netip.Addr, data []byte) {
	s.t.Helper()
	var err error
	s.ns.Do(func() {
		var c net.Conn
		if c, err = net.Dial("udp", netip.AddrPortFrom(to, 9).String()); err == nil {
			_, err = c.Write(data)
			_ = c.Close()
		}
	})
	if err != nil {
		s.t.Fatal(err)
	}
}

// TestE8ATrustedPort: with unleased = drop a trusted port without a lease may send what is no
// lease's and no gateway's, as all may with allow; one with a lease is as every port, trusted or
// not; and the others without one send nothing.
func TestE8ATrustedPort(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	uplink := s.d
	s.trunk = true
	table := s.apply(enforce.Policy{Mode: enforce.Enforce, DropUnleased: true, Trusted: []string{s.a.HostName, uplink.HostName}})
	s.each(table, func(p packet) bool { return p.reason == "" })
	if n := s.counted(table, uplink, enforce.NoLease); n > 0 {
		t.Errorf("%d packets of the trusted port are refused for want of a lease", n)
	}
	s.d = s.ns.Port("rt0")
	s.ports = append(s.ports, enforce.Port{Index: s.index(s.d), Name: s.d.HostName, Bridge: "rt0"})
	s.wires[s.d] = s.d.NS.Wire("eth0")
	s.dropsAll(s.apply(enforce.Policy{Mode: enforce.Enforce, DropUnleased: true, Trusted: []string{s.a.HostName, uplink.HostName}}))
}

// dropsAll sends by a port without a lease, of which nothing may be received.
func (s *scene) dropsAll(table *nft.Table) {
	s.t.Helper()
	for _, f := range [][]byte{ip4(s.d.MAC, x4, gateway), arp(1, s.d.MAC, s.d.MAC, x4, gateway), udp6(s.d.MAC, x6, gateway6), tagged(ip4(s.d.MAC, x4, gateway), 0x8100, 7)} {
		before := s.counted(table, s.d, enforce.NoLease)
		f := longer(f, "without a lease")
		s.wires[s.d].Send(f)
		last := longer(ip4(s.a.MAC, a4, gateway), fmt.Sprintf("behind it %d", before))
		for end := time.Now().Add(wait); s.counted(table, s.d, enforce.NoLease) == before; {
			if time.Now().After(end) {
				s.t.Fatal("it is not counted")
			}
		}
		s.wires[s.a].Send(last)
		for {
			got, ok := s.raw.Receive(wait)
			if !ok {
				s.t.Fatal("the frame behind it was not received")
			}
			if bytes.Equal(got, f) {
				s.t.Errorf("%x was received", f)
			}
			if bytes.Equal(got, last) {
				break
			}
		}
	}
}
