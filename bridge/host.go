package bridge

import (
	"fmt"

	"github.com/ipamd/ipamd/bridge/rtnl"
	"github.com/ipamd/ipamd/census"
)

// hostScope is the one scope of the host witness's report.
const hostScope = "host"

// hostAddresses is the host witness: the addresses of the namespace that the bridge is
// in, on whichever link. The kernel delivers traffic for any of them to the host itself, so a
// sandbox can use none of them, no more than the gateway. Where the other end of a port's veth
// is still in this namespace, its addresses are among them.
type hostAddresses struct {
	*report
	bridge string         // its name
	all    []rtnl.Address // in the kernel's order
	links  map[int]bool   // the indexes of the links with an address that a sandbox could have
	again  bool           // all is to be read again
}

// read lists the addresses and posts them. bridge is the bridge's link, which need not be looked up; nil
// where there is none.
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
