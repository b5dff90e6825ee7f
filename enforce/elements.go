package enforce

import (
	"net"
	"net/netip"
	"slices"

	"go4.org/netipx"

	"github.com/ipamd/ipamd/internal/icmp6"
	"github.com/ipamd/ipamd/nft"
)

// Names of sets.
const (
	setBook      = "book"     // epoch and revision that the table was made from
	setLeased    = "leased"   // ports with a lease
	setUnleased  = "unleased" // ports without
	setKnown     = "known"    // ports with one or without
	setTrusted   = "trusted"  // ports without a lease that may send nevertheless
	setMACs      = "macs"     // port and its lease's MAC
	setAnyMAC    = "anymac"   // ports of leases that record no MAC
	setIPv4      = "ipv4"     // port, MAC and address
	setIPv6      = "ipv6"
	setAny4      = "ipv4_anymac" // port and address of leases that record no MAC
	setAny6      = "ipv6_anymac"
	setPrefix4   = "prefixes4" // port and range of addresses
	setPrefix6   = "prefixes6"
	setTakenMACs = "taken_macs"  // MACs that are a lease's
	setBridges   = "bridge_macs" // the MACs of the bridges themselves
	setOwn4      = "own4"        // port and link-local address that its bridge has, and another has not
	setOwn6      = "own6"
	setTaken4    = "taken4" // addresses that are a lease's or a gateway's
	setTaken6    = "taken6"
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

// members are the elements that a grant needs. Without a port it only keeps from others what
// is the lease's.
func (p Policy) members(g Grant) []member {
	out := taken(g)
	if g.Port == 0 {
		return out
	}
	add := func(set string, parts ...any) { out = append(out, member{set, nft.Element{Key: nft.Key(parts...)}}) }
	add(setLeased, g.Port)
	add(setKnown, g.Port)
	addr := g.Addr.Addr()
	switch mac := g.mac(); {
	case mac != nil && addr.Is4():
		add(setMACs, g.Port, mac)
		add(setIPv6, g.Port, mac, icmp6.LinkLocal(mac))
		add(setIPv4, g.Port, mac, addr)
	case mac != nil:
		add(setMACs, g.Port, mac)
		add(setIPv6, g.Port, mac, icmp6.LinkLocal(mac))
		add(setIPv6, g.Port, mac, addr)
	case addr.Is4():
		add(setAnyMAC, g.Port)
		add(setAny4, g.Port, addr)
	default:
		add(setAnyMAC, g.Port)
		add(setAny6, g.Port, addr)
	}
	if !g.Addr.IsSingleIP() {
		set := setPrefix6
		if addr.Is4() {
			set = setPrefix4
		}
		out = append(out, within(set, g.Addr, g.Port))
	}
	return out
}

// mac is nil where the lease records none.
func (g Grant) mac() net.HardwareAddr {
	mac, err := net.ParseMAC(g.MAC)
	if err != nil || len(mac) != 6 {
		return nil
	}
	return mac
}

func within(set string, p netip.Prefix, first any) member {
	r := netipx.RangeOfPrefix(p)
	return member{set, nft.Element{Key: nft.Key(first, r.From()), End: nft.Key(first, r.To())}}
}

// taken are the elements that keep from other ports what is a lease's.
func taken(g Grant) (out []member) {
	add := func(set string, parts ...any) { out = append(out, member{set, nft.Element{Key: nft.Key(parts...)}}) }
	if mac := g.mac(); mac != nil {
		add(setTakenMACs, mac)
		add(setTaken6, icmp6.LinkLocal(mac))
	}
	if addr := g.Addr.Addr(); addr.Is4() {
		add(setTaken4, addr)
	} else {
		add(setTaken6, addr)
	}
	switch {
	case g.Addr.IsSingleIP():
	case g.Addr.Addr().Is4():
		out = append(out, within(setTakenPrefix4, g.Addr, nft.TypeIPv4), within(setTakenPrefix4, g.Addr, nft.TypeARP))
	default:
		out = append(out, within(setTakenPrefix6, g.Addr, nft.TypeIPv6))
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

// bridgeMAC is the element by which what is to a bridge itself, or from it, is known.
func bridgeMAC(b Bridge) []member {
	mac, err := net.ParseMAC(b.MAC)
	if err != nil || len(mac) != 6 {
		return nil
	}
	return []member{{setBridges, nft.Element{Key: nft.Key(mac)}}}
}

// own are the elements that keep from a port what is its bridge's.
func own(port int, addrs []netip.Addr) (out []member) {
	for _, a := range addrs {
		set := setOwn6
		if a.Is4() {
			set = setOwn4
		}
		out = append(out, member{set, nft.Element{Key: nft.Key(port, a)}})
	}
	return out
}

// ownAddrs divides the addresses of bridges in those that are kept from every port, and those
// that are by the name of their bridge: a link-local address that not every bridge has may be a
// guest's on another (RFC 3927, section 2.6.2; RFC 4007, section 5).
func ownAddrs(bridges []Bridge) (all []netip.Addr, at map[string][]netip.Addr) {
	at = map[string][]netip.Addr{}
	for _, b := range bridges {
		for _, a := range b.Addrs {
			missing := slices.ContainsFunc(bridges, func(o Bridge) bool { return !slices.Contains(o.Addrs, a) })
			if missing && (linkLocal4.Contains(a) || linkLocal6.Contains(a)) {
				at[b.Name] = append(at[b.Name], a)
			} else {
				all = append(all, a)
			}
		}
	}
	return all, at
}

// unleased are the elements of a port without a lease.
func (p Policy) unleased(port Port) []member {
	link := nft.Element{Key: nft.Key(port.Index)}
	out := []member{{setUnleased, link}, {setKnown, link}}
	if p.Trusts(port.Name) {
		out = append(out, member{setTrusted, link})
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
		leased[g.Port] = true // 0 is no port
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
	all, at := ownAddrs(w.Bridges)
	for _, a := range slices.Concat(w.Gateways, all) {
		t[gateway(a)]++
	}
	for _, port := range w.Ports {
		for _, m := range own(port.Index, at[port.Bridge]) {
			t[m]++
		}
	}
	for _, b := range w.Bridges {
		for _, m := range bridgeMAC(b) {
			t[m]++
		}
	}
	return t
}
