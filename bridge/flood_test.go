package bridge

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/ipamd/ipamd/bridge/probe"
	"github.com/ipamd/ipamd/bridge/rtnl"
	"github.com/ipamd/ipamd/internal/nstest"
	"github.com/ipamd/ipamd/internal/realtest"
)

// A flooded is a bridge with a port behind which a guest answers too much.
type flooded struct {
	*view
	ns   *nstest.NS
	port *nstest.Port
	tap  *tap
}

func newFlooded(t *testing.T) *flooded {
	t.Helper()
	ns := nstest.New(t)
	ns.Bridge("rt0", "10.8.0.1/24")
	port := ns.Port("rt0")
	v := open(t, ns, func(c *Config) { c.Every, c.ProbeWindow = time.Hour, time.Hour })
	return &flooded{v, ns, port, capture(t, port.NS, "eth0")}
}

func claimed(n int) string { return fmt.Sprint("10.8.0.", 100+n) }

func invented(n int) probe.MAC { return probe.MAC{2, 0xee, 0, 0, byte(n >> 8), byte(n)} }

// claims sends an answer for one of the claimed addresses.
func (f *flooded) claims(n int, from probe.MAC) {
	f.t.Helper()
	f.tap.send(gratuitous(f.device.link.MAC, from[:], claimed(n), wireArpReply))
}

// teach makes the bridge know that a MAC is behind the port, by an answer to
// what was not asked. A link that was just set up may lose a frame.
func (f *flooded) teach(m probe.MAC) {
	f.t.Helper()
	realtest.Eventually(f.t, wait, "the bridge to know "+m.String(), func() bool {
		f.claims(0, m)
		at := 0
		f.questions(func() { at = f.wire().behind(m) })
		return at != 0
	})
}

// questions is how many were put to the kernel while do ran with the lock held.
func (f *flooded) questions(do func()) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	before := f.kernel.Asked()
	do()
	return int(f.kernel.Asked() - before)
}

// unlocatedNow takes in answers as if they had just been read, and nothing else.
func (f *flooded) unlocatedNow(addresses, macs int) {
	for n := range addresses {
		f.answers.receive(netip.MustParseAddr(claimed(n)), probe.Reply{From: invented(macs + n), Says: invented(macs + n)})
	}
}

// rested lets the time pass that lies between two looks for one address's port.
func (f *flooded) rested() {
	for addr, h := range f.answers.known {
		h.located = h.located.Add(-locateEvery)
		f.answers.known[addr] = h
	}
}

func (f *flooded) portOf(n int) string {
	f.t.Helper()
	seen := f.about(claimed(n)).Seen
	if len(seen) != 1 {
		f.t.Fatalf("%s is seen: %+v", claimed(n), seen)
	}
	return seen[0].Port
}

// However many answers come, a drain asks the kernel at most once about each MAC
// and for each address, and all that is claimed is seen.
func TestFloodIsFewQuestions(t *testing.T) {
	t.Parallel()
	const addresses, frames = 20, 500
	for name, tt := range map[string]struct {
		from func(n int) probe.MAC
		most int // questions of a drain
	}{
		"one MAC":       {func(int) probe.MAC { return invented(0) }, 1},
		"ever new MACs": {invented, addresses},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFlooded(t)
			for n := range addresses {
				f.probe(claimed(n))
			}
			sent, asked, drains := 0, 0, 0
			realtest.Eventually(t, wait, "all to be seen", func() bool {
				for range frames { // again: a link that was just set up may lose some
					f.claims(sent%addresses, tt.from(sent))
					sent++
				}
				asked += f.questions(f.drain)
				drains++
				for n := range addresses {
					if !f.seen(claimed(n)) {
						return false
					}
				}
				return true
			})
			if asked > drains*tt.most {
				t.Errorf("%d answers were %d questions to the kernel, in %d drains", sent, asked, drains)
			}
		})
	}
}

// Where there is no time to look for all ports, what is claimed is seen all the
// same, its port is found later, and one that was found stands until then.
func TestPortsAreFoundByAndBy(t *testing.T) {
	t.Parallel()
	const addresses = 3 * locateLeast
	f := newFlooded(t)
	for n := range 2 * addresses {
		f.teach(invented(n))
	}
	settled := func(what string, named int) {
		t.Helper()
		got := 0
		for n := range addresses {
			if f.portOf(n) == f.port.HostName {
				got++
			}
		}
		if got != named {
			t.Errorf("%s: the port of %d is named, want %d", what, got, named)
		}
	}
	noTime := func() { f.answers.locate(f.wire(), time.Time{}) }
	asked := f.questions(func() {
		f.unlocatedNow(addresses, 0)
		noTime()
	})
	settled("without time", locateLeast)
	asked += f.questions(noTime)
	asked += f.questions(noTime)
	settled("then", addresses)
	if asked != addresses {
		t.Errorf("%d addresses were %d questions", addresses, asked)
	}

	asked = f.questions(func() {
		f.rested()
		f.unlocatedNow(addresses, addresses)
		noTime()
		for _, h := range f.answers.known { // as if all had been placed just now
			if h.located.IsZero() {
				t.Error("an answer whose port was found gave way to one whose port is not")
			}
		}
	})
	settled("others answer", addresses)
	if asked != locateLeast {
		t.Errorf("%d questions, want %d", asked, locateLeast)
	}
}

// Run looks for the ports that there was no time for, though nothing more comes.
func TestRunFindsPorts(t *testing.T) {
	t.Parallel()
	f := newFlooded(t)
	later := time.Now().Add(time.Hour)
	f.questions(func() {
		addr := netip.MustParseAddr(claimed(0))
		f.answers.known[addr] = answer{origin: origin{bridge: f.device.link.Index}, located: later}
		f.answers.receive(addr, probe.Reply{From: invented(0), Says: invented(0)})
	})
	due := f.schedule()
	due.refresh = later
	if err := f.step(context.Background(), due, false); err != nil {
		t.Fatal(err)
	}
	if wake := due.wake(f.pending(), nil); wake.After(time.Now().Add(locateEvery)) {
		t.Errorf("it looks again at %v", wake)
	}
}

// When the port goes that an answer came by, another one's later answer, whose
// port is not found yet, keeps the address seen; one of the same MAC does not.
func TestLaterAnswerStandsIn(t *testing.T) {
	t.Parallel()
	f := newFlooded(t)
	f.teach(invented(0))
	f.teach(invented(1))
	realtest.Eventually(t, wait, "both ports", func() bool {
		f.questions(func() {
			f.rested()
			f.unlocatedNow(2, 0)
			f.answers.locate(f.wire(), time.Time{})
		})
		return f.portOf(0) != "" && f.portOf(1) != ""
	})
	f.questions(func() {
		for n, from := range []probe.MAC{invented(7), invented(1)} {
			f.answers.unlocated[netip.MustParseAddr(claimed(n))] = probe.Reply{From: from, Says: from}
		}
		port := f.answers.known[netip.MustParseAddr(claimed(0))].port
		f.netns.dropPort(port)
		f.netns.linksAgain[port] = true // it is there, after all
	})
	if port := f.portOf(0); port != "" {
		t.Errorf("who answered besides is behind %s", port)
	}
	if f.seen(claimed(1)) {
		t.Error("who went with the port is seen")
	}
	if err := f.Settle(context.Background()); err != nil {
		t.Fatal(err)
	}
}

// What comes while news is read waits for the next time: who makes it does not
// say how long the lock is held.
func TestNewsThatComesMeanwhile(t *testing.T) {
	t.Parallel()
	const before, most = 10, 200
	f := newFlooded(t)
	rt0, err := f.ns.Netlink().LinkByName("rt0")
	if err != nil {
		t.Fatal(err)
	}
	made := 0
	more := func() {
		made++
		entry := &netlink.Neigh{LinkIndex: rt0.Attrs().Index, IP: net.IPv4(10, 8, 0, 9), State: unix.NUD_STALE,
			HardwareAddr: binary.BigEndian.AppendUint32([]byte{2, 0}, uint32(made))}
		if err := f.ns.Netlink().NeighSet(entry); err != nil {
			t.Fatal(err)
		}
	}
	for range before {
		more()
	}
	f.questions(func() {
		read := 0
		if _, err := f.news.Read(f.news.Neighbours, rtnl.MostAtOnce, func(int, rtnl.Header, []byte) {
			if read++; read > most {
				t.Fatal("it is read as long as some comes")
			}
			more()
		}); err != nil {
			t.Fatal(err)
		}
		if read < before {
			t.Errorf("%d of %d were read", read, before)
		}
	})
}
