package main

import (
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/internal/nstest"
	"github.com/ipamd/ipamd/internal/realtest"
	"github.com/ipamd/ipamd/plumb"
)

// attaching is goal 20, without a slot: a port as package plumb makes it, beside the netlink calls that
// none can do without; and a call from nothing to a sandbox that is plugged in. Ports
// are removed outside of what is timed: the kernel takes ten times as long for that.
func attaching(r *run) func() []ratio {
	d := r.start(setup{})
	guest := nstest.New(r)
	spec := plumb.Spec{Owner: "bench", Host: plumb.HostName("bench"), Bridge: bridgeName, Netns: guest.Path(), Guest: "eth0", MTU: 1500,
		Addresses: []netip.Prefix{netip.MustParsePrefix("10.8.240.1/16")},
		Routes:    []plumb.Route{{To: netip.MustParsePrefix("0.0.0.0/0"), Via: netip.MustParseAddr("10.8.0.1")}}}
	remove := func() error { return d.inside(func() error { return plumb.Remove(r.ctx, spec.Host, spec.Owner) }) }
	made := call{func() error {
		return d.inside(func() error { _, err := plumb.Make(r.ctx, spec); return err })
	}, remove}
	ns := must(os.Open(guest.Path()))
	r.Cleanup(func() { _ = ns.Close() })
	bare := call{func() error { return d.inside(func() error { return bareCalls(int(ns.Fd()), &spec) }) }, remove}
	d.helper()
	given := d.attached(guest.Path())
	byTurns(2*turn, bare, made, given) // warm
	return func() []ratio {
		t := byTurns(4*turn, bare, made, given, r.yardF(), r.yardR())
		bare, f, r := t[0].do.p50(), t[3].do.p50(), t[4].do.p50()
		return []ratio{took(t[1].do.p50(), bare), took(t[2].do.p50(), bare+2*f+3*r)}
	}
}

// inside calls f in the daemon's namespace.
func (d *daemon) inside(f func() error) (err error) {
	d.ns.Do(func() { err = f() })
	return err
}

// helper runs the program that makes ports.
func (d *daemon) helper() {
	cmd := child(d.program, "plumb", "--socket", filepath.Join(d.folder, "sock"))
	cmd.Stderr = os.Stderr
	check(d.inside(cmd.Start))
	d.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
	})
	realtest.Eventually(d, patience, "the helper asks for work", func() bool { return must(d.client.Status(d.ctx)).Plumb.Ready })
}

// attached allocates with a port, and undoes both.
func (d *daemon) attached(netns string) call {
	n, id := 0, ""
	return call{func() error {
		n++
		reply, err := d.client.Allocate(d.ctx, api.AllocateRequest{Sandbox: "attached-" + strconv.Itoa(n), Attach: &api.AttachRequest{Netns: netns}})
		if err == nil {
			id = reply.Leases[0].ID
		}
		return err
	}, func() error {
		_, err := d.client.Detach(d.ctx, id, api.DetachRequest{})
		if err == nil {
			_, err = d.client.Release(d.ctx, id, api.ReleaseRequest{})
		}
		return err
	}}
}

// bareCalls makes the port with the fewest calls: two sockets, a pair, the bridge, and
// inside lo, an address, up and a route. The MAC of the bridge's end is for its removal.
func bareCalls(ns int, s *plumb.Spec) error {
	outside, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer outside.Close()
	bridge, err := outside.LinkByName(s.Bridge)
	if err != nil {
		return err
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU, attrs.Flags, attrs.MasterIndex = s.Host, s.MTU, net.FlagUp, bridge.Attrs().Index
	attrs.HardwareAddr = plumb.HostMAC(s.Owner)
	veth := netlink.NewVeth(attrs)
	veth.PeerName, veth.PeerNamespace = s.Guest, netlink.NsFd(ns)
	if err := outside.LinkAdd(veth); err != nil {
		return err
	}
	inside, err := netlink.NewHandleAt(netns.NsHandle(ns), unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer inside.Close()
	guest, err := inside.LinkByName(s.Guest)
	if err == nil {
		err = inside.LinkSetUp(&netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: 1}})
	}
	if err == nil {
		a := s.Addresses[0]
		err = inside.AddrAdd(guest, &netlink.Addr{IPNet: &net.IPNet{IP: a.Addr().AsSlice(), Mask: net.CIDRMask(a.Bits(), 32)}})
	}
	if err == nil {
		err = inside.LinkSetUp(guest)
	}
	if err == nil {
		err = inside.RouteAdd(&netlink.Route{LinkIndex: guest.Attrs().Index, Gw: s.Routes[0].Via.AsSlice()})
	}
	return err
}
