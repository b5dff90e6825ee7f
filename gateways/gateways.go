// Package gateways has the bridges follow the pools, however these are changed: which bridges
// are looked after, and which gateways each has to have.
//
// It decides by the book alone, and takes no gateway away from a sandbox that may be using it.
package gateways

import (
	"net/netip"
	"slices"

	"github.com/ipamd/ipamd/bridge"
	"github.com/ipamd/ipamd/ipam"
)

// Of says which gateways the bridge has to have for pools, and which of those that
// it had to have before are former ones now. held are the addresses of sandboxes, and of
// former pools, that may be in use: while one of them is in the subnet of a former gateway,
// that gateway stays, for it is the sandbox's route; unless the same address is its gateway
// with another prefix length.
//
// One that was former stays so, as the sandboxes that came since never had it as their route, and
// so does one that is leased by now: wanted again, it would be a sandbox's address and the host's.
//
// IPv6 has an address once on a link, whatever its prefix length. Where a pool is made
// smaller over such a sandbox, its gateway keeps the former length meanwhile.
func Of(pools []ipam.PoolSpec, before bridge.Desired, held, leased []netip.Addr) (want, former []netip.Prefix) {
	for _, s := range pools {
		if s.Gateway.IsValid() {
			want = append(want, netip.PrefixFrom(s.Gateway, s.Prefix.Bits()))
		}
	}
	now := slices.Clone(want)
	for _, old := range before.Gateways {
		if slices.Contains(want, old) {
			continue
		}
		needed := !slices.Contains(leased, old.Addr()) && slices.ContainsFunc(held, func(a netip.Addr) bool {
			return a != old.Addr() && old.Contains(a) && !slices.ContainsFunc(now, func(p netip.Prefix) bool { return p.Addr() == old.Addr() && p.Contains(a) })
		})
		same := func(p netip.Prefix) bool { return p.Addr() == old.Addr() && p.Addr().Is6() }
		switch i := slices.IndexFunc(want, same); {
		case !needed:
			former = append(former, old)
		case i >= 0:
			want[i] = old
		default:
			want = append(want, old)
		}
	}
	for _, gone := range before.Former {
		if !slices.Contains(want, gone) && !slices.Contains(former, gone) {
			former = append(former, gone)
		}
	}
	return want, former
}
