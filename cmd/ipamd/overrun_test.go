package main

import (
	"fmt"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/config"
	"github.com/ipamd/ipamd/internal/nstest"
)

// The kernel has more news than the daemon's socket holds, over and over, and in
// the gap a stranger takes the address that would be given next, and
// leaves a former one. What it took is not given, at once and though no reading
// is due for an hour; and in the end the board is what a recount of the
// namespaces says.
func TestLostNews(t *testing.T) {
	w := newWorld(t, slow, pool("10.8.64.0/20"), func(c *config.Config) { c.Bridge.Refresh = config.Duration(time.Hour) })
	stranger, noise := w.ns.Port("rt0"), w.ns.Port("rt0", "10.8.79.1/20")
	last := netip.MustParseAddr(w.allocate("first").Leases[0].Address)
	starve(t)
	var taken netip.Addr
	for round := range 30 {
		before := w.lostNews()
		chatter(t, noise)
		if round%2 == 1 {
			stranger.DelAddr(taken.String() + "/20")
		}
		taken = last.Next()
		stranger.AddAddr(taken.String() + "/20")
		for again := 0; ; again++ {
			chatter(t, noise)
			last = netip.MustParseAddr(w.allocate(fmt.Sprint("s", round, "-", again)).Leases[0].Address)
			if last == taken {
				t.Fatalf("round %d: %s was given, which a stranger has", round, taken)
			}
			if w.lostNews() > before {
				break
			}
			if again == 100 {
				t.Fatalf("round %d: no news was lost", round)
			}
		}
	}
	if !strings.Contains(w.log.String(), "kernel news was lost") {
		t.Error("it was not reported")
	}
	got := make(map[string]bool)
	for _, s := range w.program.board.By(census.Netns) {
		got[s.Addr.String()] = true
	}
	want := make(map[string]bool)
	for _, p := range []*nstest.Port{stranger, noise} {
		for _, a := range addressesOf(t, p) {
			want[a] = true
		}
	}
	if !maps.Equal(got, want) || len(want) < 10 {
		t.Errorf("the board has %v, the namespaces %v", slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)))
	}
}

// starve leaves the sockets of this process that learn of links room for a
// message or two.
func starve(t *testing.T) {
	t.Helper()
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	starved := 0
	for _, f := range open {
		fd, err := strconv.Atoi(f.Name())
		if err != nil {
			t.Fatal(err)
		}
		name, err := unix.Getsockname(fd)
		if at, ok := name.(*unix.SockaddrNetlink); err != nil || !ok || at.Groups&(1<<(unix.RTNLGRP_LINK-1)) == 0 {
			continue
		}
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, 1); err != nil {
			t.Fatal(err)
		}
		starved++
	}
	if starved != 1 {
		t.Fatalf("%d sockets learn of links", starved)
	}
}

// lostNews is how many messages the kernel had no room for in the sockets of
// w's namespace.
func (w *world) lostNews() (n int) {
	w.t.Helper()
	var table []byte
	var err error
	w.ns.Do(func() { table, err = os.ReadFile("/proc/thread-self/net/netlink") })
	if err != nil {
		w.t.Fatal(err)
	}
	for line := range strings.Lines(string(table)) {
		fields := strings.Fields(line)
		if drops, err := strconv.Atoi(fields[8]); err == nil { // else the heading
			n += drops
		}
	}
	return n
}

// chatter makes two hundred pieces of news behind a port, and leaves it as it
// was.
func chatter(t *testing.T, p *nstest.Port) {
	t.Helper()
	for range 100 {
		p.AddAddr("10.8.79.2/20")
		p.DelAddr("10.8.79.2/20")
	}
}

// addressesOf lists a port's addresses that others can have, as the kernel
// lists them inside its namespace.
func addressesOf(t *testing.T, p *nstest.Port) (out []string) {
	t.Helper()
	all, err := p.NS.Netlink().AddrList(nil, netlink.FAMILY_ALL)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range all {
		if a.IP.IsGlobalUnicast() {
			out = append(out, a.IP.String())
		}
	}
	return out
}
