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
	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/internal/icmp6"
	"github.com/ipamd/ipamd/internal/realtest"
)

// floodSenders is how many addresses a flood comes from: all namespaces of a machine
// share one neighbour table, which holds 1 024 entries, and other tests need some.
const floodSenders = 200

// newsFloods are what one guest can have the kernel report without end, a piece each.
var newsFloods = map[string]func(f *flooded, n int){
	"ARP requests of ever new MACs": func(f *flooded, n int) {
		from := invented(n)
		frame := probe.Question(from[:], netip.MustParseAddr("10.9.0.1"))
		copy(frame, f.device.link.MAC)
		copy(frame[28:], []byte{10, 9, 1, byte(n % floodSenders)})
		f.tap.send(frame)
	},
	"neighbour solicitations of ever new MACs": func(f *flooded, n int) {
		from := invented(n)
		source := netip.MustParseAddr(fmt.Sprintf("fd00:9::%x", 0x100+n%floodSenders)).As16()
		gateway := netip.MustParseAddr("fd00:9::1").As16()
		frame := probe.Question(from[:], netip.AddrFrom16(gateway))
		const icmp = wireEtherLength + wireIPv6Length
		copy(frame, f.device.link.MAC)
		copy(frame[wireEtherLength+8:], source[:])
		copy(frame[wireEtherLength+24:], gateway[:])
		clear(frame[icmp+2 : icmp+4])
		binary.BigEndian.PutUint16(frame[icmp+2:], icmp6.Checksum(source, gateway, frame[icmp:]))
		f.tap.send(frame)
	},
	"ever new MACs": func(f *flooded, n int) {
		from := invented(n)
		f.tap.send(gratuitous([]byte{2, 0xdd, 0, 0, 0, 1}, from[:], "10.8.0.9", wireArpRequest))
	},
	"links": func(f *flooded, n int) {
		eth0, err := f.port.NS.Netlink().LinkByName("eth0")
		if err == nil {
			err = f.port.NS.Netlink().LinkSetAlias(eth0, fmt.Sprint(n))
		}
		if err != nil {
			f.t.Fatal(err)
		}
	},
	"addresses": func(f *flooded, n int) {
		if n%2 == 0 {
			f.port.AddAddr("10.8.0.9/24")
		} else {
			f.port.DelAddr("10.8.0.9/24")
		}
	},
}

// Whatever one guest has the kernel report, and however much of it: settling an
// address asks the kernel a bounded number of questions, finds who has just come
// with that address, silences no witness, and remembers no more than so much. What it
// leaves is done by Run.
func TestF2SettleBesideFloods(t *testing.T) {
	t.Parallel()
	const burst, candidate, most = 3000, "10.8.0.77", 48
	for name, piece := range newsFloods {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFlooded(t)
			f.ns.AddAddr("rt0", "10.9.0.1/16")
			f.ns.AddAddr("rt0", "fd00:9::1/64")
			f.settle()
			rt0, err := f.ns.Netlink().LinkByName("rt0")
			if err != nil {
				t.Fatal(err)
			}
			for n := range burst {
				piece(f, n)
				if n%1000 != 999 {
					continue
				}
				become := func(state int) {
					realtest.Eventually(t, wait, "room in the neighbour table", func() bool {
						return f.ns.Netlink().NeighSet(&netlink.Neigh{LinkIndex: rt0.Attrs().Index, IP: net.ParseIP(candidate),
							State: state, HardwareAddr: net.HardwareAddr{2, 0, 0, 0, 0xcc, byte(n >> 8)}}) == nil
					})
				}
				become(unix.NUD_REACHABLE)
				if asked := f.asks(func() { f.expectAbout(candidate, true) }); asked > most {
					t.Errorf("it took %d questions to the kernel, at most %d are due", asked, most)
				}
				become(unix.NUD_STALE) // a memory of a MAC that the bridge does not know
				f.expectAbout(candidate, false)
				f.noneSilent()
				if again := len(f.neighbour.again); again > mostNeighboursAgain {
					t.Errorf("%d neighbours are to be looked up again", again)
				}
			}
			due := f.schedule()
			due.refresh = time.Now().Add(time.Hour)
			realtest.Eventually(t, wait, "Run to have done the rest", func() bool {
				if err := f.step(context.Background(), due, false); err != nil {
					t.Error(err)
				}
				p := f.pending()
				return !p.behind && !p.recount
			})
		})
	}
}

// expectAbout settles an address, and compares whether its neighbour entry is seen.
func (f *flooded) expectAbout(addr string, seen bool) {
	f.t.Helper()
	if err := f.Settle(context.Background(), netip.MustParseAddr(addr)); err != nil {
		f.t.Fatal(err)
	}
	if got := f.about(addr).Seen; (len(got) == 1) != seen {
		f.t.Errorf("%s is seen: %+v, want %v", addr, got, seen)
	}
}

// A guest that answers for every address that is asked for has so many answers
// on the board, its last ones, and takes none of another port's room.
func TestF2AnswersOfOnePort(t *testing.T) {
	t.Parallel()
	f := newFlooded(t)
	other := f.ns.Port("rt0")
	theirs := capture(t, other.NS, "eth0")
	f.settle()
	f.teach(invented(1))
	realtest.Eventually(t, wait, "the other's MAC to be known", func() bool {
		from, at := invented(2), 0
		theirs.send(gratuitous(f.device.link.MAC, from[:], claimed(0), wireArpReply))
		f.questions(func() { at = f.wire().behind(from) })
		return at != 0
	})
	addr := func(n int) netip.Addr { return netip.AddrFrom4([4]byte{10, 8, byte(1 + n>>8), byte(n)}) }
	f.questions(func() {
		f.answers.receive(addr(0), probe.Reply{From: invented(2), Says: invented(2)})
		f.answers.locate(f.wire(), time.Now().Add(time.Hour))
		for n := 1; n <= 3*mostAnswers; n++ {
			f.answers.receive(addr(n), probe.Reply{From: invented(1), Says: invented(1)})
			f.answers.locate(f.wire(), time.Now().Add(time.Hour))
		}
	})
	if n := len(f.board.By(census.Probe)); n != mostAnswers+1 {
		t.Errorf("%d answers are on the board, want %d", n, mostAnswers+1)
	}
	for n, want := range map[int]bool{0: true, 1: false, 3 * mostAnswers: true} {
		if got := len(f.about(addr(n).String()).Seen) > 0; got != want {
			t.Errorf("the answer for address %d is there: %v", n, got)
		}
	}
	f.questions(func() { f.answers.removeFrom(f.wire(), func(origin) bool { return true }) })
	if len(f.answers.byPort) != 0 || len(f.board.By(census.Probe)) != 0 {
		t.Errorf("left are %v", f.answers.byPort)
	}
}

// More answers than the socket holds: what was lost is known, once it was read.
func TestF2LostAnswersAreKnown(t *testing.T) {
	t.Parallel()
	f := newFlooded(t)
	began := time.Now()
	f.settle()
	if f.MissedSince(began) {
		t.Error("answers were lost on a quiet wire")
	}
	if err := unix.SetsockoptInt(f.Bridge.probe.Sockets()[0], unix.SOL_SOCKET, unix.SO_RCVBUF, 1); err != nil {
		t.Fatal(err)
	}
	f.probe(claimed(0))
	realtest.Eventually(t, wait, "a loss", func() bool {
		for n := range 100 { // again: a link that was just set up may lose some
			f.claims(0, invented(n))
		}
		f.settle()
		return f.MissedSince(began)
	})
}
