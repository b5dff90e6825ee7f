package idle

import (
	"net/netip"
	"time"

	"github.com/ipamd/ipamd/nft"
)

// TableName is the name of the table, of nftables' family bridge.
const TableName = "ipamd-idle"

const (
	// life is how long the kernel knows of a packet.
	life = 7 * 24 * time.Hour
	// most bounds the addresses of a family.
	most = 1 << 18
	// priority is behind every chain that filters: what is dropped is no traffic.
	priority = 300

	icmp4, icmp6 = uint8(1), uint8(58)
)

// A familyOf is what the rules of an address family are made of.
type familyOf struct {
	name         string
	etherType    uint16
	icmp         uint8
	key          nft.Type
	source, dest nft.Field
}

var families = []familyOf{
	{"4", nft.TypeIPv4, icmp4, nft.IPv4, nft.IPv4Source, nft.IPv4Dest},
	{"6", nft.TypeIPv6, icmp6, nft.IPv6, nft.IPv6Source, nft.IPv6Dest},
}

func (f familyOf) has(a netip.Addr) bool { return a.Is4() == (f.name == "4") }

// leased is the set of the addresses that are looked at, seen the one of those that had traffic.
func (f familyOf) leased() string { return "leased" + f.name }
func (f familyOf) seen() *nft.Set {
	return &nft.Set{Name: "seen" + f.name, Key: []nft.Type{f.key}, Dynamic: true, Timeout: life, Size: most}
}

// table is the table for leases of these addresses.
func table(leased map[netip.Addr]bool, ignore []netip.Prefix) *nft.Table {
	to := &nft.Chain{Name: "to", Base: &nft.Base{Hook: nft.Postrouting, Priority: priority}}
	from := &nft.Chain{Name: "from", Base: &nft.Base{Hook: nft.Prerouting, Priority: priority}}
	t := &nft.Table{Family: nft.Bridge, Name: TableName, Chains: []*nft.Chain{from, to}}
	for _, f := range families {
		set := &nft.Set{Name: f.leased(), Key: []nft.Type{f.key}}
		for a := range leased {
			if f.has(a) {
				set.Elements = append(set.Elements, nft.Element{Key: nft.Key(a)})
			}
		}
		t.Sets = append(t.Sets, set, f.seen())
		for _, way := range []struct {
			chain       *nft.Chain
			whose, peer nft.Field
		}{{to, f.dest, f.source}, {from, f.source, f.dest}} {
			for _, p := range ignore {
				if f.has(p.Addr()) {
					way.chain.Rules = append(way.chain.Rules, nft.Rule{Why: "idle.ignore", Do: []nft.Statement{
						nft.Is(nft.EtherType, f.etherType), nft.Within(way.peer, p), nft.Accept()}})
				}
			}
			way.chain.Rules = append(way.chain.Rules, nft.Rule{Why: "traffic", Do: []nft.Statement{
				nft.Is(nft.EtherType, f.etherType), nft.IsNot(nft.L4Proto, f.icmp), nft.In(f.leased(), way.whose), nft.Touch(f.seen().Name, life, way.whose)}})
		}
	}
	return t
}
