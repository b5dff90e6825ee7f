package enforce

import (
	"net"
	"net/netip"

	"go4.org/netipx"

	"github.com/ipamd/ipamd/nft"
)

// Names of sets.
const (
	setBook     = "book"     // epoch and revision that the table was made from
	setLeased   = "leased"   // ports with a lease
	setUnleased = "unleased" // ports without
	setTrusted  = "trusted"  // those of them that may send nevertheless
	setMACs     = "macs"     // port and its lease's MAC
	setAnyMAC   = "anymac"   // ports of leases that record no MAC
	setIPv4     = "ipv4"     // port, MAC and address
	setIPv6     = "ipv6"
	setAny4     = "ipv4_anymac" // port and address of leases that record no MAC
	setAny6     = "ipv6_anymac"
	setPrefix4  = "prefixes4" // port and range of addresses
	setPrefixes = "prefixes"
	setTaken4   = "taken4" // addresses that are a lease's or a gateway's
	setTaken6   = "taken6"
	// Type of the frame and range of addresses: a set of ranges wants two types, and the
	// first is one that the rule has compared already.
	setTakenPrefix4 = "taken_prefixes4"
	setTakenPrefix6 = "taken_prefixes6"
)

// A member is one element of one set.
type member struct {
	set string
	nft.Element
}

// members are the elements that a grant needs.
func (p Policy) members(g Grant) []member {
	out := []member{{setLeased, nft.Element{Key: nft.Key(g.Port)}}}
	add := func(set string, parts ...any) { out = append(out, member{set, nft.Element{Key: nft.Key(parts...)}}) }
	addr, v4 := g.Addr.Addr(), g.Addr.Addr().Is4()
	mac, err := net.ParseMAC(g.MAC)
	if known := err == nil && len(mac) == 6; known {
		own := LinkLocal(mac)
		add(setMACs, g.Port, mac)
		add(setIPv6, g.Port, mac, own)
		add(setTaken6, own)
		if v4 {
			add(setIPv4, g.Port, mac, addr)
		} else {
			add(setIPv6, g.Port, mac, addr)
		}
	} else {
		add(setAnyMAC, g.Port)
		if v4 {
			add(setAny4, g.Port, addr)
		} else {
			add(setAny6, g.Port, addr)
		}
	}
	if !g.Addr.IsSingleIP() {
		r := netipx.RangeOfPrefix(g.Addr)
		within := func(set string, first any) {
			out = append(out, member{set, nft.Element{Key: nft.Key(first, r.From()), End: nft.Key(first, r.To())}})
		}
		switch {
		case v4:
			within(setPrefix4, g.Port)
		default:
			within(setPrefixes, g.Port)
		}
		switch {
		case !p.keepsTaken():
		case v4:
			within(setTakenPrefix4, nft.TypeIPv4)
			within(setTakenPrefix4, nft.TypeARP)
		default:
			within(setTakenPrefix6, nft.TypeIPv6)
		}
	}
	if p.keepsTaken() { // else a port without a lease may use nothing anyway
		if v4 {
			add(setTaken4, addr)
		} else {
			add(setTaken6, addr)
		}
	}
	return out
}

// gateway is the element that keeps an address from every port.
func gateway(a netip.Addr) member {
	if a.Is4() {
		return member{setTaken4, nft.Element{Key: nft.Key(a)}}
	}
	return member{setTaken6, nft.Element{Key: nft.Key(a)}}
}

// unleased are the elements of a port without a lease.
func (p Policy) unleased(port Port) []member {
	out := []member{{setUnleased, nft.Element{Key: nft.Key(port.Index)}}}
	if p.Trusts(port.Name) {
		out = append(out, member{setTrusted, nft.Element{Key: nft.Key(port.Index)}})
	}
	return out
}

// A tally counts how many want each element.
type tally map[member]int

// all are the members that a world needs.
func (p Policy) all(w World) tally {
	t := tally{}
	leased := map[int]bool{}
	for _, g := range w.Grants {
		leased[g.Port] = true
		for _, m := range p.members(g) {
			t[m]++
		}
	}
	for _, port := range w.Ports {
		if !leased[port.Index] {
			for _, m := range p.unleased(port) {
				t[m]++
			}
		}
	}
	for _, a := range w.Gateways {
		t[gateway(a)]++
	}
	return t
}
