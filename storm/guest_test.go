package storm_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
)

// forever waits to be killed.
func forever() error {
	for {
		time.Sleep(time.Hour)
	}
}

// plugged does something in a namespace behind a port, outside of the pool.
func (h *hostile) plugged(do func(p *port) error) (err error) {
	p, err := h.plug(netip.AddrFrom4([4]byte{10, 9, 0, 1}))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.dropLink(), p.dropSpace()) }()
	return do(p)
}

// victim is one that lives, and the MAC of its port.
func (h *hostile) victim() (life, net.HardwareAddr, bool) {
	all := h.victims()
	if len(all) == 0 {
		return life{}, nil, false
	}
	l := all[h.r.IntN(len(all))]
	n, err := strconv.Atoi(filepath.Base(l.netns))
	return l, macOf(n), err == nil
}

// inside opens netlink in a namespace.
func inside(path string) (*netlink.Handle, error) {
	space, err := netns.GetFromPath(path)
	if err != nil {
		return nil, err
	}
	defer space.Close()
	return netlink.NewHandleAt(space, unix.NETLINK_ROUTE)
}

func slash32(a, b, c, d int) *netlink.Addr {
	return &netlink.Addr{IPNet: &net.IPNet{IP: net.IPv4(byte(a), byte(b), byte(c), byte(d)), Mask: net.CIDRMask(32, 32)}}
}

// restless has hundreds of addresses, and two loops that add some and remove them, as
// fast as the kernel lets them.
func (c *confined) restless() error {
	nl, eth0, err := c.eth0()
	if err != nil {
		return err
	}
	for i := range 200 + c.r.IntN(1000) {
		if err := nl.AddrAdd(eth0, slash32(10, 77, i/250, 1+i%250)); err != nil {
			return err
		}
	}
	var loops errgroup.Group
	for i := range 2 {
		loops.Go(func() error {
			nl, eth0, err := c.eth0()
			for n := 0; err == nil; n++ {
				a := slash32(10, 78, i, 1+n%4)
				err = errors.Join(nl.AddrAdd(eth0, a), nl.AddrDel(eth0, a))
			}
			return err
		})
	}
	return loops.Wait()
}

func (c *confined) eth0() (*netlink.Handle, netlink.Link, error) {
	nl, err := inside(c.Netns)
	if err != nil {
		return nil, nil, err
	}
	eth0, err := nl.LinkByName("eth0")
	return nl, eth0, err
}

// manyLinks makes links with an address each.
func (c *confined) manyLinks() error {
	nl, err := inside(c.Netns)
	if err != nil {
		return err
	}
	for i := range 50 + c.r.IntN(450) {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = fmt.Sprint("br", i)
		link := &netlink.Bridge{LinkAttrs: attrs}
		if err := errors.Join(nl.LinkAdd(link), nl.AddrAdd(link, slash32(10, 79, i/250, 1+i%250))); err != nil {
			return err
		}
	}
	return forever()
}

// manyNames gives eth0 alternative names until no more fit, 64 KiB, takes some away,
// and adds them again.
func (c *confined) manyNames() error {
	nl, eth0, err := c.eth0()
	if err != nil {
		return err
	}
	for {
		for i := range 600 {
			if nl.LinkAddAltName(eth0, fmt.Sprint(strings.Repeat("n", 120), i)) != nil {
				break // no room
			}
		}
		for range 1 + c.r.IntN(20) {
			_ = nl.LinkDelAltName(eth0, fmt.Sprint(strings.Repeat("n", 120), c.r.IntN(400)))
		}
		time.Sleep(between(c.r, time.Millisecond, 50*time.Millisecond))
	}
}

// socket sends frames by eth0 and receives ARP.
func (c *confined) socket() (fd int, err error) { return packetSocket(c.Netns, unix.ETH_P_ARP) }

// send sends a frame; a full queue loses it, as a wire does.
func send(fd int, frame []byte) error {
	if _, err := unix.Write(fd, frame); err != nil && !errors.Is(err, unix.ENOBUFS) {
		return err
	}
	return nil
}

// frame answers who asks for an address that is free, with the MAC of a neighbour, and
// at times from it. It denies a few addresses at the most.
func (c *confined) frame() error {
	const most = 6
	if !c.Victim.IsValid() {
		return forever()
	}
	fd, err := c.socket()
	if err != nil {
		return err
	}
	from := c.MAC
	if c.r.IntN(2) == 0 {
		from = c.VictimMAC
	}
	denied, buf := make(map[netip.Addr]bool), make([]byte, 128)
	for {
		n, _, err := unix.Recvfrom(fd, buf, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return err
		}
		if n < 42 || binary.BigEndian.Uint16(buf[20:]) != 1 || [4]byte(buf[28:32]) != [4]byte{} {
			continue // no probe
		}
		asked := netip.AddrFrom4([4]byte(buf[38:42]))
		if !denied[asked] && len(denied) == most {
			continue
		}
		denied[asked] = true
		who := net.HardwareAddr(buf[6:12])
		if err := send(fd, arp{from: from, to: who, op: 2, sender: c.VictimMAC, ip: asked, target: who, of: netip.IPv4Unspecified()}.frame()); err != nil {
			return err
		}
	}
}

// claim announces addresses that others have, with MACs that no port has.
func (c *confined) claim() error {
	if !c.Victim.IsValid() {
		return forever()
	}
	fd, err := c.socket()
	for err == nil {
		mac := unknownMAC(c.r)
		for op := range uint16(2) {
			err = errors.Join(err, send(fd, arp{from: mac, op: 1 + op, sender: mac, ip: c.Victim, of: c.Victim}.frame()))
		}
		time.Sleep(between(c.r, time.Millisecond, 50*time.Millisecond))
	}
	return err
}

// malformed claims any address in ARP that is none: of another hardware or protocol,
// with other lengths, cut off, or of an operation that there is not.
func (c *confined) malformed() error {
	fd, err := c.socket()
	for err == nil {
		mac, addr := unknownMAC(c.r), anyHost(c.r)
		frame := arp{from: c.MAC, op: 1 + uint16(c.r.IntN(2)), sender: mac, ip: addr, of: addr}.frame()
		if at := 14 + c.r.IntN(7); c.r.IntN(3) == 0 {
			frame = frame[:14+c.r.IntN(len(frame)-14)]
		} else {
			frame[at] ^= byte(1 + c.r.IntN(255))
		}
		err = send(fd, frame)
		time.Sleep(between(c.r, time.Millisecond, 10*time.Millisecond))
	}
	return err
}
