package bridge

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/ipamd/ipamd/bridge/rtnl"
	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/internal/nstest"
	"github.com/ipamd/ipamd/internal/realtest"
)

// run starts Run and ends it with the test.
func (v *view) run(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- v.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("run: %v", err)
		}
	})
}

// seen reports, without settling, whether a witness sees an address.
func (v *view) seen(addr string) bool { return len(v.about(addr).Seen) != 0 }

// C2: Run alone keeps the board current; no reading is due for an hour.
func TestC2RunHearsNews(t *testing.T) {
	t.Parallel()
	ns := nstest.New(t)
	ns.Bridge("rt0", "10.8.0.1/24")
	v := open(t, ns, func(c *Config) { c.Every = time.Hour })
	v.run(t)
	p := ns.Port("rt0", "10.8.0.7/24")
	realtest.Eventually(t, wait, "the address", func() bool { return v.seen("10.8.0.7") })
	realtest.Eventually(t, wait, "the name of its namespace", func() bool {
		id, err := v.NetnsID(t.Context(), p.NS.Path())
		return err == nil && v.about("10.8.0.7").Seen[0].Netns == census.NewNetnsID(id, p.NS.Name())
	})
	p.DelAddr("10.8.0.7/24")
	realtest.Eventually(t, wait, "its end", func() bool { return !v.seen("10.8.0.7") })

	p.AddAddr("10.8.0.8/24")
	realtest.Eventually(t, wait, "an answer to a probe", func() bool {
		if err := v.Probe(context.Background(), v.about("10.8.0.8").Addr); err != nil {
			t.Fatal(err)
		}
		return len(v.about("10.8.0.8").Seen) == 2
	})
}

// Some kernels name the bridge's own namespace as the one that its own news comes from: by
// the id that it has for itself, and by -1.
func TestOwnNewsUnderAnyID(t *testing.T) {
	t.Parallel()
	ns := nstest.New(t)
	ns.Bridge("rt0", "10.8.0.1/24")
	v := open(t, ns)
	if id, err := v.NetnsID(t.Context(), ns.Path()); err != nil || id != v.news.Self {
		t.Errorf("the bridge's namespace knows itself by %d, %v, and it is %d that is known", id, err, v.news.Self)
	}
	for id, want := range map[int]int{v.news.Self: rtnl.NoNetns, rtnl.Unassigned: rtnl.NoNetns, v.news.Self + 1: v.news.Self + 1} {
		if got := rtnl.Sender(fromSpace(id), v.news.Self); got != want {
			t.Errorf("news under id %d is taken for that of %d, want %d", id, got, want)
		}
	}
}

// The backstop finds what no news said.
func TestRunReadsAnew(t *testing.T) {
	t.Parallel()
	ns := nstest.New(t)
	ns.Bridge("rt0", "10.8.0.1/24")
	p := ns.Port("rt0")
	v := open(t, ns, func(c *Config) { c.Every = 5 * time.Millisecond })
	// Deaf for links and addresses from here on.
	for _, g := range []int{unix.RTNLGRP_LINK, unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR} {
		if err := unix.SetsockoptInt(v.news.Links, unix.SOL_NETLINK, unix.NETLINK_DROP_MEMBERSHIP, g); err != nil {
			t.Fatal(err)
		}
	}
	v.settle() // what was on its way is in
	p.AddAddr("10.8.0.7/24")
	v.expect("10.8.0.7", "")
	v.run(t)
	realtest.Eventually(t, wait, "the address", func() bool { return v.seen("10.8.0.7") })
}

// More news than the socket holds: what was lost is read again.
func TestOverrun(t *testing.T) {
	t.Parallel()
	ns := nstest.New(t)
	ns.Bridge("rt0", "10.8.0.1/24")
	gone := ns.Port("rt0", "10.8.0.6/24")
	p := ns.Port("rt0")
	var logged bytes.Buffer
	v := open(t, ns, func(c *Config) { c.Log = slog.New(slog.NewTextHandler(&logged, nil)) })
	v.expect("10.8.0.6", "netns")
	for _, fd := range []int{v.news.Links, v.news.Neighbours} {
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, 1); err != nil {
			t.Fatal(err)
		}
	}
	for range 200 {
		p.AddAddr("10.8.0.9/24")
		p.DelAddr("10.8.0.9/24")
	}
	p.AddAddr("10.8.0.7/24")
	gone.DelAddr("10.8.0.6/24")
	late := ns.Port("rt0", "10.8.0.8/24")
	v.expect("10.8.0.7", "netns")
	v.expect("10.8.0.8", "netns")
	v.expect("10.8.0.6", "")
	v.expect("10.8.0.9", "")
	v.noneSilent()
	late.Close()
	if !strings.Contains(logged.String(), "kernel news was lost") {
		t.Errorf("the flood was no flood:\n%s", &logged)
	}
}

// What happens after the overrun was met, while everything is read anew, is not
// lost: the kernel reports it no second time.
func TestNewsBehindAnOverrun(t *testing.T) {
	t.Parallel()
	ns := nstest.New(t)
	ns.Bridge("rt0", "10.8.0.1/24")
	p, noise := ns.Port("rt0"), ns.Port("rt0")
	v := open(t, ns)
	if err := unix.SetsockoptInt(v.news.Links, unix.SOL_SOCKET, unix.SO_RCVBUF, 1); err != nil {
		t.Fatal(err)
	}
	for range 100 {
		noise.AddAddr("10.8.0.9/24")
		noise.DelAddr("10.8.0.9/24")
	}
	v.settle()
	p.AddAddr("10.8.0.7/24")
	v.expect("10.8.0.7", "netns")
}

// A guest that makes news as fast as they are read holds up no caller for ever, and what
// the socket had no room for meanwhile is not forgotten before it was read empty.
func TestNewsWithoutAnEnd(t *testing.T) {
	t.Parallel()
	ns := nstest.New(t)
	ns.Bridge("rt0", "10.8.0.1/24")
	v := open(t, ns)
	rt0, err := ns.Netlink().LinkByName("rt0")
	if err != nil {
		t.Fatal(err)
	}
	mac, made := byte(0), 0
	more := func() {
		mac++
		entry := &netlink.Neigh{LinkIndex: rt0.Attrs().Index, IP: net.IPv4(10, 8, 0, 9), State: unix.NUD_STALE,
			HardwareAddr: net.HardwareAddr{2, 0, 0, 0, 0, mac}}
		if err := ns.Netlink().NeighSet(entry); err != nil {
			t.Fatal(err)
		}
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if err := unix.SetsockoptInt(v.news.Neighbours, unix.SOL_SOCKET, unix.SO_RCVBUF, 1); err != nil {
		t.Fatal(err)
	}
	for range 10 {
		more()
	}
	endless := func(int, rtnl.Header, []byte) {
		if made++; made > 2*rtnl.MostAtOnce {
			t.Fatal("it is read for ever")
		}
		more()
	}
	for range 2 {
		made = 0
		if _, err := v.news.Read(v.news.Neighbours, rtnl.MostAtOnce, endless); !errors.Is(err, rtnl.ErrOverrun) {
			t.Errorf("after %d messages: %v", made, err)
		}
	}
	for _, want := range []error{rtnl.ErrOverrun, nil} {
		if _, err := v.news.Read(v.news.Neighbours, rtnl.MostAtOnce, func(int, rtnl.Header, []byte) {}); !errors.Is(err, want) {
			t.Errorf("read empty: %v, want %v", err, want)
		}
	}
}

// C5: news that cannot be read silences the witnesses, and Run opens the
// sockets again.
func TestC5BrokenSocket(t *testing.T) {
	t.Parallel()
	ns := nstest.New(t)
	ns.Bridge("rt0", "10.8.0.1/24")
	p := ns.Port("rt0", "10.8.0.7/24")
	v := open(t, ns)
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	if err := unix.Dup3(int(null.Fd()), v.news.Links, unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	if err := v.Settle(context.Background()); err == nil {
		t.Error("settled on a broken socket")
	}
	v.allSilent("read kernel news")
	v.wantUnready("the kernel's news about rt0 cannot be read")
	if !v.seen("10.8.0.7") {
		t.Error("what was seen is forgotten")
	}
	if err := v.Refresh(context.Background()); err == nil {
		t.Error("read the bridge without its news")
	}
	p.AddAddr("10.8.0.8/24")
	v.run(t)
	realtest.Eventually(t, wait, "no silence", func() bool { return len(v.board.Silent()) == 0 })
	v.expect("10.8.0.8", "netns")
	v.wantReady()
}

// Everything at once, for the race detector: two callers, Run, and a bridge
// whose ports come and go.
func TestConcurrentUse(t *testing.T) {
	t.Parallel()
	ns := nstest.New(t)
	ns.Bridge("rt0", "10.8.0.1/24", "fd00:8::1/64")
	stays := ns.Port("rt0", "10.8.0.7/24")
	v := open(t, ns, gateways("10.8.0.1/24"), func(c *Config) { c.Every = 3 * time.Millisecond })
	v.run(t)
	ctx, cancel := context.WithCancel(context.Background())
	var callers sync.WaitGroup
	for range 2 {
		callers.Go(func() {
			for ctx.Err() == nil {
				if err := v.Settle(context.Background()); err != nil {
					t.Errorf("settle: %v", err)
				}
				if err := v.Ready(); err != nil {
					t.Errorf("ready: %v", err)
				}
				for _, addr := range []string{"10.8.0.7", "10.8.0.8", "fd00:8::8"} {
					a := v.about(addr)
					if err := v.Probe(context.Background(), a.Addr); err != nil {
						t.Errorf("probe: %v", err)
					}
					if addr == "10.8.0.7" && len(a.Seen) == 0 {
						t.Error("a standing address was unseen for a moment")
					}
				}
				v.Status()
			}
		})
	}
	for range 20 {
		ns.Port("rt0", "10.8.0.8/24", "fd00:8::8/64").Close()
	}
	cancel()
	callers.Wait()
	stays.Close()
}
