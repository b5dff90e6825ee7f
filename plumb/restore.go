package plumb

import (
	"errors"
	"fmt"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// restore makes of a port that is there what the spec says of its links, and takes
// away addresses and routes that the spec does not have: an address that was left of an
// owner's earlier lease would be in use without any. What the kernel configured by a router
// advertisement stays: the sandbox may use it.
func (w *work) restore() error {
	s := w.spec
	if s.MTU != 0 {
		for _, e := range []struct {
			at   *netlink.Handle
			link netlink.Link
		}{{w.outside, w.host}, {w.inside, w.guest}} {
			if e.link.Attrs().MTU == s.MTU {
				continue
			}
			if err := e.at.LinkSetMTU(e.link, s.MTU); err != nil {
				return fmt.Errorf("set the MTU of %s to %d: %w", e.link.Attrs().Name, s.MTU, err)
			}
		}
	}
	if s.MAC != nil && !slices.Equal(w.guest.Attrs().HardwareAddr, s.MAC) {
		if err := w.inside.LinkSetHardwareAddr(w.guest, s.MAC); err != nil {
			return fmt.Errorf("set the MAC of %s to %s: %w", s.Guest, s.MAC, err)
		}
	}
	if err := w.outside.LinkSetUp(w.host); err != nil {
		return fmt.Errorf("set %s up: %w", s.Host, err)
	}
	have, err := addressesOf(w.inside, w.guest)
	if err != nil {
		return err
	}
	for _, p := range have {
		if slices.Contains(s.Addresses, p) {
			continue
		}
		err := w.inside.AddrDel(w.guest, &netlink.Addr{IPNet: ipNet(p)})
		if err != nil && !errors.Is(err, unix.EADDRNOTAVAIL) {
			return fmt.Errorf("remove address %s: %w", p, err)
		}
	}
	return w.restoreRoutes()
}

// restoreRoutes takes away what was made by an earlier spec, and what is in the way of a
// route of this one. Others are the sandbox's own.
func (w *work) restoreRoutes() error {
	have, err := routeList(w.inside, w.guest)
	if err != nil {
		return err
	}
	for _, old := range have {
		r, ok := routeOf(old)
		if !ok || slices.Contains(w.spec.Routes, r) {
			continue
		}
		inTheWay := old.Protocol != unix.RTPROT_KERNEL && old.Protocol != unix.RTPROT_RA && (old.Priority == 0 || old.Priority == metric6 && r.To.Addr().Is6()) &&
			slices.ContainsFunc(w.spec.Routes, func(want Route) bool { return want.To == r.To })
		if old.Protocol != routeProtocol && !inTheWay {
			continue
		}
		if err := w.inside.RouteDel(&old); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("remove route %s: %w", r, err)
		}
	}
	return nil
}

// metric6 is the kernel's for a route of IPv6 that is added without one.
const metric6 = 1024
