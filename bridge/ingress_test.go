package bridge

import (
	"net"
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
		claim := claimFrame(v.link.mac, addr)
		realtest.Eventually(t, wait, addr+" to be seen at the liar's port", func() bool {
			v.probe(addr)
			lie.send(claim(busy.MAC, busy.MAC))
			from.send(gratuitous(v.link.mac, busy.MAC, "10.8.0.98", arpRequest))
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
	port, note := v.whereHeard(v.about("10.8.0.99").Addr, busy.MAC.String(), v.portNamed(busy.HostName))
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
	answers, claim := capture(t, proxy.NS, "eth0"), claimFrame(v.link.mac, "10.8.0.99")
	realtest.Eventually(t, wait, "10.8.0.99 to be seen behind the proxy", func() bool {
		v.probe("10.8.0.99")
		answers.send(claim(proxy.MAC, proxy.MAC))
		v.settle()
		seen := v.about("10.8.0.99").Seen
		return len(seen) == 1 && seen[0].Port == proxy.HostName && seen[0].Note == "" && seen[0].MAC == proxy.MAC.String()
	})
	v.mu.Lock()
	defer v.mu.Unlock()
	if port, note := v.whereHeard(v.about("10.8.0.99").Addr, proxy.MAC.String(), v.portNamed(proxy.HostName)); port != proxy.HostName || note != "" {
		t.Errorf("an entry with its MAC is at %q: %q", port, note)
	}
	if port, note := v.whereHeard(v.about("10.8.0.7").Addr, net.HardwareAddr{2, 0xee, 0, 0, 0, 1}.String(), v.portNamed(proxy.HostName)); port != proxy.HostName || note != "" {
		t.Errorf("an entry with a MAC of nobody there is at %q: %q", port, note)
	}
}

func (v *view) portNamed(name string) *port {
	for _, p := range v.ports {
		if p.link.name == name {
			return p
		}
	}
	return nil
}
