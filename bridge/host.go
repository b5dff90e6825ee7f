package bridge

import (
	"fmt"

	"github.com/ipamd/ipamd/bridge/rtnl"
	"github.com/ipamd/ipamd/census"
)

const hostScope = "host"

// hostAddresses is the host witness: the addresses of the namespace that the bridge is
// in. The kernel delivers traffic for any of them to the host itself, so one on
// another link is as unusable for a sandbox as the gateway. That covers the far end of
// a port that was left in this namespace, too.
type hostAddresses struct {
	*report
	bridge string         // its name
	all    []rtnl.Address // in the kernel's order
	links  map[int]bool   // of those that can collide with a lease's
	again  bool           // they are to be read again
}

func (h *hostAddresses) read(k *rtnl.Socket, bridge *rtnl.Link) error {
	all, err := k.Addresses(rtnl.NoNetns)
	h.again = err != nil
	if err != nil {
		err = fmt.Errorf("list the host's addresses: %w", err)
		h.fail(hostScope, err)
		return err
	}
	h.all, h.links = all, make(map[int]bool)
	var seen []census.Sighting
	for _, a := range all {
		if !rtnl.Assignable(a.Prefix.Addr()) {
			continue
		}
		h.links[a.Index] = true
		s := census.Sighting{Addr: a.Prefix.Addr(), Bridge: h.bridge}
		l := bridge
		if l == nil || l.Index != a.Index {
			l, _ = k.Link(rtnl.NoNetns, a.Index)
		}
		if l != nil { // else it went meanwhile
			s.Port, s.MAC = l.Name, l.MAC.String()
		}
		seen = append(seen, s)
	}
	h.see(hostScope, seen)
	return nil
}
