package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv6"
	"golang.org/x/sys/unix"

	"github.com/ipamd/ipamd/internal/nstest"
)

// newAddress is goal 10, and 9, a reading of the whole bridge: how long after its request an address behind a port is on
// the board, by the kernel's news alone. The request is in it: it waits for the kernel's
// lock. By turns with that, a bare socket in the port's namespace waits for the same
// news, which says how much of the tail is the machine's.
func newAddress(r *run) func() []ratio {
	ns := nstest.New(r)
	ns.Bridge(bridgeName, "10.8.0.1/16")
	ports := make([]*nstest.Port, r.sandboxes)
	for i := range ports {
		ports[i] = ns.Port(bridgeName, fmt.Sprintf("10.8.%d.%d/16", 1+i/250, 1+i%250))
		ports[i].NS.Hide()
	}
	br, board := r.bridge(ns)
	addr := netip.MustParseAddr("10.8.240.1")
	on := func(want bool) error {
		for {
			changed := board.Changed()
			if (len(board.About(addr).Seen) > 0) == want {
				return nil
			}
			select {
			case <-changed:
			case <-r.ctx.Done():
				return fmt.Errorf("wait until %s is seen (%t): %w", addr, want, r.ctx.Err())
			}
		}
	}
	next := func(news <-chan netlink.AddrUpdate) error {
		select {
		case <-news:
			return nil
		case <-r.ctx.Done():
			return context.Cause(r.ctx)
		}
	}
	used := 0
	return func() []ratio {
		var known, received sample
		for range r.calls / 2 / turn {
			used++
			p := ports[used%len(ports)]
			known = append(known, byTurns(turn, call{
				func() error { p.AddAddr(addr.String() + "/32"); return on(true) },
				func() error { p.DelAddr(addr.String() + "/32"); return on(false) },
			})[0].do...)
			news, done := make(chan netlink.AddrUpdate, 16), make(chan struct{})
			p.NS.Do(func() { check(netlink.AddrSubscribe(news, done)) })
			received = append(received, byTurns(turn, call{
				func() error { p.AddAddr(addr.String() + "/32"); return next(news) },
				func() error { check(on(true)); p.DelAddr(addr.String() + "/32"); check(next(news)); return on(false) },
			})[0].do...)
			close(done)
		}
		var whole sample
		check(whole.time(func() error { return br.Refresh(r.ctx) }))
		const limit = 5 * time.Millisecond
		return []ratio{took(whole[0]/time.Duration(len(ports)), 80*time.Microsecond),
			took(known.p50(), limit), took(known.p99(), max(limit, received.p99())), took(received.p99(), limit)}
	}
}

// besideFlood is goal 15: what an allocation waits for beside a guest that does one thing
// as fast as the kernel lets it. Each kind lasts for a fraction of a second a round: the
// kernel's neighbour table is the whole machine's.
func besideFlood(r *run) func() []ratio {
	d := r.start(setup{ports: r.ports})
	c, guest := d.caller(), d.ns.Port(bridgeName, "10.8.241.1/16")
	byTurns(r.calls, c.call()) // warm
	rt0 := must(d.ns.Netlink().LinkByName(bridgeName)).Attrs().HardwareAddr
	everyone, absent := net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, net.HardwareAddr{0x02, 0xdd, 0, 0, 0, 1}
	kinds := []func(context.Context) error{
		func(context.Context) error { return nil },
		r.sender(guest, func(n uint32) []byte { return arp(1, everyone, n, 10<<24|9<<16|n&0xffff) }),
		r.sender(guest, func(n uint32) []byte { return arp(2, rt0, n, 10<<24|8<<16|1<<15|n&0x7fff) }),
		r.sender(guest, advertisement),
		func(context.Context) error {
			link := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "more"}}
			return errors.Join(guest.NS.Netlink().LinkAdd(link), guest.NS.Netlink().LinkDel(link))
		},
		r.sender(guest, func(n uint32) []byte { return arp(1, absent, n, 10<<24|9<<16|n&0xffff) }),
	}
	return func() (out []ratio) {
		var p50 []time.Duration
		for i, flood := range kinds {
			stop := func() {}
			if i > 0 {
				stop = r.loop(flood)
			}
			p50 = append(p50, during(r.crowd/4, c.call())[0].do.p50())
			stop()
		}
		for _, beside := range p50[1:] {
			out = append(out, took(beside, p50[0]))
		}
		return out
	}
}

// sender returns what sends frames from behind a port, each with the next number, some
// at a time.
func (r *run) sender(p *nstest.Port, frame func(n uint32) []byte) func(context.Context) error {
	var fd int
	p.NS.Do(func() {
		fd = must(unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0))
		r.Cleanup(func() { _ = unix.Close(fd) })
		check(unix.Bind(fd, &unix.SockaddrLinklayer{Ifindex: must(net.InterfaceByName("eth0")).Index}))
	})
	n := uint32(0)
	return func(context.Context) error {
		for range 100 {
			n++
			if _, err := unix.Write(fd, frame(n)); err != nil && !errors.Is(err, unix.ENOBUFS) {
				return err
			}
		}
		return nil
	}
}

// newMAC is one that no port has.
func newMAC(n uint32) []byte {
	return binary.BigEndian.AppendUint32([]byte{0x02, 0xfe}, n)
}

// arp is a frame with an ARP packet for the gateway (RFC 826), which asks (1) or answers
// (2), from an address and the n-th new MAC.
func arp(operation byte, to net.HardwareAddr, n, from uint32) []byte {
	return slices.Concat([]byte(to), newMAC(n), []byte{0x08, 0x06, 0, 1, 8, 0, 6, 4, 0, operation},
		newMAC(n), binary.BigEndian.AppendUint32(nil, from), to, []byte{10, 8, 0, 1})
}

// advertisement is a frame with an unsolicited neighbour advertisement (RFC 4861) of the
// n-th new address by the n-th new MAC.
func advertisement(n uint32) []byte {
	from := binary.BigEndian.AppendUint32([]byte{0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, n|1<<31)
	all := net.ParseIP("ff02::1")
	text := &icmp.RawBody{Data: slices.Concat([]byte{0x20, 0, 0, 0}, from, []byte{2, 1}, newMAC(n))}
	body := must((&icmp.Message{Type: ipv6.ICMPTypeNeighborAdvertisement, Body: text}).Marshal(icmp.IPv6PseudoHeader(from, all)))
	return slices.Concat([]byte{0x33, 0x33, 0, 0, 0, 1}, newMAC(n), []byte{0x86, 0xdd, 0x60, 0, 0, 0, 0, byte(len(body)), 58, 255}, from, all, body)
}
