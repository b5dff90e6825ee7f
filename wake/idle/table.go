package idle

import (
	"fmt"
	"net/netip"
	"slices"
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

	icmp4, igmp, icmp6 = uint8(1), uint8(2), uint8(58)
)

// A familyOf is what the rules of an address family are made of.
type familyOf struct {
	name         string
	bits         int // of an address
	etherType    uint16
	none         []uint8 // protocols that are no traffic: the kernel of a sandbox answers them by itself
	key          nft.Type
	source, dest nft.Field
}

var families = []familyOf{
	{"4", 32, nft.TypeIPv4, []uint8{icmp4, igmp}, nft.IPv4, nft.IPv4Source, nft.IPv4Dest},
	{"6", 128, nft.TypeIPv6, []uint8{icmp6}, nft.IPv6, nft.IPv6Source, nft.IPv6Dest},
}

func (f familyOf) has(p netip.Prefix) bool { return p.Addr().BitLen() == f.bits }

// leased is the set of the addresses that are looked at, or of the first addresses of the
// delegated prefixes of one length; seen is the set of those that had traffic.
func (f familyOf) leased(bits int) *nft.Set {
	name := "leased" + f.name
	if bits != f.bits {
		name = fmt.Sprintf("prefixes%s_%d", f.name, bits)
	}
	return &nft.Set{Name: name, Key: []nft.Type{f.key}}
}
func (f familyOf) seen() *nft.Set {
	return &nft.Set{Name: "seen" + f.name, Key: []nft.Type{f.key}, Dynamic: true, Timeout: life, Size: most}
}

// lengths are those of the family's leases, the addresses' always among them. Prefixes of one
// length are found by one look-up, of the first address that a packet's would have in one.
func (f familyOf) lengths(leased map[netip.Prefix]bool) []int {
	all := []int{f.bits}
	for p := range leased {
		if f.has(p) && !slices.Contains(all, p.Bits()) {
			all = append(all, p.Bits())
		}
	}
	slices.SortFunc(all, func(a, b int) int { return b - a })
	return all
}

// table is the table for leases of these addresses and prefixes.
func table(leased map[netip.Prefix]bool, ignore []netip.Prefix) *nft.Table {
	to := &nft.Chain{Name: "to", Base: &nft.Base{Hook: nft.Postrouting, Priority: priority}}
	from := &nft.Chain{Name: "from", Base: &nft.Base{Hook: nft.Prerouting, Priority: priority}}
	t := &nft.Table{Family: nft.Bridge, Name: TableName, Chains: []*nft.Chain{from, to}}
	for _, f := range families {
		lengths := f.lengths(leased)
		for _, bits := range lengths {
			set := f.leased(bits)
			for p := range leased {
				if f.has(p) && p.Bits() == bits {
					set.Elements = append(set.Elements, nft.Element{Key: nft.Key(p.Addr())})
				}
			}
			t.Sets = append(t.Sets, set)
		}
		t.Sets = append(t.Sets, f.seen())
		for _, way := range []struct {
			chain       *nft.Chain
			whose, peer nft.Field
		}{{to, f.dest, f.source}, {from, f.source, f.dest}} {
			for _, p := range ignore {
				if f.has(p) {
					way.chain.Rules = append(way.chain.Rules, nft.Rule{Why: "idle.ignore", Do: []nft.Statement{
						nft.Is(nft.EtherType, f.etherType), nft.Within(way.peer, p), nft.Accept()}})
				}
			}
			for _, bits := range lengths {
				whose := way.whose
				if bits != f.bits {
					whose = whose.Masked(bits)
				}
				do := []nft.Statement{nft.Is(nft.EtherType, f.etherType)}
				for _, p := range f.none {
					do = append(do, nft.IsNot(nft.L4Proto, p))
				}
				way.chain.Rules = append(way.chain.Rules, nft.Rule{Why: "traffic",
					Do: append(do, nft.In(f.leased(bits).Name, whose), nft.Touch(f.seen().Name, life, whose))})
			}
		}
	}
	return t
}
