package main

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"runtime"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
)

// ports are what sandboxes look like from the bridge: the near ends of veth
// pairs whose far ends are in namespaces of their own, with an address each.
// They go away when the namespaces do, which nothing but this holds.
type ports struct{ spaces []netns.NsHandle }

// plug makes n ports of the bridge in a namespace.
func plug(space netns.NsHandle, n int) (p *ports, err error) {
	p = new(ports)
	defer func() {
		if err != nil {
			p.close()
		}
	}()
	nl, err := netlink.NewHandleAt(space)
	if err != nil {
		return p, err
	}
	defer nl.Close()
	bridge, err := nl.LinkByName(bridgeName)
	if err != nil {
		return p, fmt.Errorf("find %s: %w", bridgeName, err)
	}
	addr := netip.MustParsePrefix(portPrefix).Addr()
	for i := range n {
		far, err := newSpace()
		if err != nil {
			return p, err
		}
		p.spaces = append(p.spaces, far)
		addr = addr.Next()
		near := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: fmt.Sprintf("port%d", i), MasterIndex: bridge.Attrs().Index},
			PeerName: "eth0", PeerNamespace: netlink.NsFd(far)}
		if err := errors.Join(nl.LinkAdd(near), nl.LinkSetUp(near), inhabit(far, addr)); err != nil {
			return p, fmt.Errorf("make port %s: %w", near.Name, err)
		}
	}
	return p, nil
}

// inhabit sets the far end up with its address.
func inhabit(space netns.NsHandle, addr netip.Addr) error {
	nl, err := netlink.NewHandleAt(space)
	if err != nil {
		return err
	}
	defer nl.Close()
	eth0, err := nl.LinkByName("eth0")
	if err != nil {
		return err
	}
	ip := &netlink.Addr{IPNet: &net.IPNet{IP: addr.AsSlice(), Mask: net.CIDRMask(netip.MustParsePrefix(poolPrefix).Bits(), addr.BitLen())}}
	return errors.Join(nl.AddrAdd(eth0, ip), nl.LinkSetUp(eth0))
}

func (p *ports) close() {
	for _, s := range p.spaces {
		_ = s.Close()
	}
	p.spaces = nil
}

// newSpace makes a network namespace that lives as long as its handle.
func newSpace() (netns.NsHandle, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	home, err := netns.Get()
	if err != nil {
		return netns.None(), err
	}
	defer home.Close()
	space, err := netns.New() // and enters it
	if err != nil {
		return netns.None(), fmt.Errorf("make a network namespace: %w", err)
	}
	if err := netns.Set(home); err != nil {
		panic("no way back to the first network namespace: " + err.Error())
	}
	return space, nil
}
