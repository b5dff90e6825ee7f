package bridge

import (
	"bytes"
	"container/list"
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/ipamd/ipamd/bridge/probe"
	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/internal/nstest"
	"github.com/ipamd/ipamd/internal/realtest"
)

// nested makes a guest that only a probe can see: rt0 - port - a bridge inside
// a namespace - a second namespace, which has the address.
func nested(t *testing.T, ns *nstest.NS, cidr string) (outer, inner *nstest.Port) {
	t.Helper()
	outer = ns.Port("rt0")
	nl := outer.NS.Netlink()
	outer.NS.Bridge("br0")
	// Each namespace counts its MACs from one; here they share a wire.
	for name, mac := range map[string]net.HardwareAddr{"br0": {2, 0, 0, 0, 0xb, 1}, "eth0": {2, 0, 0, 0, 0xb, 2}} {
		l, err := nl.LinkByName(name)
		if err == nil {
			err = nl.LinkSetHardwareAddr(l, mac)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	outer.NS.Exec("ip", "link", "set", "eth0", "master", "br0")
	return outer, outer.NS.Port("br0", cidr)
}

// later lets the time pass that who was asked may keep silent.
func (v *view) later() {
	v.t.Helper()
	v.settle()
	v.mu.Lock()
	defer v.mu.Unlock()
	v.answers.expire(time.Now().Add(v.cfg.ProbeWindow), v.reaches, func(port int) { v.netns.readPort(v.wire(), port) })
}

// askAndAwait asks and waits until no address that was seen to answer is asked and
// silent any more. A question is not asked twice: the answer to it alone ends it.
func (v *view) askAndAwait(addr string) {
	v.t.Helper()
	v.probe(addr)
	realtest.Eventually(v.t, wait, "an answer from "+addr, func() bool {
		v.settle()
		v.mu.Lock()
		defer v.mu.Unlock()
		return len(v.answers.doubts) == 0
	})
}

// C2: what is seen by a probe alone is dropped when a later probe stays without
// an answer for the window, though its port stays; while it answers it is
// seen throughout.
func TestC2AnswersExpire(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, addr, cidr string }{
		{"v4", "10.8.0.7", "10.8.0.7/24"},
		{"v6", "fd00:8::7", "fd00:8::7/64"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			ns := nstest.New(t)
			ns.Bridge("rt0", "10.8.0.1/24", "fd00:8::1/64")
			_, inner := nested(t, ns, c.cidr)
			v := open(t, ns, func(cfg *Config) { cfg.ProbeWindow = time.Hour }) // no machine is so slow
			probeUntilSeen(t, v, c.addr, "probe")
			v.askAndAwait(c.addr)
			v.later()
			v.expect(c.addr, "probe") // it was not asked again
			for range 3 {
				v.askAndAwait(c.addr)
				v.later()
				v.expect(c.addr, "probe")
			}
			inner.DelAddr(c.cidr)
			v.later()
			v.expect(c.addr, "probe")
			v.probe(c.addr)
			v.expect(c.addr, "probe") // the window has not passed
			v.mu.Lock()
			v.answers.window = 20 * time.Millisecond
			v.mu.Unlock()
			realtest.Eventually(t, wait, "its end", func() bool { return v.who(c.addr) == "" })
			inner.AddAddr(c.cidr)
			probeUntilSeen(t, v, c.addr, "probe")
		})
	}
}

// A question that was not sent, or may not have arrived, or whose answer may
// have been lost, ends nothing.
func TestSilenceThatProvesNothing(t *testing.T) {
	t.Parallel()
	const addr = "10.8.0.7"
	for name, ask := range map[string]func(*view, *nstest.NS, *nstest.Port){
		"the bridge is down": func(v *view, ns *nstest.NS, _ *nstest.Port) {
			ns.Exec("ip", "link", "set", "rt0", "down")
			v.ask(addr)
		},
		"its port has no carrier": func(v *view, _ *nstest.NS, p *nstest.Port) {
			p.NS.Exec("ip", "link", "set", "eth0", "down")
			v.ask(addr)
		},
		"its port was down meanwhile": func(v *view, ns *nstest.NS, p *nstest.Port) {
			v.ask(addr)
			ns.Exec("ip", "link", "set", p.HostName, "down")
			ns.Exec("ip", "link", "set", p.HostName, "up")
		},
		"the sockets were opened again": func(v *view, _ *nstest.NS, _ *nstest.Port) {
			v.ask(addr)
			if err := errors.Join(v.openAgain(), v.Refresh(v.t.Context())); err != nil {
				v.t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ns := nstest.New(t)
			ns.Bridge("rt0", "10.8.0.1/24")
			outer, inner := nested(t, ns, addr+"/24")
			v := open(t, ns, func(cfg *Config) { cfg.ProbeWindow = time.Hour }) // no machine is so slow
			probeUntilSeen(t, v, addr, "probe")
			inner.DelAddr(addr + "/24")
			ask(v, ns, outer)
			v.later()
			v.expect(addr, "probe")
		})
	}
}

// ask is a probe that may not get out.
func (v *view) ask(addr string) { _ = v.Probe(context.Background(), netip.MustParseAddr(addr)) }

// Answers belong to the bridge that they came over: another one of the same
// name knows nothing of them.
func TestAnswersGoWithTheBridge(t *testing.T) {
	t.Parallel()
	ns := nstest.New(t)
	ns.Bridge("rt0", "10.8.0.1/24")
	nested(t, ns, "10.8.0.7/24")
	v := open(t, ns)
	probeUntilSeen(t, v, "10.8.0.7", "probe")
	ns.Exec("ip", "link", "del", "rt0")
	v.settle()
	if !v.seen("10.8.0.7") {
		t.Error("without the bridge nothing is known, yet the answer is gone")
	}
	v.allSilent("missing")
	ns.Bridge("rt0", "10.8.0.1/24")
	if err := v.Refresh(context.Background()); err != nil {
		t.Fatal(err)
	}
	v.expect("10.8.0.7", "")
	v.noneSilent()
}

// The same port on another bridge of the same name, all between two looks: its
// index says nothing then, only the bridge's does.
func TestAnswersGoWithTheBridgeThoughThePortComesBack(t *testing.T) {
	t.Parallel()
	ns := nstest.New(t)
	ns.Bridge("rt0", "10.8.0.1/24")
	outer, inner := nested(t, ns, "10.8.0.7/24")
	v := open(t, ns)
	probeUntilSeen(t, v, "10.8.0.7", "probe")
	inner.DelAddr("10.8.0.7/24")
	ns.Exec("ip", "link", "del", "rt0")
	ns.Bridge("rt0", "10.8.0.1/24")
	ns.Exec("ip", "link", "set", outer.HostName, "master", "rt0")
	v.expect("10.8.0.7", "")
	v.noneSilent()
}

// An answer is from behind the port where its frame came from, whatever it says
// inside. What it says is shown, and taken for its own where no other port is
// known to have that MAC; of NDP's where its own port is.
func TestAnswersNameThePortTheyCameBy(t *testing.T) {
	t.Parallel()
	ns := nstest.New(t)
	ns.Bridge("rt0", "10.8.0.1/24", "fd00:8::1/64")
	victim, liar := ns.Port("rt0", "10.8.0.7/24"), ns.Port("rt0")
	near, err := ns.Netlink().LinkByName(victim.HostName)
	if err != nil {
		t.Fatal(err)
	}
	v := open(t, ns)
	c := capture(t, liar.NS, "eth0")
	unknownMAC, second := net.HardwareAddr{2, 0xbb, 0, 0, 0, 1}, net.HardwareAddr{2, 0xcc, 0, 0, 0, 1}
	for _, addr := range []string{"10.8.0.99", "fd00:8::99"} {
		claim := claimFrame(v.device.link.MAC, addr)
		unknown := unknownMAC.String()
		if strings.Contains(addr, ":") {
			unknown = ""
		}
		for _, tt := range []struct {
			name         string
			source, says net.HardwareAddr
			port, also   string // "" is none
			note         string
		}{
			{"its own MAC", liar.MAC, liar.MAC, liar.HostName, "", ""},
			{"a MAC that no link has", liar.MAC, unknownMAC, liar.HostName, unknown,
				"it says that the address is at " + unknownMAC.String()},
			{"its own other MAC", liar.MAC, second, liar.HostName, second.String(),
				"it says that the address is at " + second.String()},
			{"the victim's MAC", liar.MAC, victim.MAC, liar.HostName, "",
				"it says that the address is at " + victim.MAC.String() + ", which is behind " + victim.HostName},
			{"in the victim's frames", victim.MAC, victim.MAC, liar.HostName, "", ""},
			{"in frames of the host's end of the victim's port", near.Attrs().HardwareAddr, liar.MAC, "", "",
				"it says that the address is at " + liar.MAC.String() + ", which is behind " + liar.HostName},
		} {
			want := census.Sighting{Port: tt.port, MAC: tt.source.String(), Says: tt.also, Note: tt.note}
			var got census.Sighting
			t.Cleanup(func() {
				if got != want {
					t.Logf("%s %s: %+v, want %+v", addr, tt.name, got, want)
				}
			})
			realtest.Eventually(t, wait, addr+" "+tt.name, func() bool {
				// Where each MAC is may be forgotten meanwhile, or said otherwise.
				v.probe("10.8.0.7")
				c.send(gratuitous(v.device.link.MAC, second, "10.8.0.98", wireArpReply))
				c.send(gratuitous(v.device.link.MAC, liar.MAC, "10.8.0.98", wireArpReply))
				v.probe(addr)
				c.send(claim(tt.source, tt.says))
				v.settle()
				seen := v.about(addr).Seen
				if len(seen) != 1 {
					return false
				}
				got = census.Sighting{Port: seen[0].Port, MAC: seen[0].MAC, Says: seen[0].Says, Note: seen[0].Note}
				return got == want
			})
		}
	}
}

// claimFrame makes frames of one source that answer to a MAC that an address is
// at another.
func claimFrame(to net.HardwareAddr, addr string) func(source, says net.HardwareAddr) []byte {
	a := netip.MustParseAddr(addr)
	return func(source, says net.HardwareAddr) []byte {
		f := gratuitous(to, says, addr, wireArpReply)
		if a.Is6() {
			const icmp = wireEtherLength + wireIPv6Length
			f = probe.Question(says, a)
			copy(f, to)
			f[icmp], f[icmp+4], f[icmp+24] = wireNeighbourAdvertisement, wireSolicited, wireTargetLinkLayer
		}
		return append(append(bytes.Clone(f[:6]), source...), f[12:]...)
	}
}

// An answer that is read when its port has gone came by no port that is known, and no news ends it. It is asked for
// again: it stands no longer than the window, also on a bridge without any port, where there is none to ask.
func TestAnAnswerWhosePortHasGoneEnds(t *testing.T) {
	t.Parallel()
	const addr = "10.8.0.7"
	for name, others := range map[string]int{"the last port": 0, "one of several": 1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ns := nstest.New(t)
			ns.Bridge("rt0", "10.8.0.1/24")
			outer, _ := nested(t, ns, addr+"/24")
			for range others {
				ns.Port("rt0", "10.8.0.8/24")
			}
			v := open(t, ns)
			v.settle()
			for seen := false; !seen; { // a busy machine may have the port's end read first
				v.mu.Lock() // nothing is read
				if err := v.Bridge.probe.Ask(t.Context(), netip.MustParseAddr(addr)); err != nil {
					t.Fatal(err)
				}
				time.Sleep(20 * time.Millisecond)
				ns.Exec("ip", "link", "set", outer.HostName, "nomaster")
				v.mu.Unlock()
				v.settle()
				if seen = strings.Contains(v.who(addr), "probe"); !seen {
					ns.Exec("ip", "link", "set", outer.HostName, "master", "rt0")
					v.settle()
				}
			}
			realtest.Eventually(t, wait, "its end", func() bool { v.settle(); return v.who(addr) == "" })
		})
	}
}

// Answers that came by no port that is known are asked for no more often than every [askAgainEvery], however often each is
// answered, and a few at a time.
func TestAnswersWithoutAPortAreAskedForNowAndThen(t *testing.T) {
	t.Parallel()
	asked := 0
	a := &answers{known: make(map[netip.Addr]answer), byPort: map[int]*list.List{0: list.New()}, doubts: make(map[netip.Addr]time.Time),
		ask: func(netip.Addr) bool { asked++; return true }}
	addr := netip.MustParseAddr("10.8.0.1")
	for range 2 * ingressAsks {
		addr = addr.Next()
		a.known[addr] = answer{share: a.byPort[0].PushBack(addr)}
	}
	began, reached := time.Now(), true
	for _, tt := range []struct {
		after   time.Duration
		reached bool
		rounds  int
	}{{0, true, 1}, {0, true, 1}, {askAgainEvery - 1, true, 1}, {askAgainEvery, true, 2}, {2*askAgainEvery - 1, true, 2}, {3 * askAgainEvery, false, 2},
		{3 * askAgainEvery, true, 3}} {
		clear(a.doubts) // each was answered
		reached = tt.reached
		a.askAgain(began.Add(tt.after), func(origin) bool { return reached })
		if asked != tt.rounds*ingressAsks {
			t.Errorf("after %v %d are asked for, want %d rounds of %d", tt.after, asked, tt.rounds, ingressAsks)
		}
	}
}
