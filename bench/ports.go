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
type ports struct {
	spaces []netns.NsHandle
	made   int // names them: a name is free again only when the namespace is gone
}

// plug makes n ports of the bridge in a namespace, with addresses that nobody
// is given.
func plug(space netns.NsHandle, n int) (p *ports, err error) {
	p = new(ports)
	addr := netip.MustParsePrefix(portPrefix).Addr()
	var all []netip.Addr
	for range n {
		addr = addr.Next()
		all = append(all, addr)
	}
	if _, err := p.plug(space, all...); err != nil {
		p.close()
		return p, err
	}
	return p, nil
}

// plug makes a port for each address, and returns their names.
func (p *ports) plug(space netns.NsHandle, addrs ...netip.Addr) (names []string, err error) {
	nl, err := netlink.NewHandleAt(space)
	if err != nil {
		return nil, err
	}
	defer nl.Close()
	bridge, err := nl.LinkByName(bridgeName)
	if err != nil {
		return nil, fmt.Errorf("find %s: %w", bridgeName, err)
	}
	for _, addr := range addrs {
		far, err := newSpace()
		if err != nil {
			return nil, err
		}
		p.spaces = append(p.spaces, far)
		p.made++
		near := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: fmt.Sprintf("port%d", p.made), MasterIndex: bridge.Attrs().Index},
			PeerName: "eth0", PeerNamespace: netlink.NsFd(far)}
		if err := errors.Join(nl.LinkAdd(near), nl.LinkSetUp(near), inhabit(far, addr)); err != nil {
			return nil, fmt.Errorf("make port %s: %w", near.Name, err)
		}
		names = append(names, near.Name)
	}
	return names, nil
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
