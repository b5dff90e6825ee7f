package docker

import (
	"errors"
	"net/netip"
	"os"
	"slices"
	"strings"

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

// HostLinks names the host's links that have an address.
func HostLinks(a netip.Addr) (out []string, err error) {
	family := netlink.FAMILY_V4
	if a.Is6() {
		family = netlink.FAMILY_V6
	}
	var all []netlink.Addr
	for range 10 { // a list that a change cut short is never taken for a whole one
		if all, err = netlink.AddrList(nil, family); !errors.Is(err, netlink.ErrDumpInterrupted) {
			break
		}
	}
	if err != nil {
		return nil, err
	}
	for _, has := range all {
		if !has.IP.Equal(a.AsSlice()) {
			continue
		}
		link, err := netlink.LinkByIndex(has.LinkIndex)
		switch {
		case errors.As(err, new(netlink.LinkNotFoundError)): // it went meanwhile, and the address with it
		case err != nil:
			return nil, err
		case !slices.Contains(out, link.Attrs().Name): // with two prefix lengths it is there twice
			out = append(out, link.Attrs().Name)
		}
	}
	return out, nil
}

// HostNameServers lists the name servers that Docker knows the host by: those of resolv.conf, and
// of the file that systemd-resolved keeps where that one names itself. A file that is not there
// names none.
func HostNameServers() (out []netip.Addr) {
	for _, file := range []string{"/etc/resolv.conf", "/run/systemd/resolve/resolv.conf"} {
		text, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(text)) {
			words := strings.Fields(line)
			if len(words) < 2 || words[0] != "nameserver" {
				continue
			}
			if a, err := netip.ParseAddr(words[1]); err == nil {
				out = append(out, a.WithZone("").Unmap())
			}
		}
	}
	return out
}
