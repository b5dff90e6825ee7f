package bridge

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ipamd/ipamd/bridge/probe"
	"github.com/ipamd/ipamd/internal/icmp6"
	"github.com/ipamd/ipamd/internal/nstest"
	"github.com/ipamd/ipamd/internal/realtest"
)

// probe asks and takes in the answer of a guest on this host.
func (v *view) probe(addr string) {
	v.t.Helper()
	if err := v.Probe(context.Background(), netip.MustParseAddr(addr)); err != nil {
		v.t.Fatal(err)
	}
	v.settle()
}

// probeUntilSeen asks until the witnesses are the wanted ones: a link that was
// just set up may lose a frame.
func probeUntilSeen(t *testing.T, v *view, addr, witnesses string) {
	t.Helper()
	realtest.Eventually(t, wait, addr+" is seen by "+witnesses, func() bool {
		v.probe(addr)
		return v.who(addr) == witnesses
	})
}

func TestProbeFindsWhoHasAnAddress(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, addr, cidr, free string }{
		{"v4", "10.8.0.7", "10.8.0.7/24", "10.8.0.8"},
		{"v6", "fd00:8::7", "fd00:8::7/64", "fd00:8::8"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			ns := nstest.New(t)
			ns.Bridge("rt0", "10.8.0.1/24", "fd00:8::1/64")
			p := ns.Port("rt0", c.cidr)
			keepNeighbours(t, p.NS, "eth0") // else it asks back, some seconds later
			v := open(t, ns)
			probeUntilSeen(t, v, c.addr, "netns probe")
			s := v.about(c.addr).Seen[1]
			if s.MAC != p.MAC.String() || s.Port != p.HostName || s.Bridge != "rt0" {
				t.Errorf("the sighting shows %+v", s)
			}
			v.probe(c.free)
			v.expect(c.free, "")
			// Asking left no trace that could mislead another witness.
			if out := ns.Exec("ip", "neigh", "show", "dev", "rt0"); out != "" {
				t.Errorf("the neighbour table has\n%s", out)
			}
			p.Close()
			v.expect(c.addr, "") // who answered went with the port
		})
	}
}

// C9: no frame that we send claims the address it asks about.
func TestC9ProbeClaimsNothing(t *testing.T) {
	t.Parallel()
	ns := nstest.New(t)
	ns.Bridge("rt0", "10.8.0.1/24", "fd00:8::1/64")
	p := ns.Port("rt0", "10.8.0.7/24", "fd00:8::7/64")
	v := open(t, ns)
	probeUntilSeen(t, v, "10.8.0.7", "netns probe")
	c := capture(t, p.NS, "eth0")
	questions := make(map[netip.Addr]bool)
	for _, addr := range []string{"10.8.0.99", "10.8.0.7", "fd00:8::99", "fd00:8::7"} {
		v.probe(addr)
		questions[netip.MustParseAddr(addr)] = true
	}
	mac := v.device.link.MAC
	asked := make(map[netip.Addr]bool)
	realtest.Eventually(t, wait, "all four questions", func() bool {
		for _, f := range c.frames() {
			if !bytes.Equal(f[6:12], mac) {
				continue
			}
			switch kind := binary.BigEndian.Uint16(f[12:]); {
			case kind == unix.ETH_P_ARP:
				asked[netip.AddrFrom4([4]byte(f[38:42]))] = true
				if binary.BigEndian.Uint16(f[20:]) != wireArpRequest || !bytes.Equal(f[22:28], mac) || !bytes.Equal(f[28:32], []byte{0, 0, 0, 0}) {
					t.Errorf("not an ARP probe: % x", f)
				}
			case kind == unix.ETH_P_IPV6 && f[20] == wireICMPv6 && f[54] == wireNeighbourSolicitation:
				source := netip.AddrFrom16([16]byte(f[22:38]))
				target := netip.AddrFrom16([16]byte(f[62:78]))
				if target.IsLinkLocalUnicast() {
					continue // the kernel's, for itself
				}
				asked[target] = true
				if !source.IsLinkLocalUnicast() || source != icmp6.LinkLocal(mac) {
					t.Errorf("a solicitation from %v", source)
				}
				if group := netip.AddrFrom16([16]byte(f[38:54])); group.String() != "ff02::1:ff00:"+map[byte]string{0x99: "99", 7: "7"}[f[77]] || f[21] != 255 {
					t.Errorf("a solicitation to %v, hop limit %d", group, f[21])
				}
			}
		}
		return maps.Equal(asked, questions)
	})
}

// C7: an announcement that was not asked for is not evidence, nor is an answer
// to a question that was not ours.
func TestC7ForeignAnnouncements(t *testing.T) {
	t.Parallel()
	ns := nstest.New(t)
	ns.Bridge("rt0", "10.8.0.1/24")
	p := ns.Port("rt0", "10.8.0.7/24")
	v := open(t, ns)
	probeUntilSeen(t, v, "10.8.0.7", "netns probe")
	c := capture(t, p.NS, "eth0")
	v.probe("10.8.0.99") // so that the address is one we asked about

	proper := 150 // last byte of an address that is answered for as it should be
	broadcast := []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	for name, frame := range map[string][]byte{
		"gratuitous request":           gratuitous(broadcast, p.MAC, "10.8.0.99", wireArpRequest),
		"gratuitous reply":             gratuitous(broadcast, p.MAC, "10.8.0.99", wireArpReply),
		"reply to another":             gratuitous([]byte{2, 0, 0, 0, 0xff, 1}, p.MAC, "10.8.0.99", wireArpReply),
		"reply that was not asked":     gratuitous(v.device.link.MAC, p.MAC, "10.8.0.50", wireArpReply),
		"request from it to us":        gratuitous(v.device.link.MAC, p.MAC, "10.8.0.99", wireArpRequest),
		"reply that was cut too short": gratuitous(v.device.link.MAC, p.MAC, "10.8.0.99", wireArpReply)[:30],
	} {
		c.send(frame)
		// An answer behind it that counts: what it was to do is done by then.
		proper++
		answer := fmt.Sprint("10.8.0.", proper)
		v.probe(answer)
		c.send(gratuitous(v.device.link.MAC, p.MAC, answer, wireArpReply))
		v.await(answer, "probe")
		for _, addr := range []string{"10.8.0.99", "10.8.0.50"} {
			if seen := v.about(addr).Seen; len(seen) != 0 {
				t.Errorf("%s: %+v", name, seen)
			}
		}
	}
	c.send(gratuitous(v.device.link.MAC, p.MAC, "10.8.0.99", wireArpReply))
	v.await("10.8.0.99", "probe") // the test can see an answer
}

func TestProbeRefusesWhatNoHostCanHave(t *testing.T) {
	t.Parallel()
	ns := nstest.New(t)
	v := open(t, ns)
	for _, addr := range []netip.Addr{{}, netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("224.0.0.1"), netip.MustParseAddr("fe80::1")} {
		if err := v.Probe(context.Background(), addr); err == nil {
			t.Errorf("probed %v", addr)
		}
	}
	if err := v.Probe(context.Background(), netip.MustParseAddr("10.8.0.7")); err == nil {
		t.Error("probed without a bridge")
	}
}

// gratuitous is an ARP frame in which a MAC claims an address.
func gratuitous(to, from []byte, addr string, op uint16) []byte {
	f := probe.Question(from, netip.MustParseAddr(addr))
	copy(f[0:6], to)
	binary.BigEndian.PutUint16(f[20:], op)
	copy(f[28:32], f[38:42])
	return f
}

// A tap is a raw socket on a link, to receive and say anything.
type tap struct {
	t     testing.TB
	fd    int
	index int
}

func capture(t testing.TB, ns *nstest.NS, name string) *tap {
	t.Helper()
	l, err := ns.Netlink().LinkByName(name)
	if err != nil {
		t.Fatal(err)
	}
	c := &tap{t: t, index: l.Attrs().Index}
	ns.Do(func() {
		all := binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, unix.ETH_P_ALL))
		if c.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, int(all)); err == nil {
			err = unix.Bind(c.fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: c.index})
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(c.fd) })
	return c
}

func (c *tap) frames() [][]byte {
	var out [][]byte
	for {
		b := make([]byte, 2048)
		n, err := unix.Read(c.fd, b)
		if err != nil {
			return out
		}
		if n >= wireARPLength {
			out = append(out, append(b[:n:n], make([]byte, 90)...)) // padded: a short one reads as zeros
		}
	}
}

func (c *tap) send(frame []byte) {
	c.t.Helper()
	if err := unix.Sendto(c.fd, frame, 0, &unix.SockaddrLinklayer{Ifindex: c.index}); err != nil {
		c.t.Fatal(err)
	}
}
