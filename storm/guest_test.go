package storm_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// hostilities are what a guest does that is root in its own namespace, and a tenant
// that writes the labels of records without a task.
var hostilities = []attack{
	{"a guest with addresses that do not stand still", (*hostile).restless},
	{"a guest with hundreds of links", (*hostile).manyLinks},
	{"a guest that answers with a neighbour's MAC", (*hostile).frame},
	{"a guest that claims what others have", (*hostile).claim},
	{"a guest that sends malformed ARP", (*hostile).malformed},
	{"a tenant with another's labels", (*hostile).anothersLabels},
	{"a tenant with an address that is none", (*hostile).unreadable},
	{"a tenant with hundreds of addresses", (*hostile).manyAddresses},
	{"a tenant with large labels of its own", (*hostile).largeLabels},
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

// restless has hundreds of addresses behind a port, which do not stand still.
func (h *hostile) restless(ctx context.Context) error {
	return h.plugged(func(p *port) error { return h.churn(ctx, p.path) })
}

// elsewhere is the same in a namespace that is behind no port.
func (h *hostile) elsewhere(ctx context.Context) (err error) {
	p := &port{path: filepath.Join(string(h.spaces), fmt.Sprint("elsewhere-", h.r.Uint64()))}
	space, nl, err := makeSpace(p.path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.dropSpace()) }()
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "eth0"
	err = nl.LinkAdd(&netlink.Bridge{LinkAttrs: attrs})
	nl.Close()
	if err := errors.Join(err, space.Close()); err != nil {
		return err
	}
	return h.churn(ctx, p.path)
}

// churn gives the eth0 of a namespace hundreds of addresses, and has two loops add
// some and remove them. As fast as the kernel lets them the loops take a machine of
// two processors from everybody, in whatever namespace they are.
func (h *hostile) churn(ctx context.Context, path string) error {
	loop := func(do func(nl *netlink.Handle, eth0 netlink.Link) error) error {
		nl, err := inside(path)
		if err != nil {
			return err
		}
		defer nl.Close()
		eth0, err := nl.LinkByName("eth0")
		if err != nil {
			return err
		}
		return do(nl, eth0)
	}
	err := loop(func(nl *netlink.Handle, eth0 netlink.Link) error {
		for i := 0; i < 200+h.r.IntN(1000) && ctx.Err() == nil; i++ {
			if err := nl.AddrAdd(eth0, slash32(10, 77, i/250, 1+i%250)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	var loops sync.WaitGroup
	errs := make([]error, 2)
	for i := range errs {
		r := rand.New(rand.NewPCG(h.r.Uint64(), 0))
		loops.Go(func() {
			errs[i] = loop(func(nl *netlink.Handle, eth0 netlink.Link) (err error) {
				for at := 0; ctx.Err() == nil && err == nil; at++ {
					a := slash32(10, 78, i, 1+at%4)
					err = errors.Join(nl.AddrAdd(eth0, a), nl.AddrDel(eth0, a))
					h.rest(r, 300*time.Microsecond, 600*time.Microsecond)
				}
				return err
			})
		})
	}
	loops.Wait()
	return errors.Join(errs...)
}

// manyLinks makes links with an address each.
func (h *hostile) manyLinks(ctx context.Context) error {
	return h.plugged(func(p *port) error {
		nl, err := inside(p.path)
		if err != nil {
			return err
		}
		defer nl.Close()
		for i := 0; i < 50+h.r.IntN(450) && ctx.Err() == nil; i++ {
			attrs := netlink.NewLinkAttrs()
			attrs.Name = fmt.Sprint("br", i)
			link := &netlink.Bridge{LinkAttrs: attrs}
			if err := errors.Join(nl.LinkAdd(link), nl.AddrAdd(link, slash32(10, 79, i/250, 1+i%250))); err != nil {
				return err
			}
		}
		<-ctx.Done()
		return nil
	})
}

// listening does something with a socket that sends frames by eth0 and receives ARP.
func (h *hostile) listening(do func(p *port, fd int) error) error {
	return h.plugged(func(p *port) (err error) {
		fd, err := packetSocket(p.path, unix.ETH_P_ARP)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, unix.Close(fd)) }()
		return do(p, fd)
	})
}

// send sends a frame; a full queue loses it, as a wire does.
func send(fd int, frame []byte) error {
	if _, err := unix.Write(fd, frame); err != nil && !errors.Is(err, unix.ENOBUFS) {
		return err
	}
	return nil
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

// frame answers who asks for an address that is free, with the MAC of a neighbour, and
// at times from it. It denies a few addresses at the most.
func (h *hostile) frame(ctx context.Context) error {
	const most = 6
	_, mac, ok := h.victim()
	if !ok {
		return nil
	}
	return h.listening(func(p *port, fd int) error {
		if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 50_000}); err != nil {
			return err
		}
		from := p.mac
		if h.r.IntN(2) == 0 {
			from = mac
		}
		denied, buf := make(map[netip.Addr]bool), make([]byte, 128)
		for ctx.Err() == nil {
			n, _, err := unix.Recvfrom(fd, buf, 0)
			if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) {
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
			if err := send(fd, arp{from: from, to: who, op: 2, sender: mac, ip: asked, target: who, of: netip.IPv4Unspecified()}.frame()); err != nil {
				return err
			}
		}
		return nil
	})
}

// claim announces addresses that others have, with MACs that nobody has.
func (h *hostile) claim(ctx context.Context) error {
	l, _, ok := h.victim()
	if !ok {
		return nil
	}
	return h.listening(func(p *port, fd int) error {
		for ctx.Err() == nil {
			mac := nobody(h.r)
			for op := range uint16(2) {
				if err := send(fd, arp{from: mac, op: 1 + op, sender: mac, ip: l.addr, of: l.addr}.frame()); err != nil {
					return err
				}
			}
			h.rest(h.r, time.Millisecond, 50*time.Millisecond)
		}
		return nil
	})
}

// malformed claims any address in ARP that is none: of another hardware or protocol,
// with other lengths, cut off, or of an operation that there is not.
func (h *hostile) malformed(ctx context.Context) error {
	return h.listening(func(p *port, fd int) error {
		for ctx.Err() == nil {
			mac, addr := nobody(h.r), anyHost(h.r)
			frame := arp{from: p.mac, op: 1 + uint16(h.r.IntN(2)), sender: mac, ip: addr, of: addr}.frame()
			if at := 14 + h.r.IntN(7); h.r.IntN(3) == 0 {
				frame = frame[:14+h.r.IntN(len(frame)-14)]
			} else {
				frame[at] ^= byte(1 + h.r.IntN(255))
			}
			if err := send(fd, frame); err != nil {
				return err
			}
			h.rest(h.r, time.Millisecond, 10*time.Millisecond)
		}
		return nil
	})
}
