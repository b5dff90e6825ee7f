package idle

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ipamd/ipamd/internal/nstest"
	"github.com/ipamd/ipamd/internal/realtest"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb"
	"github.com/ipamd/ipamd/netdb/netdbtest"
	"github.com/ipamd/ipamd/nft"
)

var who = netdbtest.Who(ipam.ByClient, "bound")

// A scene is a bridge with a sandbox, a neighbour and a scraper.
type scene struct {
	ns                          *nstest.NS
	book                        *netdb.Book
	sandbox, neighbour, scraper *nstest.Port
	l                           *ipam.Lease
	w                           *Watcher
}

// pauses is a Pauser that is a function.
type pauses func(l *ipam.Lease, quiet func() error) error

func (p pauses) Repause(_ context.Context, l *ipam.Lease, quiet func() error) error {
	return p(l, quiet)
}

func stage(t *testing.T, after time.Duration, p Pauser) *scene {
	t.Helper()
	realtest.Long(t)
	s := &scene{ns: nstest.New(t), book: netdbtest.Open(t)}
	s.ns.Bridge("rt0", "10.8.64.1/24", "fd00:8::1/64")
	s.sandbox, s.neighbour = s.ns.Port("rt0", "10.8.64.2/24", "fd00:8::2/64"), s.ns.Port("rt0", "10.8.64.9/24", "fd00:8::9/64")
	s.scraper = s.ns.Port("rt0", "10.8.64.10/24")
	s.l = netdbtest.Reserve(t, s.book, "a")
	var err error
	if s.l, err = s.book.Bind(t.Context(), who, s.l.ID, 0, ipam.Binding{HostInterface: s.sandbox.HostName, Containers: []ipam.Container{{Namespace: "default", ID: "a"}}}); err != nil {
		t.Fatal(err)
	}
	s.open(t, after, p)
	return s
}

// A wall clock that was set since a lease began hides none of its traffic, and shows it none of the
// owner's before it.
func TestAWallClockThatWasSet(t *testing.T) {
	book := netdbtest.Open(t)
	l, err := book.Bind(t.Context(), who, netdbtest.Reserve(t, book, "a").ID, 0, ipam.Binding{HostInterface: "veth-a"})
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(2 * time.Millisecond)
	for _, by := range []time.Duration{0, time.Hour, -time.Hour} {
		now := *l
		now.Created.Wall = time.Unix(0, l.Created.Wall.Add(by).UnixNano()) // as it is read from the file
		w := &Watcher{cfg: Config{Book: book}, last: make(map[netip.Addr]time.Time)}
		w.last[l.Addr] = time.Now()
		if at, known := w.LastTraffic(&now); !known || !at.Equal(w.last[l.Addr]) {
			t.Errorf("set by %v: its traffic is %v, %v", by, at, known)
		}
		w.last[l.Addr] = time.Now().Add(-30 * time.Minute)
		if at, known := w.LastTraffic(&now); known {
			t.Errorf("set by %v: traffic at %v is of before", by, at)
		}
	}
}

func (s *scene) inside(f func() error) (err error) {
	s.ns.Do(func() { err = f() })
	return err
}

func (s *scene) open(t *testing.T, after time.Duration, p Pauser) {
	t.Helper()
	var err error
	if s.w, err = Open(t.Context(), Config{Book: s.book, Pauser: p, Inside: s.inside, After: after,
		Ignore: []netip.Prefix{netip.MustParsePrefix("10.8.64.10/32")}, Log: slog.New(slog.NewTextHandler(t.Output(), nil))}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.w.Close() })
}

func (s *scene) run(t *testing.T) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.w.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return stop
}

func datagram(t *testing.T, from *nstest.NS, to string) {
	t.Helper()
	from.Do(func() {
		c, err := net.Dial("udp", to)
		if err == nil {
			_, err = c.Write([]byte("?"))
			_ = c.Close()
		}
		if err != nil {
			t.Error(err)
		}
	})
}

// last reads when the sandbox had traffic.
func (s *scene) last(t *testing.T) (time.Time, bool) {
	t.Helper()
	if err := s.w.Read(); err != nil {
		t.Fatal(err)
	}
	return s.w.LastTraffic(s.l)
}

// Z18: traffic is what passes the bridge to or from the sandbox. ARP, ND, an echo request, a
// broadcast and what a scraper asks are none; what the kernel knows of the time before outlives
// the daemon.
func TestZ18WhatIsTraffic(t *testing.T) {
	s := stage(t, time.Hour, nil)
	none := func(what string) {
		t.Helper()
		if at, known := s.last(t); known {
			t.Errorf("%s counts as traffic: %v", what, at)
		}
	}
	none("nothing")
	s.neighbour.NS.Exec("busybox", "ping", "-c", "1", "-W", "5", "10.8.64.2") // with ARP before it
	s.neighbour.NS.Exec("busybox", "ping", "-c", "1", "-W", "5", "fd00:8::2")
	none("an echo request")
	s.report(t)
	none("a membership report")
	datagram(t, s.scraper.NS, "10.8.64.2:9100") // refused by ICMP
	none("a scrape")
	before := time.Now()
	datagram(t, s.neighbour.NS, "10.8.64.2:53")
	at, known := s.last(t)
	if !known || at.Before(before.Add(-time.Second)) || at.After(time.Now().Add(time.Second)) {
		t.Errorf("a datagram: %v %v", at, known)
	}
	if err := s.w.Close(); err != nil {
		t.Fatal(err)
	}
	s.open(t, time.Hour, nil)
	if again, known := s.last(t); !known || again.Before(at.Add(-time.Second)) {
		t.Errorf("after a restart: %v %v", again, known)
	}
	time.Sleep(10 * time.Millisecond) // the kernel counts in its own ticks
	datagram(t, s.sandbox.NS, "10.8.64.1:53")
	if now, _ := s.last(t); !now.After(at) {
		t.Errorf("a datagram of the sandbox's: %v, before it %v", now, at)
	}
}

// report has the sandbox's kernel report to routers, as it joins a group.
func (s *scene) report(t *testing.T) {
	t.Helper()
	s.sandbox.NS.Do(func() {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Close(fd) })
		if err := unix.SetsockoptIPMreq(fd, unix.IPPROTO_IP, unix.IP_ADD_MEMBERSHIP,
			&unix.IPMreq{Multiaddr: [4]byte{239, 1, 2, 3}, Interface: [4]byte{10, 8, 64, 2}}); err != nil {
			t.Fatal(err)
		}
	})
	time.Sleep(100 * time.Millisecond) // it is sent at once, and again
}

// Z18: what goes to or comes from any address of a delegated prefix is its sandbox's traffic,
// what goes beside it is not; and with the prefix the other times stay.
func TestZ18ADelegatedPrefixHasTraffic(t *testing.T) {
	s := stage(t, time.Hour, nil)
	// Behind ARP a datagram is on its way a moment longer.
	after := func(what string, before time.Time) (at time.Time) {
		t.Helper()
		realtest.Eventually(t, time.Minute, what, func() bool {
			now, known := s.last(t)
			at = now
			return known && now.After(before)
		})
		return at
	}
	time.Sleep(10 * time.Millisecond) // the kernel counts in its own ticks: traffic of before the lease would not be its own
	datagram(t, s.neighbour.NS, "10.8.64.2:53")
	before := after("traffic of the address", time.Time{})
	alone := s.l
	inside := s.ns.Port("rt0", "10.8.64.20/24", "10.8.64.31/24")
	l := netdbtest.ReservePrefix(t, s.book, "vm", 28)
	if l.Text() != "10.8.64.16/28" {
		t.Fatal(l.Text())
	}
	var err error
	if s.l, err = s.book.Bind(t.Context(), who, l.ID, 0, ipam.Binding{HostInterface: inside.HostName}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.w.look(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.ns.Port("rt0", "10.8.64.32/24").NS.Do(func() {
		if _, err := net.DialTimeout("tcp", "10.8.64.9:9", time.Minute); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("there and back: %v", err)
		}
	})
	if at, known := s.last(t); known {
		t.Errorf("traffic beside it: %v", at)
	}
	datagram(t, s.neighbour.NS, "10.8.64.31:53")
	at := after("traffic to its last address", time.Time{})
	time.Sleep(10 * time.Millisecond) // the kernel counts in its own ticks
	datagram(t, inside.NS, "10.8.64.1:53")
	after("traffic of the sandbox's own", at)
	if now, known := s.w.LastTraffic(alone); !known || now.Sub(before).Abs() > time.Second {
		t.Errorf("of the other sandbox: %v, was %v", now, before)
	}
}

// idles counts the changes that say that the sandbox is idle.
func (s *scene) idles(t *testing.T) (n int) {
	t.Helper()
	all, err := s.book.Changes(context.Background(), 0, 10_000)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range all {
		if c.LeaseID == s.l.ID && c.Who.Reason == reasonIdle {
			n++
		}
	}
	return n
}

// Z18: a sandbox without traffic is said to be idle once, over restarts, and again after traffic.
func TestZ18IdleIsSaidOnce(t *testing.T) {
	s := stage(t, ipam.LeastIdle, nil)
	stop := s.run(t)
	realtest.Eventually(t, time.Minute, "it is idle", func() bool { return s.idles(t) == 1 && s.w.Idle() == 1 })
	if quiet := s.w.Quiet(); len(quiet) != 1 || quiet[0] < ipam.LeastIdle {
		t.Errorf("quiet for %v", quiet)
	}
	stop()
	_ = s.w.Close()
	s.open(t, ipam.LeastIdle, nil)
	for range 3 {
		if _, err := s.w.look(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if n := s.idles(t); n != 1 {
		t.Errorf("said %d times", n)
	}
	datagram(t, s.neighbour.NS, "10.8.64.2:53")
	if _, err := s.w.look(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.run(t)
	realtest.Eventually(t, time.Minute, "it is idle again", func() bool { return s.idles(t) == 2 })
}

// Z8, Z18: a sandbox is paused again as its policy says; traffic until it is watched calls that off.
func TestZ8Z18PausedAgain(t *testing.T) {
	var s *scene
	results := make(chan error, 100)
	traffic := true
	s = stage(t, time.Hour, pauses(func(l *ipam.Lease, quiet func() error) error {
		if traffic {
			datagram(t, s.neighbour.NS, "10.8.64.2:53")
			traffic = false
		}
		err := quiet()
		results <- err
		return err
	}))
	w := ipam.WakePolicy{RepauseAfter: ipam.LeastIdle}
	if _, err := s.book.PauseAs(t.Context(), who, s.l.ID, 0, ipam.Sleep{Mode: ipam.Freeze, Do: true, Wake: &w}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.book.Resume(t.Context(), who, s.l.ID, 0); err != nil {
		t.Fatal(err)
	}
	s.run(t)
	if err := <-results; !errors.Is(err, errTraffic) {
		t.Errorf("with traffic: %v", err)
	}
	if err := <-results; err != nil {
		t.Errorf("without: %v", err)
	}
}

// One sandbox that cannot be paused holds up no other, and is not tried again at once.
func TestZ18OneThatCannotBePaused(t *testing.T) {
	goOn, last := make(chan struct{}), time.Now()
	var tries atomic.Int32
	s := stage(t, ipam.LeastIdle, pauses(func(_ *ipam.Lease, quiet func() error) error {
		switch n, rest := tries.Add(1), time.Since(last); {
		case n == 1:
			<-goOn // its shim is stopped: the attempt lasts as long as it may
		case n == 2 && rest < firstRest, n > 2 && rest < 2*firstRest:
			t.Errorf("tried again after %v", rest)
		}
		last = time.Now()
		return context.DeadlineExceeded
	}))
	goOnce := sync.OnceFunc(func() { close(goOn) })
	w := ipam.WakePolicy{RepauseAfter: ipam.LeastIdle}
	if _, err := s.book.PauseAs(t.Context(), who, s.l.ID, 0, ipam.Sleep{Mode: ipam.Freeze, Do: true, Wake: &w}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.book.Resume(t.Context(), who, s.l.ID, 0); err != nil {
		t.Fatal(err)
	}
	other := netdbtest.Reserve(t, s.book, "b")
	if _, err := s.book.Bind(t.Context(), who, other.ID, 0, ipam.Binding{HostInterface: "veth-b"}); err != nil {
		t.Fatal(err)
	}
	stop := s.run(t)
	t.Cleanup(goOnce)
	realtest.Eventually(t, 20*time.Second, "the other one is said to be idle", func() bool {
		l, err := s.book.Lease(other.ID)
		return err == nil && l.Reason == reasonIdle
	})
	if n := s.idles(t); n != 0 {
		t.Errorf("it is said to be idle while it is being paused: %d", n)
	}
	goOnce()
	realtest.Eventually(t, 20*time.Second, "it is said to be idle", func() bool { return s.idles(t) == 1 })
	realtest.Eventually(t, time.Minute, "it to be tried again", func() bool { return tries.Load() >= 3 })
	stop()
}

// What another program flushed is made again; without a lease nothing is looked at.
func TestTheTable(t *testing.T) {
	s := stage(t, time.Hour, nil)
	s.w.checked = time.Time{}
	if err := s.inside(func() error {
		c, err := nft.Open()
		if err != nil {
			return err
		}
		return errors.Join(c.Remove(t.Context(), nft.Bridge, TableName), c.Close())
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.w.look(t.Context()); err != nil {
		t.Fatal(err)
	}
	datagram(t, s.neighbour.NS, "10.8.64.2:53")
	realtest.Eventually(t, 10*time.Second, "it to be looked at again", func() bool { // the datagram may wait for an answer to ARP
		_, known := s.last(t)
		return known
	})
	if _, err := s.book.Release(t.Context(), who, s.l.ID, "", 0); err != nil {
		t.Fatal(err)
	}
	if _, err := s.w.look(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(s.w.leased) != 0 || len(s.w.last) != 0 {
		t.Errorf("of a lease that is being released: %v", s.w.leased)
	}
	prefix := netip.MustParsePrefix
	got := table(map[netip.Prefix]bool{prefix("10.8.64.2/32"): true, prefix("fd00:8:0:1::/64"): true}, s.w.cfg.Ignore).String()
	for _, want := range []string{"ip6 saddr & ffff:ffff:ffff:ffff:: @prefixes6_64 update @seen6 { ip6 saddr & ffff:ffff:ffff:ffff:: timeout", "hook postrouting", "hook prerouting", "ip saddr 10.8.64.10/32 accept", "ip daddr @leased4 update @seen4 { ip daddr timeout", "ip6 saddr @leased6"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in\n%s", want, got)
		}
	}
	for _, was := range []bool{true, false} {
		if err := s.inside(func() error {
			removed, err := Remove(t.Context())
			if removed != was {
				t.Errorf("a table was removed: %t", removed)
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
}

// A table that another program took away is there again within a second, and what may have passed
// meanwhile is not taken for quiet.
func TestZ18ATableThatAnotherProgramTookAway(t *testing.T) {
	s := stage(t, time.Hour, nil)
	s.run(t)
	datagram(t, s.neighbour.NS, "10.8.64.2:53")
	realtest.Eventually(t, 10*time.Second, "it is read", func() bool { _, known := s.w.LastTraffic(s.l); return known })
	gone := time.Now()
	if err := s.inside(func() error { _, err := Remove(t.Context()); return err }); err != nil {
		t.Fatal(err)
	}
	realtest.Eventually(t, time.Second, "the table is there again", func() bool { return s.w.Read() == nil })
	if quiet, most := s.w.quietFor(s.l), time.Since(gone); quiet > most {
		t.Errorf("quiet for %v, and for %v it is known", quiet, most)
	}
}

// Z18: the tasks of a sandbox stand still for all of its addresses: traffic of another lease of
// it keeps it awake.
func TestZ18TrafficOfAnotherLeaseOfTheSandbox(t *testing.T) {
	asked := make(chan error, 100)
	s := stage(t, time.Hour, pauses(func(_ *ipam.Lease, quiet func() error) error {
		err := quiet()
		asked <- err
		return err
	}))
	c, err := s.book.Pick(s.l.PoolUID, netdbtest.Policy)
	if err != nil {
		t.Fatal(err)
	}
	defer s.book.Drop(c)
	ls, err := s.book.Reserve(t.Context(), netdbtest.Who(ipam.ByAllocator, "allocated"), netdb.Reservation{Candidate: c, Sandbox: s.l.Sandbox, UID: s.l.UID, Interface: "eth1", Attempt: 1, BindWithin: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	other, err := s.book.Bind(t.Context(), who, ls[0].ID, 0, ipam.Binding{HostInterface: s.sandbox.HostName})
	if err != nil {
		t.Fatal(err)
	}
	s.sandbox.AddAddr(other.Addr.String() + "/24")
	w := ipam.WakePolicy{RepauseAfter: 2 * ipam.LeastIdle}
	if _, err := s.book.PauseAs(t.Context(), who, s.l.ID, 0, ipam.Sleep{Mode: ipam.Freeze, Do: true, Wake: &w}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.book.Resume(t.Context(), who, s.l.ID, 0); err != nil {
		t.Fatal(err)
	}
	s.run(t)
	for began := time.Now(); time.Since(began) < 3*w.RepauseAfter; time.Sleep(50 * time.Millisecond) {
		datagram(t, s.neighbour.NS, netip.AddrPortFrom(other.Addr, 53).String())
		select {
		case err := <-asked:
			if err == nil {
				t.Fatalf("it is paused, with traffic at %s", other.Addr)
			}
		default:
		}
	}
	for err = errTraffic; err != nil; {
		err = <-asked // once there is none
	}
}
