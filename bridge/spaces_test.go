package bridge

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/ipamd/ipamd/bridge/rtnl"
	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/internal/nstest"
	"github.com/ipamd/ipamd/internal/realtest"
)

// C2: what was added by hand is seen without a pass, and is forgotten
// when it is gone.
func TestC2HandAddedAddressIsSeen(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, cidr string }{
		{"v4", "10.8.0.7/24"},
		{"v4 of another prefix length", "10.8.0.8/32"},
		{"v6", "fd00:8::7/64"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			ns := nstest.New(t)
			ns.Bridge("rt0", "10.8.0.1/24", "fd00:8::1/64")
			p := ns.Port("rt0")
			v := open(t, ns)
			addr, _, _ := strings.Cut(c.cidr, "/")
			v.expect(addr, "")

			p.AddAddr(c.cidr)
			if strings.Contains(addr, ":") {
				v.await(addr, "netns")
			}
			v.expect(addr, "netns")
			v.nameSpaces(context.Background())
			v.expect(addr, "netns")
			s := v.about(addr).Seen[0]
			id, err := v.NetnsID(context.Background(), p.NS.Path())
			if err != nil {
				t.Fatal(err)
			}
			if s.Bridge != "rt0" || s.Port != p.HostName || s.MAC != p.MAC.String() ||
				s.Netns != census.NewNetnsID(id, p.NS.Name()) {
				t.Errorf("the sighting shows %+v", s)
			}
			p.DelAddr(c.cidr)
			v.expect(addr, "")

			ns.AddAddr("rt0", c.cidr)
			v.await(addr, "host")
			v.expect(addr, "host")
			ns.DelAddr("rt0", c.cidr)
			v.expect(addr, "")
		})
	}
}

func TestOnlyAddressesThatCanCollideAreSeen(t *testing.T) {
	t.Parallel()
	ns := nstest.New(t)
	ns.Bridge("rt0", "10.8.0.1/24")
	p := ns.Port("rt0", "10.8.0.7/24", "fe80::7/64", "169.254.1.1/16")
	p.NS.AddAddr("lo", "10.8.0.9/32")
	v := open(t, ns)
	v.expect("10.8.0.7", "netns")
	v.expect("10.8.0.9", "netns") // on whatever link
	for _, addr := range []string{"127.0.0.1", "::1", "fe80::7", "169.254.1.1"} {
		v.expect(addr, "")
	}
}

// C8: the guest answers nothing, and is seen all the same.
func TestC8SilentGuestIsSeen(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		quieten func(*nstest.NS, *nstest.Port)
	}{
		{"it ignores ARP", func(_ *nstest.NS, p *nstest.Port) {
			p.NS.Exec("sh", "-c", "echo 8 > /proc/sys/net/ipv4/conf/all/arp_ignore")
		}},
		{"its port listens for STP", func(ns *nstest.NS, p *nstest.Port) {
			ns.Exec("ip", "link", "set", "rt0", "type", "bridge", "stp_state", "1", "forward_delay", "1500")
			ns.Exec("ip", "link", "set", p.HostName, "down")
			ns.Exec("ip", "link", "set", p.HostName, "up")
		}},
		{"its port is down", func(ns *nstest.NS, p *nstest.Port) {
			ns.Exec("ip", "link", "set", p.HostName, "down")
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			ns := nstest.New(t)
			ns.Bridge("rt0", "10.8.0.1/24")
			p := ns.Port("rt0", "10.8.0.7/24")
			c.quieten(ns, p)
			v := open(t, ns)
			v.probe("10.8.0.7")
			v.expect("10.8.0.7", "netns")
		})
	}
}

// C8: an isolated port that learns nothing still answers to the bridge.
func TestC8IsolatedPortAnswers(t *testing.T) {
	t.Parallel()
	ns := nstest.New(t)
	ns.Bridge("rt0", "10.8.0.1/24")
	p := ns.Port("rt0", "10.8.0.7/24")
	ns.Exec("bridge", "link", "set", "dev", p.HostName, "isolated", "on", "learning", "off")
	probeUntilSeen(t, open(t, ns), "10.8.0.7", "netns probe")
}

func TestPortGoes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		away func(ns *nstest.NS, p *nstest.Port)
	}{
		{"its link is deleted", func(_ *nstest.NS, p *nstest.Port) { p.Close() }},
		{"it leaves the bridge", func(ns *nstest.NS, p *nstest.Port) {
			ns.Exec("ip", "link", "set", p.HostName, "nomaster")
		}},
		{"it moves to another bridge", func(ns *nstest.NS, p *nstest.Port) {
			ns.Bridge("other")
			ns.Exec("ip", "link", "set", p.HostName, "master", "other")
		}},
		{"its namespace is deleted", func(_ *nstest.NS, p *nstest.Port) { p.NS.Delete() }},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			ns := nstest.New(t)
			ns.Bridge("rt0", "10.8.0.1/24")
			p, other := ns.Port("rt0", "10.8.0.7/24"), ns.Port("rt0", "10.8.0.8/24")
			v := open(t, ns)
			v.expect("10.8.0.7", "netns")
			c.away(ns, p)
			realtest.Eventually(t, wait, "10.8.0.7 is gone", func() bool { return v.who("10.8.0.7") == "" })
			v.expect("10.8.0.8", "netns")
			v.noneSilent()
			if n := v.Status().Ports; n != 1 {
				t.Errorf("%d ports are left", n)
			}
			other.Close()
		})
	}
}

// A namespace that is held no more cannot be read, though its port still
// names it for a while. That silences no witness.
func TestDyingNamespaceIsNoSilence(t *testing.T) {
	t.Parallel()
	ns := nstest.New(t)
	ns.Bridge("rt0", "10.8.0.1/24")
	v := open(t, ns)
	for range 20 {
		p := ns.Port("rt0", "10.8.0.7/24")
		v.expect("10.8.0.7", "netns")
		p.NS.Delete()
		realtest.Eventually(t, wait, "10.8.0.7 is gone", func() bool {
			if err := v.Refresh(context.Background()); err != nil {
				t.Fatal(err)
			}
			v.noneSilent()
			return !v.seen("10.8.0.7")
		})
	}
}

// Nor does it silence a daemon that comes when its port names it still. Of the
// others all is known, and the one that stays is named.
func TestF11ADyingNamespaceSilencesNoOther(t *testing.T) {
	t.Parallel()
	ns := nstest.New(t)
	ns.Bridge("rt0", "10.8.0.1/24")
	ns.Port("rt0", "10.8.0.8/24")
	ns.Bridge("rt9")
	met := false
	for range 20 {
		p := ns.Port("rt0", "10.8.0.7/24")
		deleteLarge(t, ns)
		p.NS.Delete()
		for there := true; there; {
			v := open(t, ns)
			v.noneSilent()
			v.expect("10.8.0.8", "netns")
			v.mu.Lock()
			there = len(v.netns.ports) > 1
			for _, q := range v.netns.ports {
				if !q.unreadable.IsZero() {
					met = true
					wantGap(t, v, q)
				}
			}
			v.mu.Unlock()
			if err := v.Close(); err != nil {
				t.Fatal(err)
			}
		}
		if met {
			return
		}
	}
	t.Error("the kernel took every namespace down before it was looked at")
}

// deleteLarge deletes a namespace that takes the kernel long, and returns once that has begun: what is deleted from
// then on waits for it.
func deleteLarge(t *testing.T, ns *nstest.NS) {
	t.Helper()
	large := ns.Port("rt9")
	for i := range 30 {
		large.NS.Bridge(fmt.Sprint("br", i))
	}
	var k *rtnl.Socket
	var err error
	ns.Do(func() { k, err = rtnl.Dial(unix.NETLINK_ROUTE) })
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	l, err := k.LinkByName(large.HostName)
	if err != nil {
		t.Fatal(err)
	}
	large.NS.Delete()
	realtest.Eventually(t, wait, "its id is taken back", func() bool {
		ids, err := k.NetnsIDs()
		if err != nil {
			t.Fatal(err)
		}
		return !slices.Contains(ids, l.Behind)
	})
}

// wantGap checks that a port which was not read since just now is named, if it
// stays so.
func wantGap(t *testing.T, v *view, p *port) {
	t.Helper()
	if found := gapsAt(v.netns.gaps.Load(), p.unreadable); len(found) != 0 {
		t.Errorf("at once it is a gap: %+v", found)
	}
	found := gapsAt(v.netns.gaps.Load(), p.unreadable.Add(gapAfter))
	if len(found) != 1 || found[0].Kind != PortUnreadable || found[0].Link != p.link.Name || !found[0].Since.Equal(p.unreadable) {
		t.Errorf("the gaps are %+v", found)
	}
}

// EINVAL means that a namespace goes away only where the kernel knows no such
// namespace: it says the same of a question that it does not understand, and
// that proves nothing.
func TestF11EINVALIsNoEnd(t *testing.T) {
	t.Parallel()
	ns := nstest.New(t)
	ns.Bridge("rt0", "10.8.0.1/24")
	p := ns.Port("rt0", "10.8.0.7/24")
	v := open(t, ns)
	id, err := v.NetnsID(context.Background(), p.NS.Path())
	if err != nil {
		t.Fatal(err)
	}
	const noID = 4711
	_, refused := v.kernel.Addresses(noID)
	if !errors.Is(refused, unix.EINVAL) {
		t.Errorf("of no namespace the kernel says %v", refused)
	}
	for _, row := range []struct {
		id   int
		err  error
		want bool
	}{{noID, refused, true}, {id, refused, false}, {noID, unix.EPERM, false}, {noID, nil, false}} {
		if got := rtnl.IsVanishing(v.kernel, row.id, row.err); got != row.want {
			t.Errorf("id %d, %v: vanishing is %v", row.id, row.err, got)
		}
	}
}

func TestPortComes(t *testing.T) {
	t.Parallel()
	ns := nstest.New(t)
	ns.Bridge("rt0", "10.8.0.1/24")
	v := open(t, ns)
	p := ns.Port("rt0", "10.8.0.7/24")
	v.expect("10.8.0.7", "netns")

	// Renamed, it is shown by its new name.
	l, err := ns.Netlink().LinkByName(p.HostName)
	if err != nil {
		t.Fatal(err)
	}
	if err := ns.Netlink().LinkSetName(l, "renamed"); err != nil {
		t.Fatal(err)
	}
	v.expect("10.8.0.7", "netns")
	if s := v.about("10.8.0.7").Seen[0]; s.Port != "renamed" {
		t.Errorf("the port is %q", s.Port)
	}
	if _, err := v.NetnsID(context.Background(), nstest.New(t).Path()); !errors.Is(err, ErrNoNetnsID) {
		t.Errorf("id of an unconnected namespace: %v", err)
	}
	if _, err := v.NetnsID(context.Background(), "/run/netns/no-such-thing"); err == nil {
		t.Error("a namespace that is not there has an id")
	}
}

// The far end of a port may be left in the bridge's own namespace for a while
// or for good, and may then move on.
func TestFarEndMoves(t *testing.T) {
	t.Parallel()
	ns := nstest.New(t)
	ns.Bridge("rt0", "10.8.0.1/24")
	v := open(t, ns)
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.Flags = "near", net.FlagUp
	rt0, err := ns.Netlink().LinkByName("rt0")
	if err != nil {
		t.Fatal(err)
	}
	attrs.MasterIndex = rt0.Attrs().Index
	veth := netlink.NewVeth(attrs)
	veth.PeerName = "far"
	if err := ns.Netlink().LinkAdd(veth); err != nil {
		t.Fatal(err)
	}
	ns.AddAddr("far", "10.8.0.7/24")
	v.expect("10.8.0.7", "host")
	if s := v.about("10.8.0.7").Seen[0]; s.Port != "far" {
		t.Errorf("the sighting is %+v", s)
	}

	first, second := nstest.New(t), nstest.New(t)
	ns.Exec("ip", "link", "set", "far", "netns", first.Name())
	v.expect("10.8.0.7", "") // moving takes the addresses off
	first.AddAddr("far", "10.8.0.7/24")
	v.expect("10.8.0.7", "netns")
	first.Exec("ip", "link", "set", "far", "netns", second.Name())
	v.expect("10.8.0.7", "")
	second.AddAddr("far", "10.8.0.8/24")
	first.AddAddr("lo", "10.8.0.9/24") // no port leads there any more
	v.expect("10.8.0.8", "netns")
	v.expect("10.8.0.9", "")
}

func TestTwoPortsOfOneNamespace(t *testing.T) {
	t.Parallel()
	ns := nstest.New(t)
	ns.Bridge("rt0", "10.8.0.1/24")
	p := ns.Port("rt0", "10.8.0.7/24")
	q := ns.Port("rt0")
	q.NS.Exec("ip", "link", "set", "eth0", "name", "eth1")
	q.NS.Exec("ip", "link", "set", "eth1", "netns", p.NS.Name())
	v := open(t, ns)
	v.expect("10.8.0.7", "netns")
	ns.Exec("ip", "link", "del", p.HostName) // with it goes eth0 and its address
	v.expect("10.8.0.7", "")
	p.NS.AddAddr("eth1", "10.8.0.8/24")
	v.expect("10.8.0.8", "netns")
	v.noneSilent()
}

// C8: a port without a namespace behind it (a tap of a VM) has nothing to
// read, and that is not a failure.
func TestTapIsAPort(t *testing.T) {
	t.Parallel()
	ns := nstest.New(t)
	ns.Bridge("rt0", "10.8.0.1/24")
	ns.Exec("ip", "tuntap", "add", "dev", "tap0", "mode", "tap")
	ns.Exec("ip", "link", "set", "tap0", "master", "rt0", "up")
	v := open(t, ns)
	v.noneSilent()
	if n := v.Status().Ports; n != 1 {
		t.Errorf("%d ports", n)
	}
}
