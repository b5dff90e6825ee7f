package poolmap

import (
	"fmt"
	"math/big"
	"net/netip"
	"slices"
	"strings"
)

// A Range is an inclusive range of addresses of one family.
type Range struct{ From, To netip.Addr }

// Contains reports whether an address is in the range, its ends included.
func (s Range) Contains(a netip.Addr) bool { return s.From.Compare(a) <= 0 && a.Compare(s.To) <= 0 }

// Clip is the part of s inside t; ok is false when there is none.
func (s Range) Clip(t Range) (part Range, ok bool) {
	if s.From.Less(t.From) {
		s.From = t.From
	}
	if t.To.Less(s.To) {
		s.To = t.To
	}
	return s, s.From.Compare(s.To) <= 0
}

// size counts the addresses. It is a big number because an IPv6 prefix may
// hold more than 2^64 of them.
func (s Range) size() *big.Int {
	n := new(big.Int).Sub(number(s.To), number(s.From))
	return n.Add(n, big.NewInt(1))
}

func (s Range) String() string { return s.From.String() + " - " + s.To.String() }

func number(a netip.Addr) *big.Int { return new(big.Int).SetBytes(a.AsSlice()) }

// whole is all of a prefix.
func whole(p netip.Prefix) Range {
	last := p.Masked().Addr().AsSlice()
	for bit := p.Bits(); bit < len(last)*8; bit++ {
		last[bit/8] |= 0x80 >> (bit % 8)
	}
	to, _ := netip.AddrFromSlice(last)
	return Range{p.Masked().Addr(), to}
}

// ParseRange reads "10.8.64.200-10.8.64.250", one address, or a prefix.
func ParseRange(s string) (Range, error) {
	if p, err := netip.ParsePrefix(s); err == nil {
		return whole(p), nil
	}
	from, to, two := strings.Cut(s, "-")
	if !two {
		to = from
	}
	first, err1 := netip.ParseAddr(strings.TrimSpace(from))
	last, err2 := netip.ParseAddr(strings.TrimSpace(to))
	if err1 != nil || err2 != nil || first.Is4() != last.Is4() || last.Less(first) {
		return Range{}, fmt.Errorf("%q is not a range of addresses", s)
	}
	return Range{first, last}, nil
}

// union sorts ranges and joins those that overlap, so that their sizes
// add up.
func union(list []Range) []Range {
	list = slices.Clone(list)
	slices.SortFunc(list, func(a, b Range) int { return a.From.Compare(b.From) })
	var out []Range
	for _, s := range list {
		if n := len(out); n > 0 && out[n-1].From.BitLen() == s.From.BitLen() && s.From.Compare(out[n-1].To) <= 0 {
			if out[n-1].To.Less(s.To) {
				out[n-1].To = s.To
			}
			continue
		}
		out = append(out, s)
	}
	return out
}
