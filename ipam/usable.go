package ipam

import (
	"net/netip"
	"slices"

	"github.com/ipamd/ipamd/internal/ranges"
)

// FirstHost returns the address that is a pool's gateway unless it says
// otherwise: the first that a host may have. A prefix of one address has
// none to spare, and the result is zero.
func FirstHost(p netip.Prefix) netip.Addr {
	if !p.IsValid() || p.IsSingleIP() {
		return netip.Addr{}
	}
	s := PoolSpec{Prefix: p.Masked()}
	return s.Hosts().From
}

// Hosts returns the addresses that a host may have by the family's rules:
// without IPv4's network and broadcast address, except on a /31 (RFC 3021)
// and a /32, and without IPv6's subnet-router anycast address (RFC 4291,
// section 2.6.1), except on a /127 (RFC 6164) and a /128.
func (s *PoolSpec) Hosts() Range {
	r := ranges.Of(s.Prefix)
	spare := r.From.BitLen() - s.Prefix.Bits()
	if spare <= 1 {
		return r
	}
	r.From = r.From.Next()
	if r.From.Is4() {
		r.To = r.To.Prev()
	}
	return r
}

// OutsideAddr says why the pool could never give an address, in words for a person; "" when it could.
func (s *PoolSpec) OutsideAddr(a netip.Addr) string {
	all, hosts := ranges.Of(s.Prefix), s.Hosts()
	switch {
	case !all.Contains(a):
		return "outside " + s.Prefix.String()
	case a == s.Gateway:
		return "the gateway"
	case !hosts.Contains(a) && a == all.From && a.Is4():
		return "the network address"
	case !hosts.Contains(a) && a == all.From:
		return "the subnet-router anycast address"
	case !hosts.Contains(a):
		return "the broadcast address"
	}
	for _, r := range s.Exclude {
		if r.Contains(a) {
			return "excluded (" + r.String() + ")"
		}
	}
	return ""
}

// noHost are addresses that no host of a network has for itself.
var noHost = []struct {
	prefix netip.Prefix
	what   string
}{
	{netip.MustParsePrefix("0.0.0.0/8"), "of this network and no host (RFC 1122)"},
	{netip.MustParsePrefix("127.0.0.0/8"), "loopback"},
	{netip.MustParsePrefix("169.254.0.0/16"), "link-local"},
	{netip.MustParsePrefix("224.0.0.0/4"), "multicast"},
	{netip.MustParsePrefix("255.255.255.255/32"), "the limited broadcast address"},
	{netip.MustParsePrefix("::/127"), "unspecified or loopback"},
	{netip.MustParsePrefix("::ffff:0:0/96"), "IPv4 in IPv6"},
	{netip.MustParsePrefix("fe80::/10"), "link-local"},
	{netip.MustParsePrefix("ff00::/8"), "multicast"},
}

// NoHost says which of the addresses of a prefix can be no host's own, and why; "" when each
// can be one's.
func NoHost(p netip.Prefix) string {
	for _, no := range noHost {
		if no.prefix.Overlaps(p) {
			if no.prefix.Bits() <= p.Bits() {
				return p.String() + " is " + no.what
			}
			return no.prefix.String() + " of it is " + no.what
		}
	}
	return ""
}

// CheckPrefixLength returns a [FieldError] for a length that a prefix of the pool cannot
// have, and 0 for that of one address.
func (s *PoolSpec) CheckPrefixLength(bits int) (int, error) {
	most := s.Prefix.Addr().BitLen()
	switch least := s.Prefix.Bits() + 1; {
	case bits == 0 || bits == most:
		return 0, nil
	case least >= most:
		return 0, Invalid("prefix_length", "%d: pool %s (%s) has no room for a prefix: leave it out for an address", bits, s.Name, s.Prefix)
	case bits < least || bits > most:
		return 0, Invalid("prefix_length", "%d is not %d to %d, as pool %s (%s) could give", bits, least, most-1, s.Name, s.Prefix)
	}
	return bits, nil
}

// Outside says why the pool could not give what a lease has, "" when it could.
func (s *PoolSpec) Outside(l *Lease) string { return s.OutsideRange(l.Range()) }

func (s *PoolSpec) OutsideRange(r Range) string {
	if r.From == r.To {
		return s.OutsideAddr(r.From)
	}
	for _, end := range []netip.Addr{r.From, r.To} {
		if note := s.OutsideAddr(end); note != "" {
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

// Refused returns the hosts' addresses that the pool never gives.
func (s *PoolSpec) Refused() []Range {
	if !s.Gateway.IsValid() {
		return s.Exclude
	}
	return append(slices.Clone(s.Exclude), ranges.Between(s.Gateway, s.Gateway))
}

// hasRoom reports whether the pool has an address to give.
func (s *PoolSpec) hasRoom() bool {
	hosts := s.Hosts()
	gone := slices.SortedFunc(slices.Values(s.Refused()), func(a, b Range) int { return a.From.Compare(b.From) })
	next := hosts.From
	for _, r := range gone {
		if next.Less(r.From) {
			break
		}
		if !r.To.Less(next) {
			if next = r.To.Next(); !next.IsValid() {
				return false
			}
		}
	}
	return !hosts.To.Less(next)
}
