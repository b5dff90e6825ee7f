package plumb

import (
	"errors"
	"fmt"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// restore makes of a port that is there what the spec says of its links, and takes
// away addresses that the spec does not have: one that was left of an owner's
// earlier lease would be in use without any.
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
	return nil
}
