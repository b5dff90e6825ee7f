package catch

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ipamd/ipamd/internal/broadcast"
	"github.com/ipamd/ipamd/internal/nstest"
	"github.com/ipamd/ipamd/internal/realtest"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb"
	"github.com/ipamd/ipamd/netdb/netdbtest"
	"github.com/ipamd/ipamd/nft"
	"github.com/ipamd/ipamd/wake"
)

var who = netdbtest.Who(ipam.ByClient, "paused")

// ports are a bridge's in a namespace of the test.
type ports struct {
	ns      *nstest.NS
	changed broadcast.Signal

	mu    sync.Mutex
	names map[string]int
}

func (p *ports) PortIndexes() map[string]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.names
}
func (p *ports) Changed() <-chan struct{} { return p.changed.Next() }

// has makes these the bridge's ports.
func (p *ports) has(names ...string) {
	now := make(map[string]int)
	for _, name := range names {
		if l, err := p.ns.Netlink().LinkByName(name); err == nil {
			now[name] = l.Attrs().Index
		} else {
			now[name] = 1 << 20 // it is not there any more, and the bridge does not know yet
		}
	}
	p.mu.Lock()
	p.names = now
	p.mu.Unlock()
	p.changed.Send()
}

func (p *ports) Inside(f func() error) (err error) {
	p.ns.Do(func() { err = f() })
	return err
}

// A scene is a bridge with a sandbox that sleeps, a neighbour, and all
// that wakes by real packets. Its resumer only says that it was asked.
type scene struct {
	*ports
	book               *netdb.Book
	flights            *wake.Flights
	catcher            *Catcher
	sandbox, neighbour *nstest.Port
	l                  *ipam.Lease
	asked              chan *ipam.Lease
	through            *refuses      // to begin flights through; may be nil
	ahead              time.Duration // that the book's clock has gone on
	opened             func()        // called before what was opened runs; may be nil
	stop               func()
}

type asks chan *ipam.Lease

func (a asks) Resume(_ context.Context, l *ipam.Lease, _ *ipam.Sleep) error { a <- l; return nil }

func stage(t *testing.T) *scene {
	t.Helper()
	realtest.Long(t)
	s := &scene{ports: &ports{ns: nstest.New(t)}, book: netdbtest.Open(t), asked: make(chan *ipam.Lease, 100)}
	s.ns.Bridge("rt0", "10.8.64.1/24", "fd00:8::1/64")
	s.sandbox, s.neighbour = s.ns.Port("rt0", "10.8.64.2/24", "fd00:8::2/64"), s.ns.Port("rt0", "10.8.64.9/24", "fd00:8::9/64")
	s.has(s.sandbox.HostName, s.neighbour.HostName)
	s.l = netdbtest.Reserve(t, s.book, "a")
	if s.l.Addr != netip.MustParseAddr("10.8.64.2") {
		t.Fatalf("the lease is %s", s.l.Addr)
	}
	if _, err := s.book.Bind(t.Context(), who, s.l.ID, 0, ipam.Binding{HostInterface: s.sandbox.HostName}); err != nil {
		t.Fatal(err)
	}
	s.start(t)
	return s
}

// start opens and runs what watches, as a daemon does.
func (s *scene) start(t *testing.T) { s.startWith(t, asks(s.asked)) }

func (s *scene) startWith(t *testing.T, r wake.Resumer) {
	t.Helper()
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	var err error
	if s.flights, err = wake.New(wake.Config{Book: later{s.book, s.ahead}, Resumer: r, Wait: time.Minute, Log: log}); err != nil {
		t.Fatal(err)
	}
	waker := Waker(s.flights)
	if s.through != nil {
		s.through.Waker, waker = waker, s.through
	}
	if s.catcher, err = Open(t.Context(), Config{Book: s.book, Waker: waker, Ports: s.ports,
		Ignore: []netip.Prefix{netip.MustParsePrefix("10.8.64.10/32")}, Log: log}); err != nil {
		t.Fatal(err)
	}
	s.flights.CatchBy(s.catcher, nil)
	if s.opened != nil {
		s.opened()
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for _, loop := range []func(context.Context) error{s.flights.Run, s.catcher.Run} {
		running.Go(func() {
			if err := loop(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	s.stop = sync.OnceFunc(func() {
		cancel()
		running.Wait()
		if err := s.catcher.Close(); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { s.stop() })
}

func (s *scene) pause(t *testing.T, how ipam.Sleep) {
	t.Helper()
	if l, err := s.flights.Pause(t.Context(), who, s.l.ID, 0, how); err != nil || l.State != ipam.Paused {
		t.Fatal(l, err)
	}
}

func frozen(w ipam.WakePolicy) ipam.Sleep { return ipam.Sleep{Mode: ipam.Freeze, Wake: &w} }

// woken waits until the lease is bound, and returns the flight that did it.
func (s *scene) woken(t *testing.T) *ipam.Flight {
	t.Helper()
	realtest.Eventually(t, time.Minute, "the lease is bound", func() bool {
		l, err := s.book.Lease(s.l.ID)
		return err == nil && l.State == ipam.Bound
	})
	f := s.book.Sleep(s.l.ID).Flight
	if f == nil || f.Result != ipam.Woken {
		t.Fatalf("its flight: %+v", f)
	}
	return f
}

// serve answers each connection inside a namespace.
func serve(t *testing.T, ns *nstest.NS, network, at string) {
	t.Helper()
	var ln net.Listener
	ns.Do(func() {
		var err error
		if ln, err = net.Listen(network, at); err != nil {
			t.Fatal(err)
		}
	})
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(c, "here\n")
			_ = c.Close()
		}
	}()
}

// dial connects once, without a retry of its own, and reads what it is sent.
func dial(t *testing.T, from *nstest.NS, network, to string) (reply string, err error) {
	from.Do(func() {
		var c net.Conn
		if c, err = net.DialTimeout(network, to, time.Minute); err != nil {
			return
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(time.Minute))
		var b []byte
		b, err = io.ReadAll(c)
		reply = string(b)
	})
	return reply, err
}

// Z2, Z13: a connect from the host, and from a neighbour, wakes a frozen sandbox; nothing of it
// is lost, and the history says why, before the lease is bound.
func TestZ2Z13AConnectWakes(t *testing.T) {
	s := stage(t)
	serve(t, s.sandbox.NS, "tcp", "10.8.64.2:80")
	for _, from := range []struct {
		ns     *nstest.NS
		source string
	}{{s.ns, "10.8.64.1"}, {s.neighbour.NS, "10.8.64.9"}} {
		s.pause(t, frozen(ipam.WakePolicy{Ports: []ipam.PortRange{{First: 80, Last: 80}}}))
		rev := s.book.Rev()
		if reply, err := dial(t, from.ns, "tcp", "10.8.64.2:80"); err != nil || reply != "here\n" {
			t.Errorf("from %s: %q, %v", from.source, reply, err)
		}
		f := s.woken(t)
		if c := f.Cause; c.By != ipam.ByTraffic || c.Source.String() != from.source || c.Port != 80 || c.Protocol != ipam.TCP || c.Rule != "tcp to 80" {
			t.Errorf("from %s: %+v", from.source, c)
		}
		var reasons []string
		changes, err := s.book.Changes(t.Context(), rev, 100)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range changes {
			reasons = append(reasons, c.Who.Reason)
		}
		if got := strings.Join(reasons, " "); got != "wake_requested waking woken" {
			t.Errorf("the history: %s", got)
		}
	}
	s.gone(t)
}

// Z8: each pause is watched from its begin: a packet that woke the sandbox a moment ago hides none
// that comes after it was paused again, while others sleep beside it.
func TestZ8EachPauseIsWatchedAnew(t *testing.T) {
	s := stage(t)
	serve(t, s.sandbox.NS, "tcp", "10.8.64.2:80")
	other := netdbtest.Reserve(t, s.book, "b") // the table stays for it
	if _, err := s.book.Bind(t.Context(), who, other.ID, 0, ipam.Binding{HostInterface: s.neighbour.HostName}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.flights.Pause(t.Context(), who, other.ID, 0, frozen(ipam.WakePolicy{})); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		s.pause(t, frozen(ipam.WakePolicy{}))
		if _, err := dial(t, s.neighbour.NS, "tcp", "10.8.64.2:80"); err != nil {
			t.Fatal(err)
		}
		s.woken(t)
	}
}

// Z2: what asks for any address of a delegated prefix wakes its sandbox.
func TestZ2AnAddressOfADelegatedPrefixWakes(t *testing.T) {
	s := stage(t)
	s.l = netdbtest.ReservePrefix(t, s.book, "vm", 28)
	inside := s.ns.Port("rt0", "10.8.64.16/24", "10.8.64.20/24")
	s.has(inside.HostName)
	if _, err := s.book.Bind(t.Context(), who, s.l.ID, 0, ipam.Binding{HostInterface: inside.HostName}); err != nil {
		t.Fatal(err)
	}
	for _, at := range []string{"10.8.64.16:80", "10.8.64.20:80"} {
		serve(t, inside.NS, "tcp", at)
		s.pause(t, frozen(ipam.WakePolicy{}))
		if reply, err := dial(t, s.neighbour.NS, "tcp", at); err != nil || reply != "here\n" {
			t.Errorf("%s: %q, %v", at, reply, err)
		}
		s.woken(t)
	}
	s.gone(t)
}

// gone waits until no rule is left.
func (s *scene) gone(t *testing.T) {
	t.Helper()
	realtest.Eventually(t, time.Minute, "no table is left", func() bool {
		have, err := s.catcher.conn.Read(t.Context(), &nft.Table{Family: nft.Netdev, Name: TableName})
		return err == nil && have == nil
	})
}

// Z2: a datagram and an echo request wake where the policy names them.
func TestZ2DatagramsAndEchoRequestsWake(t *testing.T) {
	s := stage(t)
	send := map[ipam.Protocol]func(){
		ipam.UDP: func() {
			s.neighbour.NS.Do(func() {
				c, err := net.Dial("udp", "10.8.64.2:53")
				if err == nil {
					_, err = c.Write([]byte("?"))
					_ = c.Close()
				}
				if err != nil {
					t.Error(err)
				}
			})
		},
		ipam.ICMP: func() { s.echo(t) },
	}
	for _, p := range []ipam.Protocol{ipam.UDP, ipam.ICMP} {
		s.pause(t, frozen(ipam.WakePolicy{Protocols: []ipam.Protocol{p}}))
		send[p]()
		if f := s.woken(t); f.Cause.Protocol != p {
			t.Errorf("%s: %+v", p, f.Cause)
		}
	}
}

// echo sends an echo request from the neighbour.
func (s *scene) echo(t *testing.T) {
	s.neighbour.NS.Do(func() {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_ICMP)
		if err != nil {
			t.Error(err)
			return
		}
		defer unix.Close(fd)
		if err := unix.Sendto(fd, []byte{8, 0, 0xf7, 0xfe, 0, 1, 0, 0}, 0, &unix.SockaddrInet4{Addr: [4]byte{10, 8, 64, 2}}); err != nil {
			t.Error(err)
		}
	})
}

// Z3, Z11: without a policy nothing wakes; with one, neither does what it does not name: another
// port, another source, another protocol, ARP, nor what a source sends that counts for nothing. What it names wakes, then.
func TestZ3Z11WhatIsNotNamedDoesNotWake(t *testing.T) {
	s := stage(t)
	scraper := s.ns.Port("rt0", "10.8.64.10/24")
	serve(t, s.sandbox.NS, "tcp", "10.8.64.2:80")
	serve(t, s.sandbox.NS, "tcp", "10.8.64.2:81")
	all := func() {
		t.Helper()
		for _, from := range []*nstest.NS{s.ns, s.neighbour.NS} {
			if _, err := dial(t, from, "tcp", "10.8.64.2:81"); err != nil {
				t.Error(err)
			}
		}
		if _, err := dial(t, s.neighbour.NS, "tcp", "10.8.64.2:80"); err != nil {
			t.Error(err)
		}
		if _, err := dial(t, scraper.NS, "tcp", "10.8.64.2:80"); err != nil {
			t.Error(err)
		}
		s.echo(t)
	}
	if _, err := s.flights.Pause(t.Context(), who, s.l.ID, 0, ipam.Sleep{Mode: ipam.Freeze}); err != nil {
		t.Fatal(err)
	}
	rev := s.book.Rev()
	all()
	s.pause(t, frozen(ipam.WakePolicy{Ports: []ipam.PortRange{{First: 80, Last: 80}}, Sources: []netip.Prefix{netip.MustParsePrefix("10.8.64.1/32"), netip.MustParsePrefix("10.8.64.10/32")}}))
	all()
	if now := s.book.Rev(); now != rev+1 {
		t.Errorf("%d changes of what does not wake", now-rev-1)
	}
	if reply, err := dial(t, s.ns, "tcp", "10.8.64.2:80"); err != nil || reply != "here\n" {
		t.Error(reply, err)
	}
	if f := s.woken(t); f.Cause.Source.String() != "10.8.64.1" || f.Cause.Port != 80 {
		t.Errorf("woken by %+v", f.Cause)
	}
	changes, err := s.book.Changes(t.Context(), rev, 100)
	if err != nil {
		t.Fatal(err)
	}
	for reason, want := range map[string]string{"wake_requested": "tcp to port 80, by the rule tcp to 80 from 10.8.64.1/32", "woken": "took "} {
		if !slices.ContainsFunc(changes, func(c ipam.Change) bool { return c.Who.Reason == reason && strings.Contains(string(c.Evidence), want) }) {
			t.Errorf("the history has no %s with %q: %+v", reason, want, changes)
		}
	}
}

// Z11: what is no traffic wakes no sandbox, whatever a policy asks for: ARP, ipamd's own probes, ND,
// errors of ICMP, multicast, broadcast, the end of an old connection, frames to another MAC's
// address. What a source that the policy names sends wakes, then.
func TestZ11WhatIsNoTraffic(t *testing.T) {
	s := stage(t)
	six, nine := netip.MustParseAddr("fd00:8::2"), netip.MustParseAddr("fd00:8::9")
	two, from := netip.MustParseAddr("10.8.64.2"), netip.MustParseAddr("10.8.64.9")
	s.sandbox.NS.Exec("ip", "link", "set", "eth0", "promisc", "on") // a bridge floods what is for many
	out := s.neighbour.NS.Wire("eth0")
	to, mac := s.sandbox.MAC, s.neighbour.MAC
	all := net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	many := net.HardwareAddr{1, 0, 0x5e, 0, 0, 0xfb}
	ip := func(to net.HardwareAddr, dst netip.Addr, proto byte, body ...byte) []byte {
		b := append([]byte{0x45, 0, 0, byte(20 + len(body)), 0, 0, 0, 0, 64, proto, 0, 0}, from.AsSlice()...)
		b = append(b, dst.AsSlice()...)
		var sum uint32
		for i := 0; i < len(b); i += 2 {
			sum += uint32(binary.BigEndian.Uint16(b[i:]))
		}
		binary.BigEndian.PutUint16(b[10:], ^uint16(sum>>16+sum&0xffff)) // else a bridge may drop it
		return nstest.Frame(to, mac, 0x0800, append(b, body...)...)
	}
	ip6 := func(proto byte, body ...byte) []byte {
		b := append([]byte{0x60, 0, 0, 0, 0, byte(len(body)), proto, 255}, nine.AsSlice()...)
		return nstest.Frame(to, mac, 0x86dd, append(append(b, six.AsSlice()...), body...)...)
	}
	segment := func(flags byte) []byte {
		return []byte{0x30, 0, 0, 80, 0, 0, 0, 1, 0, 0, 0, 0, 0x50, flags, 1, 0, 0, 0, 0, 0}
	}
	arp := func(op byte, sender netip.Addr) []byte {
		b := append(append([]byte{0, 1, 8, 0, 6, 4, 0, op}, mac...), sender.AsSlice()...)
		return append(append(append(b, make([]byte, 6)...), two.AsSlice()...), make([]byte, 18)...)
	}
	old := append(append([]byte{3, 1, 0, 0, 0, 0, 0, 0, 0x45, 0, 0, 40, 0, 0, 0, 0, 64, 6, 0, 0}, two.AsSlice()...), append(from.AsSlice(), 0, 80, 0x30, 0)...)
	frames := map[string][]byte{
		"a question of ARP":               nstest.Frame(all, mac, 0x0806, arp(1, from)...),
		"an answer of ARP":                nstest.Frame(to, mac, 0x0806, arp(2, from)...),
		"ipamd's own probe":               nstest.Frame(all, mac, 0x0806, arp(1, netip.IPv4Unspecified())...),
		"a solicitation":                  ip6(icmp6, append([]byte{135, 0, 0, 0, 0, 0, 0, 0}, six.AsSlice()...)...),
		"an advertisement":                ip6(icmp6, append([]byte{136, 0, 0, 0, 0, 0, 0, 0}, nine.AsSlice()...)...),
		"an error of ICMPv6":              ip6(icmp6, 1, 4, 0, 0, 0, 0, 0, 0),
		"an error of ICMP":                ip(to, two, icmp4, old...),
		"an echo reply":                   ip(to, two, icmp4, 0, 0, 0, 0, 0, 1, 0, 0),
		"multicast":                       ip(many, netip.MustParseAddr("224.0.0.251"), udp, 0x30, 0, 0, 80, 0, 8, 0, 0),
		"broadcast":                       ip(all, netip.MustParseAddr("10.8.64.255"), udp, 0x30, 0, 0, 80, 0, 8, 0, 0),
		"broadcast to all":                ip(all, netip.MustParseAddr("255.255.255.255"), udp, 0x30, 0, 0, 80, 0, 8, 0, 0),
		"a reset":                         ip(to, two, tcp, segment(0x04)...),
		"a reset that acknowledges":       ip(to, two, tcp, segment(0x14)...),
		"the end of an old connection":    ip(to, two, tcp, segment(0x11)...),
		"IGMP":                            ip(to, two, 2, 0x11, 0, 0, 0, 0, 0, 0, 0),
		"a packet to another's address":   ip(to, netip.MustParseAddr("10.8.64.3"), tcp, segment(0x02)...),
		"a datagram to a port out of it":  ip(to, two, udp, 0x30, 0, 0, 81, 0, 8, 0, 0),
		"a SYN to a port that is not its": ip(to, two, tcp, segment(0x02)...),
	}
	frames["a SYN to a port that is not its"][37] = 81
	policy := frozen(ipam.WakePolicy{Protocols: []ipam.Protocol{ipam.TCP, ipam.UDP, ipam.ICMP}, Ports: []ipam.PortRange{{First: 80, Last: 80}}})
	s.pause(t, policy)
	sixth, err := netdbtest.TryReserve(s.book, netdbtest.Pool(t, s.book, "six", "fd00:8::/64"), "a", netdbtest.Policy)
	if err == nil && sixth.Addr == six {
		_, err = s.book.Bind(t.Context(), who, sixth.ID, 0, ipam.Binding{HostInterface: s.sandbox.HostName})
	}
	if err == nil {
		_, err = s.flights.Pause(t.Context(), who, sixth.ID, 0, policy)
	}
	if err != nil {
		t.Fatal(sixth, err)
	}
	rev := s.book.Rev()
	received := s.sandbox.NS.Wire("eth0")
	for what, f := range frames {
		out.Send(f)
		for {
			got, ok := received.Receive(10 * time.Second)
			if !ok {
				t.Fatalf("%s did not pass the port", what)
			}
			if bytes.Equal(got, f) {
				break
			}
		}
		if now := s.book.Rev(); now != rev {
			t.Fatalf("%s wakes", what)
		}
	}
	out.Send(ip(to, two, tcp, segment(0x02)...))
	if f := s.woken(t); f.Cause.Protocol != ipam.TCP || f.Cause.Port != 80 || f.Cause.Source != from || s.book.Rev() != rev+3 {
		t.Errorf("%d changes, woken by %+v", s.book.Rev()-rev, f.Cause)
	}
}

// Z13: what would wake a sandbox that hibernates is held back, not refused: nothing listens, and
// the client connects by its own retransmit once it was restored.
func TestZ13AHibernatedOneIsHeldBack(t *testing.T) {
	s := stage(t)
	w := ipam.WakePolicy{Ports: []ipam.PortRange{{First: 80, Last: 80}}}
	s.pause(t, ipam.Sleep{Mode: ipam.Hibernate, Wake: &w})
	type result struct {
		reply string
		err   error
	}
	answered := make(chan result, 1)
	go func() {
		reply, err := dial(t, s.neighbour.NS, "tcp", "10.8.64.2:80")
		answered <- result{reply, err}
	}()
	<-s.asked // and now it is restored, and bound
	serve(t, s.sandbox.NS, "tcp", "10.8.64.2:80")
	s.woken(t)
	if r := <-answered; r.err != nil || r.reply != "here\n" {
		t.Errorf("the client: %q, %v", r.reply, r.err)
	}
	s.gone(t)
}

// Z14: the rules stay while no process listens, and the traffic that is pending then wakes after the
// next start.
func TestZ14TrafficWhileTheDaemonIsDown(t *testing.T) {
	s := stage(t)
	w := ipam.WakePolicy{Ports: []ipam.PortRange{{First: 80, Last: 80}}}
	s.pause(t, ipam.Sleep{Mode: ipam.Hibernate, Wake: &w})
	s.stop()
	answered := make(chan error, 1)
	go func() {
		_, err := dial(t, s.neighbour.NS, "tcp", "10.8.64.2:80")
		answered <- err
	}()
	realtest.Eventually(t, time.Minute, "a SYN was sent", func() (sent bool) {
		s.neighbour.NS.Do(func() {
			b, err := os.ReadFile("/proc/thread-self/net/tcp")
			sent = err == nil && strings.Contains(string(b), ":0050 02 ") // SYN_SENT to port 80
		})
		return sent
	})
	select {
	case err := <-answered:
		t.Fatalf("answered while it hibernates: %v", err)
	case l := <-s.asked:
		t.Fatalf("asked while no process listens: %+v", l)
	default:
	}
	s.start(t)
	<-s.asked
	serve(t, s.sandbox.NS, "tcp", "10.8.64.2:80")
	s.woken(t)
	if err := <-answered; err != nil {
		t.Error(err)
	}
}

// Z12: of a flood to a sleeper one copy a second is made, whatever becomes of it.
func TestZ12AFloodIsCopiedOnceASecond(t *testing.T) {
	s := stage(t)
	s.stop() // no other reads
	var r *reader
	s.ns.Do(func() {
		var err error
		if s.catcher, err = Open(t.Context(), Config{Book: s.book, Waker: s.flights, Ports: s.ports, Log: slog.New(slog.DiscardHandler)}); err != nil {
			t.Fatal(err)
		}
	})
	defer s.catcher.Close()
	r = s.catcher.reader
	w := ipam.WakePolicy{Protocols: []ipam.Protocol{ipam.UDP}}
	if _, err := s.book.PauseAs(t.Context(), who, s.l.ID, 0, ipam.Sleep{Mode: ipam.Freeze, Wake: &w}); err != nil {
		t.Fatal(err)
	}
	if err := s.catcher.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	s.neighbour.NS.Do(func() {
		c, err := net.Dial("udp", "10.8.64.2:53")
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		for range 20_000 {
			_, _ = c.Write([]byte("?")) // refused: no process listens
		}
	})
	seconds := int(time.Since(began)/time.Second) + 2
	copies := 0
	_ = r.conn.SetReadDeadline(time.Now().Add(2 * time.Second))
	for {
		frames, overrun, err := r.next()
		if err != nil {
			break
		}
		if overrun {
			t.Error("an overrun")
		}
		copies += len(frames)
	}
	if copies < 1 || copies > seconds+2 {
		t.Errorf("%d copies of 20000 packets in %d s", copies, seconds)
	}
}

// Z12: copies that the kernel had no room for are counted as an overrun, and what comes behind it
// wakes, though the kernel drops its copies, too, until all was read, and says that no more.
func TestZ12WhatComesBehindAnOverrunWakes(t *testing.T) {
	s := stage(t)
	realtest.Need(t, "nft")
	serve(t, s.sandbox.NS, "tcp", "10.8.64.2:80")
	s.pause(t, frozen(ipam.WakePolicy{}))
	s.stop()
	s.opened = func() {
		if err := s.catcher.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := s.catcher.reader.conn.SetReadBuffer(1); err != nil { // the least that there is
			t.Fatal(err)
		}
		// What is sent is copied before the call returns, and none comes later.
		s.ns.Exec("nft", fmt.Sprintf("add table inet flood; add chain inet flood c { type filter hook output priority 0; }; add rule inet flood c udp dport 9 log group %d", Group))
		s.ns.Do(func() {
			c, err := net.Dial("udp", "10.8.64.1:9")
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			for range 1_000 {
				_, _ = c.Write([]byte("?")) // refused: no process listens
			}
		})
		if frames, _, err := s.catcher.reader.next(); len(frames) != 0 || err != nil {
			t.Fatalf("the kernel does not say that copies were lost: %d copies, %v", len(frames), err)
		}
		if reply, err := dial(t, s.neighbour.NS, "tcp", "10.8.64.2:80"); err != nil || reply != "here\n" {
			t.Errorf("behind it: %q, %v", reply, err)
		}
	}
	s.start(t)
	s.woken(t)
	if n := s.catcher.Counts().Overruns; n != 1 {
		t.Errorf("%d overruns are counted", n)
	}
}

// A lease without a port, or whose port is not there, is refused with what is missing, and stays
// as it is; a port that comes back is watched again.
func TestWhatCannotBeWatched(t *testing.T) {
	s := stage(t)
	s.has()
	how := frozen(ipam.WakePolicy{})
	_, err := s.flights.Pause(t.Context(), who, s.l.ID, 0, how)
	if fe := new(ipam.FieldError); !errors.As(err, &fe) || fe.Field != "wake" || !strings.Contains(fe.Reason, "no port of the bridge") {
		t.Errorf("a port that is not there: %v", err)
	}
	if l, _ := s.book.Lease(s.l.ID); l.State != ipam.Bound || s.book.Sleep(s.l.ID) != nil {
		t.Errorf("it is %s", l.State)
	}
	s.has(s.sandbox.HostName, "not-there")
	s.pause(t, how)
	serve(t, s.sandbox.NS, "tcp", "10.8.64.2:80")
	if _, err := dial(t, s.neighbour.NS, "tcp", "10.8.64.2:80"); err != nil {
		t.Error(err)
	}
	s.woken(t)
}

// A kernel that has nftables and no hook at a device's egress is found out when the daemon starts,
// with what it lacks: no hook is like one that it does not know. What was tried is not left behind.
func TestWithoutAnEgressHook(t *testing.T) {
	s := stage(t)
	unknown := nft.Hook(4)
	if err := try(s.catcher.conn, unknown); err == nil || !strings.Contains(err.Error(), "at the egress of a device") || !errors.Is(err, nft.ErrUnsupported) {
		t.Errorf("without it: %v", err)
	}
	for name := range map[string]bool{TableName: true, TableName + "-try": true} {
		if have, err := s.catcher.conn.Read(t.Context(), &nft.Table{Family: nft.Netdev, Name: name}); err != nil || have != nil {
			t.Errorf("%s: %v, %v", name, have, err)
		}
	}
	unwatched, err := wake.New(wake.Config{Book: s.book, Resumer: asks(s.asked), Wait: time.Minute, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	unwatched.CatchBy(nil, try(s.catcher.conn, unknown))
	_, err = unwatched.Pause(t.Context(), who, s.l.ID, 0, frozen(ipam.WakePolicy{}))
	if fe := new(ipam.FieldError); !errors.As(err, &fe) || fe.Field != "wake" || !strings.Contains(fe.Reason, "at the egress of a device") || !strings.Contains(fe.Reason, "leave wake out") {
		t.Errorf("a pause that traffic shall end: %v", err)
	}
	if l, err := unwatched.Pause(t.Context(), who, s.l.ID, 0, ipam.Sleep{Mode: ipam.Freeze}); err != nil || l.State != ipam.Paused {
		t.Errorf("a pause: %v, %v", l, err)
	}
}

// The rules as nft has them, of both families.
func TestTable(t *testing.T) {
	prefix := netip.MustParsePrefix
	got := Table([]Sleeper{
		{Addr: prefix("fd00:8::2/128"), Port: Link{"veth2", 12}, Drop: true, Wake: &ipam.WakePolicy{Protocols: []ipam.Protocol{ipam.UDP, ipam.ICMP}, Ports: []ipam.PortRange{{First: 53, Last: 53}}}},
		{Addr: prefix("10.8.64.2/32"), Port: Link{"veth1", 11}, Wake: &ipam.WakePolicy{Sources: []netip.Prefix{prefix("10.8.64.0/24"), prefix("192.0.2.7/32")}, Ports: []ipam.PortRange{{First: 80, Last: 80}, {First: 8000, Last: 8100}}}},
	}, []netip.Prefix{prefix("192.0.2.9/32")}).String()
	for _, want := range []string{"ip saddr 192.0.2.9/32 return", "ip saddr 10.8.64.0/24 goto lease-10-8-64-2-to", "th dport 8000-8100 goto lease-10-8-64-2-copy", "tcp flags & 0x05 == 0",
		"icmpv6 type 128 goto", "log group 8764", "ip6 daddr fd00:8::2 jump", "limit rate 1/second burst 1 packets log group 8764"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in\n%s", want, got)
		}
	}
	if n := strings.Count(got, "drop"); n != 1 {
		t.Errorf("%d drops, want that of the one that hibernates:\n%s", n, got)
	}
	if Table(nil, nil) != nil {
		t.Error("a table that no lease needs")
	}
}

// A copy that is no whole packet is an error, and nothing else.
func TestMalformedPackets(t *testing.T) {
	syn := append([]byte{12: 8, 13: 0}, []byte{0: 0x45, 9: 6, 12: 10, 8, 64, 9, 10, 8, 64, 2, 20: 0, 1, 0, 80}...)
	if p, err := parse(syn); err != nil || p.Dest != netip.MustParseAddr("10.8.64.2") || p.Source != netip.MustParseAddr("10.8.64.9") || p.Port != 80 || p.Protocol != ipam.TCP {
		t.Fatalf("%+v, %v", p, err)
	}
	for n := range len(syn) {
		if p, err := parse(syn[:n]); err == nil {
			t.Errorf("%d bytes of it: %+v", n, p)
		}
	}
	with := func(at int, b byte) []byte { c := append([]byte(nil), syn...); c[at] = b; return c }
	for name, frame := range map[string][]byte{"ARP": with(13, 6), "a header of 16 bytes": with(14, 0x44), "a header beyond its end": with(14, 0x4f), "IPv6 in IPv4": with(14, 0x65), "IGMP": with(23, 2)} {
		if p, err := parse(frame); err == nil {
			t.Errorf("%s: %+v", name, p)
		}
	}
	c := &Catcher{}
	c.arrived(t.Context(), nil)
	if n := c.Counts().Malformed; n != 1 {
		t.Errorf("%d are counted", n)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte{12: 8, 33: 0})
	f.Fuzz(func(t *testing.T, frame []byte) {
		if p, err := parse(frame); err == nil && (!p.Source.IsValid() || !p.Dest.IsValid() || p.Protocol == "" && len(frame) < snap) {
			t.Errorf("%x: %+v", frame, fmt.Sprint(p))
		}
		payload(frame)
	})
}

// Z8: rules that another program takes away are made again, so that a sandbox goes on being
// watched.
func TestRulesThatAreTakenAwayAreMadeAgain(t *testing.T) {
	s := stage(t)
	serve(t, s.sandbox.NS, "tcp", "10.8.64.2:80")
	s.pause(t, frozen(ipam.WakePolicy{}))
	s.ns.Exec("nft", "flush", "ruleset")
	realtest.Eventually(t, time.Minute, "the rules are there", func() bool {
		return strings.Contains(s.ns.Exec("nft", "list", "ruleset"), TableName)
	})
	if _, err := dial(t, s.neighbour.NS, "tcp", "10.8.64.2:80"); err != nil {
		t.Fatal(err)
	}
	s.woken(t)
}

// listen has the sandbox's kernel answer connections that it does not accept, as one that is frozen.
func (s *scene) listen(t *testing.T) {
	t.Helper()
	var ln net.Listener
	s.sandbox.NS.Do(func() {
		var err error
		if ln, err = net.Listen("tcp", "10.8.64.2:80"); err != nil {
			t.Fatal(err)
		}
	})
	t.Cleanup(func() { ln.Close() })
}

// connect asks the sandbox for something, and no packet follows.
func (s *scene) connect(t *testing.T) {
	t.Helper()
	s.neighbour.NS.Do(func() {
		c, err := (&net.Dialer{KeepAlive: -1}).Dial("tcp", "10.8.64.2:80")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		if _, err := io.WriteString(c, "GET / HTTP/1.0\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
	})
}

// Z14: what comes to a frozen sandbox while no daemon runs is answered by its kernel, and no packet
// may follow: the rules have counted it, and the next daemon wakes for it. What was counted before
// an earlier wake is no reason.
func TestZ14WhatCameWhileNoneListened(t *testing.T) {
	s := stage(t)
	s.listen(t)
	for _, known := range []bool{true, false} { // whether the next daemon has read the bridge at once
		s.pause(t, frozen(ipam.WakePolicy{}))
		s.stop()
		s.connect(t)
		if !known {
			s.has()
		}
		s.start(t)
		if c := s.woken(t).Cause; c.By != ipam.ByTraffic {
			t.Errorf("%+v", c)
		}
		<-s.asked
	}
	s.has(s.sandbox.HostName, s.neighbour.HostName)
	s.pause(t, frozen(ipam.WakePolicy{}))
	s.stop()
	s.start(t)
	if err := s.catcher.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	if next := s.catcher.wakeLate(t.Context()); next > 0 || s.book.Sleep(s.l.ID).Flight.Open() || len(s.asked) > 0 {
		t.Error("it is woken for what came before the last pause")
	}
}

// Z8: what comes while a failed wake waits is not forgotten: it wakes once another try may begin.
func TestZ8WhatComesInTheBackOffWakes(t *testing.T) {
	s := stage(t)
	s.pause(t, frozen(ipam.WakePolicy{Protocols: []ipam.Protocol{ipam.UDP}}))
	_, f, _, err := s.book.Wake(t.Context(), who, s.l.ID, time.Minute, ipam.Cause{By: ipam.ByCall}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.book.Land(t.Context(), who, s.l.ID, f.ID, ipam.TimedOut, "it took too long"); err != nil {
		t.Fatal(err)
	}
	s.catcher.arrived(t.Context(), datagram(53))
	if s.catcher.Counts().Suppressed == 0 {
		t.Fatal("there was no back-off")
	}
	if c := s.woken(t).Cause; c.Source != netip.MustParseAddr("10.8.64.9") || c.Port != 53 {
		t.Errorf("%+v", c)
	}
}

// datagram is a copy of one from the neighbour to a port of the sandbox.
func datagram(port byte) []byte {
	return append([]byte{12: 8, 13: 0}, []byte{0: 0x45, 9: udp, 12: 10, 8, 64, 9, 10, 8, 64, 2, 20: 0, 1, 0, port}...)
}

// still is the task of a sandbox.
type still struct{ frozen atomic.Bool }

func (k *still) Pause(context.Context, *ipam.Lease, *ipam.Sleep) error {
	k.frozen.Store(true)
	return nil
}

func (k *still) Resume(context.Context, *ipam.Lease, *ipam.Sleep) error {
	k.frozen.Store(false)
	return nil
}

// Z8: the task of a sandbox stands still for all of its leases: where one of them is paused, what
// comes to another one wakes it.
func TestZ8AnotherLeaseOfTheSandbox(t *testing.T) {
	s := stage(t)
	s.stop()
	k := new(still)
	s.startWith(t, k)
	box := []ipam.Container{{Namespace: "default", ID: "a"}}
	if _, err := s.book.Bind(t.Context(), who, s.l.ID, 0, ipam.Binding{HostInterface: s.sandbox.HostName, Containers: box}); err != nil {
		t.Fatal(err)
	}
	sixth, err := netdbtest.TryReserve(s.book, netdbtest.Pool(t, s.book, "six", "fd00:8::/64"), "a", netdbtest.Policy)
	if err != nil || sixth.UID != s.l.UID {
		t.Fatal(sixth, err)
	}
	if _, err := s.book.Bind(t.Context(), who, sixth.ID, 0, ipam.Binding{HostInterface: s.sandbox.HostName, Containers: box}); err != nil {
		t.Fatal(err)
	}
	how := frozen(ipam.WakePolicy{})
	how.Do = true
	for _, l := range []*ipam.Lease{s.l, sixth} { // a call pauses both, and resumes both
		if _, err := s.flights.Pause(t.Context(), who, l.ID, 0, how); err != nil {
			t.Fatal(err)
		}
	}
	for _, l := range []*ipam.Lease{s.l, sixth} {
		if _, err := s.flights.Resume(t.Context(), who, l.ID, 0); err != nil {
			t.Fatal(err)
		}
	}
	s.pause(t, how)
	if !k.frozen.Load() {
		t.Fatal("it runs")
	}
	serve(t, s.sandbox.NS, "tcp", "[fd00:8::2]:80")
	if _, err := dial(t, s.neighbour.NS, "tcp", "[fd00:8::2]:80"); err != nil {
		t.Fatal(err)
	}
	s.l = sixth
	if f := s.woken(t); f.Cause.By != ipam.ByTraffic || k.frozen.Load() {
		t.Errorf("%+v, and it stands still: %v", f, k.frozen.Load())
	}
}

// hangs is a resumer whose first attempt lasts as long as it may.
type hangs struct{ asked atomic.Int32 }

func (h *hangs) Resume(ctx context.Context, _ *ipam.Lease, _ *ipam.Sleep) error {
	if h.asked.Add(1) > 1 {
		return nil
	}
	<-ctx.Done()
	return ctx.Err()
}

// Z8: what comes during a flight that fails begins another one. What comes during one that wakes
// the sandbox wakes it from no later pause.
func TestZ8WhatComesDuringAFlight(t *testing.T) {
	s := stage(t)
	s.stop()
	h := new(hangs)
	s.startWith(t, h)
	s.pause(t, frozen(ipam.WakePolicy{Wait: time.Second}))
	s.catcher.arrived(t.Context(), datagram(53))
	realtest.Eventually(t, time.Minute, "the resumer is asked", func() bool { return h.asked.Load() == 1 })
	s.catcher.arrived(t.Context(), datagram(54))
	if c := s.woken(t).Cause; c.Port != 54 || h.asked.Load() != 2 {
		t.Errorf("%+v, the resumer was asked %d times", c, h.asked.Load())
	}
	h.asked.Store(0)
	s.pause(t, frozen(ipam.WakePolicy{}))
	s.catcher.arrived(t.Context(), datagram(53))
	realtest.Eventually(t, time.Minute, "the resumer is asked", func() bool { return h.asked.Load() == 1 })
	s.catcher.arrived(t.Context(), datagram(54))
	s.stop() // so that it has not looked between the two pauses
	if _, err := s.book.Resume(t.Context(), who, s.l.ID, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := s.book.PauseAs(t.Context(), who, s.l.ID, 0, frozen(ipam.WakePolicy{})); err != nil {
		t.Fatal(err)
	}
	if next := s.catcher.wakeLate(t.Context()); next > 0 || s.book.Sleep(s.l.ID).Flight.Open() {
		t.Error("it is woken for what came before the last pause")
	}
}

// Z14: a flight that was under way for longer than it may last when the daemon ended is gone on with
// by the next one, and so is what came meanwhile.
func TestZ14DownForLongerThanAFlight(t *testing.T) {
	s := stage(t)
	s.listen(t)
	begun := make(chan struct{})
	hangs := replies(func(ctx context.Context) error {
		begun <- struct{}{}
		<-ctx.Done()
		return ctx.Err()
	})
	// down is a daemon that ends while its resumer is at work, and for longer than that may take.
	down := func() *ipam.Flight {
		t.Helper()
		s.stop()
		s.startWith(t, hangs)
		s.pause(t, frozen(ipam.WakePolicy{}))
		s.connect(t)
		<-begun
		s.stop()
		s.ahead += 2 * time.Minute
		return s.book.Sleep(s.l.ID).Flight
	}
	was := down()
	s.startWith(t, replies(func(context.Context) error { return nil }))
	if f := s.woken(t); f.ID != was.ID {
		t.Errorf("%+v, it was %+v", f, was)
	}
	// And where this one fails, too, what the rules counted begins another one.
	was = down()
	var asked atomic.Int32
	s.startWith(t, replies(func(context.Context) error {
		if asked.Add(1) == 1 {
			return wake.ErrRefused
		}
		return nil
	}))
	if f := s.woken(t); f.ID == was.ID || asked.Load() != 2 {
		t.Errorf("%+v, it was %+v", f, was)
	}
}

// replies is a resumer that is a function.
type replies func(ctx context.Context) error

func (r replies) Resume(ctx context.Context, _ *ipam.Lease, _ *ipam.Sleep) error { return r(ctx) }

// later is a book whose clock has gone on since its last change.
type later struct {
	*netdb.Book
	by time.Duration
}

func (b later) Now() ipam.Stamp {
	now := b.Book.Now()
	now.Boottime += b.by
	return now
}

// refuses is a waker whose book takes nothing at first.
type refuses struct {
	Waker
	left atomic.Int32
}

func (r *refuses) Wake(ctx context.Context, who ipam.Who, id string, cause ipam.Cause, evidence json.RawMessage) (*ipam.Lease, *ipam.Flight, error) {
	if r.left.Add(-1) >= 0 {
		return nil, nil, fmt.Errorf("wake: %w", netdb.ErrBusy)
	}
	return r.Waker.Wake(ctx, who, id, cause, evidence)
}

// Z8: a packet that comes while the book takes no change wakes once it does, and the book is not
// asked with each packet.
func TestZ8ABookThatTakesNoChange(t *testing.T) {
	s := stage(t)
	s.stop()
	r := new(refuses)
	r.left.Store(2)
	s.through = r
	s.start(t)
	s.pause(t, frozen(ipam.WakePolicy{Protocols: []ipam.Protocol{ipam.UDP}}))
	for range 100 {
		s.catcher.arrived(t.Context(), datagram(53))
	}
	if left := r.left.Load(); left < 0 {
		t.Errorf("asked %d times at once", 2-left)
	}
	if c := s.woken(t).Cause; c.Port != 53 || r.left.Load() != -1 {
		t.Errorf("%+v, asked %d times", c, 2-r.left.Load())
	}
}

// Z2: a port that is renamed is watched by its link.
func TestZ2ARenamedPort(t *testing.T) {
	s := stage(t)
	link, err := s.ns.Netlink().LinkByName(s.sandbox.HostName)
	if err != nil {
		t.Fatal(err)
	}
	plug := ipam.Plug{Boot: ipam.Now().BootID, Index: link.Attrs().Index}
	if s.l, err = s.book.Bind(t.Context(), who, s.l.ID, 0, ipam.Binding{HostInterface: s.sandbox.HostName, Plug: plug}); err != nil {
		t.Fatal(err)
	}
	s.pause(t, frozen(ipam.WakePolicy{}))
	s.ns.Exec("ip", "link", "set", s.sandbox.HostName, "down")
	s.ns.Exec("ip", "link", "set", s.sandbox.HostName, "name", "other0", "up")
	s.has("other0", s.neighbour.HostName)
	realtest.Eventually(t, time.Minute, "it is watched by its new name", func() bool {
		return strings.Contains(s.ns.Exec("nft", "list", "ruleset"), "port-other0")
	})
	serve(t, s.sandbox.NS, "tcp", "10.8.64.2:80")
	if _, err := dial(t, s.neighbour.NS, "tcp", "10.8.64.2:80"); err != nil {
		t.Fatal(err)
	}
	s.woken(t)
}

// Z2: of two links that had one name, one after the other, each has its own chain, and traffic to
// each wakes, also where both changes are met at once.
func TestZ2ANewPortOfAnOldName(t *testing.T) {
	s := stage(t)
	old := s.sandbox.HostName
	bind := func(l *ipam.Lease, name string) (of *ipam.Lease, end string) {
		link, err := s.ns.Netlink().LinkByName(name)
		if err != nil {
			t.Fatal(err)
		}
		plug := ipam.Plug{Boot: ipam.Now().BootID, Index: link.Attrs().Index}
		if of, err = s.book.Bind(t.Context(), who, l.ID, 0, ipam.Binding{HostInterface: name, Plug: plug}); err != nil {
			t.Fatal(err)
		}
		return of, fmt.Sprintf("-%d", plug.Index)
	}
	rename := func(from, to string) {
		s.ns.Exec("ip", "link", "set", from, "down")
		s.ns.Exec("ip", "link", "set", from, "name", to, "up")
	}
	first, its := bind(s.l, old)
	s.l = first
	s.pause(t, frozen(ipam.WakePolicy{}))
	realtest.Eventually(t, time.Minute, "it is watched", func() bool {
		return strings.Contains(s.ns.Exec("nft", "list", "ruleset"), "port-"+old+its)
	})
	s.stop() // the rules stay
	rename(old, "other0")
	young := s.ns.Port("rt0", "10.8.64.3/24")
	rename(young.HostName, old)
	second, youngs := bind(netdbtest.Reserve(t, s.book, "b"), old)
	if second.Addr != netip.MustParseAddr("10.8.64.3") {
		t.Fatalf("the second lease is %s", second.Addr)
	}
	if _, err := s.book.PauseAs(t.Context(), who, second.ID, 0, frozen(ipam.WakePolicy{})); err != nil {
		t.Fatal(err)
	}
	s.has("other0", old, s.neighbour.HostName)
	s.start(t)
	realtest.Eventually(t, time.Minute, "each is watched by its own chain", func() bool {
		have := s.ns.Exec("nft", "list", "ruleset")
		return strings.Contains(have, "port-other0"+its) && strings.Contains(have, "port-"+old+youngs) && !strings.Contains(have, "port-"+old+its)
	})
	for l, port := range map[*ipam.Lease]*nstest.Port{first: s.sandbox, second: young} {
		at := netip.AddrPortFrom(l.Addr, 80).String()
		serve(t, port.NS, "tcp", at)
		if _, err := dial(t, s.neighbour.NS, "tcp", at); err != nil {
			t.Fatal(err)
		}
		s.l = l
		s.woken(t)
	}
}

// Extension headers of IPv6 hide no packet, and what is cut within them is malformed.
func TestHeadersOfIPv6(t *testing.T) {
	frame := func(next byte, behind ...byte) []byte {
		f := []byte{12: 0x86, 13: 0xdd, 14: 0x60, 14 + 6: next, 14 + 39: 0}
		return append(f, behind...)
	}
	ports := []byte{0, 1, 0, 53}
	for _, tt := range []struct {
		name   string
		frame  []byte
		broken bool
	}{
		{"none", frame(udp, ports...), false},
		{"hop by hop", frame(0, append([]byte{udp, 0, 7: 0}, ports...)...), false},
		{"routing of two units", frame(43, append([]byte{udp, 1, 15: 0}, ports...)...), false},
		{"the first fragment", frame(44, append([]byte{udp, 0, 0, 1, 7: 0}, ports...)...), false},
		{"destination options behind a fragment", frame(44, append([]byte{60, 0, 0, 1, 7: 0, 8: udp, 15: 0}, ports...)...), false},
		{"a later fragment", frame(44, append([]byte{udp, 0, 1, 0, 7: 0}, ports...)...), true},
		{"cut within a header", frame(0, []byte{udp, 4, 7: 0}...), true},
		{"cut before one", frame(60, udp), true},
		{"a later fragment that is cut", frame(44, append([]byte{udp, 0, 1, 0, 7: 0}, make([]byte, snap)...)...)[:snap], true},
	} {
		p, err := parse(tt.frame)
		if (err != nil) != tt.broken || !tt.broken && (p.Protocol != ipam.UDP || p.Port != 53) {
			t.Errorf("%s: %+v, %v", tt.name, p, err)
		}
	}
}

// Z2: extension headers that are longer than what is copied of a packet hide its port, and it wakes
// all the same.
func TestZ2LongHeadersOfIPv6(t *testing.T) {
	s := stage(t)
	var err error
	if s.l, err = netdbtest.TryReserve(s.book, netdbtest.Pool(t, s.book, "six", "fd00:8::/64"), "a", netdbtest.Policy); err != nil || s.l.Addr != netip.MustParseAddr("fd00:8::2") {
		t.Fatal(s.l, err)
	}
	if _, err := s.book.Bind(t.Context(), who, s.l.ID, 0, ipam.Binding{HostInterface: s.sandbox.HostName}); err != nil {
		t.Fatal(err)
	}
	out := s.neighbour.NS.Wire("eth0")
	for n, port := range map[int]uint16{32: 53, 40: 0, 48: 0, 1024: 0} {
		s.pause(t, frozen(ipam.WakePolicy{Protocols: []ipam.Protocol{ipam.UDP}, Ports: []ipam.PortRange{{First: 53, Last: 53}}}))
		options := make([]byte, n) // all of them padding
		options[0], options[1] = udp, byte(n/8-1)
		for at := 2; at < n; at += 2 + int(options[at+1]) {
			options[at], options[at+1] = 1, byte(min(n-at-2, 254))
		}
		ip := []byte{0x60, 0, 0, 0, 0, 0, 60, 64}
		binary.BigEndian.PutUint16(ip[4:], uint16(n+8))
		ip = append(append(ip, netip.MustParseAddr("fd00:8::9").AsSlice()...), s.l.Addr.AsSlice()...)
		out.Send(nstest.Frame(s.sandbox.MAC, s.neighbour.MAC, 0x86dd, append(append(ip, options...), 0, 9, 0, 53, 0, 8, 0, 0)...))
		if c := s.woken(t).Cause; c.Source != netip.MustParseAddr("fd00:8::9") || c.Port != port {
			t.Errorf("behind %d bytes: %+v", n, c)
		}
	}
}

// TestZ14AnotherProgramHasTheGroup: a daemon that cannot receive copies keeps the rules as the book
// asks for, refuses policies of traffic, and goes on once the group is free.
func TestZ14AnotherProgramHasTheGroup(t *testing.T) {
	s := stage(t)
	how := ipam.Sleep{Mode: ipam.Hibernate, Wake: &ipam.WakePolicy{Protocols: []ipam.Protocol{ipam.ICMP}}}
	s.pause(t, how)
	s.stop()
	var other *reader
	if err := s.Inside(func() (err error) { other, err = listen(Group); return err }); err != nil {
		t.Fatal(err)
	}
	s.start(t)
	if _, err := s.book.Resume(t.Context(), who, s.l.ID, 0); err != nil {
		t.Fatal(err)
	}
	s.gone(t)
	var refused *ipam.FieldError
	if _, err := s.flights.Pause(t.Context(), who, s.l.ID, 0, how); !errors.As(err, &refused) || refused.Field != "wake" || s.catcher.Unbound() == nil {
		t.Errorf("a pause that no traffic would end: %v; %v", err, s.catcher.Unbound())
	}
	if err := other.close(); err != nil {
		t.Fatal(err)
	}
	realtest.Eventually(t, 10*time.Second, "it receives", func() bool { return s.catcher.Unbound() == nil })
	s.pause(t, how)
	s.echo(t)
	s.woken(t)
}
