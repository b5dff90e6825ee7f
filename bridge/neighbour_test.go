package bridge

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/ipamd/ipamd/bridge/probe"
	"github.com/ipamd/ipamd/internal/nstest"
	"github.com/ipamd/ipamd/internal/realtest"
)

// keepNeighbours lets what a link's neighbour tables have stay as it is: no one
// asks whether it still holds, which else happens 5 to 45 s later.
func keepNeighbours(t *testing.T, ns *nstest.NS, dev string) {
	t.Helper()
	var err error
	ns.Do(func() {
		for _, family := range []string{"ipv4", "ipv6"} {
			table := "net/" + family + "/neigh/" + dev
			err = errors.Join(err, setSysctl(table+"/base_reachable_time_ms", "3600000"), setSysctl(table+"/delay_first_probe_time", "3600"))
		}
	})
	if err != nil {
		t.Fatal(err)
	}
}

// setNeighbour puts an entry into rt0's neighbour table by hand, to stay.
func setNeighbour(t *testing.T, ns *nstest.NS, addr, mac string, state int) {
	t.Helper()
	keepNeighbours(t, ns, "rt0")
	rt0, err := ns.Netlink().LinkByName("rt0")
	if err != nil {
		t.Fatal(err)
	}
	n := &netlink.Neigh{LinkIndex: rt0.Attrs().Index, IP: net.ParseIP(addr), State: state}
	if mac != "" {
		if n.HardwareAddr, err = net.ParseMAC(mac); err != nil {
			t.Fatal(err)
		}
	}
	// The machine's namespaces share one table, which a flood beside may have filled.
	realtest.Eventually(t, wait, "room in the neighbour table for "+addr, func() bool { return ns.Netlink().NeighSet(n) == nil })
}

// say sends frames from a port until the bridge learned the MAC there: a port
// that was just set up drops the first.
func (v *view) say(p *nstest.Port, mac string) {
	v.t.Helper()
	from, err := net.ParseMAC(mac)
	if err != nil {
		v.t.Fatal(err)
	}
	c := capture(v.t, p.NS, "eth0")
	realtest.Eventually(v.t, wait, "the bridge learns "+mac, func() bool {
		c.send(probe.Question(from, netip.MustParseAddr("10.8.0.200")))
		return v.locked(context.Background(), func() error {
			_, err := v.kernel.Forwarding(v.device.link.Index, 0, from)
			return err
		}) == nil
	})
}

// C7: which entries of the neighbour table prove life, and which do not.
func TestC7Neighbours(t *testing.T) {
	t.Parallel()
	const stranger = "02:aa:aa:aa:aa:01" // of no link in any namespace: a nested guest
	for _, c := range []struct {
		name    string
		mac     string // "own": the MAC of eth0 behind the port
		state   int
		learned bool // the bridge learned the MAC behind the port
		seen    bool
	}{
		{"reachable", stranger, netlink.NUD_REACHABLE, false, true},
		{"reachable and learned", stranger, netlink.NUD_REACHABLE, true, true},
		{"stale, of a dead container", stranger, netlink.NUD_STALE, false, false},
		{"delay, of a dead container", stranger, netlink.NUD_DELAY, false, false},
		{"failed", "", netlink.NUD_FAILED, false, false},
		{"incomplete", "", netlink.NUD_INCOMPLETE, false, false},
		{"set by hand, of a dead container", stranger, netlink.NUD_PERMANENT, false, false},
		{"no ARP", stranger, netlink.NUD_NOARP, false, false},
		{"stale, but the MAC lives", stranger, netlink.NUD_STALE, true, true},
		{"set by hand, and the MAC lives", stranger, netlink.NUD_PERMANENT, true, true},
		{"stale, and the MAC lives where the address is not", "own", netlink.NUD_STALE, true, false},
	} {
		for _, addr := range []string{"10.8.0.99", "fd00:8::99"} {
			t.Run(c.name+" "+addr, func(t *testing.T) {
				t.Parallel()
				ns := nstest.New(t)
				ns.Bridge("rt0", "10.8.0.1/24", "fd00:8::1/64")
				p := ns.Port("rt0", "10.8.0.7/24")
				v := open(t, ns)
				mac := c.mac
				if mac == "own" {
					mac = p.MAC.String()
				}
				if c.learned {
					v.say(p, mac)
				}
				setNeighbour(t, ns, addr, mac, c.state)
				want := ""
				if c.seen {
					want = "neighbour"
				}
				v.expect(addr, want) // by its news
				if err := v.locked(context.Background(), func() error { v.forget(); return nil }); err != nil {
					t.Fatal(err)
				}
				if err := v.Refresh(context.Background()); err != nil {
					t.Fatal(err)
				}
				v.expect(addr, want) // by a whole reading
			})
		}
	}
}

func TestC7EntryOutlivesItsContainer(t *testing.T) {
	t.Parallel()
	ns := nstest.New(t)
	ns.Bridge("rt0", "10.8.0.1/24")
	p := ns.Port("rt0", "10.8.0.7/24")
	ns.Port("rt0") // with the last port the bridge's carrier goes, and all entries with it
	v := open(t, ns)
	v.say(p, p.MAC.String())
	setNeighbour(t, ns, "10.8.0.7", p.MAC.String(), netlink.NUD_REACHABLE)
	v.expect("10.8.0.7", "netns neighbour")
	if s := v.about("10.8.0.7").Seen[1]; s.Port != p.HostName || s.MAC != p.MAC.String() {
		t.Errorf("the sighting shows %+v", s)
	}
	p.Close()
	if out := ns.Exec("ip", "neigh", "show", "10.8.0.7"); !strings.Contains(out, "REACHABLE") {
		t.Fatalf("the entry went, too: %s", out)
	}
	v.expect("10.8.0.7", "")
}

// C7: a gratuitous ARP can turn a dead entry to the MAC of a living container,
// which makes it no owner.
func TestC7GratuitousARPRevivesDeadEntry(t *testing.T) {
	t.Parallel()
	ns := nstest.New(t)
	ns.Bridge("rt0", "10.8.0.1/24")
	p := ns.Port("rt0", "10.8.0.7/24")
	v := open(t, ns)
	setNeighbour(t, ns, "10.8.0.99", "02:aa:aa:aa:aa:01", netlink.NUD_STALE)
	v.expect("10.8.0.99", "")
	c := capture(t, p.NS, "eth0")
	broadcast := []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	c.send(gratuitous(broadcast, p.MAC, "10.8.0.99", wireArpRequest))
	v.settle()
	if out := ns.Exec("ip", "neigh", "show", "10.8.0.99"); !strings.Contains(out, p.MAC.String()) {
		t.Logf("the kernel did not believe it: %s", out)
	}
	v.expect("10.8.0.99", "")
}

func TestAddressLeavesAndItsStaleEntryStays(t *testing.T) {
	t.Parallel()
	ns := nstest.New(t)
	ns.Bridge("rt0", "10.8.0.1/24")
	p := ns.Port("rt0", "10.8.0.7/24", "10.8.0.8/24")
	v := open(t, ns)
	v.say(p, p.MAC.String())
	setNeighbour(t, ns, "10.8.0.8", p.MAC.String(), netlink.NUD_STALE)
	v.expect("10.8.0.8", "netns neighbour")
	p.DelAddr("10.8.0.8/24")
	v.expect("10.8.0.8", "")
	ns.Exec("ip", "neigh", "del", "10.8.0.8", "dev", "rt0")
	v.settle()
	if n := len(v.neighbour.entries) + len(v.neighbour.byMAC); n != 0 {
		t.Errorf("%d things are remembered of no entry", n)
	}
}
