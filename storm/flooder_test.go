package storm_test

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"net"
	"net/netip"
	"runtime"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// A flooder asks the gateway for its MAC from ever new addresses and MACs, in
// bursts. None of those addresses is in the pool, but each is a new neighbour
// of rt0, and each frame news of the bridge's table of MACs: what it costs is
// what others may notice.
type flooder struct {
	*world
	r *rand.Rand
}

const (
	burst       = 2000 // frames, at the most
	betweenNews = 50   // frames that are sent without a pause
	flooded     = "flood by new neighbours"
)

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
	fd, err := packetSocket(p.path)
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

// request is a broadcast ARP request for the gateway (RFC 826), from an address
// and a MAC that no frame had before.
func (f *flooder) request() []byte {
	mac := binary.BigEndian.AppendUint32([]byte{0x02, 0xfe}, f.r.Uint32())
	from := [4]byte{10, 9, byte(f.r.IntN(256)), byte(2 + f.r.IntN(250))}
	gateway := poolPrefix.Masked().Addr().Next().As4()
	frame := append([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, mac...)
	frame = binary.BigEndian.AppendUint16(frame, unix.ETH_P_ARP)
	frame = append(frame, 0, 1, 8, 0, 6, 4, 0, 1)
	frame = append(append(frame, mac...), from[:]...)
	return append(append(frame, make(net.HardwareAddr, 6)...), gateway[:]...)
}

// packetSocket opens a socket that sends whole frames by the eth0 of a
// namespace.
func packetSocket(path string) (fd int, err error) {
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
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Ifindex: eth0.Attrs().Index}); err != nil {
		return 0, errors.Join(err, unix.Close(fd))
	}
	return fd, nil
}
