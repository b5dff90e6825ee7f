package plumb

import (
	"errors"
	"fmt"
	"net"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// machine is the MAC that a virtual machine is to have behind its tap.
func (s *Spec) machine() net.HardwareAddr {
	if s.MAC != nil {
		return s.MAC
	}
	return AddressMAC(s.Addresses[0].Addr())
}

func isTap(l netlink.Link) bool {
	t, is := l.(*netlink.Tuntap)
	return is && t.Mode == netlink.TUNTAP_MODE_TAP
}

// tap makes a tap, or finishes one of the same owner. It lasts from the last step on: until then
// the kernel takes it away with the process that makes it.
func (w *work) tap() (made bool, err error) {
	s := w.spec
	if w.host, err = hostEnd(w.outside, s.Host, s.Owner); err != nil {
		return false, err
	}
	if w.host != nil {
		if !isTap(w.host) {
			return false, &FieldError{Field: "host", Value: s.Host, Why: "the port is there, and leads into a network namespace", Err: ErrTaken}
		}
		return false, w.shape()
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name = s.Host
	t := &netlink.Tuntap{LinkAttrs: attrs, Mode: netlink.TUNTAP_MODE_TAP, NonPersist: true, Queues: 1,
		Flags: netlink.TUNTAP_NO_PI | netlink.TUNTAP_TUN_EXCL}
	if err := w.outside.LinkAdd(t); err != nil {
		return false, fmt.Errorf("add the tap: %w", err)
	}
	defer func() {
		for _, f := range t.Fds {
			err = errors.Join(err, f.Close())
		}
	}()
	step("tap")
	w.host = t
	if err := w.shape(); err != nil {
		return false, err // it goes as it is closed
	}
	if err := unix.IoctlSetInt(int(t.Fds[0].Fd()), unix.TUNSETPERSIST, 1); err != nil {
		return false, fmt.Errorf("have the tap last: %w", err)
	}
	step("lasts")
	return true, nil
}

// shape makes of the tap what the spec says.
func (w *work) shape() error {
	s, h := w.spec, w.host
	if mac := HostMAC(s.Owner); !slices.Equal(h.Attrs().HardwareAddr, mac) {
		if err := w.outside.LinkSetHardwareAddr(h, mac); err != nil {
			return fmt.Errorf("set the MAC of %s: %w", s.Host, err)
		}
		step("mac")
	}
	if s.MTU != 0 && h.Attrs().MTU != s.MTU {
		if err := w.outside.LinkSetMTU(h, s.MTU); err != nil {
			return fmt.Errorf("set the MTU of %s to %d: %w", s.Host, s.MTU, err)
		}
		step("mtu")
	}
	if err := w.outside.LinkSetUp(h); err != nil {
		return fmt.Errorf("set %s up: %w", s.Host, err)
	}
	step("up")
	return w.plug()
}
