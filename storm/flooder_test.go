package storm_test

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/ipamd/ipamd/ipam"
)

// A flooder asks the gateway for its MAC from ever new MACs, in bursts. Its addresses
// are not in the pool, but each frame is news of a neighbour of rt0 and of the bridge's
// table of MACs: what it costs is what others may notice. The addresses are few, since
// all namespaces of a machine share a table of 1 024 neighbours: once that is full, the
// packets of others are lost, those of other tests too.
type flooder struct {
	*world
	r *rand.Rand
}

const (
	burst       = 2000 // frames, at the most
	betweenNews = 50   // frames that are sent without a pause
	flooded     = "flood by neighbours"
)

// everyFrameIsNews has the kernel take each MAC that a neighbour claims, and not the
// first one in a second alone.
func (w *world) everyFrameIsNews() {
	w.t.Helper()
	var err error
	w.ns.Do(func() { err = os.WriteFile("/proc/sys/net/ipv4/neigh/rt0/locktime", []byte("0"), 0) })
	if err != nil {
		w.t.Fatal(err)
	}
}

func (f *flooder) act() {
	defer f.left.Add(1)
	for !closed(f.calm) && f.ctx.Err() == nil {
		p, err := f.plug(netip.AddrFrom4([4]byte{10, 9, 0, 1}))
		if err != nil {
			f.rec.strange("a flooder: %v", err)
			return
		}
		sent, err := f.flood(p)
		if err != nil {
			f.rec.strange("a flooder: %v", err)
		}
		if sent > 0 {
			f.rec.counted(flooded)
		}
		f.rest(f.r, time.Millisecond, time.Second)
		if err := p.dropSpace(); err != nil {
			f.rec.strange("a flooder: %v", err)
			return
		}
		f.rest(f.r, 200*time.Millisecond, 2*time.Second)
	}
}

// flood sends one burst from behind a port.
func (f *flooder) flood(p *port) (sent int, err error) {
	fd, err := packetSocket(p.path, 0)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, unix.Close(fd)) }()
	for most := 1 + f.r.IntN(burst); sent < most && !closed(f.calm); sent++ {
		if _, err := unix.Write(fd, f.request()); err != nil && !errors.Is(err, unix.ENOBUFS) {
			return sent, err
		}
		if sent%betweenNews == 0 {
			f.rest(f.r, time.Millisecond, 5*time.Millisecond)
		}
	}
	return sent, nil
}

// request is a broadcast ARP request (RFC 826) for the gateway, from a MAC that no
// frame had before.
func (f *flooder) request() []byte {
	mac := unknownMAC(f.r)
	from := netip.AddrFrom4([4]byte{10, 9, 0, byte(2 + f.r.IntN(100))})
	return arp{from: mac, op: 1, sender: mac, ip: from, of: ipam.FirstHost(poolPrefix)}.frame()
}

// unknownMAC is a MAC that no port has.
func unknownMAC(r *rand.Rand) net.HardwareAddr {
	return binary.BigEndian.AppendUint32([]byte{0x02, 0xfe}, r.Uint32())
}

// An arp is an ARP packet (RFC 826) in a frame.
type arp struct {
	from, to net.HardwareAddr // of the frame; no to: all
	op       uint16           // 1 asks, 2 answers
	sender   net.HardwareAddr
	ip       netip.Addr // the sender's
	target   net.HardwareAddr
	of       netip.Addr // what is asked for, or who asked
}

func (a arp) frame() []byte {
	to, target := a.to, a.target
	if to == nil {
		to = net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	}
	if target == nil {
		target = make(net.HardwareAddr, 6)
	}
	out := binary.BigEndian.AppendUint16(slices.Concat(to, a.from), unix.ETH_P_ARP)
	out = binary.BigEndian.AppendUint16(append(out, 0, 1, 8, 0, 6, 4), a.op)
	return slices.Concat(out, a.sender, a.ip.AsSlice(), target, a.of.AsSlice())
}

// packetSocket opens a socket that sends whole frames by the eth0 of a namespace, and
// receives those of a protocol; 0 for none.
func packetSocket(path string, protocol uint16) (fd int, err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	home, err := netns.Get()
	if err != nil {
		return 0, err
	}
	defer home.Close()
	space, err := netns.GetFromPath(path)
	if err != nil {
		return 0, err
	}
	defer space.Close()
	if err := netns.Set(space); err != nil {
		return 0, err
	}
	defer func() {
		if back := netns.Set(home); back != nil {
			panic("storm: no way back to the first network namespace: " + back.Error())
		}
	}()
	eth0, err := netlink.LinkByName("eth0")
	if err != nil {
		return 0, err
	}
	if fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err != nil {
		return 0, err
	}
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Ifindex: eth0.Attrs().Index, Protocol: protocol<<8 | protocol>>8}); err != nil {
		return 0, errors.Join(err, unix.Close(fd))
	}
	return fd, nil
}
