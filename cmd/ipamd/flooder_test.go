package main

import (
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv6"
	"golang.org/x/sys/unix"

	"github.com/ipamd/ipamd/internal/nstest"
)

// A flooder claims every address of some prefixes from behind a port: whatever
// is asked for it answers, and it claims them one after the other unasked. Its
// frames come from its own MAC, whichever one they speak of.
type flooder struct {
	prefixes []netip.Prefix
	says     claim
	own      net.HardwareAddr
	bridge   net.HardwareAddr
	fd       int // a packet socket on eth0

	end     chan struct{}
	running sync.WaitGroup
	stop    func() // twice is fine
}

// A claim is the MAC that a flooder says an address is at.
type claim func(netip.Addr) net.HardwareAddr

// always speaks of one MAC.
func always(mac net.HardwareAddr) claim {
	return func(netip.Addr) net.HardwareAddr { return mac }
}

// invented speaks of a MAC that no port has, another one for each address.
func invented(a netip.Addr) net.HardwareAddr {
	return net.HardwareAddr{0x02, 0xbb, 0, 0, 0, a.AsSlice()[a.BitLen()/8-1]}
}

// shoutEvery is the time between two unasked claims; each is
// sent to the bridge, and to all.
const shoutEvery = 2 * time.Millisecond

// newFlooder begins; the end of the test stops it, too.
func newFlooder(t *testing.T, ns *nstest.NS, port *nstest.Port, says claim, prefixes ...netip.Prefix) *flooder {
	t.Helper()
	rt0, err := ns.Netlink().LinkByName("rt0")
	if err != nil {
		t.Fatal(err)
	}
	eth0, err := port.NS.Netlink().LinkByName("eth0")
	if err != nil {
		t.Fatal(err)
	}
	f := &flooder{prefixes: prefixes, says: says, own: port.MAC, bridge: rt0.Attrs().HardwareAddr, end: make(chan struct{})}
	port.NS.Do(func() { f.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0) })
	if err != nil {
		t.Fatal(err)
	}
	every := binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, unix.ETH_P_ALL))
	f.stop = sync.OnceFunc(func() {
		close(f.end)
		f.running.Wait()
		_ = unix.Close(f.fd)
	})
	t.Cleanup(f.stop)
	if err := errors.Join(
		unix.SetsockoptTimeval(f.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 10_000}),
		unix.Bind(f.fd, &unix.SockaddrLinklayer{Protocol: every, Ifindex: eth0.Attrs().Index})); err != nil {
		t.Fatal(err)
	}
	f.running.Go(f.answer)
	f.running.Go(f.shout)
	return f
}

func (f *flooder) answer() {
	frame := make([]byte, 256)
	for !f.ended() {
		n, err := unix.Read(f.fd, frame)
		if err != nil {
			continue // nothing was asked for a while, or the port goes
		}
		if target, ok := asked(frame[:n]); ok && slices.ContainsFunc(f.prefixes, func(p netip.Prefix) bool { return p.Contains(target) }) {
			f.claim(target, frame[6:12])
		}
	}
}

func (f *flooder) shout() {
	tick := time.NewTicker(shoutEvery)
	defer tick.Stop()
	for at, a := 0, f.prefixes[0].Addr(); ; {
		select {
		case <-f.end:
			return
		case <-tick.C:
		}
		if a = a.Next(); !f.prefixes[at].Contains(a) {
			at = (at + 1) % len(f.prefixes)
			a = f.prefixes[at].Addr()
		}
		f.claim(a, f.bridge)
		f.claim(a, net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff})
	}
}

func (f *flooder) ended() bool {
	select {
	case <-f.end:
		return true
	default:
		return false
	}
}

// claim says to a MAC where an address is. What cannot be sent is one claim
// less.
func (f *flooder) claim(a netip.Addr, to net.HardwareAddr) {
	frame := append(append([]byte{}, to...), f.own...)
	if a.Is4() {
		frame = binary.BigEndian.AppendUint16(frame, unix.ETH_P_ARP)
		frame = append(frame, 0, 1, 8, 0, 6, 4, 0, 2) // a reply about IPv4 on Ethernet
		frame = append(append(frame, f.says(a)...), a.AsSlice()...)
		frame = append(append(frame, to...), a.AsSlice()...)
	} else {
		frame = append(frame, f.advertisement(a)...)
	}
	_, _ = unix.Write(f.fd, frame)
}

// advertisement is a neighbour advertisement with all its headers but the
// frame's addresses (RFC 4861, section 4.4), solicited and overriding.
func (f *flooder) advertisement(a netip.Addr) []byte {
	allNodes := net.ParseIP("ff02::1")
	body := append([]byte{0x60, 0, 0, 0}, a.AsSlice()...)
	body = append(append(body, 2, 1), f.says(a)...)
	message, err := (&icmp.Message{Type: ipv6.ICMPTypeNeighborAdvertisement, Body: &icmp.RawBody{Data: body}}).
		Marshal(icmp.IPv6PseudoHeader(a.AsSlice(), allNodes))
	if err != nil {
		panic(err) // a raw body always marshals
	}
	out := binary.BigEndian.AppendUint16(nil, unix.ETH_P_IPV6)
	out = append(out, 6<<4, 0, 0, 0)
	out = binary.BigEndian.AppendUint16(out, uint16(len(message)))
	out = append(out, 58, 255)
	out = append(append(out, a.AsSlice()...), allNodes...)
	return append(out, message...)
}

// asked is the address that an ARP request or a neighbour solicitation is
// about.
func asked(frame []byte) (netip.Addr, bool) {
	const ethernet, ip = 14, 40
	if len(frame) < ethernet {
		return netip.Addr{}, false
	}
	switch kind, rest := binary.BigEndian.Uint16(frame[12:]), frame[ethernet:]; {
	case kind == unix.ETH_P_ARP && len(rest) >= 28 && rest[7] == 1:
		return netip.AddrFrom4([4]byte(rest[24:28])), true
	case kind == unix.ETH_P_IPV6 && len(rest) >= ip+24 && rest[6] == 58 && rest[ip] == 135:
		return netip.AddrFrom16([16]byte(rest[ip+8 : ip+24])), true
	}
	return netip.Addr{}, false
}
