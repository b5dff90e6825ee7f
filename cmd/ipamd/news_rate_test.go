package main

import (
	"encoding/binary"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv6"
	"golang.org/x/sys/unix"

	"github.com/ipamd/ipamd/internal/nstest"
)

// A guest behind a port makes news for the kernel to report, as fast as the machine
// takes it: it asks for the gateway from ever new addresses and MACs, or changes
// its own links and addresses. Allocations of others wait little longer than beside
// the same work that the daemon has no news of, alternately; the log has how much
// longer than on a quiet bridge (goal 15).
func TestF2NewsAtFullRate(t *testing.T) {
	v4 := [2]string{"10.8.64.0/22", "10.8.68.0/22"}
	v6 := [2]string{"fd00:8:0:1::/64", "fd00:8:0:2::/64"}
	for _, tt := range []struct {
		name     string
		prefixes [2]string
		frame    func(to, from net.HardwareAddr, gateway netip.Addr) []byte
		fill     func([]byte, uint64)
	}{
		{"ARP requests", v4, arpRequest, asNewSender},
		{"neighbour solicitations", v6, solicitation, asNewSolicitor},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newFlooded(t, tt.prefixes)
			w.ns.AddAddr("rt0", "10.200.0.1/16")
			port := w.knownPort()
			rt0, err := w.ns.Netlink().LinkByName("rt0")
			if err != nil {
				t.Fatal(err)
			}
			prefix := netip.MustParsePrefix(tt.prefixes[0])
			to := func(mac net.HardwareAddr) *flood {
				f := newFlood(t, port, mac, prefix, tt.fill)
				f.frames(func() []byte { return tt.frame(mac, port.MAC, prefix.Addr().Next()) })
				return f
			}
			control, flood := to(net.HardwareAddr{0x02, 0xdd, 0, 0, 0, 1}), to(rt0.Attrs().HardwareAddr)
			w.besideNews(control.start, flood.start)
			t.Logf("%d frames to a MAC that is not there, %d to the gateway", control.sent.Load(), flood.sent.Load())
		})
	}
	for name, change := range map[string]func(n uint64, h *netlink.Handle, eth0 netlink.Link) error{
		"addresses": flapAddress, "links": rename,
	} {
		t.Run(name, func(t *testing.T) {
			w := newFlooded(t, v4)
			in := func(ns *nstest.NS, link string) func() func() {
				l, err := ns.Netlink().LinkByName(link)
				if err != nil {
					t.Fatal(err)
				}
				return func() func() { return doOver(t, func(n uint64) error { return change(n, ns.Netlink(), l) }) }
			}
			w.besideNews(in(nstest.New(t), "lo"), in(w.knownPort().NS, "eth0"))
		})
	}
}

// besideNews allocates alternately: alone, beside a control, and beside a flood.
func (w *world) besideNews(control, flood func() (stop func())) {
	w.t.Helper()
	var quiet, without, with pace
	for range cycles() {
		w.besideIt(func() func() { return func() {} }, &quiet)
		w.besideIt(control, &without)
		w.besideIt(flood, &with)
	}
	limit := 2*without.median() + 5*time.Millisecond
	w.t.Logf("alone %v, beside the control %v, beside the flood %v: %.1f times the quiet one; its median may be %v",
		&quiet, &without, &with, float64(with.median())/float64(quiet.median()), limit)
	if with.median() > limit && *alone {
		w.t.Error("one guest's flood slows the allocations of others")
	}
}

// besideIt allocates for a turn from the pool beside.
func (w *world) besideIt(flood func() (stop func()), p *pace) {
	w.t.Helper()
	defer flood()()
	began := time.Now()
	for n := 0; n < 2 || n < floodMost && time.Since(began) < floodRound; n++ {
		asked := time.Now()
		if _, err := w.ask("beside", "beside "+asked.String()); err != nil {
			w.t.Fatal(err)
		}
		p.took = append(p.took, time.Since(asked))
		<-time.After(floodPause)
	}
	p.lasts += time.Since(began)
}

// doOver does something over and over until it is stopped.
func doOver(t *testing.T, do func(n uint64) error) (stop func()) {
	var running sync.WaitGroup
	var ended atomic.Bool
	running.Go(func() {
		for n := uint64(0); !ended.Load(); n++ {
			if err := do(n); err != nil {
				t.Error(err)
				return
			}
		}
	})
	stop = sync.OnceFunc(func() {
		ended.Store(true)
		running.Wait()
	})
	t.Cleanup(stop)
	return stop
}

// flapAddress adds an address, or takes it away again.
func flapAddress(n uint64, h *netlink.Handle, eth0 netlink.Link) error {
	a := &netlink.Addr{IPNet: &net.IPNet{IP: net.IPv4(10, 9, byte(n>>9), byte(n>>1)), Mask: net.CIDRMask(32, 32)}}
	if n%2 == 0 {
		return h.AddrReplace(eth0, a) // the turn before may have ended in between
	}
	return h.AddrDel(eth0, a)
}

// rename gives a link another alias, which is news of the link.
func rename(n uint64, h *netlink.Handle, eth0 netlink.Link) error {
	return h.LinkSetAlias(eth0, strconv.FormatUint(n, 10))
}

// arpRequest asks for the gateway.
func arpRequest(to, from net.HardwareAddr, gateway netip.Addr) []byte {
	frame := append(append([]byte{}, to...), from...)
	frame = binary.BigEndian.AppendUint16(frame, unix.ETH_P_ARP)
	frame = append(frame, 0, 1, 8, 0, 6, 4, 0, 1)
	frame = append(append(frame, from...), gateway.AsSlice()...)
	return append(append(frame, 0, 0, 0, 0, 0, 0), gateway.AsSlice()...)
}

// newSenders is how many addresses a flood of requests comes from. The kernel
// keeps an entry for each of so many, and reports each that gets another MAC. All
// namespaces share a table of 1 024 entries, of which other tests need some.
const newSenders = 400

// asNewSender makes a request one of an unknown MAC.
func asNewSender(frame []byte, n uint64) {
	fromNewMAC(frame, n)
	binary.BigEndian.PutUint32(frame[28:], 10<<24|200<<16|256+uint32(n%newSenders))
}

// solicitation asks for the gateway, by a frame to it alone (RFC 4861, section 4.3).
func solicitation(to, from net.HardwareAddr, gateway netip.Addr) []byte {
	source := netip.MustParseAddr("fd00:8:0:1:ff:ffff:0:1")
	from = append(append([]byte{}, from[:2]...), 0, 0, 0xff, 0xff)
	body := append([]byte{0, 0, 0, 0}, gateway.AsSlice()...)
	body = append(append(body, 1, 1), from...)
	message, err := (&icmp.Message{Type: ipv6.ICMPTypeNeighborSolicitation, Body: &icmp.RawBody{Data: body}}).
		Marshal(icmp.IPv6PseudoHeader(source.AsSlice(), gateway.AsSlice()))
	if err != nil {
		panic(err) // a raw body always marshals
	}
	frame := append(append([]byte{}, to...), from...)
	frame = binary.BigEndian.AppendUint16(frame, unix.ETH_P_IPV6)
	frame = append(frame, 6<<4, 0, 0, 0)
	frame = binary.BigEndian.AppendUint16(frame, uint16(len(message)))
	frame = append(frame, 58, 255)
	return append(append(append(frame, source.AsSlice()...), gateway.AsSlice()...), message...)
}

// asNewSolicitor is asNewSender for a solicitation. The checksum stays as it is:
// two numbers change, and each stands beside its complement.
func asNewSolicitor(frame []byte, n uint64) {
	const source, mac = 14 + 8, 14 + 40 + 24 + 2
	sender := uint16(n % newSenders)
	binary.BigEndian.PutUint16(frame[source+10:], ^sender)
	binary.BigEndian.PutUint16(frame[source+12:], sender)
	binary.BigEndian.PutUint16(frame[mac+2:], uint16(n))
	binary.BigEndian.PutUint16(frame[mac+4:], ^uint16(n))
	copy(frame[6:12], frame[mac:mac+6])
}
