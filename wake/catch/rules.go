package catch

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/nft"
)

const (
	// TableName is the name of the table, of nftables' family netdev.
	TableName = "ipamd-wake"
	// Group is the group of nflog that packets are copied to.
	Group = 8764
	// snap is how much of a packet is copied: Ethernet, IPv6 and the ports, behind few extension headers.
	snap = 96
)

// A Link is a port's link: Name is what it is called now, Index what it stays.
type Link struct {
	Name  string
	Index int
}

// chain is the name of the chain at a link. A kernel before 6.16 leaves a chain at the link that it
// was made for, whatever that is called later. By the name alone the chain of a link that was renamed
// would be taken for that of a new link of its old name, whose sleepers no traffic would wake then.
func (l Link) chain() string { return fmt.Sprintf("port-%s-%d", l.Name, l.Index) }

// A Sleeper is a lease that is paused, whose traffic is watched.
type Sleeper struct {
	Lease string
	Addr  netip.Prefix // its address, or its delegated prefix
	Port  Link         // of the bridge
	Drop  bool         // hold back what wakes it, so that its sender tries again
	Wake  *ipam.WakePolicy
	// Since is when it was paused. The limit of copies begins anew with each pause: a packet
	// that woke it a moment ago must not hide the one that comes now.
	Since ipam.Stamp
}

// why is the comment of the rule that copies: another one with each pause, so that what the rule
// counted is of this pause.
func (s Sleeper) why() string {
	return "paused " + s.Addr.String() + " since " + s.Since.Wall.UTC().Format(time.RFC3339Nano)
}

// Sleepers returns what of the book's paused leases can be watched: they have a policy, and
// their port is there, which portOf finds.
func Sleepers(paused []*ipam.Lease, sleep func(id string) *ipam.Sleep, portOf func(*ipam.Lease) (Link, bool)) (out []Sleeper) {
	for _, l := range paused {
		s := sleep(l.ID)
		if s == nil || s.Wake == nil {
			continue
		}
		if port, is := portOf(l); is {
			out = append(out, Sleeper{Lease: l.ID, Addr: l.Prefix(), Port: port, Drop: s.Mode == ipam.Hibernate, Wake: s.Wake, Since: l.Since})
		}
	}
	return out
}

const (
	finOrReset = 0x05 // of TCP's flags
	echo4      = uint8(8)
	echo6      = uint8(128)
	tcp, udp   = uint8(6), uint8(17)
	icmp4      = uint8(1)
	icmp6      = uint8(58)
)

// Table is the table that sleepers need, nil for none. What comes from ignore wakes none of them, and
// passes.
//
// The end of an old connection (FIN, RST) wakes no sandbox, and neither does what is no IP: ARP
// and ND are answered by the kernel of a sandbox that is frozen.
func Table(sleepers []Sleeper, ignore []netip.Prefix) *nft.Table {
	if len(sleepers) == 0 {
		return nil
	}
	t := &nft.Table{Family: nft.Netdev, Name: TableName}
	byPort := make(map[Link]*nft.Chain)
	sleepers = slices.Clone(sleepers)
	slices.SortFunc(sleepers, func(a, b Sleeper) int { return a.Addr.Addr().Compare(b.Addr.Addr()) })
	for _, s := range sleepers {
		base := byPort[s.Port]
		if base == nil {
			base = &nft.Chain{Name: s.Port.chain(), Base: &nft.Base{Hook: nft.Egress, Device: s.Port.Name}}
			byPort[s.Port] = base
		}
		first := s.Addr.Addr()
		f := family(first)
		name := "lease-" + strings.NewReplacer(".", "-", ":", "-").Replace(first.StringExpanded())
		why, to := "paused "+first.String(), nft.Is(f.dest, first)
		if !s.Addr.IsSingleIP() {
			why, to = "paused "+s.Addr.String(), nft.Within(f.dest, s.Addr)
		}
		base.Rules = append(base.Rules, nft.Rule{Why: why, Do: []nft.Statement{nft.Is(nft.EtherType, f.etherType), to, nft.Jump(name)}})
		// Sources and ports are met in chains of their own, so that there are as many rules
		// as there are of both, not of one for each of the other.
		lease := &nft.Chain{Name: name}
		for _, p := range ignore {
			if p.Addr().Is4() == first.Is4() {
				lease.Rules = append(lease.Rules, nft.Rule{Why: "idle.ignore", Do: []nft.Statement{nft.Within(f.source, p), nft.Return()}})
			}
		}
		for _, p := range s.Wake.Sources {
			lease.Rules = append(lease.Rules, nft.Rule{Do: []nft.Statement{nft.Within(f.source, p), nft.Goto(name + "-to")}})
		}
		if len(s.Wake.Sources) == 0 {
			lease.Rules = append(lease.Rules, nft.Rule{Do: []nft.Statement{nft.Goto(name + "-to")}})
		}
		t.Chains = append(t.Chains, lease, &nft.Chain{Name: name + "-to", Rules: f.meets(s.Wake, name+"-copy")})
		copies := &nft.Chain{Name: name + "-copy", Rules: []nft.Rule{
			{Why: s.why(), Do: []nft.Statement{nft.Counted(), nft.Limit(1, 1), nft.Log(Group, snap)}}}}
		if s.Drop {
			copies.Rules = append(copies.Rules, nft.Rule{Do: []nft.Statement{nft.Drop()}})
		}
		t.Chains = append(t.Chains, copies)
	}
	for _, c := range byPort {
		t.Chains = append(t.Chains, c)
	}
	slices.SortFunc(t.Chains, func(a, b *nft.Chain) int { return strings.Compare(a.Name, b.Name) })
	return t
}

// A familyOf is what rules of an address family are made of.
type familyOf struct {
	etherType    uint16
	source, dest nft.Field
	echo         []nft.Statement
}

func family(a netip.Addr) familyOf {
	if a.Is4() {
		return familyOf{nft.TypeIPv4, nft.IPv4Source, nft.IPv4Dest, []nft.Statement{nft.Is(nft.L4Proto, icmp4), nft.Is(nft.ICMPType, echo4)}}
	}
	return familyOf{nft.TypeIPv6, nft.IPv6Source, nft.IPv6Dest, []nft.Statement{nft.Is(nft.L4Proto, icmp6), nft.Is(nft.ICMPv6Type, echo6)}}
}

// meets is the rules that go on to copies for each protocol and port of a policy.
func (f familyOf) meets(w *ipam.WakePolicy, copies string) (rules []nft.Rule) {
	ports := w.Ports
	if len(ports) == 0 {
		ports = []ipam.PortRange{{First: 0, Last: 65535}}
	}
	for _, p := range w.Wakes() {
		switch p {
		case ipam.ICMP:
			rules = append(rules, nft.Rule{Do: append(slices.Clone(f.echo), nft.Goto(copies))})
		case ipam.TCP, ipam.UDP:
			for _, r := range ports {
				do := []nft.Statement{nft.Is(nft.L4Proto, udp), nft.Between(nft.DestPort, r.First, r.Last), nft.Goto(copies)}
				if p == ipam.TCP {
					do = []nft.Statement{nft.Is(nft.L4Proto, tcp), nft.Without(nft.TCPFlags, finOrReset), nft.Between(nft.DestPort, r.First, r.Last), nft.Goto(copies)}
				}
				rules = append(rules, nft.Rule{Do: do})
			}
			// Any other is of a row that was edited past ipamd: no traffic is known to be it.
		}
	}
	return rules
}
