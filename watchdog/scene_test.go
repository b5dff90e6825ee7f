package watchdog_test

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ipamd/ipamd/bridge"
	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/internal/ctrdtest"
	"github.com/ipamd/ipamd/internal/nstest"
	"github.com/ipamd/ipamd/internal/realtest"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb"
	"github.com/ipamd/ipamd/netdb/netdbtest"
	"github.com/ipamd/ipamd/watchdog"
	"github.com/ipamd/ipamd/watchdog/ctrd"
)

const (
	space = "sandboxes" // the containerd namespace
	soon  = time.Minute // longer than anything takes on a machine that stands still now and then
)

var (
	ctx    = context.Background()
	client = netdbtest.Who(ipam.ByClient, "released")
)

// A scene is a watchdog that runs on a real book, a real bridge and a real
// containerd. No pass of any reconciler runs in it.
type scene struct {
	*testing.T
	d       *ctrdtest.Daemon
	ns      *nstest.NS
	book    *netdb.Book
	read    *readBook
	board   *census.Board
	bridge  *bridge.Bridge
	runtime *ctrd.Witness
	*watchdog.Watchdog
}

func newScene(t *testing.T, d *ctrdtest.Daemon, change ...func(*watchdog.Config)) *scene {
	t.Helper()
	return newSceneAt(t, d, ipam.Now, change...)
}

// newSceneAt has book and watchdog go by one clock.
func newSceneAt(t *testing.T, d *ctrdtest.Daemon, now func() ipam.Stamp, change ...func(*watchdog.Config)) *scene {
	t.Helper()
	opts := netdbtest.Options()
	opts.Now = now
	s := &scene{T: t, d: d, ns: nstest.New(t), book: netdbtest.OpenAt(t, filepath.Join(t.TempDir(), "book.db"), opts)}
	netdbtest.Pool(t, s.book, "default", "10.8.64.0/24")
	s.ns.Bridge("rt0", "10.8.64.1/24")
	s.board = census.NewBoard(census.Netns, census.Host, census.Neighbour, census.Runtime)
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	var err error
	s.bridge, err = bridge.Open(bridge.Config{Name: "rt0", Netns: s.ns.Path(), Board: s.board, Log: log})
	s.check(err)
	t.Cleanup(func() { s.closed(s.bridge.Close()) })
	s.runtime, err = ctrd.New(ctrd.Config{
		Address: d.Address, Namespaces: []string{space}, Timeout: soon, Board: s.board, Every: time.Hour, Log: log,
		OwnerLabel: "runtime.computer/entity-id", AddressLabel: "runtime.computer/ip", LeaseLabel: "ipamd.dev/lease-id", UIDLabel: "ipamd.dev/uid",
	})
	s.check(err)
	t.Cleanup(func() { s.closed(s.runtime.Close()) })
	s.read = &readBook{Book: s.book}
	cfg := watchdog.Config{
		Book: s.read, Board: s.board, Runtime: s.runtime, Kernel: s.bridge, PortsChanged: s.bridge.Changed,
		Settle: s.bridge.Settle, ReleasingMax: time.Hour, Timeout: soon, Parallel: 16,
		Now: s.book.Now, Log: log,
	}
	for _, c := range change {
		c(&cfg)
	}
	s.Watchdog, err = watchdog.New(cfg)
	s.check(err)
	s.check(s.bridge.Refresh(ctx))
	s.run(s.bridge.Run)
	s.run(s.runtime.Run)
	s.eventually("every witness answers", func() bool { return len(s.board.Silent()) == 0 })
	s.run(s.Watchdog.Run)
	return s
}

func (s *scene) check(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

func (s *scene) closed(err error) {
	if err != nil {
		s.Error(err)
	}
}

// run runs a loop until the test ends, and sees that it ends then.
func (s *scene) run(loop func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- loop(ctx) }()
	s.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			s.Errorf("asked to stop, a loop returned %v", err)
		}
	})
}

func (s *scene) eventually(what string, ok func() bool) {
	s.Helper()
	realtest.Eventually(s, soon, what, ok)
}

// A readBook counts how often all its leases were read.
type readBook struct {
	*netdb.Book
	times atomic.Int64
}

func (b *readBook) Leases() ([]*ipam.Lease, int64) {
	b.times.Add(1)
	return b.Book.Leases()
}

// A sandbox has one lease, perhaps a port with the lease's address, and
// containers.
type sandbox struct {
	name  string
	lease *ipam.Lease
	port  *nstest.Port
}

// bare makes a bound sandbox of containers that have a record and nothing
// else. Their removal takes so little time that it may be over before the
// watchdog has seen them with their lease: it needs a release, or noticed.
func (s *scene) bare(name string, containers ...string) *sandbox {
	s.Helper()
	b := &sandbox{name: name, lease: netdbtest.Reserve(s, s.book, name)}
	for _, id := range containers {
		s.d.Create(s, ctrdtest.Spec{Namespace: space, ID: id, Labels: s.labels(b)})
	}
	s.bind(b, containers...)
	return b
}

// running makes a bound sandbox of containers that run, without a port, and
// returns when the watchdog knows them.
func (s *scene) running(name string, containers ...string) *sandbox {
	s.Helper()
	b := &sandbox{name: name, lease: netdbtest.Reserve(s, s.book, name)}
	for _, id := range containers {
		s.d.Run(s, ctrdtest.Spec{Namespace: space, ID: id, Labels: s.labels(b)})
	}
	s.bind(b, containers...)
	s.noticed()
	return b
}

// plugged makes a bound sandbox with a port, and containers that run in it, and
// returns when the watchdog knows them.
func (s *scene) plugged(name string, containers ...string) *sandbox {
	s.Helper()
	b := &sandbox{name: name, lease: netdbtest.Reserve(s, s.book, name)}
	b.port = s.ns.Port("rt0", b.lease.Addr.String()+"/24")
	for _, id := range containers {
		s.d.Run(s, ctrdtest.Spec{Namespace: space, ID: id, Labels: s.labels(b), Netns: b.port.NS.Path()})
	}
	s.bind(b, containers...)
	s.noticed()
	return b
}

func (s *scene) labels(b *sandbox) map[string]string {
	return map[string]string{"runtime.computer/entity-id": b.name, "runtime.computer/ip": b.lease.Addr.String(), "ipamd.dev/lease-id": b.lease.ID}
}

// bind records the containers, and waits until the board has them.
func (s *scene) bind(b *sandbox, containers ...string) {
	s.Helper()
	var n ipam.Binding
	for _, id := range containers {
		n.Containers = append(n.Containers, ipam.Container{Namespace: space, ID: id})
	}
	if b.port != nil {
		n.HostInterface, n.Netns, n.MAC = b.port.HostName, b.port.NS.Path(), b.port.MAC.String()
		n.Plug.Boot = ipam.Now().BootID // it was looked at
	}
	for _, id := range containers {
		s.eventually("the board shows "+id, func() bool { return s.onBoard(id) })
	}
	l, err := s.book.Bind(ctx, client, b.lease.ID, 0, n)
	s.check(err)
	b.lease = l
}

func (s *scene) onBoard(id string) bool {
	for _, seen := range s.board.Census().Seen {
		if slices.ContainsFunc(seen, func(at census.Sighting) bool { return at.Witness == census.Runtime && at.Container == id }) {
			return true
		}
	}
	return false
}

// noticed returns when the watchdog has read all that was bound so far. It
// paces its readings by what they cost: on a busy machine a container could be
// gone before the next.
func (s *scene) noticed() {
	s.Helper()
	n := s.read.times.Load()
	l := netdbtest.Reserve(s, s.book, fmt.Sprint("news-", n))
	_, err := s.book.Bind(ctx, client, l.ID, 0, ipam.Binding{Netns: "/run/netns/news"}) // a new lease alone wakes no watchdog
	s.check(err)
	s.eventually("the watchdog reads the book", func() bool { return s.read.times.Load() > n })
	ctx, cancel := context.WithTimeout(ctx, soon)
	defer cancel()
	s.check(s.Alive(ctx)) // it sleeps: that reading is over
}

func (s *scene) release(b *sandbox) (*ipam.Lease, []watchdog.Blocker) {
	s.Helper()
	l, blockers, err := s.Release(ctx, client, b.lease.ID, "", 0)
	s.check(err)
	return l, blockers
}

// now returns the lease's row.
func (s *scene) now(b *sandbox) *ipam.Lease {
	s.Helper()
	l, err := s.book.Lease(b.lease.ID)
	s.check(err)
	return l
}

// blocked waits until an attempt has found exactly these kinds, and returns
// the first's detail.
func (s *scene) blocked(b *sandbox, kinds ...string) string {
	s.Helper()
	var got []watchdog.Blocker
	s.eventually(b.name+" is blocked by "+strings.Join(kinds, " "), func() bool {
		got = s.Blockers(s.now(b))
		return slices.EqualFunc(got, kinds, func(b watchdog.Blocker, kind string) bool { return b.Kind == kind }) &&
			!strings.Contains(got[0].Detail, "not confirmed")
	})
	return got[0].Detail
}

func (s *scene) cools(b *sandbox) {
	s.Helper()
	realtest.Eventually(s, soon, b.name+" cools", func() bool { return s.now(b).State == ipam.Cooling })
}

// changes are what happened to a lease, oldest first: "bound releasing:removed".
func (s *scene) changes(b *sandbox) (out []ipam.Change) {
	s.Helper()
	all, err := s.book.History(ctx, ipam.Query{LeaseID: b.lease.ID, Limit: 100})
	s.check(err)
	slices.SortFunc(all, func(a, b ipam.Change) int { return int(a.Rev - b.Rev) })
	return all
}

func story(changes []ipam.Change) string {
	var out []string
	for _, c := range changes {
		out = append(out, string(c.To)+":"+c.Who.Reason)
	}
	return strings.Join(out, " ")
}
