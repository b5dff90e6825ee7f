package poolmap

import (
	"fmt"
	"math/big"
	"net/netip"
	"strings"

	"go4.org/netipx"
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
func whole(p netip.Prefix) Range { return Range{p.Masked().Addr(), netipx.PrefixLastIP(p)} }

// ParseRange reads "10.8.64.200-10.8.64.250", one address, or a prefix.
func ParseRange(s string) (Range, error) {
	if p, err := netip.ParsePrefix(s); err == nil {
		return whole(p), nil
	}
	from, to, two := strings.Cut(strings.ReplaceAll(s, " ", ""), "-")
	if !two {
		to = from
	}
	r, err := netipx.ParseIPRange(from + "-" + to)
	if err != nil {
		return Range{}, fmt.Errorf("%q is not a range of addresses", s)
	}
	return Range{r.From(), r.To()}, nil
}
