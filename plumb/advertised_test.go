package plumb

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ipamd/ipamd/internal/nstest"
	"github.com/ipamd/ipamd/internal/realtest"
)

// advertise sends the router advertisement of RFC 4861 and 4862 that any guest can send to all
// ports of its bridge: a default route by the sender, and a prefix to make an address of.
func advertise(t *testing.T, n *nstest.NS, link string, prefix netip.Prefix) {
	t.Helper()
	frame := []byte{134, 0, 0, 0, 64, 0}
	frame = binary.BigEndian.AppendUint16(frame, 1800) // seconds that it is a router
	frame = append(frame, make([]byte, 8)...)
	frame = append(frame, 3, 4, byte(prefix.Bits()), 0xc0) // prefix information, on link, to make addresses of
	frame = binary.BigEndian.AppendUint32(frame, 86400)
	frame = binary.BigEndian.AppendUint32(frame, 14400)
	frame = append(frame, 0, 0, 0, 0)
	frame = append(frame, prefix.Addr().AsSlice()...)
	l, err := n.Netlink().LinkByName(link)
	if err != nil {
		t.Fatal(err)
	}
	to := &unix.SockaddrInet6{Addr: netip.IPv6LinkLocalAllNodes().As16(), ZoneId: uint32(l.Attrs().Index)}
	n.Do(func() {
		fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_RAW, unix.IPPROTO_ICMPV6)
		if err != nil {
			t.Error(err)
			return
		}
		defer unix.Close(fd)
		err = errors.Join(unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_HOPS, 255), unix.Sendto(fd, frame, 0, to))
		if err != nil {
			t.Error(err)
		}
	})
}

// A router advertisement of one guest is no difference of the others' ports, and a port that is made
// again keeps what the kernel configured by it.
func TestM1ARouterAdvertisementIsNoDifference(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	if _, err := w.make(t, w.spec); err != nil {
		t.Fatal(err)
	}
	rogue := w.host.Port("rt0", "10.8.64.99/24").NS
	rogue.Exec("ip", "address", "add", "fe80::99/64", "dev", "eth0", "nodad")
	configured := func() bool {
		return strings.Contains(w.guest.Exec("ip", "-6", "address", "show", "dev", "eth0"), "2001:db8:99:") &&
			strings.Contains(w.guest.Exec("ip", "-6", "route", "show", "default"), "proto ra")
	}
	sent := func() bool {
		advertise(t, rogue, "eth0", netip.MustParsePrefix("2001:db8:99::/64"))
		return configured()
	}
	realtest.Eventually(t, 20*time.Second, "the advertisement to be received", sent)
	w.whole(t)
	w.host.Do(func() {
		if diffs, err := CheckSlot(t.Context(), w.spec); err != nil || len(diffs) > 0 {
			t.Errorf("as a slot: %v, %v", diffs, err)
		}
	})

	// As after a call that ended before its routes.
	w.guest.Exec("ip", "-6", "route", "delete", "default", "via", "fd08::1")
	w.host.Do(func() {
		if diffs, err := Check(t.Context(), w.spec); err != nil || len(diffs) != 1 || diffs[0].Field != "routes" {
			t.Errorf("without its default route: %v, %v", diffs, err)
		}
	})
	if _, err := w.make(t, w.spec); err != nil {
		t.Fatal(err)
	}
	w.whole(t)
	if !configured() {
		t.Error("what the kernel configured by itself was taken away")
	}

	// An address that was given is a difference beside it.
	w.guest.Exec("ip", "address", "add", "2001:db8:99::77/64", "dev", "eth0", "nodad")
	w.host.Do(func() {
		if diffs, err := Check(t.Context(), w.spec); err != nil || len(diffs) != 1 || diffs[0].Field != "addresses" {
			t.Errorf("with an address of another: %v, %v", diffs, err)
		}
	})
}
