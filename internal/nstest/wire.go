package nstest

import (
	"encoding/binary"
	"net"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A Wire sends and receives whole frames on one link of a namespace. It is for one
// goroutine.
type Wire struct {
	t  testing.TB
	fd int
}

// Wire opens a link; what it receives from then on is kept for Receive, as far as the
// socket's buffer reaches.
func (n *NS) Wire(link string) *Wire {
	n.t.Helper()
	l, err := n.nl.LinkByName(link)
	if err != nil {
		n.t.Fatalf("look up %s in %s: %v", link, n.name, err)
	}
	w := &Wire{t: n.t, fd: -1}
	all := binary.BigEndian.Uint16(binary.NativeEndian.AppendUint16(nil, unix.ETH_P_ALL))
	n.Do(func() {
		if w.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, int(all)); err != nil {
			return
		}
		if err = unix.SetsockoptInt(w.fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 4<<20); err != nil {
			return
		}
		if err = unix.SetsockoptTimeval(w.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 1}); err != nil {
			return
		}
		err = unix.Bind(w.fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: l.Attrs().Index})
	})
	n.t.Cleanup(func() { _ = unix.Close(w.fd) })
	if err != nil {
		n.t.Fatalf("open %s in %s: %v", link, n.name, err)
	}
	return w
}

// Send sends frames one behind another, all on one processor: the kernel keeps their order
// then.
func (w *Wire) Send(frames ...[]byte) {
	w.t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var all, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		w.t.Fatal(err)
	}
	for i := 0; ; i++ {
		if all.IsSet(i) {
			one.Set(i)
			break
		}
	}
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		w.t.Fatal(err)
	}
	defer func() {
		if err := unix.SchedSetaffinity(0, &all); err != nil {
			panic("nstest: the thread stays on one processor: " + err.Error())
		}
	}()
	for _, f := range frames {
		if _, err := unix.Write(w.fd, f); err != nil {
			w.t.Fatalf("send a frame: %v", err)
		}
	}
}

// Receive returns the next frame that came to the link, or false after a time without any.
func (w *Wire) Receive(within time.Duration) ([]byte, bool) {
	w.t.Helper()
	for {
		if frame, sent, ok := w.Capture(within); !ok || !sent {
			return frame, ok
		}
	}
}

// Capture returns the next frame that passed the link, and whether the link sent it; ok is
// false after a time without any.
func (w *Wire) Capture(within time.Duration) (frame []byte, sent, ok bool) {
	w.t.Helper()
	b := make([]byte, 65536)
	for end := time.Now().Add(within); ; {
		n, from, err := unix.Recvfrom(w.fd, b, 0)
		if err == nil {
			sa, is := from.(*unix.SockaddrLinklayer)
			return b[:n], is && sa.Pkttype == unix.PACKET_OUTGOING, true
		}
		if err != unix.EAGAIN && err != unix.EINTR {
			w.t.Fatalf("receive a frame: %v", err)
		}
		if time.Now().After(end) {
			return nil, false, false
		}
	}
}

// Frame is an Ethernet frame.
func Frame(to, from net.HardwareAddr, typ uint16, body ...byte) []byte {
	f := append(append([]byte{}, to...), from...)
	return append(binary.BigEndian.AppendUint16(f, typ), body...)
}
