package plumb

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Announce announces on the bridge's network that the port's addresses are at its MAC now:
// by a gratuitous ARP request and an unsolicited neighbour advertisement for each.
// Who had the address before may still be in a neighbour's table.
//
// It is for after the bind: where rules are enforced, nothing that a port sends
// passes before. It waits until the bridge forwards for the port, a second at most.
func Announce(ctx context.Context, s Spec) error {
	if err := s.Validate(); err != nil {
		return fmt.Errorf("announce port: %w", err)
	}
	w, err := open(ctx, &s)
	if err == nil {
		defer w.close()
		if err = w.find(); err == nil {
			err = w.announce(ctx)
		}
	}
	if err != nil {
		return fmt.Errorf("announce port %s: %w", s.Host, err)
	}
	return nil
}

func (w *work) announce(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	for w.host.Attrs().OperState != netlink.OperUp {
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for the port to be up: %w", ctx.Err())
		case <-time.After(time.Millisecond):
		}
		l, err := w.outside.LinkByIndex(w.host.Attrs().Index)
		if err != nil {
			return fmt.Errorf("look up %s: %w", w.spec.Host, err)
		}
		w.host = l
	}
	mac := w.guest.Attrs().HardwareAddr
	return within(w.ns, func() error {
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("open a packet socket: %w", err)
		}
		defer unix.Close(fd)
		for _, p := range w.spec.Addresses {
			frame := gratuitousARP
			if p.Addr().Is6() {
				frame = unsolicitedNA
			}
			to := &unix.SockaddrLinklayer{Ifindex: w.guest.Attrs().Index}
			if err := unix.Sendto(fd, frame(mac, p.Addr()), 0, to); err != nil {
				return fmt.Errorf("send for %s: %w", p.Addr(), err)
			}
		}
		return nil
	})
}

// gratuitousARP is a request for the sender's own address (RFC 5227, 3): more
// systems learn from a request than from a reply that none asked for.
func gratuitousARP(mac net.HardwareAddr, a netip.Addr) []byte {
	b := append([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, mac...)
	b = append(b, 0x08, 0x06, 0, 1, 0x08, 0x00, 6, 4, 0, 1)
	b = append(b, mac...)
	b = append(b, a.AsSlice()...)
	b = append(b, 0, 0, 0, 0, 0, 0)
	return append(b, a.AsSlice()...)
}

// unsolicitedNA is a neighbour advertisement to all nodes (RFC 4861, 7.2.6) that
// overrides what they have.
func unsolicitedNA(mac net.HardwareAddr, a netip.Addr) []byte {
	all := netip.MustParseAddr("ff02::1")
	icmp := append([]byte{136, 0, 0, 0, 0x20, 0, 0, 0}, a.AsSlice()...)
	icmp = append(icmp, 2, 1)
	icmp = append(icmp, mac...)
	pseudo := append(append(a.AsSlice(), all.AsSlice()...), 0, 0, 0, byte(len(icmp)), 0, 0, 0, 58)
	binary.BigEndian.PutUint16(icmp[2:], checksum(append(pseudo, icmp...)))

	b := append([]byte{0x33, 0x33, 0, 0, 0, 1}, mac...)
	b = append(b, 0x86, 0xdd, 0x60, 0, 0, 0, 0, byte(len(icmp)), 58, 255)
	b = append(b, a.AsSlice()...)
	b = append(b, all.AsSlice()...)
	return append(b, icmp...)
}

// checksum is the Internet's (RFC 1071), of an even number of bytes.
func checksum(b []byte) uint16 {
	var sum uint32
	for ; len(b) > 1; b = b[2:] {
		sum += uint32(binary.BigEndian.Uint16(b))
	}
	for sum>>16 != 0 {
		sum = sum&0xffff + sum>>16
	}
	return ^uint16(sum)
}

// notify has the kernel announce the link's IPv4 addresses whenever it comes up, or
// its MAC changes: sysctl arp_notify, which netlink sets without /proc.
func notify(ns netns.NsHandle, index int) error {
	sock, err := nl.GetNetlinkSocketAt(ns, netns.None(), unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer sock.Close()
	req := nl.NewNetlinkRequest(unix.RTM_SETLINK, unix.NLM_F_ACK)
	req.Sockets = map[int]*nl.SocketHandle{unix.NETLINK_ROUTE: {Socket: sock}}
	msg := nl.NewIfInfomsg(unix.AF_UNSPEC)
	msg.Index = int32(index)
	req.AddData(msg)
	const (
		ipv4Conf  = 1  // IFLA_INET_CONF
		arpNotify = 22 // IPV4_DEVCONF_ARP_NOTIFY
	)
	spec := nl.NewRtAttr(unix.IFLA_AF_SPEC, nil)
	conf := spec.AddRtAttr(unix.AF_INET, nil).AddRtAttr(ipv4Conf, nil)
	conf.AddRtAttr(arpNotify, nl.Uint32Attr(1))
	req.AddData(spec)
	_, err = req.Execute(unix.NETLINK_ROUTE, 0)
	return err
}

// within calls f on a thread in a namespace.
func within(ns netns.NsHandle, f func() error) error {
	runtime.LockOSThread()
	home, err := netns.Get()
	if err != nil {
		runtime.UnlockOSThread()
		return err
	}
	defer home.Close()
	if err = netns.Set(ns); err == nil {
		err = f()
	}
	return errors.Join(err, leave(home))
}
