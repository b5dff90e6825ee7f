package main

import (
	"fmt"
	"math/big"
	"net/netip"
	"slices"
	"strings"
)

// A stretch is an inclusive range of addresses of one family.
type stretch struct{ from, to netip.Addr }

func (s stretch) contains(a netip.Addr) bool { return s.from.Compare(a) <= 0 && a.Compare(s.to) <= 0 }

// clip is the part of s inside t; ok is false when there is none.
func (s stretch) clip(t stretch) (part stretch, ok bool) {
	if s.from.Less(t.from) {
		s.from = t.from
	}
	if t.to.Less(s.to) {
		s.to = t.to
	}
	return s, s.from.Compare(s.to) <= 0
}

// size counts the addresses. It is a big number because an IPv6 prefix may
// hold more than 2^64 of them.
func (s stretch) size() *big.Int {
	n := new(big.Int).Sub(number(s.to), number(s.from))
	return n.Add(n, big.NewInt(1))
}

func (s stretch) String() string { return s.from.String() + " - " + s.to.String() }

func number(a netip.Addr) *big.Int { return new(big.Int).SetBytes(a.AsSlice()) }

// whole is all of a prefix.
func whole(p netip.Prefix) stretch {
	last := p.Masked().Addr().AsSlice()
	for bit := p.Bits(); bit < len(last)*8; bit++ {
		last[bit/8] |= 0x80 >> (bit % 8)
	}
	to, _ := netip.AddrFromSlice(last)
	return stretch{p.Masked().Addr(), to}
}

// readStretch reads "10.8.64.200-10.8.64.250", one address, or a prefix.
func readStretch(s string) (stretch, error) {
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
		return stretch{}, fmt.Errorf("%q is not a range of addresses", s)
	}
	return stretch{first, last}, nil
}

// union sorts stretches and joins those that overlap, so that their sizes
// add up.
func union(list []stretch) []stretch {
	list = slices.Clone(list)
	slices.SortFunc(list, func(a, b stretch) int { return a.from.Compare(b.from) })
	var out []stretch
	for _, s := range list {
		if n := len(out); n > 0 && out[n-1].from.BitLen() == s.from.BitLen() && s.from.Compare(out[n-1].to) <= 0 {
			if out[n-1].to.Less(s.to) {
				out[n-1].to = s.to
			}
			continue
		}
		out = append(out, s)
	}
	return out
}
