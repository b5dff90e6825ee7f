package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"testing"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/config"
	"github.com/ipamd/ipamd/internal/nstest"
	"github.com/ipamd/ipamd/internal/realtest"
)

// TestE8TrustedPorts: with unleased = drop the port that enforce.trusted names is received by
// its neighbours, as long as it has that name and no lease; by a lease's address it is not.
func TestE8TrustedPorts(t *testing.T) {
	t.Parallel()
	w := newWorld(t, enforced, dropUnleased, func(c *config.Config) { c.Enforce.Trusted = []string{"uplink*"} })
	held, _ := w.plugIn("a")
	_, peer := w.plugIn("peer")
	ear := peer.NS.Wire("eth0")
	up := w.ns.Port("rt0")
	rename := func(name string) {
		w.ns.Exec("ip", "link", "set", up.HostName, "name", name)
		up.HostName = name
		realtest.Eventually(t, wait, "the rules to be as book and ports say", w.asWished)
	}
	rename("uplink0")
	out := up.NS.Wire("eth0")
	marks := uint32(0)
	// received sends an announcement, and reports whether the peer receives it before what the
	// peer's own lease may send.
	received := func(addr string) bool {
		t.Helper()
		marks++
		frame := announcement(up.MAC, addr, marks)
		before := w.refusedOf(up.HostName)
		out.Send(frame)
		arrived := false
		realtest.Eventually(t, wait, "the frame to be received or refused", func() bool {
			for got, ok := ear.Receive(0); ok; got, ok = ear.Receive(0) {
				arrived = arrived || bytes.Equal(got, frame)
			}
			return arrived || w.refusedOf(up.HostName) > before
		})
		return arrived
	}
	const free = "10.8.64.200"
	if !received(free) {
		t.Error("the trusted port is not received")
	}
	if received(held.Address) || received("10.8.64.1") {
		t.Error("the trusted port is received by a lease's or the gateway's address")
	}
	if shown := w.portShown("uplink0"); !shown.Trusted {
		t.Errorf("it is shown as %+v", shown)
	}
	rename("other0")
	if received(free) || w.portShown("other0").Trusted {
		t.Error("a port that is trusted no more is received")
	}
	rename("uplink0")
	l := w.allocate("b").Leases[0]
	if _, err := w.client.Bind(ctx, l.ID, api.BindRequest{HostInterface: up.HostName, MAC: up.MAC.String()}); err != nil {
		t.Fatal(err)
	}
	if received(free) || w.portShown("uplink0").Trusted {
		t.Error("a trusted port with a lease is received by an address that is not the lease's")
	}
	if !received(l.Address) {
		t.Error("it is not received by its lease's address")
	}
}

// TestE4OthersPortsStayHeld: while one port's elements are taken away by hand and put back, another
// port is received by no address that is not its own, at no moment.
func TestE4OthersPortsStayHeld(t *testing.T) {
	t.Parallel()
	w := newWorld(t, enforced)
	victim, at := w.plugIn("a")
	own, other := w.plugIn("b")
	_, peer := w.plugIn("peer")
	ear, out := peer.NS.Wire("eth0"), other.NS.Wire("eth0")
	realtest.Eventually(t, wait, "the rules to be as book and ports say", w.asWished)
	mark := uint32(0)
	for range 5 {
		w.nft(fmt.Sprintf("delete element bridge ipamd ipv4 { %s . %s . %s }; delete element bridge ipamd leased { %s }", at.HostName, at.MAC, victim.Address, at.HostName))
		realtest.Eventually(t, wait, "the elements to be back", func() bool {
			for range 20 {
				mark++
				out.Send(announcement(other.MAC, victim.Address, mark), announcement(other.MAC, "10.8.64.1", mark))
			}
			return w.asWished()
		})
	}
	last := announcement(other.MAC, own.Address, mark+1)
	out.Send(last)
	for {
		got, ok := ear.Receive(wait)
		if !ok {
			t.Fatal("its own frame behind them was not received")
		}
		if bytes.Equal(got, last) {
			break
		}
		if bytes.Equal(got[6:12], other.MAC) && len(got) >= 32 && got[12] == 8 && got[13] == 6 && !bytes.Equal(got[28:32], netip.MustParseAddr(own.Address).AsSlice()) {
			t.Fatalf("another's address is received: %x", got)
		}
	}
	if w.refusedOf(other.HostName) == 0 {
		t.Error("nothing of it is refused")
	}
}

func (w *world) portShown(name string) api.PortRules {
	w.t.Helper()
	r, err := w.client.Rules(ctx, "")
	if err != nil {
		w.t.Fatal(err)
	}
	at := slices.IndexFunc(r.Ports, func(p api.PortRules) bool { return p.Port == name })
	if at < 0 {
		w.t.Fatalf("%s is no port: %+v", name, r.Ports)
	}
	return r.Ports[at]
}

// refusedOf counts what was refused of a port.
func (w *world) refusedOf(name string) (n uint64) {
	w.t.Helper()
	for _, r := range w.portShown(name).Refused {
		n += r.Packets
	}
	return n
}

// announcement is a gratuitous ARP request with a mark behind it.
func announcement(mac net.HardwareAddr, addr string, mark uint32) []byte {
	ip := netip.MustParseAddr(addr).AsSlice()
	b := append([]byte{0, 1, 8, 0, 6, 4, 0, 1}, mac...)
	b = append(append(append(b, ip...), make([]byte, 6)...), ip...)
	return nstest.Frame(net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, mac, 0x0806, binary.BigEndian.AppendUint32(append(b, make([]byte, 14)...), mark)...)
}
