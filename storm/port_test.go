package storm_test

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// spaces is the folder of the storm's network namespaces. It is a shared
// mount, so that an ipamd in a mount namespace of its own sees those that are
// made after its start, and it takes them all away when it goes.
type spaces string

func newSpaces(t *testing.T, dir string) spaces {
	t.Helper()
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("storm", dir, "tmpfs", 0, "size=1m"); err != nil {
		t.Fatalf("mount the folder of the namespaces: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Errorf("unmount the folder of the namespaces: %v", err)
		}
	})
	if err := unix.Mount("", dir, "", unix.MS_SHARED, ""); err != nil {
		t.Fatalf("share the folder of the namespaces: %v", err)
	}
	return spaces(dir)
}

// A port is a namespace whose eth0 is the far end of a port of rt0. Nothing
// but its mount keeps the namespace, and what runs in it.
type port struct {
	path, host string
	mac        net.HardwareAddr
	nl         *netlink.Handle // of the runner's namespace, where host is
}

// plug makes a namespace behind a new port with an address, as a runtime does.
// After an error nothing of it is left.
func (w *world) plug(addr netip.Addr) (p *port, err error) {
	w.hands <- struct{}{}
	defer func() { <-w.hands }()
	n := int(w.ports.Add(1))
	p = &port{path: filepath.Join(string(w.spaces), strconv.Itoa(n)), host: fmt.Sprint("port", n), nl: w.ns.Netlink(), mac: macOf(n)}
	space, inside, err := makeSpace(p.path)
	if err != nil {
		return nil, fmt.Errorf("make namespace %s: %w", p.path, err)
	}
	defer func() {
		inside.Close()
		err = errors.Join(err, space.Close())
		if err != nil {
			err = errors.Join(fmt.Errorf("plug %s: %w", p.host, err), p.dropSpace())
		}
	}()
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MasterIndex, attrs.Flags = p.host, w.bridge, net.FlagUp
	veth := netlink.NewVeth(attrs)
	veth.PeerName, veth.PeerHardwareAddr, veth.PeerNamespace = "eth0", p.mac, netlink.NsFd(space)
	if err := p.nl.LinkAdd(veth); err != nil {
		return nil, err
	}
	eth0, err := inside.LinkByName("eth0")
	if err != nil {
		return nil, err
	}
	if err := inside.LinkSetUp(eth0); err != nil {
		return nil, err
	}
	ip := &net.IPNet{IP: addr.AsSlice(), Mask: net.CIDRMask(poolPrefix.Bits(), 32)}
	return p, inside.AddrAdd(eth0, &netlink.Addr{IPNet: ip})
}

// macOf is that of the n-th port's sandbox.
func macOf(n int) net.HardwareAddr {
	return net.HardwareAddr{2, 0, byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}
}

// makeSpace makes a namespace with a mount at path. It works on a thread of
// its own: a namespace is a property of a thread.
func makeSpace(path string) (space netns.NsHandle, inside *netlink.Handle, err error) {
	if err := os.WriteFile(path, nil, 0o400); err != nil {
		return space, nil, err
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	home, err := netns.Get()
	if err != nil {
		return space, nil, err
	}
	defer home.Close()
	defer func() {
		if back := netns.Set(home); back != nil {
			panic("storm: no way back to the first network namespace: " + back.Error())
		}
	}()
	if space, err = netns.New(); err != nil {
		return space, nil, err
	}
	if err = unix.Mount("/proc/thread-self/ns/net", path, "", unix.MS_BIND, ""); err == nil {
		inside, err = netlink.NewHandle(unix.NETLINK_ROUTE)
	}
	if err != nil {
		return space, nil, errors.Join(err, space.Close())
	}
	return space, inside, nil
}

// dropSpace takes the namespace away by name, and so the port, unless a
// process lives in it. The kernel finishes that later, in batches.
func (p *port) dropSpace() error {
	err := unix.Unmount(p.path, unix.MNT_DETACH)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) {
		err = nil // it is no mount any more
	}
	if gone := os.Remove(p.path); !errors.Is(gone, fs.ErrNotExist) {
		err = errors.Join(err, gone)
	}
	return err
}

// dropLink takes the port off the bridge at once.
func (p *port) dropLink() error {
	link, err := p.nl.LinkByName(p.host)
	if err == nil {
		err = p.nl.LinkDel(link)
	}
	if errors.As(err, new(netlink.LinkNotFoundError)) || errors.Is(err, unix.ENODEV) {
		return nil // it went with its namespace
	}
	return err
}

// addresses reads what is set in a namespace, from the kernel.
func addresses(path string) ([]netip.Addr, error) {
	space, err := netns.GetFromPath(path)
	if err != nil {
		return nil, err
	}
	defer space.Close()
	inside, err := netlink.NewHandleAt(space, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, err
	}
	defer inside.Close()
	list, err := inside.AddrList(nil, netlink.FAMILY_V4)
	var out []netip.Addr
	for _, a := range list {
		addr, _ := netip.AddrFromSlice(a.IP)
		out = append(out, addr.Unmap())
	}
	return out, err
}
