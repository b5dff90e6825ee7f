// Package ranges has the arithmetic of ranges of addresses: how one is read and written,
// counted, cut and divided.
package ranges

import (
	"fmt"
	"math/big"
	"net/netip"
	"strings"

	"go4.org/netipx"
)

// A Range is an inclusive range of addresses of one family.
type Range struct {
	From netip.Addr `json:"from"`
	To   netip.Addr `json:"to"`
}

// Between is the range from one address to another.
func Between(from, to netip.Addr) Range { return Range{from, to} }

// Parse reads "10.8.64.200-10.8.64.250", "10.8.64.7" or "10.8.64.16/28".
func Parse(s string) (Range, error) {
	if p, err := netip.ParsePrefix(s); err == nil {
		return Of(p), nil
	}
	if a, err := netip.ParseAddr(s); err == nil {
		return Range{a, a}, nil
	}
	from, to, isRange := strings.Cut(s, "-")
	if !isRange {
		return Range{}, fmt.Errorf("%q is no address, range or prefix", s)
	}
	r, err := netipx.ParseIPRange(strings.TrimSpace(from) + "-" + strings.TrimSpace(to))
	if err != nil {
		return Range{}, fmt.Errorf("%q is no range of addresses", s)
	}
	return Range{r.From(), r.To()}, nil
}

// Of is the whole of a prefix, whatever address of it is named.
func Of(p netip.Prefix) Range { return Range{p.Masked().Addr(), netipx.PrefixLastIP(p)} }

// String writes the range as [Parse] reads it.
func (r Range) String() string {
	if r.From == r.To {
		return r.From.String()
	}
	return r.From.String() + "-" + r.To.String()
}

// Contains reports whether an address is in the range, its ends included.
func (r Range) Contains(a netip.Addr) bool { return r.From.Compare(a) <= 0 && a.Compare(r.To) <= 0 }

// Covers reports whether every address of a prefix is in the range.
func (r Range) Covers(p netip.Prefix) bool {
	all := Of(p)
	return r.Contains(all.From) && r.Contains(all.To)
}

// Overlaps reports whether two ranges have an address in common.
func (r Range) Overlaps(o Range) bool { return !r.To.Less(o.From) && !o.To.Less(r.From) }

// Clip is the part of the range inside another; ok is false when there is none.
func (r Range) Clip(o Range) (part Range, ok bool) {
	if r.From.Less(o.From) {
		r.From = o.From
	}
	if o.To.Less(r.To) {
		r.To = o.To
	}
	return r, !r.To.Less(r.From)
}

// Without returns what is left of the range before and behind another.
func (r Range) Without(gone Range) (out []Range) {
	for _, rest := range [...]Range{{r.From, gone.From.Prev()}, {gone.To.Next(), r.To}} {
		if rest.From.IsValid() && rest.To.IsValid() && !rest.To.Less(rest.From) {
			out = append(out, rest)
		}
	}
	return out
}

// Size counts the addresses. It is a big number because an IPv6 prefix may hold more than
// 2^64 of them.
func (r Range) Size() *big.Int {
	from, to := r.From.As16(), r.To.As16()
	n := new(big.Int).SetBytes(to[:])
	n.Sub(n, new(big.Int).SetBytes(from[:]))
	return n.Add(n, big.NewInt(1))
}

// Prefixes divides the range into prefixes, in order.
func (r Range) Prefixes() []netip.Prefix { return netipx.IPRangeFrom(r.From, r.To).Prefixes() }

// Bare reads an address that may have the length of a prefix behind it, which says nothing here:
// "10.8.64.7" or "10.8.64.7/24". An address of IPv4 within IPv6 is that of IPv4; one with a zone is none.
func Bare(s string) (netip.Addr, error) {
	bare, _, _ := strings.Cut(s, "/")
	a, err := netip.ParseAddr(bare)
	if err != nil || a.Zone() != "" {
		return netip.Addr{}, fmt.Errorf("%.80q is no address", s)
	}
	return a.Unmap(), nil
}
