package netdb

import (
	"net/netip"
)

// hosts returns the addresses that a host may have by the family's rules:
// without IPv4's network and broadcast address, except on a /31 (RFC 3021)
// and a /32, and without IPv6's subnet-router anycast address (RFC 4291,
// section 2.6.1), except on a /127 (RFC 6164) and a /128.
func (s *PoolSpec) hosts() Range {
	r := prefixRange(s.Prefix)
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

// usable reports whether the pool could ever hand out the address, and if
// not, why, in words for a person.
func (s *PoolSpec) usable(a netip.Addr) (bool, string) {
	all, hosts := prefixRange(s.Prefix), s.hosts()
	switch {
	case !all.Contains(a):
		return false, "outside " + s.Prefix.String()
	case a == s.Gateway:
		return false, "the gateway"
	case !hosts.Contains(a) && a == all.From && a.Is4():
		return false, "the network address"
	case !hosts.Contains(a) && a == all.From:
		return false, "the subnet-router anycast address"
	case !hosts.Contains(a):
		return false, "the broadcast address"
	}
	for _, r := range s.Exclude {
		if r.Contains(a) {
			return false, "excluded (" + r.String() + ")"
		}
	}
	return true, ""
}

// A Place says where an address lies.
type Place struct {
	Pool   *Pool  // nil: in no pool
	Usable bool   // could be handed out at all
	Note   string // why not
}

// Place returns where an address lies.
func (b *Book) Place(a netip.Addr) Place {
	b.mu.RLock()
	defer b.mu.RUnlock()
	pi := b.idx.poolOf(a)
	if pi == nil {
		return Place{Note: "in no pool"}
	}
	usable, note := pi.pool.usable(a)
	if _, walled := pi.walled[a]; walled {
		usable, note = false, "named by a row that cannot be read"
	}
	return Place{pi.pool, usable, note}
}
