package bridge

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/ipamd/ipamd/bridge/rtnl"
	"github.com/ipamd/ipamd/internal/nstest"
	"github.com/ipamd/ipamd/internal/realtest"
)

// A reuse is an address of a family that goes from one owner to the next.
type reuse struct {
	name, addr, cidr, spare, spareCIDR string
	other, otherCIDR                   string // the one who stays: B
	gateway, outside                   string // outside is translated to addr
	route                              []string
}

var reuses = []reuse{
	{"v4", "10.8.0.5", "10.8.0.5/24", "10.8.0.50", "10.8.0.50/24", "10.8.0.6", "10.8.0.6/24", "10.8.0.1", "192.0.2.1",
		[]string{"ip", "route", "add", "default", "via", "10.8.0.1"}},
	{"v6", "fd00:8::5", "fd00:8::5/64", "fd00:8::50", "fd00:8::50/64", "fd00:8::6", "fd00:8::6/64", "fd00:8::1", "2001:db8::1",
		[]string{"ip", "-6", "route", "add", "default", "via", "fd00:8::1"}},
}

// prefix is a delegated one with the address, and without B's.
func (r reuse) prefix() netip.Prefix {
	a := netip.MustParseAddr(r.addr)
	return netip.PrefixFrom(a, a.BitLen()-1).Masked()
}

func single(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

// A scene is a host that tracks connections, its bridge, B, and the old owner
// of the address.
type scene struct {
	*view
	reuse
	ns     *nstest.NS
	b, old *nstest.Port
}

func (r reuse) scene(t *testing.T) scene {
	t.Helper()
	realtest.Need(t, "nft")
	ns := nstest.New(t)
	ns.Bridge("rt0", "10.8.0.1/24", "fd00:8::1/64")
	ns.Exec("nft", `table inet t {
		chain pre {
			type nat hook prerouting priority -100;
			ip daddr 192.0.2.1 dnat ip to 10.8.0.5
			ip6 daddr 2001:db8::1 dnat ip6 to fd00:8::5
		}
	}`)
	keepConnections(t, ns)
	s := scene{view: open(t, ns, manage, gateways("10.8.0.1/24", "fd00:8::1/64")), reuse: r, ns: ns}
	s.b, s.old = ns.Port("rt0", r.otherCIDR), ns.Port("rt0", r.cidr)
	keepNeighbours(t, ns, "rt0")
	keepNeighbours(t, s.b.NS, "eth0")
	s.b.NS.Exec(r.route...)
	s.wake(r.other)
	s.wake(r.addr)
	return s
}

// keepConnections lets what is tracked stay so, which for a datagram that no host
// answered would be 30 s, and 10 s for a connection that was reset.
func keepConnections(t *testing.T, ns *nstest.NS) {
	t.Helper()
	var err error
	ns.Do(func() {
		for _, of := range []string{"udp_timeout", "tcp_timeout_close", "tcp_timeout_close_wait", "tcp_timeout_last_ack", "tcp_timeout_time_wait"} {
			err = errors.Join(err, setSysctl("net/netfilter/nf_conntrack_"+of, "3600"))
		}
	})
	if err != nil {
		t.Fatal(err)
	}
}

// wake waits until a port that was just set up lets frames through, and leaves
// no trace of it in any neighbour table.
func (s scene) wake(addr string) {
	s.t.Helper()
	a := netip.MustParseAddr(addr)
	realtest.Eventually(s.t, wait, addr+" learns of the bridge", func() bool {
		if err := s.Probe(context.Background(), a); err != nil {
			s.t.Fatal(err)
		}
		return strings.HasSuffix(s.who(addr), "probe")
	})
}

// next puts the next owner of the address onto the bridge, which receives all frames.
func (s scene) next() *nstest.Port {
	s.t.Helper()
	c := s.ns.Port("rt0", s.spareCIDR)
	s.wake(s.spare)
	return c
}

// dial connects to the address where it is now, and waits for that as long as
// patience. It is an error when that did not work at once: the kernel sends the
// first segment again after a second, so a connection that needed no second one
// was made in less, however long the machine had other things to do.
func (s scene) dial(from *nstest.NS, to *nstest.Port, patience time.Duration) error {
	s.t.Helper()
	var l net.Listener
	var err error
	to.NS.Do(func() { l, err = net.Listen("tcp", net.JoinHostPort(s.addr, "0")) })
	if err != nil {
		s.t.Fatal(err)
	}
	defer l.Close()
	var again uint32
	from.Do(func() {
		var c net.Conn
		if c, err = net.DialTimeout("tcp", l.Addr().String(), patience); err == nil {
			again, err = resent(c)
			c.Close()
		}
	})
	if err == nil && again != 0 {
		err = fmt.Errorf("the first segment was sent %d times more", again)
	}
	return err
}

// patience is how long to wait for a connection that is to come about, and for
// one that is not.
func patience(wanted bool) time.Duration {
	if wanted {
		return wait
	}
	return 3 * time.Second
}

// resent is how often a connection had to send something again.
func resent(c net.Conn) (n uint32, err error) {
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		return 0, err
	}
	controlled := raw.Control(func(fd uintptr) {
		var info *unix.TCPInfo
		if info, err = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
			n = info.Total_retrans
		}
	})
	return n, errors.Join(err, controlled)
}

// say sends a datagram.
func (s scene) say(from *nstest.NS, to string) {
	s.t.Helper()
	from.Do(func() {
		c, err := net.Dial("udp", net.JoinHostPort(to, "9"))
		if err == nil {
			_, err = c.Write([]byte("x"))
			c.Close()
		}
		if err != nil {
			s.t.Fatalf("send to %s: %v", to, err)
		}
	})
}

// tracked lists the tracked connections that have the address at an end.
func (s scene) tracked(addr string) (out []string) {
	s.t.Helper()
	s.ns.Do(func() {
		nl, err := netlink.NewHandle(unix.NETLINK_NETFILTER)
		if err != nil {
			s.t.Fatal(err)
		}
		defer nl.Close()
		for _, family := range []netlink.InetFamily{unix.AF_INET, unix.AF_INET6} {
			flows, err := nl.ConntrackTableList(netlink.ConntrackTable, family)
			if err != nil {
				s.t.Fatal(err)
			}
			for _, f := range flows {
				ends := []net.IP{f.Forward.SrcIP, f.Forward.DstIP, f.Reverse.SrcIP, f.Reverse.DstIP}
				if slices.ContainsFunc(ends, net.ParseIP(addr).Equal) {
					out = append(out, f.String())
				}
			}
		}
	})
	return out
}

// neighbourMAC is the MAC that a neighbour table has for an address, "" for
// none.
func neighbourMAC(t *testing.T, ns *nstest.NS, dev, addr string) string {
	t.Helper()
	l, err := ns.Netlink().LinkByName(dev)
	if err != nil {
		t.Fatal(err)
	}
	all, err := ns.Netlink().NeighList(l.Attrs().Index, netlink.FAMILY_ALL)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range all {
		if n.IP.Equal(net.ParseIP(addr)) {
			return n.HardwareAddr.String()
		}
	}
	return ""
}

// C12: after Forget the host has no entry of the old owner left and reaches
// the next one at once, who has said nothing yet; without it neither holds.
// So it is with an address inside a delegated prefix. Everybody else's entries stay.
func TestC12Forget(t *testing.T) {
	t.Parallel()
	for _, r := range reuses {
		for name, of := range map[string]netip.Prefix{"forgotten": single(netip.MustParseAddr(r.addr)), "a prefix is forgotten": r.prefix(), "remembered": {}} {
			t.Run(r.name+" "+name, func(t *testing.T) {
				t.Parallel()
				forget := of.IsValid()
				s := r.scene(t)
				for _, p := range []struct {
					from *nstest.NS
					to   string
				}{{s.old.NS, r.gateway}, {s.b.NS, r.outside}, {s.b.NS, r.gateway}} {
					s.say(p.from, p.to)
				}
				if err := s.dial(s.ns, s.old, wait); err != nil {
					t.Fatal(err)
				}
				realtest.Eventually(t, wait, "B's entry", func() bool {
					s.say(s.ns, r.other)
					return neighbourMAC(t, s.ns, "rt0", r.other) == s.b.MAC.String()
				})
				oldMAC := s.old.MAC.String()
				others := len(s.tracked(r.gateway)) // with B's among them
				s.old.Close()
				s.settle()
				if mac, n := neighbourMAC(t, s.ns, "rt0", r.addr), len(s.tracked(r.addr)); mac != oldMAC || n < 3 {
					t.Fatalf("before, the neighbour is %q and %d connections are tracked: nothing to forget", mac, n)
				}
				if forget {
					if err := s.Forget(context.Background(), of, single(netip.MustParseAddr(r.addr).Next().Next())); err != nil {
						t.Fatal(err)
					}
					if mac, left := neighbourMAC(t, s.ns, "rt0", r.addr), s.tracked(r.addr); mac != "" || len(left) != 0 {
						t.Errorf("left are the neighbour %q and %q", mac, left)
					}
					if mac := neighbourMAC(t, s.ns, "rt0", r.other); mac != s.b.MAC.String() {
						t.Errorf("B's neighbour entry is %q", mac)
					}
					if n := len(s.tracked(r.other)); n < 2 {
						t.Errorf("of B's connections %d are left; %d had the gateway at an end", n, others)
					}
				}
				c := s.next()
				c.AddAddr(r.cidr)
				err := s.dial(s.ns, c, patience(forget))
				switch mac := neighbourMAC(t, s.ns, "rt0", r.addr); {
				case forget && (err != nil || mac != c.MAC.String()):
					t.Errorf("the host does not reach the next owner: %v; its neighbour entry is %q", err, mac)
				case !forget && (err == nil || mac != oldMAC || len(s.tracked(r.addr)) < 3):
					t.Errorf("it was not forgotten, yet: %v; its neighbour entry is %q, %q", err, mac, s.tracked(r.addr))
				}
			})
		}
	}
}

// C12: B remembers the old owner's MAC in its own namespace, where nothing of
// ours reaches, and no frame of ours may speak for the next owner (C9). It
// reaches the next one within a second of that one's announcement (RFC 5227,
// section 2.3; RFC 4861, section 7.2.6), which the kernel makes with arp_notify
// and ndisc_notify set; without it B's own timers must run out first.
func TestC12BReachesAnOwnerThatAnnouncesItself(t *testing.T) {
	t.Parallel()
	for _, r := range reuses {
		t.Run(r.name+" announced", func(t *testing.T) {
			t.Parallel()
			realtest.InTime(t, time.Second, "B reaches an owner that announces itself", func() time.Duration { return r.announced(t) })
		})
		t.Run(r.name+" silent", func(t *testing.T) {
			t.Parallel()
			s, c := r.handed(t)
			c.AddAddr(r.cidr)
			err := s.dial(s.b.NS, c, patience(false))
			if mac := neighbourMAC(t, s.b.NS, "eth0", r.addr); err == nil || mac != s.old.MAC.String() {
				t.Errorf("B has no news yet: %v; its entry is %q", err, mac)
			}
		})
	}
}

// handed is a scene in which B has the old owner's MAC, who has left, the host has
// forgotten it, and the next owner is there, without the address yet.
func (r reuse) handed(t *testing.T) (scene, *nstest.Port) {
	t.Helper()
	s := r.scene(t)
	if err := s.dial(s.b.NS, s.old, wait); err != nil {
		t.Fatal(err)
	}
	s.old.Close()
	if err := s.Forget(context.Background(), single(netip.MustParseAddr(r.addr))); err != nil {
		t.Fatal(err)
	}
	return s, s.next()
}

// announced plays a scene in which the next owner announces itself, and returns
// how long after that B was connected to it.
func (r reuse) announced(t *testing.T) time.Duration {
	t.Helper()
	s, c := r.handed(t)
	var err error
	c.NS.Do(func() {
		err = errors.Join(setSysctl("net/ipv4/conf/eth0/arp_notify", "1"), setSysctl("net/ipv6/conf/eth0/ndisc_notify", "1"))
	})
	if err != nil {
		t.Fatal(err)
	}
	c.AddAddr(r.cidr)
	// The kernel announces an address when the link comes up or its MAC is set,
	// not when one is added that is not asked about; and an IPv6 address is
	// added before it is routed.
	nl := c.NS.Netlink()
	realtest.Eventually(t, wait, "the address is C's own", func() bool {
		routes, err := nl.RouteGet(net.ParseIP(r.addr))
		return err == nil && len(routes) == 1 && routes[0].Type == unix.RTN_LOCAL
	})
	eth0, err := nl.LinkByName("eth0")
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if err := nl.LinkSetHardwareAddr(eth0, c.MAC); err != nil {
		t.Fatal(err)
	}
	realtest.Eventually(t, wait, "B learns of it", func() bool {
		return neighbourMAC(t, s.b.NS, "eth0", r.addr) == c.MAC.String()
	})
	err = s.dial(s.b.NS, c, wait)
	took := time.Since(began)
	if mac := neighbourMAC(t, s.b.NS, "eth0", r.addr); err != nil || mac != c.MAC.String() {
		t.Errorf("B does not reach it: %v; its entry is %q", err, mac)
	}
	t.Logf("reached %v after it was announced", took)
	return took
}

// The board agrees when Forget returns, without Run or Settle; what was not
// named stays; and what is not there is no error.
func TestForgetIsOnTheBoardAtOnce(t *testing.T) {
	t.Parallel()
	ns := nstest.New(t)
	ns.Bridge("rt0", "10.8.0.1/24", "fd00:8::1/64")
	v := open(t, ns)
	for _, addr := range []string{"10.8.0.99", "fd00:8::99", "10.8.0.97", "10.8.0.98"} {
		setNeighbour(t, ns, addr, "02:aa:aa:aa:aa:01", netlink.NUD_REACHABLE)
		v.expect(addr, "neighbour")
	}
	named := []netip.Prefix{netip.MustParsePrefix("10.8.0.99/32"), netip.MustParsePrefix("fd00:8::99/128"), netip.MustParsePrefix("10.8.0.96/31")}
	for range 2 {
		if err := v.Forget(context.Background(), named...); err != nil {
			t.Fatal(err)
		}
	}
	if v.seen("10.8.0.99") || v.seen("fd00:8::99") || v.seen("10.8.0.97") || !v.seen("10.8.0.98") {
		t.Error("the board does not agree")
	}
	ns.Exec("ip", "link", "del", "rt0")
	if err := v.Forget(context.Background(), named...); err != nil {
		t.Errorf("without the bridge: %v", err)
	}
	v.Close()
	if err := v.Forget(context.Background(), named...); !errors.Is(err, ErrClosed) {
		t.Errorf("closed: %v", err)
	}
	if err := v.Forget(context.Background()); err != nil {
		t.Errorf("nothing to forget: %v", err)
	}
}

// EINVAL means "no connection tracking" of a kernel that never answered for it. Of
// one that did, it means that the entries are there still. The kernel says it of
// such a question to its sockets' diagnosis.
func TestF11EINVALIsNotWithoutConnectionTracking(t *testing.T) {
	t.Parallel()
	ns := nstest.New(t)
	ns.Bridge("rt0", "10.8.0.1/24")
	v := open(t, ns)
	if !v.connections.answer.Load() {
		t.Error("this kernel tracks connections, and was taken for one that does not")
	}
	dial, asked := v.connections.Dial, netip.MustParsePrefix("10.8.0.7/32")
	v.connections.Drop()
	v.connections.Dial = func(ctx context.Context) (*rtnl.Socket, error) { return v.dial(ctx, unix.NETLINK_SOCK_DIAG) }
	if err := v.Forget(context.Background(), asked); !errors.Is(err, unix.EINVAL) {
		t.Errorf("one that answered before and refuses: %v", err)
	}
	_ = v.connections.find() // as Open would on such a kernel
	if err := v.Forget(context.Background(), asked); v.connections.answer.Load() || err != nil {
		t.Errorf("one that never answered: %v, %v", v.connections.answer.Load(), err)
	}
	v.connections.Drop()
	v.connections.Dial = dial // its module was loaded
	if err := v.Forget(context.Background(), asked); !v.connections.answer.Load() || err != nil {
		t.Errorf("one that answers by now: %v, %v", v.connections.answer.Load(), err)
	}
}
