package plumb

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/ipamd/ipamd/internal/icmp6"
	"github.com/ipamd/ipamd/internal/nsthread"
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
	return nsthread.In(int(w.ns), func() error {
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
	binary.BigEndian.PutUint16(icmp[2:], icmp6.Checksum(a.As16(), all.As16(), icmp))

	b := append([]byte{0x33, 0x33, 0, 0, 0, 1}, mac...)
	b = append(b, 0x86, 0xdd, 0x60, 0, 0, 0, 0, byte(len(icmp)), 58, 255)
	b = append(b, a.AsSlice()...)
	b = append(b, all.AsSlice()...)
	return append(b, icmp...)
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
