package plumb

import (
	"fmt"
	"net/netip"

	"github.com/ipamd/ipamd/api"
)

// Describe is the spec of the port of one interface, of its leases (one, or one of
// each family) and their networks, in the order of an allocation's reply. The
// caller adds the namespace, and may choose a MAC or another name for the bridge's
// end; the owner is the first lease's id.
func Describe(leases []api.Lease, networks []api.Network) (Spec, error) {
	if len(leases) == 0 || len(leases) != len(networks) {
		return Spec{}, fmt.Errorf("describe a port of %d leases in %d networks: each lease has its network", len(leases), len(networks))
	}
	first := leases[0]
	s := Spec{Owner: first.ID, Bridge: networks[0].Bridge, Host: first.HostInterfaceName, Guest: first.Interface, MTU: networks[0].MTU}
	if s.Host == "" {
		s.Host = HostName(first.ID)
	}
	for i, l := range leases {
		n := networks[i]
		if n.Bridge != s.Bridge {
			return Spec{}, invalid("bridge", n.Bridge, "one interface is on one bridge, and another lease of it is on "+s.Bridge)
		}
		if l.Interface != s.Guest {
			return Spec{}, invalid("guest", l.Interface, "another lease is of "+s.Guest)
		}
		a, err := netip.ParseAddr(l.Address)
		if err != nil {
			return Spec{}, invalid("addresses", l.Address, err.Error())
		}
		// Also where a prefix is delegated: its first address is the sandbox's on the
		// link, where the gateway is.
		s.Addresses = append(s.Addresses, netip.PrefixFrom(a, l.PrefixLen))
		s.MTU = min(s.MTU, n.MTU)
		for _, r := range n.Routes {
			route, err := parseRoute(r)
			if err != nil {
				return Spec{}, err
			}
			s.Routes = append(s.Routes, route)
		}
	}
	return s, nil
}

func parseRoute(r api.Route) (Route, error) {
	to, err := netip.ParsePrefix(r.Destination)
	if err != nil {
		return Route{}, invalid("routes", r.Destination, err.Error())
	}
	if r.Via == "" {
		return Route{To: to}, nil
	}
	via, err := netip.ParseAddr(r.Via)
	if err != nil {
		return Route{}, invalid("routes", r.Via, err.Error())
	}
	return Route{To: to, Via: via}, nil
}
