package main

import (
	"bytes"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/ipamd/ipamd/config"
	"github.com/ipamd/ipamd/internal/nstest"
	"github.com/ipamd/ipamd/internal/realtest"
)

// advertisement is an unsolicited neighbour advertisement to all (RFC 4861, section 4.4).
func advertisement(from net.HardwareAddr, target netip.Addr) []byte {
	to := netip.MustParseAddr("ff02::1")
	m := append([]byte{136, 0, 0, 0, 0x20, 0, 0, 0}, target.AsSlice()...)
	m = append(append(m, 2, 1), from...)
	var sum uint32
	for _, part := range [][]byte{target.AsSlice(), to.AsSlice(), {0, 0, 0, byte(len(m)), 0, 0, 0, 58}, m} {
		for i := 0; i < len(part); i += 2 {
			sum += uint32(part[i])<<8 | uint32(part[i+1])
		}
	}
	sum = sum>>16 + sum&0xffff
	sum = sum>>16 + sum&0xffff
	m[2], m[3] = ^byte(sum>>8), ^byte(sum)
	b := append([]byte{0x60, 0, 0, 0, 0, byte(len(m)), 58, 255}, target.AsSlice()...)
	return nstest.Frame(net.HardwareAddr{0x33, 0x33, 0, 0, 0, 1}, from, 0x86dd, append(append(b, to.AsSlice()...), m...)...)
}

// isRefused wants a frame by a port to be counted as refused, and not to be received.
func (w *world) isRefused(what string, from *nstest.Port, ear *nstest.Wire, frame []byte) {
	w.t.Helper()
	before := w.refusedOf(from.HostName)
	from.NS.Wire("eth0").Send(frame)
	received := false
	realtest.Eventually(w.t, wait, what+": to be received or refused", func() bool {
		for got, ok := ear.Receive(0); ok; got, ok = ear.Receive(0) {
			received = received || bytes.Equal(got, frame)
		}
		return received || w.refusedOf(from.HostName) > before
	})
	if received {
		w.t.Errorf("%s: it is received", what)
	}
}

// TestE1NoPortIsTheBridge: each address of the bridge is kept from all ports, those of no pool too,
// as soon as it has it: fe80::1, which many a gateway has, and one that a cloud's metadata has.
func TestE1NoPortIsTheBridge(t *testing.T) {
	t.Parallel()
	w := newWorld(t, enforced)
	_, a := w.plugIn("a")
	_, peer := w.plugIn("peer")
	stranger, ear := w.ns.Port("rt0"), peer.NS.Wire("eth0")
	realtest.Eventually(t, wait, "the rules to be as book and ports say", w.asWished)
	w.ns.Exec("ip", "addr", "add", "fe80::1/64", "dev", "rt0", "nodad")
	w.ns.AddAddr("rt0", "169.254.169.254/32")
	realtest.Eventually(t, wait, "the rules to have the bridge's new addresses", w.asWished)
	w.isRefused("a lease's port is fe80::1", a, ear, advertisement(a.MAC, netip.MustParseAddr("fe80::1")))
	w.isRefused("a port without a lease is fe80::1", stranger, ear, advertisement(stranger.MAC, netip.MustParseAddr("fe80::1")))
	w.isRefused("a port without a lease is 169.254.169.254", stranger, ear, announcement(stranger.MAC, "169.254.169.254", 1))
	w.ns.Exec("ip", "addr", "del", "fe80::1/64", "dev", "rt0")
	realtest.Eventually(t, wait, "the rules to be without what the bridge has no more", w.asWished)
}

// TestE1NoPortIsABridgeWhoseMACChanges: a bridge whose MAC was not set has that of a port, and its
// link-local address is that of the first.
func TestE1NoPortIsABridgeWhoseMACChanges(t *testing.T) {
	t.Parallel()
	w := prepare(t, enforced)
	w.ns.Exec("ip", "link", "add", "rt0", "type", "bridge")
	w.ns.AddAddr("rt0", "10.8.64.1/24")
	w.ns.Exec("ip", "link", "set", "rt0", "up")
	w.start()
	_, a := w.plugIn("a")
	_, peer := w.plugIn("peer")
	linkLocal := func() string {
		_, after, _ := strings.Cut(w.ns.Exec("ip", "-6", "-o", "addr", "show", "dev", "rt0", "scope", "link"), "inet6 ")
		addr, _, _ := strings.Cut(after, "/")
		return addr
	}
	realtest.Eventually(t, wait, "the bridge to have a link-local address", func() bool { return linkLocal() != "" })
	w.ns.Exec("ip", "link", "add", "low0", "type", "veth", "peer", "name", "low1")
	w.ns.Exec("ip", "link", "set", "low0", "address", "00:00:5e:00:00:01")
	w.ns.Exec("ip", "link", "set", "low0", "master", "rt0", "up")
	realtest.Eventually(t, wait, "the rules to be as book and ports say", w.asWished)
	if mac := w.ns.Exec("ip", "-o", "link", "show", "rt0"); !strings.Contains(mac, "00:00:5e:00:00:01") {
		t.Fatal("the bridge has kept its MAC: ", mac)
	}
	w.isRefused("a lease's port is the bridge", a, peer.NS.Wire("eth0"), advertisement(a.MAC, netip.MustParseAddr(linkLocal())))
}

// TestE8GroupFramesAreNotLearned: a frame to the group addresses that a bridge does not forward
// goes past all hooks, or is learned from before the first that sees it. By one of a port that
// may send them, trusted or without a lease, the bridge does not take a lease's MAC to be there.
func TestE8GroupFramesAreNotLearned(t *testing.T) {
	t.Parallel()
	for what, policy := range map[string]func(*config.Config){"allow": func(*config.Config) {},
		"trusted": func(c *config.Config) { c.Enforce.Unleased, c.Enforce.Trusted = "drop", []string{"uplink*"} }} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, enforced, policy)
			own, b := w.plugIn("b")
			guest := w.ns.Port("rt0")
			w.ns.Exec("ip", "link", "set", guest.HostName, "name", "uplink0")
			realtest.Eventually(t, wait, "the rules to be as book and ports say", w.asWished)
			learns := func() string {
				_, after, _ := strings.Cut(w.ns.Exec("ip", "-d", "link", "show", "rt0"), "no_linklocal_learn ")
				option, _, _ := strings.Cut(after, " ")
				return option
			}
			realtest.Eventually(t, wait, "the bridge to learn nothing from such frames", func() bool { return learns() == "1" })
			out := guest.NS.Wire("eth0")
			b.NS.Wire("eth0").Send(announcement(b.MAC, own.Address, 1))
			at := func() string { return w.ns.Exec("bridge", "fdb", "show", "br", "rt0") }
			realtest.Eventually(t, wait, "the bridge to know where b is", func() bool {
				return strings.Contains(at(), fmt.Sprintf("%s dev %s ", b.MAC, b.HostName))
			})
			for _, last := range []byte{0, 2, 3, 0x0d, 0x0e} {
				out.Send(nstest.Frame(net.HardwareAddr{1, 0x80, 0xc2, 0, 0, last}, b.MAC, 0x88cc, make([]byte, 46)...))
				time.Sleep(20 * time.Millisecond)
				if at := at(); !strings.Contains(at, fmt.Sprintf("%s dev %s ", b.MAC, b.HostName)) {
					t.Errorf("01-80-C2-00-00-%02X: the bridge has b's MAC elsewhere:\n%s", last, at)
				}
			}
			w.ns.Exec("ip", "link", "set", "rt0", "type", "bridge", "no_linklocal_learn", "0")
			realtest.Eventually(t, wait, "what another program set to be undone", func() bool { return learns() == "1" })
		})
	}
}
