package netdb

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/ipamd/ipamd/internal/ranges"
	"github.com/ipamd/ipamd/netdb/free"
)

// A delegated prefix is leased as one address is: its row's address is the first one, and
// no other row lies in it, in whatever state.

// Prefix returns what is leased: the delegated prefix, or the address as a prefix of one.
func (l *Lease) Prefix() netip.Prefix {
	bits := l.PrefixLen
	if bits == 0 {
		bits = l.Addr.BitLen()
	}
	return netip.PrefixFrom(l.Addr, bits)
}

// Range returns the first and the last address that are leased.
func (l *Lease) Range() Range { return rangeOf(l.Addr, l.PrefixLen) }

// Covers reports whether an address is leased with this row.
func (l *Lease) Covers(a netip.Addr) bool {
	return l.Addr == a || l.PrefixLen != 0 && l.Prefix().Contains(a)
}

// Text is the address, or the delegated prefix as in 10.8.64.16/28.
func (l *Lease) Text() string { return placeText(l.Addr, l.PrefixLen) }

func rangeOf(a netip.Addr, bits int) Range {
	if bits == 0 {
		return ranges.Between(a, a)
	}
	return ranges.Of(netip.PrefixFrom(a, bits))
}

// placeText writes an address, or with bits above 0 the prefix that begins there.
func placeText(a netip.Addr, bits int) string {
	if !a.IsValid() || bits == 0 {
		return AddrText(a)
	}
	return netip.PrefixFrom(a, bits).String()
}

// parsePlace reads what placeText writes.
func parsePlace(s string) (a netip.Addr, bits int, err error) {
	if !strings.Contains(s, "/") {
		a, err = netip.ParseAddr(s)
		return a, 0, err
	}
	p, err := netip.ParsePrefix(s)
	if err == nil && (p != p.Masked() || p.IsSingleIP() || p.Bits() == 0) {
		err = fmt.Errorf("%q is no delegated prefix", s)
	}
	return p.Addr(), p.Bits(), err
}

// CheckPrefixLength returns a [FieldError] for a length that a prefix of the pool cannot
// have, and 0 for that of one address.
func (s *PoolSpec) CheckPrefixLength(bits int) (int, error) {
	most := s.Prefix.Addr().BitLen()
	switch least := s.Prefix.Bits() + 1; {
	case bits == 0 || bits == most:
		return 0, nil
	case least >= most:
		return 0, invalid("prefix_length", "%d: pool %s (%s) has no room for a prefix: leave it out for an address", bits, s.Name, s.Prefix)
	case bits < least || bits > most:
		return 0, invalid("prefix_length", "%d is not %d to %d, as pool %s (%s) could give", bits, least, most-1, s.Name, s.Prefix)
	}
	return bits, nil
}

// outsideOf says why the pool could not give what a row leases, "" when it could.
func (s *PoolSpec) outsideOf(l *Lease) string { return s.outsideRange(l.Range()) }

// Outside says why the pool could not give what a lease has, "" when it could.
func (s *PoolSpec) Outside(l *Lease) string { return s.outsideOf(l) }

func (s *PoolSpec) outsideRange(r Range) string {
	if r.From == r.To {
		return s.outside(r.From)
	}
	for _, end := range []netip.Addr{r.From, r.To} {
		if note := s.outside(end); note != "" {
			return note
		}
	}
	if r.Contains(s.Gateway) {
		return "the gateway"
	}
	for _, e := range s.Exclude {
		if e.Overlaps(r) {
			return "excluded (" + e.String() + ")"
		}
	}
	return ""
}

// split divides a range into what the pool could give and what it could not.
func (s *PoolSpec) split(r Range) (inside, outside []Range) {
	if r.From == r.To {
		if s.outside(r.From) == "" {
			return []Range{r}, nil
		}
		return nil, []Range{r}
	}
	if part, some := s.hosts().Clip(r); some {
		inside = free.Rest(part, s.refused()...)
	}
	return inside, free.Rest(r, inside...)
}

// refused returns the hosts' addresses that the pool never gives.
func (s *PoolSpec) refused() []Range {
	if !s.Gateway.IsValid() {
		return s.Exclude
	}
	return append(slices.Clone(s.Exclude), ranges.Between(s.Gateway, s.Gateway))
}

// gives reports whether the pool could give an address of a range.
func (s *PoolSpec) gives(r Range) bool {
	inside, _ := s.split(r)
	return len(inside) > 0
}
