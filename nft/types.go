package nft

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"

	"github.com/google/nftables"
)

// A Type is what one part of a key is.
type Type struct {
	kind   nftables.SetDatatype
	format func(b []byte) string
}

// Name is the type's name in nft's language.
func (t Type) Name() string { return t.kind.Name }

var (
	Link    = Type{nftables.TypeIFIndex, func(b []byte) string { return strconv.Itoa(int(binary.NativeEndian.Uint32(b))) }}
	MAC     = Type{nftables.TypeEtherAddr, func(b []byte) string { return net.HardwareAddr(b).String() }}
	IPv4    = Type{nftables.TypeIPAddr, formatAddr}
	IPv6    = Type{nftables.TypeIP6Addr, formatAddr}
	Service = Type{nftables.TypeInetService, func(b []byte) string { return strconv.Itoa(int(binary.BigEndian.Uint16(b))) }}
	Proto   = Type{nftables.TypeInetProto, func(b []byte) string { return strconv.Itoa(int(b[0])) }}
	Mark    = Type{nftables.TypeMark, func(b []byte) string { return fmt.Sprintf("0x%08x", binary.NativeEndian.Uint32(b)) }}
)

func formatAddr(b []byte) string {
	a, _ := netip.AddrFromSlice(b)
	return a.String()
}

// Key joins the parts of an element's key; each is padded to four bytes, as registers are.
// Parts are a link's index (int), net.HardwareAddr, netip.Addr, a port (uint16), a protocol
// (uint8) and a mark (uint32).
func Key(parts ...any) string {
	var b []byte
	for _, p := range parts {
		b = appendPadded(b, bytesOf(p))
	}
	return string(b)
}

func appendPadded(b, part []byte) []byte {
	b = append(b, part...)
	return append(b, make([]byte, -len(part)&3)...)
}

func bytesOf(p any) []byte {
	switch p := p.(type) {
	case int:
		return binary.NativeEndian.AppendUint32(nil, uint32(p))
	case uint32:
		return binary.NativeEndian.AppendUint32(nil, p)
	case uint16:
		return binary.BigEndian.AppendUint16(nil, p)
	case uint8:
		return []byte{p}
	case net.HardwareAddr:
		return p
	case netip.Addr:
		return p.AsSlice()
	}
	panic(fmt.Sprintf("nft: a key has no part of type %T", p))
}

// keyType is the type of a set's whole key. A concatenation's parts fill whole registers; a
// set with one part has it as it is.
func keyType(types []Type) nftables.SetDatatype {
	if len(types) == 1 {
		return types[0].kind
	}
	kinds := make([]nftables.SetDatatype, len(types))
	for i, t := range types {
		kinds[i] = t.kind
	}
	return nftables.MustConcatSetType(kinds...)
}

// keyType is the type of the set's whole key. In a set of ranges an IPv6 address is four parts of
// four bytes each: the key has the same bytes and the packet's is loaded in the same way, and an element
// is the same range, since a prefix is a range in each part. With AVX2, kernels before
// 6.15 (5.15.181, 6.1.135, 6.6.88, 6.12.24) do not compare the sixth byte of a part of sixteen
// (nft_set_pipapo, repaired by e042ed950d4e): an address of another prefix would be met.
func (s *Set) keyType() nftables.SetDatatype {
	if !s.Interval {
		return keyType(s.Key)
	}
	var parts []Type
	for _, t := range s.Key {
		if t.kind == nftables.TypeIP6Addr {
			parts = append(parts, IPv4, IPv4, IPv4, IPv4)
		} else {
			parts = append(parts, t)
		}
	}
	return keyType(parts)
}

// raw is an element's key as the set has it on the wire: padded in concatenations only.
func raw(types []Type, k string) []byte {
	if len(types) == 1 {
		return []byte(k)[:min(len(k), int(types[0].kind.Bytes))]
	}
	return []byte(k)
}

// Format writes a key of those types in nft's language.
func Format(types []Type, k string) string {
	parts := make([]string, 0, len(types))
	for _, t := range types {
		n := int(t.kind.Bytes)
		if len(k) < n {
			return hex.EncodeToString([]byte(k))
		}
		parts = append(parts, t.format([]byte(k[:n])))
		k = k[min(len(k), (n+3)&^3):]
	}
	return strings.Join(parts, " . ")
}
