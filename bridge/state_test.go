package bridge

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/internal/nstest"
	"github.com/ipamd/ipamd/internal/realtest"
)

// C11: each way for the bridge to be wrong has its reason, seen as news, and
// ends when it is repaired by hand.
func TestC11NotReady(t *testing.T) {
	t.Parallel()
	gw := gateways("10.8.0.1/24", "fd00:8::1/64")
	for _, c := range []struct {
		name   string
		make   func(*nstest.NS)
		reason string
		repair func(*nstest.NS)
	}{
		{"missing", func(*nstest.NS) {}, "rt0 is missing",
			func(ns *nstest.NS) { ns.Bridge("rt0", "10.8.0.1/24", "fd00:8::1/64") }},
		{"not a bridge", func(ns *nstest.NS) {
			ns.Exec("ip", "tuntap", "add", "dev", "rt0", "mode", "tap")
			ns.AddAddr("rt0", "10.8.0.1/24")
		}, "rt0 is not a bridge but a link of kind tun",
			func(ns *nstest.NS) {
				ns.Exec("ip", "link", "del", "rt0")
				ns.Bridge("rt0", "10.8.0.1/24", "fd00:8::1/64")
			}},
		{"down", func(ns *nstest.NS) {
			ns.Bridge("rt0", "10.8.0.1/24", "fd00:8::1/64")
			ns.Exec("ip", "link", "set", "rt0", "down")
		}, "rt0 is down",
			func(ns *nstest.NS) {
				ns.Exec("ip", "link", "set", "rt0", "up")
				ns.AddAddr("rt0", "fd00:8::1/64") // the kernel took it off when the link went down
			}},
		{"without gateway", func(ns *nstest.NS) { ns.Bridge("rt0") },
			"rt0 is without the gateway 10.8.0.1/24 and fd00:8::1/64",
			func(ns *nstest.NS) {
				ns.AddAddr("rt0", "10.8.0.1/24")
				ns.AddAddr("rt0", "fd00:8::1/64")
			}},
		{"gateway of another prefix length", func(ns *nstest.NS) { ns.Bridge("rt0", "10.8.0.1/16", "fd00:8::1/64") },
			"rt0 is without the gateway 10.8.0.1/24",
			func(ns *nstest.NS) { ns.AddAddr("rt0", "10.8.0.1/24") }},
		{"gateway elsewhere", func(ns *nstest.NS) {
			ns.Bridge("rt0", "fd00:8::1/64")
			ns.AddAddr("lo", "10.8.0.1/24")
		}, "rt0 is without the gateway 10.8.0.1/24",
			func(ns *nstest.NS) { ns.AddAddr("rt0", "10.8.0.1/24") }},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			ns := nstest.New(t)
			c.make(ns)
			before := world(ns)
			v := open(t, ns, gw)
			v.wantUnready(c.reason)
			if s := v.Status(); s.Ready || s.Reason != c.reason || s.Managed {
				t.Errorf("status %+v", s)
			}
			var not *NotReadyError
			if errors.As(v.Ready(), &not); (len(not.Repair) == 0) != (c.name == "not a bridge") {
				t.Errorf("repaired by %q", not.Repair)
			}
			if after := world(ns); after != before {
				t.Errorf("without being asked to, it changed\n%s\nto\n%s", before, after)
			}
			c.repair(ns)
			realtest.Eventually(t, wait, "ready", func() bool {
				v.settle()
				return v.Ready() == nil
			})
			v.noneSilent()
		})
	}
}

// A bridge is not ready since it ceased to be, whatever became the reason later;
// and anew after it was ready in between.
func TestNotReadySince(t *testing.T) {
	t.Parallel()
	ns := nstest.New(t)
	v := open(t, ns, gateways("10.8.0.1/24"))
	becomes := func(reason string) (since time.Time) {
		t.Helper()
		realtest.Eventually(t, wait, "it to say "+reason, func() bool {
			v.settle()
			var not *NotReadyError
			now := errors.As(v.Ready(), &not)
			if now {
				since = not.Since
			}
			return now && not.Reason == reason || !now && reason == ""
		})
		return since
	}
	becomes("rt0 is missing")
	ns.Bridge("rt0", "10.8.0.1/24")
	becomes("")
	began := time.Now()
	ns.Exec("ip", "link", "set", "rt0", "down")
	down := becomes("rt0 is down")
	ns.Exec("ip", "link", "del", "rt0")
	if missing := becomes("rt0 is missing"); down.Before(began) || !missing.Equal(down) {
		t.Errorf("it went down after %v, and is not ready since %v; once it is deleted, since %v", began, down, missing)
	}
	ns.Bridge("rt0", "10.8.0.1/24")
	becomes("")
	ns.Exec("ip", "link", "del", "rt0")
	if again := becomes("rt0 is missing"); !again.After(down) {
		t.Errorf("it is not ready since %v, and was ready after %v", again, down)
	}
}

// world is what a look at a namespace shows.
func world(ns *nstest.NS) string {
	out := ns.Exec("ip", "-d", "addr", "show")
	for _, f := range []string{"ipv4/ip_forward", "ipv6/conf/all/forwarding"} {
		out += f + " " + ns.Exec("cat", "/proc/sys/net/"+f)
	}
	return regexp.MustCompile(`_timer +[0-9.]+`).ReplaceAllString(out, "_timer") // these run by themselves
}

// A forwarding that the daemon may not turn on is a person's to turn on.
func TestRepairOfASysctl(t *testing.T) {
	for err, want := range map[error]string{unix.EROFS: "sysctl -w net.ipv4.ip_forward=1", unix.EACCES: "sysctl -w net.ipv4.ip_forward=1", unix.ENOENT: ""} {
		d := device{name: "rt0", broken: fmt.Errorf("forward: %w", errors.Join(&sysctlError{"net/ipv4/ip_forward", "1", err}))}
		if got := strings.Join(d.commands(nil), "; "); got != want {
			t.Errorf("%v is repaired by %q, want %q", err, got, want)
		}
	}
}

// C11: bridge.manage makes it, and twice equals once.
func TestC11ManageMakes(t *testing.T) {
	t.Parallel()
	ns := nstest.New(t)
	v := open(t, ns, manage, gateways("10.8.0.1/24", "fd00:8::1/64"), func(c *Config) { c.Desired.MTU = 1400 })
	v.wantReady()
	v.noneSilent()
	s := v.Status()
	if s.MAC != ownMAC("rt0").String() || s.MTU != 1400 || !s.Managed || !s.Ready {
		t.Errorf("status %+v", s)
	}
	v.await("10.8.0.1", "host")
	v.await("fd00:8::1", "host")
	once := world(ns)
	for _, want := range []string{"ip_forward 1", "forwarding 1", "mtu 1400", "stp_state 0", "forward_delay 0", s.MAC} {
		if !strings.Contains(once, want) {
			t.Errorf("no %q in\n%s", want, once)
		}
	}
	for range 2 {
		if err := v.Refresh(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	if twice := world(ns); twice != once {
		t.Errorf("once it was\n%s\ntwice it is\n%s", once, twice)
	}

	// A port with a lower MAC comes and goes, and the bridge keeps its own.
	p := ns.Port("rt0")
	v.settle()
	p.Close()
	v.settle()
	if now := v.Status().MAC; now != s.MAC {
		t.Errorf("the bridge's MAC went from %s to %s", s.MAC, now)
	}
}

func TestC11ManageRepairsWhatIsThere(t *testing.T) {
	t.Parallel()
	ns := nstest.New(t)
	ns.Exec("ip", "link", "add", "rt0", "type", "bridge", "stp_state", "1", "forward_delay", "1500")
	ns.AddAddr("rt0", "10.8.0.9/24")
	p := ns.Port("rt0", "10.8.0.7/24")
	mac := strings.Fields(ns.Exec("ip", "-o", "link", "show", "rt0"))
	v := open(t, ns, manage, gateways("10.8.0.1/24"))
	v.wantReady()
	v.expect("10.8.0.9", "host") // another's, and not to be removed
	v.expect("10.8.0.7", "netns")
	out := world(ns)
	for _, want := range []string{"stp_state 0", "forward_delay 0"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	if s := v.Status().MAC; !strings.Contains(strings.Join(mac, " "), s) {
		t.Errorf("the MAC that guests know was changed to %s", s)
	}
	before := v.Status().MAC
	p.Close() // the kernel would take another MAC now
	v.settle()
	if now := v.Status().MAC; now != before {
		t.Errorf("the bridge's MAC went from %s to %s", before, now)
	}

	// Broken by hand, it is repaired by the news of it.
	ns.DelAddr("rt0", "10.8.0.1/24")
	v.settle()
	v.wantReady()
	ns.Exec("ip", "link", "set", "rt0", "down")
	v.settle()
	v.wantReady()
}

func TestC11ManageRefusesWhatIsNoBridge(t *testing.T) {
	t.Parallel()
	ns := nstest.New(t)
	ns.Exec("ip", "tuntap", "add", "dev", "rt0", "mode", "tap")
	before := world(ns)
	v := open(t, ns, manage, gateways("10.8.0.1/24"))
	v.wantUnready("rt0 is not a bridge but a link of kind tun")
	v.allSilent("rt0 is not a bridge")
	if after := world(ns); after != before {
		t.Errorf("it changed\n%s\nto\n%s", before, after)
	}
}

func TestBridgeIsDeletedAndMadeAgain(t *testing.T) {
	t.Parallel()
	for _, managed := range []bool{false, true} {
		t.Run(fmt.Sprintf("managed %v", managed), func(t *testing.T) {
			t.Parallel()
			ns := nstest.New(t)
			ns.Bridge("rt0", "10.8.0.1/24")
			p := ns.Port("rt0", "10.8.0.7/24")
			v := open(t, ns, gateways("10.8.0.1/24"), func(c *Config) { c.Manage = managed })
			v.expect("10.8.0.7", "netns")
			ns.Exec("ip", "link", "del", "rt0")
			v.settle()
			if !managed {
				v.wantUnready("rt0 is missing")
				v.allSilent("rt0 is missing")
				if len(v.about("10.8.0.7").Seen) == 0 {
					t.Error("a missing bridge made what was on it unseen")
				}
				ns.Bridge("rt0", "10.8.0.1/24")
				v.settle()
			}
			v.wantReady()
			v.noneSilent()
			v.expect("10.8.0.7", "") // it is no port of the new one yet
			ns.Exec("ip", "link", "set", p.HostName, "master", "rt0")
			v.expect("10.8.0.7", "netns")
			probeUntilSeen(t, v, "10.8.0.7", "netns probe") // the sockets found the new bridge
		})
	}
}

// L15: one process for a bridge, also with another book. The lock is the
// namespace's, and goes with its holder.
func TestL15Lock(t *testing.T) {
	t.Parallel()
	ns := nstest.New(t)
	v := open(t, ns)
	second := Config{Name: "rt0", Netns: ns.Path(), Board: census.NewBoard()}
	for range 3 {
		ns.Do(func() {
			for range 100 { // in all more than fit into the queue of the one that has it
				holder("rt0")
			}
		})
		_, err := Open(second)
		if !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), fmt.Sprintf("pid %d", os.Getpid())) {
			t.Fatalf("second: %v", err)
		}
		if err := v.Refresh(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	for _, other := range []Config{
		{Name: "rt1", Netns: ns.Path(), Board: census.NewBoard()},
		{Name: "rt0", Netns: nstest.New(t).Path(), Board: census.NewBoard()},
	} {
		b, err := Open(other)
		if err != nil {
			t.Fatalf("another bridge: %v", err)
		}
		b.Close()
	}
	v.Close()
	// A child that another test is just starting shares the socket until it
	// is another program.
	realtest.Eventually(t, wait, "the lock, after the first is closed", func() bool {
		b, err := Open(second)
		if err == nil {
			err = b.Close()
		}
		return err == nil
	})
}

func TestOpenSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	realtest.Root(t)
	_, err := Open(Config{Name: "rt0", Netns: "/run/netns/no-such-thing", Board: census.NewBoard()})
	if err == nil || !strings.Contains(err.Error(), "/run/netns/no-such-thing") {
		t.Errorf("open: %v", err)
	}
}

// C5: a closed reader is silent, never unseen.
func TestC5Close(t *testing.T) {
	t.Parallel()
	ns := nstest.New(t)
	ns.Bridge("rt0", "10.8.0.1/24")
	ns.Port("rt0", "10.8.0.7/24")
	v := open(t, ns)
	v.wantReady()
	for range 2 {
		if err := v.Close(); err != nil {
			t.Fatal(err)
		}
	}
	v.allSilent(ErrClosed.Error())
	v.wantUnready("rt0 is no longer watched")
	if len(v.about("10.8.0.7").Seen) != 1 {
		t.Error("what was seen is forgotten")
	}
	ctx := context.Background()
	_, nsid := v.NetnsID(context.Background(), ns.Path())
	for name, err := range map[string]error{
		"refresh": v.Refresh(ctx), "settle": v.Settle(ctx), "ready": v.Ready(), "nsid": nsid,
		"probe": v.Probe(context.Background(), netip.MustParseAddr("10.8.0.9")),
	} {
		if !errors.Is(err, ErrClosed) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := v.Run(ctx); err != nil {
		t.Errorf("run: %v", err)
	}
}

func TestNothingIsKnownBeforeTheFirstReading(t *testing.T) {
	t.Parallel()
	ns := nstest.New(t)
	ns.Bridge("rt0", "10.8.0.1/24")
	board := census.NewBoard()
	b, err := Open(Config{Name: "rt0", Netns: ns.Path(), Board: board})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	v := &view{b, t, board}
	v.wantUnready("rt0 has not been looked at yet")
	v.allSilent(errUnread.Error())
}
