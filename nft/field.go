package nft

import (
	"fmt"
	"strings"

	"github.com/google/nftables/expr"
)

// A Field is something of a packet that can be compared and looked up.
type Field struct {
	name string // in nft's language
	typ  Type
	load func(register uint32) expr.Any
	mask []byte // of what is loaded; nil: all of it
}

// Last is the number that the last bits are.
func (f Field) Last(bits int) Field {
	all := f.typ.kind.Bytes * 8
	out := f.Masked(int(all))
	for i := range int(all) - bits {
		out.mask[i/8] &^= 0x80 >> (i % 8)
	}
	out.name = fmt.Sprintf("%s & %#x", f.name, out.mask)
	return out
}

// Masked is the network that an address lies in: its first bits, and zero behind them.
func (f Field) Masked(bits int) Field {
	f.mask = make([]byte, f.typ.kind.Bytes)
	for i := range bits {
		f.mask[i/8] |= 0x80 >> (i % 8)
	}
	f.name += " & " + f.typ.format(f.mask)
	return f
}

// into loads it into a register.
func (f Field) into(r uint32) []expr.Any {
	out := []expr.Any{f.load(r)}
	if f.mask != nil {
		n := len(f.mask)
		out = append(out, &expr.Bitwise{SourceRegister: r, DestRegister: r, Len: uint32(n), Mask: f.mask, Xor: make([]byte, n)})
	}
	return out
}

func payload(name string, t Type, base expr.PayloadBase, offset uint32) Field {
	return Field{name: name, typ: t, load: func(r uint32) expr.Any {
		return &expr.Payload{OperationType: expr.PayloadLoad, DestRegister: r, Base: base, Offset: offset, Len: t.kind.Bytes}
	}}
}

func meta(name string, t Type, k expr.MetaKey) Field {
	return Field{name: name, typ: t, load: func(r uint32) expr.Any { return &expr.Meta{Key: k, Register: r} }}
}

// Fields of the frame. Those of IPv4, ARP and ICMPv6 mean nothing before a rule has
// compared [EtherType], and [L4Proto].
var (
	InLink  = meta("iif", Link, expr.MetaKeyIIF)
	OutLink = meta("oif", Link, expr.MetaKeyOIF)
	L4Proto = meta("meta l4proto", Proto, expr.MetaKeyL4PROTO)

	EtherDest   = payload("ether daddr", MAC, expr.PayloadBaseLLHeader, 0)
	EtherSource = payload("ether saddr", MAC, expr.PayloadBaseLLHeader, 6)
	EtherType   = payload("ether type", Ether, expr.PayloadBaseLLHeader, 12)
	VLANTag     = payload("vlan tci", Service, expr.PayloadBaseLLHeader, 14) // of a frame with a tag: see [TypeVLAN]

	ARPSourceMAC = payload("arp saddr ether", MAC, expr.PayloadBaseNetworkHeader, 8)
	ARPSource    = payload("arp saddr ip", IPv4, expr.PayloadBaseNetworkHeader, 14)
	ARPTarget    = payload("arp daddr ip", IPv4, expr.PayloadBaseNetworkHeader, 24)

	IPv4Source = payload("ip saddr", IPv4, expr.PayloadBaseNetworkHeader, 12)
	IPv4Dest   = payload("ip daddr", IPv4, expr.PayloadBaseNetworkHeader, 16)
	IPv6Source = payload("ip6 saddr", IPv6, expr.PayloadBaseNetworkHeader, 8)
	IPv6Dest   = payload("ip6 daddr", IPv6, expr.PayloadBaseNetworkHeader, 24)

	ICMPType   = payload("icmp type", Proto, expr.PayloadBaseTransportHeader, 0)
	ICMPv6Type = payload("icmpv6 type", Proto, expr.PayloadBaseTransportHeader, 0)
	TCPFlags   = payload("tcp flags", Proto, expr.PayloadBaseTransportHeader, 13)
	NDTarget   = payload("icmpv6 taddr", IPv6, expr.PayloadBaseTransportHeader, 8)
	DestPort   = payload("th dport", Service, expr.PayloadBaseTransportHeader, 2)
)

// Ethernet types, as EtherType's values.
const (
	TypeIPv4  uint16 = 0x0800
	TypeARP   uint16 = 0x0806
	TypeIPv6  uint16 = 0x86dd
	TypeVLAN  uint16 = 0x8100 // a tag of IEEE 802.1Q, with the frame's own type behind it
	TypeSVLAN uint16 = 0x88a8 // of 802.1ad
)

func names(fields []Field) string {
	s := make([]string, len(fields))
	for i, f := range fields {
		s[i] = f.name
	}
	return strings.Join(s, " . ")
}

// loadAll loads fields one behind another, each at the begin of a register of four bytes.
// Registers are numbered as the kernel reports them: every fourth by the number of the
// sixteen bytes that it begins.
func loadAll(fields []Field) []expr.Any {
	var out []expr.Any
	word := uint32(0)
	for _, f := range fields {
		out = append(out, f.into(register(word))...)
		word += (f.typ.kind.Bytes + 3) / 4
	}
	if word > 16 {
		panic(fmt.Sprintf("nft: %s fill more than all registers", names(fields)))
	}
	return out
}

func register(word uint32) uint32 {
	if word%4 == 0 {
		return 1 + word/4
	}
	return 8 + word
}
