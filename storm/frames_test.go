package storm_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/net/bpf"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/ipamd/ipamd/ipam"
)

// packetsRefused is the kind of a finding that a port has sent what its lease does not allow.
const packetsRefused = "packets_refused"

// A gap is a time in which the kernel's rules were not all there: from before another
// program took them away until they were seen again.
type gap struct {
	from, to moment
	port     string // whose they were; "": everyone's
}

func (r *recorder) opens(port string) *gap {
	g := &gap{from: r.now(), to: never, port: port}
	r.add(func(h *history) { h.gaps = append(h.gaps, g) })
	return g
}

func (r *recorder) closes(g *gap) {
	at := r.now()
	r.add(func(*history) { g.to = at })
}

// A sent is a frame that a sandbox sent, and when it was received at another port. Its own
// it may send.
type sent struct {
	at, arrived moment
	port, what  string
	own         bool
}

// port is the number of the port behind which a life is, and its MAC.
func (l *life) port() (n int, mac net.HardwareAddr) {
	n, _ = strconv.Atoi(filepath.Base(l.netns))
	return n, macOf(n)
}

// linkLocal is the address that an interface with that MAC gives itself (RFC 4291,
// appendix A).
func linkLocal(mac net.HardwareAddr) netip.Addr {
	return netip.AddrFrom16([16]byte{0: 0xfe, 1: 0x80, 8: mac[0] ^ 2, 9: mac[1], 10: mac[2], 11: 0xff, 12: 0xfe, 13: mac[3], 14: mac[4], 15: mac[5]})
}

// A receiver is a port of rt0 that receives what is sent to its MAC.
type receiver struct {
	*port
	fd   int
	addr netip.Addr
	ids  atomic.Uint32 // of the frames that were sent to it
	stop chan struct{}
	done chan struct{}
}

// mark stands in each frame to the receiver, before the frame's number.
var mark = []byte("of the storm")

// plugReceiver plugs a receiver in, which receives until it is closed. Each second it sends a frame, so the
// bridge knows where it is.
func (w *world) plugReceiver() {
	w.t.Helper()
	e := &receiver{addr: netip.AddrFrom4([4]byte{10, 9, 1, 1}), stop: make(chan struct{}), done: make(chan struct{})}
	var err error
	if e.port, err = w.plug(e.addr); err != nil {
		w.t.Fatal(err)
	}
	if e.fd, err = packetSocket(e.path, unix.ETH_P_ALL); err != nil {
		w.t.Fatal(err)
	}
	prog, err := bpf.Assemble([]bpf.Instruction{ // what is to its MAC
		bpf.LoadAbsolute{Off: 0, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: binary.BigEndian.Uint32(e.mac), SkipTrue: 3},
		bpf.LoadAbsolute{Off: 4, Size: 2},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: uint32(binary.BigEndian.Uint16(e.mac[4:])), SkipTrue: 1},
		bpf.RetConstant{Val: 1 << 16},
		bpf.RetConstant{Val: 0},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	filter := make([]unix.SockFilter, len(prog))
	for i, p := range prog {
		filter[i] = unix.SockFilter{Code: p.Op, Jt: p.Jt, Jf: p.Jf, K: p.K}
	}
	if err := errors.Join(unix.SetsockoptSockFprog(e.fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}),
		unix.SetsockoptInt(e.fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 8<<20),
		unix.SetsockoptTimeval(e.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 500_000})); err != nil {
		w.t.Fatal(err)
	}
	w.receiver = e
	go w.receive(e)
	w.t.Cleanup(w.unplugReceiver)
}

// unplugReceiver ends the receiver, and takes its port away.
func (w *world) unplugReceiver() {
	if e := w.receiver; e != nil {
		w.receiver = nil
		close(e.stop)
		<-e.done
		if err := errors.Join(unix.Close(e.fd), e.dropLink(), e.dropSpace()); err != nil {
			w.t.Errorf("take the receiver away: %v", err)
		}
	}
}

func (w *world) receive(e *receiver) {
	defer close(e.done)
	buf, spoke := make([]byte, 2048), time.Time{}
	for !closed(e.stop) {
		if time.Since(spoke) > time.Second {
			spoke = time.Now()
			_ = send(e.fd, arp{from: e.mac, op: 1, sender: e.mac, ip: e.addr, of: e.addr}.frame())
		}
		n, _, err := unix.Recvfrom(e.fd, buf, 0)
		if err != nil { // nothing came, or it was interrupted
			continue
		}
		at := bytes.Index(buf[:n], mark)
		if at < 0 || at+len(mark)+4 > n {
			continue
		}
		id, now := binary.BigEndian.Uint32(buf[at+len(mark):]), w.rec.now()
		w.rec.add(func(h *history) {
			if s := h.sent[id]; s != nil {
				s.arrived = min(s.arrived, now)
			}
		})
	}
}

// A try is a frame that a sandbox sends to the receiver.
type try struct {
	what  string
	own   bool
	frame func(mark []byte) []byte
}

// tries are what a sandbox may send and what it may not, whatever else lives; behind those
// what is a neighbour's, who lives beside it.
func (e *receiver) tries(l *life, beside *life, r *rand.Rand) []try {
	_, mac := l.port()
	other := anyHost(r)
	for other == l.addr {
		other = anyHost(r)
	}
	gateway, foreign := ipam.FirstHost(poolPrefix), netip.MustParseAddr("fd00:8::1")
	v4 := func(from net.HardwareAddr, src netip.Addr) func([]byte) []byte {
		return func(mark []byte) []byte { return ipv4(e.mac, from, src, e.addr, mark) }
	}
	v6 := func(from net.HardwareAddr, src netip.Addr) func([]byte) []byte {
		return func(mark []byte) []byte {
			return ipv6(e.mac, from, src, linkLocal(e.mac), 17, slices.Concat([]byte{0, 9, 0, 9, 0, byte(8 + len(mark)), 0, 0}, mark))
		}
	}
	says := func(from, sender net.HardwareAddr, addr netip.Addr) func([]byte) []byte {
		return func(mark []byte) []byte {
			return append(arp{from: from, to: e.mac, op: 2, sender: sender, ip: addr, target: e.mac, of: e.addr}.frame(), mark...)
		}
	}
	advertises := func(target netip.Addr) func([]byte) []byte {
		return func(mark []byte) []byte {
			return ipv6(e.mac, mac, linkLocal(mac), linkLocal(e.mac), 58, slices.Concat([]byte{136, 0, 0, 0, 0x60, 0, 0, 0}, target.AsSlice(), mark))
		}
	}
	all := []try{
		{"IPv4 from another's address", false, v4(mac, other)},
		{"IPv4 from the gateway's address", false, v4(mac, gateway)},
		{"IPv4 from a MAC that is not its own", false, v4(unknownMAC(r), l.addr)},
		{"ARP for the gateway's address", false, says(mac, mac, gateway)},
		{"ARP for another's address", false, says(mac, mac, other)},
		{"ARP with a MAC that is not its own", false, says(mac, unknownMAC(r), l.addr)},
		{"IPv6 from an address that is not its own", false, v6(mac, foreign)},
		{"an advertisement of an address that is not its own", false, advertises(foreign)},
		{"its own IPv4", true, v4(mac, l.addr)},
		{"its own ARP", true, says(mac, mac, l.addr)},
		{"its own IPv6", true, v6(mac, linkLocal(mac))},
		{"an advertisement of its own", true, advertises(linkLocal(mac))},
	}
	if beside == nil {
		return all
	}
	_, their := beside.port()
	return append(all,
		try{"all that a neighbour sends", false, v4(their, beside.addr)},
		try{"IPv4 from a neighbour's address", false, v4(mac, beside.addr)},
		try{"ARP for a neighbour's address", false, says(mac, mac, beside.addr)},
		try{"IPv6 from a neighbour's link-local address", false, v6(mac, linkLocal(their))},
		try{"an advertisement of a neighbour's link-local address", false, advertises(linkLocal(their))})
}

// sends has a sandbox that is bound send what it may and what it may not, from its own
// namespace, until all that it may send was received.
func (w *world) sends(r *rand.Rand, l *life, beside *life) error {
	fd, err := packetSocket(l.netns, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	n, _ := l.port()
	mine := make(map[*sent]try)
	once := func(s *sent, t try) error {
		id := w.receiver.ids.Add(1)
		w.rec.add(func(h *history) { h.sent[id] = s })
		return send(fd, t.frame(binary.BigEndian.AppendUint32(bytes.Clone(mark), id)))
	}
	for _, t := range w.receiver.tries(l, beside, r) {
		s := &sent{at: w.rec.now(), arrived: never, port: fmt.Sprint("port", n), what: t.what, own: t.own}
		if err := once(s, t); err != nil {
			return err
		}
		if t.own {
			mine[s] = t
		}
	}
	w.rec.counted("frames of its own and of others")
	for end := time.Now().Add(patience); len(mine) > 0 && time.Now().Before(end); {
		w.rest(r, 5*time.Millisecond, 50*time.Millisecond)
		if w.ctx.Err() != nil {
			return nil
		}
		for s, t := range mine {
			arrived := false
			w.rec.add(func(*history) { arrived = s.arrived != never })
			if arrived {
				delete(mine, s)
			} else if err := once(s, t); err != nil { // a busy machine loses frames
				return err
			}
		}
	}
	return nil
}

// everyoneSends has each sandbox try to be its neighbour, while all stand still.
func (w *world) everyoneSends(r *rand.Rand) {
	w.t.Helper()
	var g errgroup.Group
	g.SetLimit(16)
	all := w.rec.living()
	for i := range all {
		var beside *life
		if n := len(all); n > 1 {
			beside = &all[(i+1)%n]
		}
		own := rand.New(rand.NewPCG(r.Uint64(), 1))
		g.Go(func() error {
			if err := w.sends(own, &all[i], beside); err != nil {
				return fmt.Errorf("frames of %s: %w", all[i].netns, err)
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		w.t.Error(err)
	}
	w.rest(r, 50*time.Millisecond, 60*time.Millisecond) // what is late
}

// everyoneIsNamed waits until doctor names each sandbox that everyoneSends made send what is
// not its own.
func (w *world) everyoneIsNamed() {
	w.t.Helper()
	all := w.rec.living()
	left := "no answer"
	defer func() {
		if w.t.Failed() {
			w.t.Logf("what doctor does not name: %s", left)
		}
	}()
	w.eventually(fmt.Sprintf("doctor names each of %d sandboxes that sent what is not its own", len(all)), func() bool {
		doctor, err := w.client.Doctor(w.ctx)
		if err != nil {
			left = err.Error()
			return false
		}
		named := make(map[string]bool)
		for _, f := range doctor.Findings {
			if f.Kind == packetsRefused {
				named[f.LeaseID] = true
			}
		}
		left = ""
		for _, l := range all {
			if !named[l.lease] {
				left += fmt.Sprintf("\n  %s of lease %s", l.netns, l.lease)
			}
		}
		return left == ""
	})
	w.rec.counted("sandboxes named by doctor for what they sent")
}

// ipv4 is a UDP packet in a frame.
func ipv4(to, from net.HardwareAddr, src, dst netip.Addr, data []byte) []byte {
	b := []byte{0x45, 0, 0, 0, 0, 0, 0, 0, 64, 17, 0, 0}
	b = slices.Concat(b, src.AsSlice(), dst.AsSlice())
	binary.BigEndian.PutUint16(b[2:], uint16(len(b)+8+len(data)))
	var sum uint32
	for i := 0; i < len(b); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	binary.BigEndian.PutUint16(b[10:], ^uint16(sum&0xffff+sum>>16))
	return slices.Concat(to, from, []byte{0x08, 0}, b, []byte{0, 9, 0, 9, 0, byte(8 + len(data)), 0, 0}, data)
}

// ipv6 is a packet with what follows its header in a frame.
func ipv6(to, from net.HardwareAddr, src, dst netip.Addr, next byte, body []byte) []byte {
	return slices.Concat(to, from, []byte{0x86, 0xdd, 0x60, 0, 0, 0, 0, byte(len(body)), next, 255}, src.AsSlice(), dst.AsSlice(), body)
}
