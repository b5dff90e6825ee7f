package main

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/ipamd/ipamd/api"
)

// A port is where a sandbox meets the bridge.
type port struct {
	netns string // path
	host  string // the bridge's end of the veth pair
	mac   string // of the sandbox's end
}

// hostName is the name of the bridge's end: from the random end of the
// lease's id, because a name of a sandbox is longer than the 15 bytes that an
// interface may have.
func hostName(leaseID string) string { return "sb" + leaseID[len(leaseID)-12:] }

func netnsName(name string) string { return "sandbox-" + name }
func netnsPath(name string) string { return filepath.Join("/run/netns", netnsName(name)) }

// plug makes the sandbox's network namespace and connects it to the bridge,
// with address and routes as ipamd gave them. What fails leaves nothing.
func plug(name string, lease api.Lease, network api.Network) (_ port, err error) {
	ns, err := makeNetns(netnsName(name))
	if err != nil {
		return port{}, err
	}
	defer ns.Close()
	defer func() {
		if err != nil {
			err = errors.Join(err, unplug(name, lease.ID))
		}
	}()
	host := hostName(lease.ID)
	if err := connect(host, ns, lease.Interface, network); err != nil {
		return port{}, fmt.Errorf("connect to bridge %s: %w", network.Bridge, err)
	}
	inside, err := netlink.NewHandleAt(ns, unix.NETLINK_ROUTE)
	if err != nil {
		return port{}, fmt.Errorf("open netlink inside: %w", err)
	}
	defer inside.Close()
	mac, err := configure(inside, lease, network)
	if err != nil {
		return port{}, fmt.Errorf("configure %s inside: %w", lease.Interface, err)
	}
	return port{netns: netnsPath(name), host: host, mac: mac.String()}, nil
}

// errHalf means that a namespace of this name is there, without a container.
var errHalf = errors.New("it is there already")

// makeNetns makes a named network namespace. A name that exists is an error:
// it may belong to another program.
func makeNetns(name string) (ns netns.NsHandle, err error) {
	runtime.LockOSThread() // a namespace is a property of the thread
	home, err := netns.Get()
	if err != nil {
		runtime.UnlockOSThread()
		return netns.None(), fmt.Errorf("look up the network namespace: %w", err)
	}
	defer home.Close()
	ns, err = netns.NewNamed(name)
	back := netns.Set(home)
	if back == nil {
		runtime.UnlockOSThread() // else the thread ends with its goroutine
	}
	switch {
	case errors.Is(err, fs.ErrExist):
		err = fmt.Errorf("make network namespace %s: %w", name, errHalf)
	case err != nil:
		err = fmt.Errorf("make network namespace %s: %w", name, err)
	}
	return ns, errors.Join(err, back)
}

// connect makes a veth pair with one end on the bridge and the other in ns.
func connect(host string, ns netns.NsHandle, inner string, network api.Network) error {
	bridge, err := netlink.LinkByName(network.Bridge)
	if err != nil {
		return err
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name = host
	attrs.MasterIndex = bridge.Attrs().Index
	attrs.MTU = network.MTU
	attrs.Flags = net.FlagUp
	veth := netlink.NewVeth(attrs)
	veth.PeerName = inner
	veth.PeerNamespace = netlink.NsFd(ns)
	return netlink.LinkAdd(veth)
}

// configure gives the sandbox's end its address and routes, and returns its
// MAC.
func configure(inside *netlink.Handle, lease api.Lease, network api.Network) (net.HardwareAddr, error) {
	lo, err := inside.LinkByName("lo")
	if err != nil {
		return nil, err
	}
	if err := inside.LinkSetUp(lo); err != nil {
		return nil, err
	}
	link, err := inside.LinkByName(lease.Interface)
	if err != nil {
		return nil, err
	}
	addr, err := netip.ParseAddr(lease.Address)
	if err != nil {
		return nil, err
	}
	err = inside.AddrAdd(link, &netlink.Addr{
		IPNet: ipNet(netip.PrefixFrom(addr, lease.PrefixLen)),
		// ipamd has probed already. Without this an IPv6 address
		// would be tentative, and useless, for its first second or two.
		Flags: unix.IFA_F_NODAD,
	})
	if err != nil {
		return nil, fmt.Errorf("add %s/%d: %w", lease.Address, lease.PrefixLen, err)
	}
	if err := inside.LinkSetUp(link); err != nil {
		return nil, err
	}
	return link.Attrs().HardwareAddr, addRoutes(inside, link, network)
}

// addRoutes adds the routes that ipamd names, the default one among them.
func addRoutes(inside *netlink.Handle, link netlink.Link, network api.Network) error {
	for _, r := range network.Routes {
		to, err := netip.ParsePrefix(r.Destination)
		if err != nil {
			return err
		}
		via, err := netip.ParseAddr(r.Via)
		if err != nil {
			return err
		}
		if err := inside.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Dst: ipNet(to), Gw: via.AsSlice()}); err != nil {
			return fmt.Errorf("add route to %s via %s: %w", to, via, err)
		}
	}
	return nil
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// unplug takes the port off the bridge and the namespace away. What is not
// there is no error: a removal that died half-way is done again.
func unplug(name, leaseID string) error {
	// The link first: it goes at once, with both ends. The kernel removes a
	// namespace, and the port with it, some time later.
	link, err := netlink.LinkByName(hostName(leaseID))
	if err == nil {
		err = netlink.LinkDel(link)
	}
	if gone := new(netlink.LinkNotFoundError); err != nil && !errors.As(err, gone) && !errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("remove port %s: %w", hostName(leaseID), err)
	}
	return removeNetns(name)
}

func removeNetns(name string) error {
	err := unix.Unmount(netnsPath(name), unix.MNT_DETACH)
	if err == nil || errors.Is(err, unix.EINVAL) { // EINVAL: a file that nothing was mounted on
		err = os.Remove(netnsPath(name))
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove network namespace %s: %w", netnsName(name), err)
	}
	return nil
}
