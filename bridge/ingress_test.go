package bridge

import (
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/ipamd/ipamd/internal/nstest"
	"github.com/ipamd/ipamd/internal/realtest"
)

// A guest answers with the MAC of a neighbour that sends much, so that the forwarding
// table says the MAC is at the neighbour's port again when that is looked up. The
// neighbour's port is never named, and the guest's is as soon as its answer is
// received at the ports.
func TestG2AForgedMACNamesThePortThatItCameBy(t *testing.T) {
	t.Parallel()
	ns := nstest.New(t)
	ns.Bridge("rt0", "10.8.0.1/24", "fd00:8::1/64")
	busy, liar := ns.Port("rt0", "10.8.0.7/24"), ns.Port("rt0", "10.8.0.8/24")
	v := open(t, ns)
	from, lie := capture(t, busy.NS, "eth0"), capture(t, liar.NS, "eth0")
	for _, addr := range []string{"10.8.0.99", "fd00:8::99"} {
		claim := claimFrame(v.device.link.MAC, addr)
		realtest.Eventually(t, wait, addr+" to be seen at the liar's port", func() bool {
			v.probe(addr)
			lie.send(claim(busy.MAC, busy.MAC))
			from.send(gratuitous(v.device.link.MAC, busy.MAC, "10.8.0.98", wireArpRequest))
			v.settle()
			seen := v.about(addr).Seen
			if len(seen) == 0 {
				return false
			}
			s := seen[0]
			if s.Port == busy.HostName || s.MAC != busy.MAC.String() {
				t.Fatalf("the neighbour is named: %+v", s)
			}
			return s.Port == liar.HostName && strings.HasPrefix(s.Note, "the MAC may be forged: it is that of the namespace behind "+busy.HostName)
		})
	}
	if v.seen("10.8.0.98") {
		t.Error("who asks is taken for who answers")
	}

	// The neighbour table: the host talks to the address, and the liar answers.
	v.mu.Lock()
	port, note := v.answers.portOf(v.wire(), v.about("10.8.0.99").Addr, busy.MAC.String(), v.portNamed(busy.HostName))
	v.mu.Unlock()
	if port != liar.HostName || !strings.Contains(note, busy.HostName) {
		t.Errorf("an entry with the neighbour's MAC is at %q: %q", port, note)
	}
}

// A guest that answers for what is behind it, with its own MAC, forges nothing.
func TestG2AProxyIsNoForger(t *testing.T) {
	t.Parallel()
	ns := nstest.New(t)
	ns.Bridge("rt0", "10.8.0.1/24")
	proxy := ns.Port("rt0", "10.8.0.7/24")
	v := open(t, ns)
	answers, claim := capture(t, proxy.NS, "eth0"), claimFrame(v.device.link.MAC, "10.8.0.99")
	realtest.Eventually(t, wait, "10.8.0.99 to be seen behind the proxy", func() bool {
		v.probe("10.8.0.99")
		answers.send(claim(proxy.MAC, proxy.MAC))
		v.settle()
		seen := v.about("10.8.0.99").Seen
		return len(seen) == 1 && seen[0].Port == proxy.HostName && seen[0].Note == "" && seen[0].MAC == proxy.MAC.String()
	})
	v.mu.Lock()
	defer v.mu.Unlock()
	if port, note := v.answers.portOf(v.wire(), v.about("10.8.0.99").Addr, proxy.MAC.String(), v.portNamed(proxy.HostName)); port != proxy.HostName || note != "" {
		t.Errorf("an entry with its MAC is at %q: %q", port, note)
	}
	if port, note := v.answers.portOf(v.wire(), v.about("10.8.0.7").Addr, net.HardwareAddr{2, 0xee, 0, 0, 0, 1}.String(), v.portNamed(proxy.HostName)); port != proxy.HostName || note != "" {
		t.Errorf("an entry with a MAC that is not there is at %q: %q", port, note)
	}
}

// Who once answered with a MAC is not named for what another forges with it: not a
// proxy that answers with its own, and not an earlier forger.
func TestG2AMACDoesNotNameItsLastForger(t *testing.T) {
	t.Parallel()
	ns := nstest.New(t)
	ns.Bridge("rt0", "10.8.0.1/24")
	proxy, one, two := ns.Port("rt0", "10.8.0.7/24"), ns.Port("rt0", "10.8.0.8/24"), ns.Port("rt0", "10.8.0.9/24")
	v := open(t, ns)
	busy := capture(t, proxy.NS, "eth0")
	seenAt := func(addr string, by *nstest.Port, forged bool) {
		t.Helper()
		from, claim := capture(t, by.NS, "eth0"), claimFrame(v.device.link.MAC, addr)
		realtest.Eventually(t, wait, addr+" to be seen at "+by.HostName, func() bool {
			v.probe(addr)
			from.send(claim(proxy.MAC, proxy.MAC))
			busy.send(gratuitous(v.device.link.MAC, proxy.MAC, "10.8.0.98", wireArpRequest))
			v.settle()
			seen := v.about(addr).Seen
			if len(seen) == 0 {
				return false
			}
			if p := seen[0].Port; p != "" && p != by.HostName {
				t.Fatalf("%s, which %s answers for, is said to be at %s: %+v", addr, by.HostName, p, seen[0])
			}
			return seen[0].Port == by.HostName && (seen[0].Note != "") == forged
		})
	}
	seenAt("10.8.0.90", proxy, false)
	seenAt("10.8.0.91", one, true)
	seenAt("10.8.0.92", two, true)
	seenAt("10.8.0.93", proxy, false)

	// The forger sends more answers, to others, than are read of the ports at once.
	noise := capture(t, one.NS, "eth0")
	crowd := gratuitous(two.MAC, one.MAC, "10.8.0.97", wireArpReply)
	for _, addr := range []string{"10.8.0.94", "10.8.0.96"} {
		lie := claimFrame(v.device.link.MAC, addr)(proxy.MAC, proxy.MAC)
		v.probe(addr)
		for range 4 * 64 {
			noise.send(crowd)
		}
		noise.send(lie)
		busy.send(gratuitous(v.device.link.MAC, proxy.MAC, "10.8.0.98", wireArpRequest))
		v.settle()
		if seen := v.about(addr).Seen; len(seen) != 1 || seen[0].Port != "" && seen[0].Port != one.HostName || seen[0].Note == "" {
			t.Errorf("%s, which %s answers for, is %+v", addr, one.HostName, seen)
		}
		seenAt(addr, one, true)
	}

	// It had an address, which the other answers for once it is gone: the neighbour
	// table has the same MAC as before, and it was not asked again.
	proxy.AddAddr("10.8.0.95/24")
	probeUntilSeen(t, v, "10.8.0.95", "netns probe")
	realtest.Eventually(t, wait, "the port of the answer to be known", func() bool {
		v.settle()
		v.mu.Lock()
		defer v.mu.Unlock()
		return v.answers.known[netip.MustParseAddr("10.8.0.95")].port != 0
	})
	proxy.DelAddr("10.8.0.95/24")
	v.settle()
	v.mu.Lock()
	defer v.mu.Unlock()
	if port, note := v.answers.portOf(v.wire(), netip.MustParseAddr("10.8.0.95"), proxy.MAC.String(), v.portNamed(proxy.HostName)); port != "" || note == "" {
		t.Errorf("an entry with the MAC of who had the address before is at %q: %q", port, note)
	}
}

func (v *view) portNamed(name string) *port {
	for _, p := range v.netns.ports {
		if p.link.Name == name {
			return p
		}
	}
	return nil
}
