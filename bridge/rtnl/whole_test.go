package rtnl

import (
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/ipamd/ipamd/internal/nstest"
	"github.com/ipamd/ipamd/internal/realtest"
)

// Each list of the kernel is whole where it takes several parts, on a new socket and on one that has read
// before: see NetnsIDs for one that is not.
func TestListsOfSeveralPartsAreWhole(t *testing.T) {
	realtest.Long(t)
	t.Parallel()
	const many = 600 // of each list more than two parts of 32 KiB have room for
	ns, other := nstest.New(t), nstest.New(t)
	ns.Bridge("rt0")
	made := ns.Netlink()
	rt0, err := made.LinkByName("rt0")
	if err != nil {
		t.Fatal(err)
	}
	for i := range many {
		attrs := netlink.NewLinkAttrs()
		attrs.Name, attrs.MasterIndex = fmt.Sprint("p", i), rt0.Attrs().Index
		if err := made.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: fmt.Sprint("q", i)}); err != nil {
			t.Fatal(err)
		}
	}
	addr := func(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, 9, byte(i / 250), byte(1 + i%250)}) }
	for i := range 2 * many {
		a := addr(i)
		if err := made.AddrAdd(rt0, &netlink.Addr{IPNet: &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(32, 32)}}); err != nil {
			t.Fatal(err)
		}
		if err := made.NeighAdd(&netlink.Neigh{LinkIndex: rt0.Attrs().Index, State: unix.NUD_PERMANENT, IP: addr(i + 2*many).AsSlice(),
			HardwareAddr: net.HardwareAddr{2, 0, 0, 0, byte(i >> 8), byte(i)}}); err != nil {
			t.Fatal(err)
		}
	}
	dial := func(from *nstest.NS) *Socket {
		var k *Socket
		var err error
		if from.Do(func() { k, err = Dial(unix.NETLINK_ROUTE) }); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(k.Close)
		return k
	}
	fd, err := unix.Open(ns.Path(), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	id, err := IDOf(dial(other), fd)
	if err != nil {
		t.Fatal(err)
	}
	for name, list := range map[string]struct {
		from  *nstest.NS
		least int
		count func(k *Socket) (n int, err error)
	}{
		"links": {ns, 2 * many, func(k *Socket) (n int, err error) {
			err = k.Links(NoNetns, func(*Link) error { n++; return nil })
			return n, err
		}},
		"ports": {ns, many, func(k *Socket) (n int, err error) {
			err = k.PortsOf(rt0.Attrs().Index, func(*Link) { n++ })
			return n, err
		}},
		"neighbours": {ns, 2 * many, func(k *Socket) (n int, err error) {
			err = k.Neighbours(rt0.Attrs().Index, func(Entry) { n++ })
			return n, err
		}},
		"addresses": {ns, 2 * many, func(k *Socket) (int, error) { all, err := k.Addresses(NoNetns); return len(all), err }},
		"a namespace's links": {other, 2 * many, func(k *Socket) (n int, err error) {
			err = k.Links(id, func(*Link) error { n++; return nil })
			return n, err
		}},
		"a namespace's addresses": {other, 2 * many, func(k *Socket) (int, error) {
			l, err := k.AddressesOf(id, 10*many, 1, time.Minute)
			return len(l.Addrs), err
		}},
	} {
		k := dial(list.from)
		for range 2 {
			if n, err := list.count(k); err != nil || n < list.least {
				t.Errorf("%s: %d, %v, want %d at least", name, n, err, list.least)
			}
		}
	}
}
