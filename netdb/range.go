package netdb

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"net/netip"
	"strings"
)

// ParseRange reads "10.8.64.200-10.8.64.250", "10.8.64.7" or "10.8.64.16/28".
func ParseRange(s string) (Range, error) {
	if p, err := netip.ParsePrefix(s); err == nil {
		return prefixRange(p.Masked()), nil
	}
	from, to, isRange := strings.Cut(s, "-")
	a, err := netip.ParseAddr(strings.TrimSpace(from))
	if err != nil {
		return Range{}, fmt.Errorf("%q is no address, range or prefix", s)
	}
	if !isRange {
		return Range{a, a}, nil
	}
	b, err := netip.ParseAddr(strings.TrimSpace(to))
	if err != nil || a.Is4() != b.Is4() || b.Less(a) {
		return Range{}, fmt.Errorf("%q is no range of addresses", s)
	}
	return Range{a, b}, nil
}

// String writes the range as [ParseRange] reads it.
func (r Range) String() string {
	if r.From == r.To {
		return r.From.String()
	}
	return r.From.String() + "-" + r.To.String()
}

// A size is a number of addresses, at most 2^128-1.
type size struct{ hi, lo uint64 }

// size returns how many addresses the range holds; one less of all that IPv6 has.
func (r Range) size() size {
	from, to := r.From.As16(), r.To.As16()
	n := size{binary.BigEndian.Uint64(to[:8]), binary.BigEndian.Uint64(to[8:])}
	n.subtract(size{binary.BigEndian.Uint64(from[:8]), binary.BigEndian.Uint64(from[8:])})
	if n != (size{math.MaxUint64, math.MaxUint64}) {
		n.add(size{lo: 1})
	}
	return n
}

func (n *size) add(m size) {
	var carry uint64
	n.lo, carry = bits.Add64(n.lo, m.lo, 0)
	n.hi, _ = bits.Add64(n.hi, m.hi, carry)
}

func (n *size) subtract(m size) {
	var borrow uint64
	n.lo, borrow = bits.Sub64(n.lo, m.lo, 0)
	n.hi, _ = bits.Sub64(n.hi, m.hi, borrow)
}

// saturated returns the number, at most 2^64-1.
func (n size) saturated() uint64 {
	if n.hi != 0 {
		return math.MaxUint64
	}
	return n.lo
}

func saturatingAdd(a, b uint64) uint64 {
	sum, carry := bits.Add64(a, b, 0)
	if carry != 0 {
		return math.MaxUint64
	}
	return sum
}

// prefixRange returns the first and the last address of a masked prefix.
func prefixRange(p netip.Prefix) Range {
	last := p.Addr().AsSlice()
	for i := p.Bits(); i < len(last)*8; i++ {
		last[i/8] |= 1 << (7 - i%8)
	}
	to, _ := netip.AddrFromSlice(last)
	return Range{p.Addr(), to}
}
