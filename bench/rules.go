package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"github.com/ipamd/ipamd/enforce"
	"github.com/ipamd/ipamd/internal/nstest"
	"github.com/ipamd/ipamd/ipam"
)

// bootID is the kernel's of this boot.
var bootID = ipam.Now().BootID

// elements is how many the rules have.
const elements = 50_000

// A ruled is what rules are made from: a book and a bridge in memory. Ports are indexes; the
// kernel asks for no link of one.
type ruled struct {
	leases []*ipam.Lease
	ports  []enforce.Port
	names  map[string]enforce.Port
	never  chan struct{}
}

func (w *ruled) Epoch() string                               { return "bench" }
func (w *ruled) Rev() int64                                  { return int64(len(w.leases)) }
func (w *ruled) Leases() ([]*ipam.Lease, int64)              { return slices.Clone(w.leases), w.Rev() }
func (w *ruled) Pools() []*ipam.Pool                         { return nil }
func (w *ruled) Changed() <-chan struct{}                    { return w.never }
func (w *ruled) Ports() []enforce.Port                       { return w.ports }
func (w *ruled) PortNamed(name string) (enforce.Port, bool)  { p, is := w.names[name]; return p, is }
func (w *ruled) Settle(context.Context, ...netip.Addr) error { return nil }
func (w *ruled) PortsInto(_ context.Context, of ...enforce.RecordedNetns) []enforce.Into {
	return make([]enforce.Into, len(of))
}
func (w *ruled) SetGroups(context.Context, int, bool) error        { return nil }
func (w *ruled) Bridges() []enforce.Bridge                         { return nil }
func (w *ruled) Unlearn(context.Context, int) error                { return nil }
func (w *ruled) IsPort(context.Context, string, int) (bool, error) { return false, nil }
func (w *ruled) LearnNoGroups(context.Context, int) error          { return nil }
func (w *ruled) Lease(id string) (*ipam.Lease, error) {
	for _, l := range slices.Backward(w.leases) {
		if l.ID == id {
			return l, nil
		}
	}
	return nil, ipam.ErrNotFound
}

// bind adds a lease on a port.
func (w *ruled) bind(index int, name, mac string, addr netip.Addr) *ipam.Lease {
	n := len(w.leases)
	l := &ipam.Lease{Addr: addr, ID: "lease-" + strconv.Itoa(n), State: ipam.Bound, Sandbox: "s", UID: "s", Rev: int64(n + 1), HostInterface: name, MAC: mac,
		Plug: ipam.Plug{Boot: bootID, Index: index}}
	w.leases = append(w.leases, l)
	p := enforce.Port{Index: index, Name: name, Bridge: bridgeName}
	w.ports = append(w.ports, p)
	w.names[name] = p
	return l
}

// crowd binds leases until the rules have that many elements.
func (w *ruled) crowd() {
	addr := netip.MustParseAddr("10.8.0.2")
	for i := range elements/6 + 1 { // each has that many
		w.bind(100_000+i, "far"+strconv.Itoa(i), fmt.Sprintf("02:01:00:%02x:%02x:%02x", i>>16, i>>8&255, i&255), addr)
		addr = addr.Next()
	}
}

// keeper opens one for a world in a namespace.
func (r *run) keeper(ns *nstest.NS, w *ruled) (k *enforce.Keeper) {
	ns.Do(func() {
		k = must(enforce.Open(r.ctx, enforce.Config{Policy: enforce.Policy{Mode: enforce.Enforce}, Book: w, Kernel: w,
			Boot: bootID, Every: time.Hour, Log: slog.New(slog.DiscardHandler)}))
	})
	r.Cleanup(func() { check(k.Close()) })
	return k
}

// rulesOfMany is goal 18: what one bind's rules take beside fifty thousand elements, and
// a start with so many.
func rulesOfMany(r *run) func() []ratio {
	w := &ruled{names: map[string]enforce.Port{}, never: make(chan struct{})}
	w.crowd()
	ns := nstest.New(r)
	var starts sample
	k := r.keeper(ns, w)
	check(starts.time(func() error { return k.Start(r.ctx) }))
	if n := k.Status().Elements; n < elements {
		r.Fatalf("the rules have %d elements", n)
	}
	next := netip.MustParseAddr("10.9.0.1")
	ensure := call{do: func() error {
		next = next.Next()
		i := len(w.leases)
		l := w.bind(300_000+i, "near"+strconv.Itoa(i), fmt.Sprintf("02:02:00:%02x:%02x:%02x", i>>16, i>>8&255, i&255), next)
		return k.Ensure(r.ctx, l.ID)
	}}
	byTurns(turn, ensure) // warm
	return func() []ratio {
		t := byTurns(3*turn, ensure, r.yardF())
		return []ratio{took(t[0].do.p50(), t[1].do.p50()), took(starts.p50(), 2*time.Second)}
	}
}

// A pair is two ports of a bridge, between which packets go.
type pair struct {
	ns   *nstest.NS
	a, b *nstest.Port
	udp  net.Conn
}

// pair makes one, with an echo behind b.
func (r *run) pair() *pair {
	p := &pair{ns: nstest.New(r)}
	p.ns.Bridge(bridgeName, "10.10.0.1/24")
	p.a, p.b = p.ns.Port(bridgeName, "10.10.0.2/24"), p.ns.Port(bridgeName, "10.10.0.3/24")
	var echo net.PacketConn
	var sink net.Listener
	p.b.NS.Do(func() {
		echo = must(net.ListenPacket("udp", "10.10.0.3:7"))
		sink = must(net.Listen("tcp", "10.10.0.3:9"))
	})
	r.Cleanup(func() { _, _ = echo.Close(), sink.Close() })
	go func() {
		b := make([]byte, 64)
		for {
			n, from, err := echo.ReadFrom(b)
			if err != nil {
				return // closed
			}
			_, _ = echo.WriteTo(b[:n], from)
		}
	}()
	go func() {
		for {
			c, err := sink.Accept()
			if err != nil {
				return // closed
			}
			_, _ = io.Copy(io.Discard, c)
			_ = c.Close()
		}
	}()
	p.a.NS.Do(func() { p.udp = must(net.Dial("udp", "10.10.0.3:7")) })
	r.Cleanup(func() { _ = p.udp.Close() })
	return p
}

// ping sends a datagram there and back.
func (p *pair) ping() error {
	b := make([]byte, 64)
	_ = p.udp.SetDeadline(time.Now().Add(patience))
	if _, err := p.udp.Write(b[:32]); err != nil {
		return err
	}
	_, err := p.udp.Read(b)
	return err
}

// stream sends by TCP for so long, and counts the bytes.
func (p *pair) stream(lasts time.Duration) (sent int) {
	var c net.Conn
	p.a.NS.Do(func() { c = must(net.Dial("tcp", "10.10.0.3:9")) })
	defer c.Close()
	b := make([]byte, 1<<16)
	for began := time.Now(); time.Since(began) < lasts; {
		n, err := c.Write(b)
		check(err)
		sent += n
	}
	return sent
}

// throughRules is what a packet pays for the rules: two bridges, one of them with fifty
// thousand elements.
func throughRules(r *run) func() []ratio {
	plain, held := r.pair(), r.pair()
	w := &ruled{names: map[string]enforce.Port{}, never: make(chan struct{})}
	w.crowd()
	for i, p := range []*nstest.Port{held.a, held.b} {
		link := must(held.ns.Netlink().LinkByName(p.HostName))
		w.bind(link.Attrs().Index, p.HostName, p.MAC.String(), netip.AddrFrom4([4]byte{10, 10, 0, byte(2 + i)}))
	}
	k := r.keeper(held.ns, w)
	check(k.Start(r.ctx))
	byTurns(turn, call{do: plain.ping}, call{do: held.ping}) // warm
	const lasts = 300 * time.Millisecond
	return func() []ratio {
		t := byTurns(20*turn, call{do: plain.ping}, call{do: held.ping})
		var with, without int
		for range 3 {
			without += plain.stream(lasts)
			with += held.stream(lasts)
		}
		return []ratio{took(t[1].do.p50(), t[0].do.p50()), sizes(float64(with), float64(without))}
	}
}
