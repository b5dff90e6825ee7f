package enforce

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/ipamd/ipamd/nft"
)

// TableName is the name of our table, of the bridge family.
const TableName = "ipamd"

// priority is before every chain that filters, tracks or rewrites: what is refused has no
// effect on others' rules.
const priority = -310

// mostPorts bounds the counters of one reason.
const mostPorts = 65536

// A World is what the rules are made from.
type World struct {
	Epoch    string // of the book
	Revision int64
	Grants   []Grant
	Ports    []Port
	Gateways []netip.Addr // of the pools
	Bridges  []Bridge
}

// A Reason is why a packet is refused.
type Reason string

const (
	NotItsMAC  Reason = "mac"      // the frame's source is not the lease's MAC, or is another lease's
	NotItsARP  Reason = "arp"      // ARP with another's sender or MAC, or a probe for another's address
	NotItsIPv4 Reason = "ipv4"     // an IPv4 source that is not the lease's
	NotItsIPv6 Reason = "ipv6"     // an IPv6 source that is not the lease's
	NotItsND   Reason = "nd"       // a neighbour advertisement or probe for another's address; of a lease, a router's advertisement, a redirect
	OtherType  Reason = "type"     // a VLAN tag, or of a lease neither ARP nor IP
	NoLease    Reason = "unleased" // a port without a lease
)

// Reasons are all reasons.
func Reasons() []Reason {
	return []Reason{NotItsMAC, NotItsARP, NotItsIPv4, NotItsIPv6, NotItsND, OtherType, NoLease}
}

func (r Reason) set() string   { return "refused_" + string(r) }
func (r Reason) chain() string { return "refuse_" + string(r) }

// Ruleset is the table that a policy makes of a world.
func Ruleset(p Policy, w World) *nft.Table {
	t := frame(p)
	by := map[string]*nft.Set{}
	for _, s := range t.Sets {
		by[s.Name] = s
	}
	for m := range p.all(w) {
		by[m.set].Elements = append(by[m.set].Elements, m.Element)
	}
	for _, s := range t.Sets {
		slices.SortFunc(s.Elements, func(a, b nft.Element) int { return strings.Compare(a.Key, b.Key) })
	}
	by[setBook].Elements = []nft.Element{mark(w.Epoch, w.Revision)}
	return t
}

// mark says what book the table was made from.
func mark(epoch string, revision int64) nft.Element {
	return nft.Element{Key: nft.Key(uint32(1)), Comment: fmt.Sprintf("epoch %s revision %d", epoch, revision)}
}

var (
	nowhere    = netip.IPv4Unspecified()
	nowhere6   = netip.IPv6Unspecified()
	linkLocal4 = netip.MustParsePrefix("169.254.0.0/16")
	linkLocal6 = netip.MustParsePrefix("fe80::/10")
)

// Types of ICMPv6 messages, and its protocol number.
const (
	icmpv6       uint8 = 58
	mldReport    uint8 = 131
	mldDone      uint8 = 132
	routerAdvert uint8 = 134
	solicitation uint8 = 135
	advert       uint8 = 136
	redirect     uint8 = 137
	mld2Report   uint8 = 143
)

func rule(why string, do ...nft.Statement) nft.Rule { return nft.Rule{Why: why, Do: do} }

// frame is the table without elements.
func frame(p Policy) *nft.Table {
	link := []nft.Type{nft.Link}
	with := func(more ...nft.Type) []nft.Type { return append(slices.Clone(link), more...) }
	t := &nft.Table{Family: nft.Bridge, Name: TableName, Sets: []*nft.Set{
		{Name: setBook, Key: []nft.Type{nft.Mark}},
		{Name: setLeased, Key: link}, {Name: setUnleased, Key: link}, {Name: setKnown, Key: link},
		{Name: setMACs, Key: with(nft.MAC)}, {Name: setAnyMAC, Key: link}, {Name: setTakenMACs, Key: []nft.Type{nft.MAC}},
		{Name: setIPv4, Key: with(nft.MAC, nft.IPv4)}, {Name: setIPv6, Key: with(nft.MAC, nft.IPv6)},
		{Name: setAny4, Key: with(nft.IPv4)}, {Name: setAny6, Key: with(nft.IPv6)},
		{Name: setPrefix4, Key: with(nft.IPv4), Interval: true}, {Name: setPrefix6, Key: with(nft.IPv6), Interval: true},
		{Name: setOwn4, Key: with(nft.IPv4)}, {Name: setOwn6, Key: with(nft.IPv6)},
		{Name: setBridges, Key: []nft.Type{nft.MAC}}, {Name: setTaken4, Key: []nft.Type{nft.IPv4}}, {Name: setTaken6, Key: []nft.Type{nft.IPv6}},
		{Name: setTakenPrefix4, Key: []nft.Type{nft.Ether, nft.IPv4}, Interval: true}, {Name: setTakenPrefix6, Key: []nft.Type{nft.Ether, nft.IPv6}, Interval: true},
	}}
	if p.trusts() {
		t.Sets = append(t.Sets, &nft.Set{Name: setTrusted, Key: link})
	}
	for _, r := range Reasons() {
		t.Sets = append(t.Sets, &nft.Set{Name: r.set(), Key: link, Dynamic: true, Size: mostPorts})
	}
	t.Chains = append(t.Chains, ports(), received(), between(p), sent(), delivered(p), addressed(p), leased(), arp(), ipv6(), neighbours(), source6())
	t.Chains = append(t.Chains, without(p)...)
	t.Chains = append(t.Chains, without6())
	for _, r := range Reasons() {
		end := rule("counted only: mode is observe", nft.Accept())
		if p.Mode == Enforce {
			end = rule("", nft.Drop())
		}
		t.Chains = append(t.Chains, &nft.Chain{Name: r.chain(), Rules: []nft.Rule{rule("", nft.Count(r.set(), nft.InLink)), end}})
	}
	return t
}

func refuse(r Reason) nft.Statement { return nft.Goto(r.chain()) }

// ports is where a frame comes in. What a lease sends most takes one look-up.
func ports() *nft.Chain {
	return &nft.Chain{Name: "ports", Base: &nft.Base{Hook: nft.Prerouting, Priority: priority}, Rules: []nft.Rule{
		rule("the lease's own", nft.Is(nft.EtherType, nft.TypeIPv4), nft.In(setIPv4, nft.InLink, nft.EtherSource, nft.IPv4Source), nft.Accept()),
		rule("", nft.In(setLeased, nft.InLink), nft.Goto("leased")),
		rule("", nft.In(setUnleased, nft.InLink), nft.Goto("without")),
	}}
}

// received is where a frame goes to the host itself. One to a group address that a bridge does not
// forward comes in here, as far as the port has the kernel show such a frame to any hook: see
// groups.go. One by a port in no set is judged as that of a port without a lease where it is to
// a bridge's own MAC: by that alone it is known to be on a bridge of ours.
func received() *nft.Chain {
	to := nft.Is(nft.EtherDest.Masked(44), net.HardwareAddr{1, 0x80, 0xc2, 0, 0, 0})
	return &nft.Chain{Name: "received", Base: &nft.Base{Hook: nft.Input, Priority: priority}, Rules: []nft.Rule{
		rule("", to, nft.In(setLeased, nft.InLink), nft.Goto("leased")),
		rule("", to, nft.In(setUnleased, nft.InLink), nft.Goto("without")),
		rule("by a port that is not known yet", nft.In(setBridges, nft.EtherDest), nft.NotIn(setLeased, nft.InLink), nft.NotIn(setUnleased, nft.InLink), nft.Goto("without")),
	}}
}

// between is where a frame goes from port to port. One from a port that is in no set, because it was
// plugged a moment ago or while no daemon ran, is judged here as that of a port without a lease: the hooks
// do not show its bridge before. A frame to the host is judged so too, unless it is to a group address.
// What goes most takes two look-ups.
func between(p Policy) *nft.Chain {
	c := &nft.Chain{Name: "between", Base: &nft.Base{Hook: nft.Forward, Priority: priority}}
	if p.Mode == Enforce {
		c.Rules = append(c.Rules, rule("the usual one: to a lease's MAC at its port", nft.In(setMACs, nft.OutLink, nft.EtherDest), nft.In(setKnown, nft.InLink), nft.Accept()))
	}
	c.Rules = append(c.Rules,
		rule("judged where it came in", nft.In(setKnown, nft.InLink), nft.Goto("delivered")),
		rule("by a port that is not known yet", nft.In(setKnown, nft.OutLink), nft.Jump("delivered")))
	if !p.DropUnleased { // else it may use nothing
		c.Rules = append(append(c.Rules, own4(nft.OutLink)...), own6(nft.OutLink)...)
	}
	c.Rules = append(c.Rules, rule("", nft.In(setKnown, nft.OutLink), nft.Goto("without")))
	return c
}

// own4 and own6 refuse what is link-local and the bridge's own, by the bridge that a port is of:
// another bridge may have a guest with that address.
func own4(port nft.Field) []nft.Rule {
	return []nft.Rule{
		rule("link-local, and the bridge's", nft.Is(nft.EtherType, nft.TypeARP), nft.In(setOwn4, port, nft.ARPSource), refuse(NotItsARP)),
		rule("", nft.Is(nft.EtherType, nft.TypeIPv4), nft.In(setOwn4, port, nft.IPv4Source), refuse(NotItsIPv4)),
	}
}

func own6(port nft.Field) []nft.Rule {
	return []nft.Rule{
		rule6("link-local, and the bridge's", icmp(advert, nft.In(setOwn6, port, nft.NDTarget), refuse(NotItsND))),
		rule6("", icmp(solicitation, nft.Is(nft.IPv6Source, nowhere6), nft.In(setOwn6, port, nft.NDTarget), refuse(NotItsND))),
		rule6("", is6(nft.In(setOwn6, port, nft.IPv6Source), refuse(NotItsIPv6))),
	}
}

// sent is where a frame of the host's own goes to a port.
func sent() *nft.Chain {
	return &nft.Chain{Name: "sent", Base: &nft.Base{Hook: nft.Output, Priority: priority}, Rules: []nft.Rule{
		rule("", nft.In(setKnown, nft.OutLink), nft.Goto("addressed")),
		rule("to a port that is not known yet", nft.In(setBridges, nft.EtherSource), nft.Goto("addressed")),
	}}
}

// addressed keeps what the host sends to a lease from all ports but the lease's: by its MAC, as
// delivered does, and by its address. The host takes in what any ARP says, also by a port that
// is in no set yet, and would send to that one for as long as it remembers.
func addressed(p Policy) *nft.Chain {
	c := &nft.Chain{Name: "addressed"}
	if p.Mode != Enforce {
		return c
	}
	ip4 := func(do ...nft.Statement) []nft.Statement {
		return append([]nft.Statement{nft.Is(nft.EtherType, nft.TypeIPv4)}, do...)
	}
	own := func(to nft.Field, is func(...nft.Statement) []nft.Statement, pair, any, prefix, taken, takenPrefix string, before ...nft.Rule) {
		c.Rules = append(c.Rules, rule6("", is(nft.In(pair, nft.OutLink, nft.EtherDest, to), nft.Accept())))
		c.Rules = append(c.Rules, before...)
		c.Rules = append(c.Rules,
			rule6("", is(nft.In(any, nft.OutLink, to), nft.Accept())),
			rule6("", is(nft.In(prefix, nft.OutLink, to), nft.Accept())),
			rule6("a lease's address: the host takes it to be elsewhere", is(nft.In(taken, to), nft.Drop())),
			rule6("", is(nft.In(takenPrefix, nft.EtherType, to), nft.Drop())))
	}
	c.Rules = append(c.Rules, elsewhere())
	own(nft.IPv4Dest, ip4, setIPv4, setAny4, setPrefix4, setTaken4, setTakenPrefix4)
	own(nft.IPv6Dest, is6, setIPv6, setAny6, setPrefix6, setTaken6, setTakenPrefix6,
		rule6("link-local: another bridge may have what this one has", is6(nft.Within(nft.IPv6Dest, linkLocal6), nft.Accept())))
	return c
}

// delivered drops frames for a lease's MAC at all ports but the lease's. A bridge learns the sender
// of each frame that is not refused where it comes in. So a port that is in no set yet can attract the frames
// for a MAC until that MAC's own port sends again; and a bridge floods a MAC that it has not learned.
// Nothing is counted: the sender may send the frame, and the port may have done nothing.
func delivered(p Policy) *nft.Chain {
	c := &nft.Chain{Name: "delivered"}
	if p.Mode == Enforce {
		c.Rules = append(c.Rules, elsewhere())
	}
	return c
}

func elsewhere() nft.Rule {
	return rule("a lease's: the bridge takes it to be elsewhere, or not to be known",
		nft.In(setTakenMACs, nft.EtherDest), nft.NotIn(setMACs, nft.OutLink, nft.EtherDest), nft.Drop())
}

func leased() *nft.Chain {
	return &nft.Chain{Name: "leased", Rules: []nft.Rule{
		rule("", nft.NotIn(setMACs, nft.InLink, nft.EtherSource), nft.NotIn(setAnyMAC, nft.InLink), refuse(NotItsMAC)),
		rule("another's: a bridge sends there what is for it", nft.NotIn(setMACs, nft.InLink, nft.EtherSource), nft.In(setTakenMACs, nft.EtherSource), refuse(NotItsMAC)),
		rule("of Ethernet and IPv4", nft.Is(nft.EtherType, nft.TypeARP), nft.Bytes(0, 0, 1, 8, 0, 6, 4), nft.Goto("arp")),
		rule("of something else", nft.Is(nft.EtherType, nft.TypeARP), refuse(NotItsARP)),
		rule("", nft.Is(nft.EtherType, nft.TypeIPv6), nft.Goto("ipv6")),
		rule("", nft.Is(nft.EtherType, nft.TypeIPv4), nft.In(setAny4, nft.InLink, nft.IPv4Source), nft.Accept()),
		rule("in its delegated prefix", nft.Is(nft.EtherType, nft.TypeIPv4), nft.In(setPrefix4, nft.InLink, nft.IPv4Source), nft.Accept()),
		rule("0.0.0.0 too: no lease needs DHCP", nft.Is(nft.EtherType, nft.TypeIPv4), refuse(NotItsIPv4)),
		rule("a VLAN tag, for example", refuse(OtherType)),
	}}
}

func arp() *nft.Chain {
	is := nft.Is(nft.EtherType, nft.TypeARP)
	return &nft.Chain{Name: "arp", Rules: []nft.Rule{
		rule("the sender is the lease", is, nft.In(setIPv4, nft.InLink, nft.ARPSourceMAC, nft.ARPSource), nft.Accept()),
		rule("it names another's MAC", is, nft.NotIn(setMACs, nft.InLink, nft.ARPSourceMAC), nft.In(setTakenMACs, nft.ARPSourceMAC), refuse(NotItsARP)),
		rule("", is, nft.In(setAny4, nft.InLink, nft.ARPSource), nft.Accept()),
		rule("in its delegated prefix", is, nft.In(setPrefix4, nft.InLink, nft.ARPSource), nft.In(setMACs, nft.InLink, nft.ARPSourceMAC), nft.Accept()),
		rule("", is, nft.In(setPrefix4, nft.InLink, nft.ARPSource), nft.In(setAnyMAC, nft.InLink), nft.Accept()),
		rule("a probe (RFC 5227) for its own address", is, nft.Is(nft.ARPSource, nowhere), nft.In(setIPv4, nft.InLink, nft.ARPSourceMAC, nft.ARPTarget), nft.Accept()),
		rule("", is, nft.Is(nft.ARPSource, nowhere), nft.In(setAny4, nft.InLink, nft.ARPTarget), nft.Accept()),
		rule("", is, nft.Is(nft.ARPSource, nowhere), nft.In(setPrefix4, nft.InLink, nft.ARPTarget), nft.In(setMACs, nft.InLink, nft.ARPSourceMAC), nft.Accept()),
		rule("", is, nft.Is(nft.ARPSource, nowhere), nft.In(setPrefix4, nft.InLink, nft.ARPTarget), nft.In(setAnyMAC, nft.InLink), nft.Accept()),
		rule("", refuse(NotItsARP)),
	}}
}

func is6(do ...nft.Statement) []nft.Statement {
	return append([]nft.Statement{nft.Is(nft.EtherType, nft.TypeIPv6)}, do...)
}

func icmp(typ uint8, do ...nft.Statement) []nft.Statement {
	return append([]nft.Statement{nft.Is(nft.EtherType, nft.TypeIPv6), nft.Is(nft.L4Proto, icmpv6), nft.Is(nft.ICMPv6Type, typ)}, do...)
}

func rule6(why string, do []nft.Statement) nft.Rule { return nft.Rule{Why: why, Do: do} }

// its6 are the rules that let an address pass which is the lease's own: its own, in its
// prefix, or a link-local one that no lease has.
func its6(f nft.Field, then nft.Statement, before ...nft.Statement) []nft.Rule {
	with := func(s ...nft.Statement) []nft.Statement { return append(append(slices.Clone(before), s...), then) }
	return []nft.Rule{
		rule6("", with(nft.In(setIPv6, nft.InLink, nft.EtherSource, f))),
		rule6("", with(nft.In(setAny6, nft.InLink, f))),
		rule6("in its delegated prefix", with(nft.In(setPrefix6, nft.InLink, f))),
		rule6("link-local, and no lease's or gateway's", with(nft.Within(f, linkLocal6), nft.NotIn(setTaken6, f), nft.NotIn(setOwn6, nft.InLink, f))),
	}
}

func ipv6() *nft.Chain {
	return &nft.Chain{Name: "ipv6", Rules: []nft.Rule{
		rule6("", is6(nft.Is(nft.L4Proto, icmpv6), nft.Goto("neighbours"))),
		rule("", nft.Goto("source6")),
	}}
}

// neighbours judges ICMPv6. A message in fragments is none to a kernel (RFC 6980), so what
// stands in a later fragment is not looked for.
func neighbours() *nft.Chain {
	c := &nft.Chain{Name: "neighbours", Rules: []nft.Rule{
		rule6("the gateway alone is a router", icmp(routerAdvert, refuse(NotItsND))),
		rule6("the same", icmp(redirect, refuse(NotItsND))),
		rule6("a question with an address", icmp(solicitation, nft.IsNot(nft.IPv6Source, nowhere6), nft.Goto("source6"))),
	}}
	c.Rules = append(c.Rules, its6(nft.NDTarget, nft.Goto("source6"), icmp(advert)...)...)
	c.Rules = append(c.Rules, rule6("an answer for another", icmp(advert, refuse(NotItsND))))
	c.Rules = append(c.Rules, its6(nft.NDTarget, nft.Accept(), icmp(solicitation)...)...)
	c.Rules = append(c.Rules,
		rule6("a probe (RFC 4862) for another's", icmp(solicitation, refuse(NotItsND))),
		rule6("multicast groups (RFC 3590)", icmp(mldReport, nft.Is(nft.IPv6Source, nowhere6), nft.Accept())),
		rule6("", icmp(mldDone, nft.Is(nft.IPv6Source, nowhere6), nft.Accept())),
		rule6("", icmp(mld2Report, nft.Is(nft.IPv6Source, nowhere6), nft.Accept())),
		rule("", nft.Goto("source6")))
	return c
}

func source6() *nft.Chain {
	return &nft.Chain{Name: "source6", Rules: append(its6(nft.IPv6Source, nft.Accept(), is6()...), rule("", refuse(NotItsIPv6)))}
}

// without judges ports that no lease has.
func without(p Policy) []*nft.Chain {
	drop := rule("unleased = drop", refuse(NoLease))
	switch {
	case p.trusts():
		return []*nft.Chain{others("trusted", priorityTags()...), {Name: "without", Rules: []nft.Rule{
			rule("trusted", nft.In(setTrusted, nft.InLink), nft.Goto("trusted")), drop}}}
	case p.DropUnleased:
		return []*nft.Chain{{Name: "without", Rules: []nft.Rule{drop}}}
	}
	return []*nft.Chain{others("without", tags()...)}
}

// tags refuses all VLAN tags: a receiver takes a frame with one of id 0 as it takes one
// without, and so may a bridge that filters VLANs with other ids.
func tags() []nft.Rule {
	return []nft.Rule{
		rule("a VLAN tag", nft.Is(nft.EtherType, nft.TypeVLAN), refuse(OtherType)),
		rule("", nft.Is(nft.EtherType, nft.TypeSVLAN), refuse(OtherType)),
	}
}

// priorityTags refuses those of id 0: an uplink may be a trunk.
func priorityTags() []nft.Rule {
	none := nft.Is(nft.VLANTag.Last(12), uint16(0))
	return []nft.Rule{
		rule("a VLAN tag that is none", nft.Is(nft.EtherType, nft.TypeVLAN), none, refuse(OtherType)),
		rule("", nft.Is(nft.EtherType, nft.TypeSVLAN), none, refuse(OtherType)),
	}
}

// others lets pass what is no lease's and no gateway's. An ARP probe for a lease's address passes
// too (RFC 5227): behind an uplink another host asks so whether an address is in use, as ipamd itself
// does, and has to be answered that it is. A probe claims nothing, and no cache takes it in.
func others(name string, tags ...nft.Rule) *nft.Chain {
	return &nft.Chain{Name: name, Rules: append(append(append([]nft.Rule{
		rule("a lease's: a bridge sends there what is for it", nft.In(setTakenMACs, nft.EtherSource), refuse(NotItsMAC))}, tags...), []nft.Rule{
		rule("a lease's or a gateway's", nft.Is(nft.EtherType, nft.TypeARP), nft.In(setTaken4, nft.ARPSource), refuse(NotItsARP)),
		rule("", nft.Is(nft.EtherType, nft.TypeARP), nft.In(setTakenMACs, nft.ARPSourceMAC), refuse(NotItsARP)),
		rule("", nft.Is(nft.EtherType, nft.TypeIPv4), nft.In(setTaken4, nft.IPv4Source), refuse(NotItsIPv4)),
		rule("in a lease's delegated prefix", nft.Is(nft.EtherType, nft.TypeARP), nft.In(setTakenPrefix4, nft.EtherType, nft.ARPSource), refuse(NotItsARP)),
		rule("", nft.Is(nft.EtherType, nft.TypeIPv4), nft.In(setTakenPrefix4, nft.EtherType, nft.IPv4Source), refuse(NotItsIPv4)),
	}...), append(own4(nft.InLink), rule("", nft.Is(nft.EtherType, nft.TypeIPv6), nft.Goto("without6")))...)}
}

func without6() *nft.Chain {
	return &nft.Chain{Name: "without6", Rules: append([]nft.Rule{
		rule6("", icmp(advert, nft.In(setTaken6, nft.NDTarget), refuse(NotItsND))),
		rule6("a probe for a lease's address", icmp(solicitation, nft.Is(nft.IPv6Source, nowhere6), nft.In(setTaken6, nft.NDTarget), refuse(NotItsND))),
		rule6("", is6(nft.In(setTaken6, nft.IPv6Source), refuse(NotItsIPv6))),
		rule6("in a lease's delegated prefix", icmp(advert, nft.In(setTakenPrefix6, nft.EtherType, nft.NDTarget), refuse(NotItsND))),
		rule6("", icmp(solicitation, nft.Is(nft.IPv6Source, nowhere6), nft.In(setTakenPrefix6, nft.EtherType, nft.NDTarget), refuse(NotItsND))),
		rule6("", is6(nft.In(setTakenPrefix6, nft.EtherType, nft.IPv6Source), refuse(NotItsIPv6))),
	}, own6(nft.InLink)...)}
}
