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

// datagram is an empty UDP packet to the gateway's port 67, in a frame to one of the group
// addresses that a bridge does not forward.
func datagram(last byte, from net.HardwareAddr, src, dst string) []byte {
	b := []byte{0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0}
	b = append(append(b, netip.MustParseAddr(src).AsSlice()...), netip.MustParseAddr(dst).AsSlice()...)
	var sum uint32
	for i := 0; i < len(b); i += 2 {
		sum += uint32(b[i])<<8 | uint32(b[i+1])
	}
	sum = sum>>16 + sum&0xffff
	b[10], b[11] = ^byte(sum>>8), ^byte(sum)
	b = append(b, 0, 68, 0, 67, 0, 8, 0, 0)
	return nstest.Frame(net.HardwareAddr{1, 0x80, 0xc2, 0, 0, last}, from, 0x0800, append(b, make([]byte, 18)...)...)
}

// TestE1GroupFramesAreJudged: a frame to any of the group addresses that a bridge does not
// forward goes past the hook of the rules, to the host itself. No sandbox says by one what it
// may not by others: neither the host nor the bridge takes a neighbour's address or MAC from
// it. A trusted port's reach the host as ever: LLDP and LACP are such frames.
func TestE1GroupFramesAreJudged(t *testing.T) {
	t.Parallel()
	w := newWorld(t, enforced, dropUnleased, func(c *config.Config) { c.Enforce.Trusted = []string{"uplink*"} })
	own, a := w.plugIn("a")
	other, b := w.plugIn("b")
	stranger, up := w.ns.Port("rt0"), w.ns.Port("rt0")
	w.ns.Exec("ip", "link", "set", up.HostName, "name", "uplink0")
	realtest.Eventually(t, wait, "the rules to be as book and ports say", w.asWished)
	realtest.Eventually(t, wait, "the new port's frames to go their way", func() bool { return w.groups(stranger.HostName) == "0xfffd" && w.groups("uplink0") == "0" })
	if got := w.groups(a.HostName); got != "0xfffd" {
		t.Errorf("a bound port forwards %s", got)
	}
	var ear net.PacketConn
	var err error
	w.ns.Do(func() { ear, err = net.ListenPacket("udp4", "10.8.64.1:67") })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ear.Close() })
	wires := map[*nstest.Port]*nstest.Wire{a: a.NS.Wire("eth0"), b: b.NS.Wire("eth0"), stranger: stranger.NS.Wire("eth0"), up: up.NS.Wire("eth0")}
	// received are the sources that the host receives, until b's own comes behind all else.
	arrived := func() (from []string) {
		t.Helper()
		plain := datagram(0, b.MAC, other.Address, "10.8.64.1")
		copy(plain, bytes.Repeat([]byte{0xff}, 6))
		wires[b].Send(plain)
		for {
			_ = ear.SetReadDeadline(time.Now().Add(wait))
			_, at, err := ear.ReadFrom(make([]byte, 64))
			if err != nil {
				t.Fatal("the frame behind it was not received: ", err)
			}
			host, _, _ := strings.Cut(at.String(), ":")
			if host == other.Address {
				return from
			}
			from = append(from, host)
		}
	}
	arrived()
	const free = "10.8.64.200"
	for last := range byte(16) {

		wires[a].Send(datagram(last, a.MAC, free, "10.8.64.1"))
		wires[a].Send(datagram(last, b.MAC, own.Address, "10.8.64.1"))
		wires[stranger].Send(datagram(last, stranger.MAC, own.Address, "10.8.64.1"))
		wires[stranger].Send(datagram(last, b.MAC, free, "10.8.64.1"))
		time.Sleep(20 * time.Millisecond) // another port's frames may be overtaken
		if at := w.ns.Exec("bridge", "fdb", "show", "br", "rt0"); !strings.Contains(at, fmt.Sprintf("%s dev %s ", b.MAC, b.HostName)) {
			t.Errorf("01-80-C2-00-00-%02X: the bridge has b's MAC elsewhere:\n%s", last, at)
		}
		if got := arrived(); len(got) > 0 {
			t.Errorf("01-80-C2-00-00-%02X: the host receives %v", last, got)
		}
	}
	wires[up].Send(datagram(0x0e, up.MAC, free, "10.8.64.1"))
	time.Sleep(20 * time.Millisecond)
	if got := arrived(); len(got) != 1 || got[0] != free {
		t.Errorf("of the trusted port the host receives %v", got)
	}
	w.ns.Exec("ip", "link", "set", a.HostName, "type", "bridge_slave", "group_fwd_mask", "0")
	realtest.Eventually(t, wait, "what another program set to be undone", func() bool { return w.groups(a.HostName) == "0xfffd" })
}

// groups is which group addresses a port forwards.
func (w *world) groups(port string) string {
	w.t.Helper()
	_, after, _ := strings.Cut(w.ns.Exec("ip", "-d", "link", "show", port), "group_fwd_mask ")
	mask, _, _ := strings.Cut(after, " ")
	return mask
}
