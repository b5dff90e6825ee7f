package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// A listener hears every question for an IPv4 address that reaches a port of
// the bridge. The kernel keeps them, each with its time, until they are read.
type listener struct {
	fd  int
	all map[netip.Addr][]time.Time
}

// room is how many bytes of questions are kept.
const room = 64 << 20

// listen begins to hear behind a port.
func listen(space netns.NsHandle) (*listener, error) {
	arp := binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, unix.ETH_P_ARP)) // packet(7) wants network order
	l := &listener{all: make(map[netip.Addr][]time.Time)}
	if err := inside(space, func() (err error) {
		l.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, int(arp))
		return err
	}); err != nil {
		return nil, fmt.Errorf("listen behind a port: %w", err)
	}
	if err := errors.Join(
		unix.SetsockoptInt(l.fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, room),
		unix.SetsockoptInt(l.fd, unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1),
	); err != nil {
		return nil, errors.Join(fmt.Errorf("listen behind a port: %w", err), l.close())
	}
	return l, nil
}

func (l *listener) close() error { return unix.Close(l.fd) }

// asked returns when each address was asked for, in order.
func (l *listener) asked() (map[netip.Addr][]time.Time, error) {
	frame, extra := make([]byte, 128), make([]byte, 128)
	for {
		n, m, _, _, err := unix.Recvmsg(l.fd, frame, extra, unix.MSG_DONTWAIT)
		if errors.Is(err, unix.EAGAIN) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("hear what is asked behind a port: %w", err)
		}
		at, err := arrivedAt(extra[:m])
		if err != nil {
			return nil, err
		}
		if addr, ok := question(frame[:n]); ok {
			l.all[addr] = append(l.all[addr], at)
		}
	}
	missed, err := unix.GetsockoptTpacketStats(l.fd, unix.SOL_PACKET, unix.PACKET_STATISTICS)
	if err == nil && missed.Drops > 0 {
		err = fmt.Errorf("hear what is asked behind a port: %d frames were more than fit", missed.Drops)
	}
	return l.all, err
}

// arrivedAt is when the kernel took a frame in.
func arrivedAt(extra []byte) (time.Time, error) {
	messages, err := unix.ParseSocketControlMessage(extra)
	if err != nil {
		return time.Time{}, err
	}
	for _, m := range messages {
		if m.Header.Level == unix.SOL_SOCKET && m.Header.Type == unix.SCM_TIMESTAMPNS && len(m.Data) >= 16 {
			return time.Unix(int64(binary.NativeEndian.Uint64(m.Data)), int64(binary.NativeEndian.Uint64(m.Data[8:]))), nil
		}
	}
	return time.Time{}, errors.New("hear what is asked behind a port: a frame without a time")
}

// question is whom an ARP request asks for (RFC 826).
func question(frame []byte) (netip.Addr, bool) {
	const request, length, operation, target = 1, 28, 6, 24
	if len(frame) < length || binary.BigEndian.Uint16(frame[operation:]) != request {
		return netip.Addr{}, false
	}
	return netip.AddrFrom4([4]byte(frame[target:])), true
}

// droppedFrames is how many frames the kernel dropped so far for want of room
// in its processors' queues (net.core.netdev_max_backlog), in all network
// namespaces: a flood in another one costs questions here too.
func droppedFrames() (n uint64, err error) {
	text, err := os.ReadFile("/proc/net/softnet_stat")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) { // one a processor, in hexadecimal; wrapping at 32 bits
		fields := strings.Fields(line)
		if len(fields) < 2 {
			return 0, fmt.Errorf("read the dropped frames: %q", line)
		}
		dropped, err := strconv.ParseUint(fields[1], 16, 32)
		if err != nil {
			return 0, fmt.Errorf("read the dropped frames: %w", err)
		}
		n += dropped
	}
	return n, nil
}

// inside runs fn on a thread in a network namespace.
func inside(space netns.NsHandle, fn func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	home, err := netns.Get()
	if err != nil {
		return err
	}
	defer home.Close()
	if err := netns.Set(space); err != nil {
		return err
	}
	err = fn()
	if back := netns.Set(home); back != nil {
		panic("no way back to the first network namespace: " + back.Error())
	}
	return err
}
