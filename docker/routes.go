package docker

import (
	"net/netip"

	"github.com/vishvananda/netlink"
)

// HostRoutes lists the destinations of the host's routes, without the default ones.
func HostRoutes() (out []netip.Prefix, err error) {
	routes, err := netlink.RouteList(nil, netlink.FAMILY_ALL)
	if err != nil {
		return nil, err
	}
	for _, r := range routes {
		if r.Dst == nil {
			continue
		}
		a, ok := netip.AddrFromSlice(r.Dst.IP)
		if ones, _ := r.Dst.Mask.Size(); ok && ones > 0 {
			out = append(out, netip.PrefixFrom(a.Unmap(), ones))
		}
	}
	return out, nil
}
