package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/client"
	"github.com/ipamd/ipamd/config"
	"github.com/ipamd/ipamd/internal/ctrdtest"
	"github.com/ipamd/ipamd/internal/nstest"
	"github.com/ipamd/ipamd/internal/realtest"
)

// hasty makes a pass release what the pass before it missed, and makes none by
// itself.
func hasty(c *config.Config) {
	slow(c)
	c.Reconcile.Misses, c.Reconcile.Age = 1, config.Duration(time.Nanosecond)
}

// pass makes a pass with a person's word, so that no brake hides a release.
func (w *world) pass() api.Report {
	w.t.Helper()
	r, err := w.client.Reconcile(ctx, api.ReconcileRequest{Confirm: true})
	if err != nil {
		w.t.Fatal(err)
	}
	return r.Report
}

// bind binds a lease to containers of the namespace default.
func (w *world) bind(l api.Lease, ids ...string) api.Lease {
	w.t.Helper()
	var where api.BindRequest
	for _, id := range ids {
		where.Containers = append(where.Containers, api.Container{Namespace: "default", ID: id})
	}
	r, err := w.client.Bind(ctx, l.ID, where)
	if err != nil {
		w.t.Fatal(err)
	}
	return r.Lease
}

// stays fails the test when a lease is not bound any more, or was not all the
// time: no lease that is released comes back.
func (w *world) stays(l api.Lease) {
	w.t.Helper()
	now, err := w.client.Lease(ctx, l.ID)
	if err != nil {
		w.t.Fatal(err)
	}
	// That another is seen on it may be noted.
	same := now.Lease.Revision == l.Revision || strings.HasPrefix(now.Lease.Reason, "conflict_")
	if !same || now.Lease.State != api.Bound || now.Lease.MAC != l.MAC || !now.Lease.Since.Equal(l.Since) {
		w.t.Errorf("lease of %s: %+v, %v; it was bound at revision %d", l.Sandbox, now, err, l.Revision)
	}
}

// R4: leases are bound by the names of many containers, of which one is there
// at any moment and never the same for long. However readings and look-ups
// fall in between, and though look-ups one after another can miss it all the
// time, no pass may take the sandbox for gone.
func TestR4ChurnUnderPasses(t *testing.T) {
	t.Parallel()
	ctrdtest.One(t, func(t *testing.T, d *ctrdtest.Daemon) {
		w := newWorld(t, withContainerd(d), hasty)
		const leases, names, cycles = 3, 32, 30
		var held []api.Lease
		var there [leases]string
		for i := range leases {
			var all []string
			for k := range names {
				all = append(all, fmt.Sprintf("s%d-%d", i, k))
			}
			d.Create(t, ctrdtest.Spec{ID: all[0]})
			there[i] = all[0]
			held = append(held, w.bind(w.allocate(fmt.Sprint("s", i)).Leases[0], all...))
		}
		ended, end := make(chan error, 1), make(chan struct{})
		var passes atomic.Int64
		go func() {
			var err error
			for err == nil {
				select {
				case <-end:
					ended <- nil
					return
				default:
				}
				_, err = w.client.Reconcile(ctx, api.ReconcileRequest{Confirm: true})
				passes.Add(1)
			}
			ended <- err
		}()
		// However slow passes are, so many meet the churn.
		for step := 0; step < cycles || passes.Load() < cycles && len(ended) == 0; step++ {
			for i := range leases {
				next := fmt.Sprintf("s%d-%d", i, rand.IntN(names))
				if next != there[i] {
					d.Create(t, ctrdtest.Spec{ID: next})
					d.Delete(t, "default", there[i])
					there[i] = next
				}
			}
		}
		close(end)
		if err := <-ended; err != nil {
			t.Errorf("after %d passes: %v", passes.Load(), err)
		}
		for _, l := range held {
			w.stays(l)
		}
	})
}

// passesUntil makes passes until an address is in a state. Without them, a
// container that is deleted before the watchdog has looked would never have
// been there for it, and its lease stays for the reconciler.
func (w *world) passesUntil(addr string, want api.State) {
	w.t.Helper()
	realtest.Eventually(w.t, wait, addr+" to be "+string(want), func() bool {
		w.pass()
		return w.is(addr, want)
	})
}

// A lateOwner says of every sandbox that it is gone, and takes its time over
// one answer, in which a test can make that a lie.
type lateOwner struct {
	socket string
	armed  atomic.Bool
	asked  chan chan struct{}
}

func newLateOwner(t *testing.T) *lateOwner {
	t.Helper()
	o := &lateOwner{socket: filepath.Join(t.TempDir(), "o"), asked: make(chan chan struct{})}
	listener, err := net.Listen("unix", o.socket)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /sandboxes", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `[{"id":"bystander","state":"valid"}]`)
	})
	mux.HandleFunc("GET /sandboxes/{id}", func(w http.ResponseWriter, r *http.Request) {
		if o.armed.CompareAndSwap(true, false) {
			answer := make(chan struct{})
			o.asked <- answer
			<-answer
		}
		fmt.Fprintf(w, `{"id":%q,"state":"gone"}`, r.PathValue("id"))
	})
	server := &http.Server{Handler: mux}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Close()
		<-ended
	})
	return o
}

// R4: a container comes alive after the pass has read everything, looked it up
// and made up its mind, while the owner still answers. The reap does nothing,
// whether the container claims the address or is only recorded by its name.
func TestR4ComesAliveBeforeTheReap(t *testing.T) {
	t.Parallel()
	ctrdtest.One(t, func(t *testing.T, d *ctrdtest.Daemon) {
		for kind, named := range map[string]func(l api.Lease) map[string]string{
			"labelled": func(l api.Lease) map[string]string { return labels(l.Sandbox, l.Address) },
			"recorded": func(api.Lease) map[string]string { return nil },
		} {
			t.Run(kind, func(t *testing.T) {
				owner := newLateOwner(t)
				w := newWorld(t, withContainerd(d), hasty, func(c *config.Config) {
					c.Owner.Socket, c.Owner.Timeout, c.Watchdog.Timeout = owner.socket, config.Duration(wait), config.Duration(wait)
				})
				l := w.bind(w.allocate("a").Leases[0], "a-"+kind)
				if r := w.pass(); r.Absent != 1 || len(r.Actions) != 0 {
					t.Fatalf("the pass that misses it first: %+v", r)
				}
				owner.armed.Store(true)
				report := make(chan *api.ReconcileReply, 1)
				go func() {
					r, _ := w.client.Reconcile(ctx, api.ReconcileRequest{}) // nil is reported below
					report <- r
				}()
				answer := <-owner.asked
				d.Create(t, ctrdtest.Spec{ID: "a-" + kind, Labels: named(l)})
				if kind == "labelled" {
					realtest.Eventually(t, wait, "the container to be seen", func() bool { return seenBy(w, l.Address, "runtime") })
				}
				close(answer)
				r := <-report
				if r == nil || len(r.Report.Actions) != 1 || r.Report.Actions[0].Kind != "reap" || r.Report.Actions[0].Result != "skipped" {
					t.Errorf("the pass: %+v", r)
				}
				w.stays(l)
				d.Delete(t, "default", "a-"+kind)
				w.passesUntil(l.Address, api.Cooling) // it can end
			})
		}
	})
}

// R5: misses belong to the lease. Two that A had on the only address do not
// count for B, who has it after A.
func TestR5MissesBelongToTheLease(t *testing.T) {
	t.Parallel()
	ctrdtest.One(t, func(t *testing.T, d *ctrdtest.Daemon) {
		w := newWorld(t, withContainerd(d), quick, hasty, pool("10.8.64.0/30"), func(c *config.Config) {
			c.Reconcile.Misses, c.Allocation.Quarantine = 3, config.Duration(time.Hour) // its third is the time between passes, too
		})
		miss := func(l api.Lease) {
			t.Helper()
			for range 2 {
				if r := w.pass(); r.Absent != 1 || len(r.Actions) != 0 {
					t.Errorf("a pass that misses %s: %+v", l.Sandbox, r)
				}
			}
			w.stays(l)
		}
		a := w.bind(w.give("a", "10.8.64.2").Leases[0], "a")
		miss(a)
		if _, err := w.client.Release(ctx, a.ID, api.ReleaseRequest{Wait: "60s"}); err != nil {
			t.Fatal(err)
		}
		w.becomes("10.8.64.2", api.Cooling)
		var b api.Lease
		realtest.Eventually(t, wait, "the address to be given again", func() bool {
			r, err := w.client.Allocate(ctx, api.AllocateRequest{Sandbox: "b"})
			if err == nil {
				b = r.Leases[0]
			}
			return err == nil
		})
		miss(w.bind(b, "b"))
		if r := w.pass(); len(r.Actions) != 1 || r.Actions[0].Kind != "reap" || r.Actions[0].Result != "done" {
			t.Errorf("B's third miss: %+v", r)
		}
		w.becomes("10.8.64.2", api.Cooling)
	})
}

// R5: a sandbox pulls its image for half an hour. Its lease is as old, nothing
// of it is to be seen, and it has until its deadline.
func TestR5ReservedUntilItsDeadline(t *testing.T) {
	t.Parallel()
	ctrdtest.One(t, func(t *testing.T, d *ctrdtest.Daemon) {
		w := newWorld(t, withContainerd(d), hasty)
		r, err := w.client.Allocate(ctx, api.AllocateRequest{Sandbox: "a", BindWithin: "1h"})
		if err != nil {
			t.Fatal(err)
		}
		later := func(age time.Duration) {
			t.Helper()
			w.stopDaemon()
			w.edit(`UPDATE leases SET created_wall = created_wall - ?1, since_wall = since_wall - ?1,
				created_boot = created_boot - ?1, since_boot = since_boot - ?1`, age.Nanoseconds())
			w.start()
			for range 4 {
				w.pass()
			}
		}
		addr := r.Leases[0].Address
		later(30 * time.Minute)
		if got := w.state(addr); got != api.Reserved {
			t.Errorf("after half of its time it is %s", got)
		}
		later(31 * time.Minute)
		// It is not known what was on the wire while the daemon was down, so it cools.
		w.becomes(addr, api.Cooling)
		if who := w.whois(addr); who.History[1].To != api.Releasing || who.History[1].Reason != "expired" {
			t.Errorf("after its deadline: %+v", who)
		}
	})
}

// R8: a sandbox is made anew under its name, with another uid, while the old
// one's containers are still there. Finishing the release of the old one's
// lease ends that one, at its time, and never touches the new one's.
func TestR8SameNameNewUID(t *testing.T) {
	t.Parallel()
	ctrdtest.One(t, func(t *testing.T, d *ctrdtest.Daemon) {
		for label, how := range map[string]string{"ipamd.dev/sandbox-uid": "labelled", "": "unlabelled"} {
			t.Run(how, func(t *testing.T) {
				w := newWorld(t, withContainerd(d), hasty, func(c *config.Config) { c.Runtime.UIDLabel = label })
				// live makes one incarnation up to its container, which names its
				// owner alone.
				live := func(uid string) (api.Lease, func(), func()) {
					t.Helper()
					r, err := w.client.Allocate(ctx, api.AllocateRequest{Sandbox: "s", UID: uid})
					if err != nil {
						t.Fatal(err)
					}
					l := r.Leases[0]
					port := w.ns.Port("rt0", l.Address+"/24")
					named := map[string]string{"runtime.computer/entity-id": "s"}
					if label != "" {
						named[label] = uid
					}
					d.Run(t, ctrdtest.Spec{ID: how + uid, Labels: named, Netns: port.NS.Path()})
					bind := func() {
						t.Helper()
						if _, err := w.client.Bind(ctx, l.ID, api.BindRequest{Containers: []api.Container{{Namespace: "default", ID: how + uid}},
							Netns: port.NS.Path(), HostInterface: port.HostName, MAC: port.MAC.String()}); err != nil {
							t.Fatal(err)
						}
					}
					return l, bind, func() { port.Close(); d.Delete(t, "default", how+uid) }
				}
				blockedBy := func(l api.Lease, container string) {
					t.Helper()
					realtest.Eventually(t, wait, container+" to be named", func() bool {
						now, err := w.client.Lease(ctx, l.ID)
						return err == nil && now.Lease.State == api.Releasing && slices.ContainsFunc(now.Blockers,
							func(b api.Blocker) bool { return strings.Contains(b.Detail, "default/"+container) })
					})
				}
				old, bindOld, endOld := live("u1")
				bindOld()
				young, bindYoung, endYoung := live("u2")
				if old.ID == young.ID || old.Address == young.Address {
					t.Fatalf("both have %+v", young)
				}
				if _, err := w.client.Release(ctx, old.ID, api.ReleaseRequest{}); err != nil {
					t.Fatal(err)
				}
				blockedBy(old, how+"u1")
				bindYoung()
				w.pass() // a bind on a busy machine may leave it to a pass to see its port
				bound, err := w.client.Lease(ctx, young.ID)
				if err != nil || bound.Lease.State != api.Bound {
					t.Fatalf("the new one's lease: %+v, %v", bound, err)
				}
				endOld()
				w.becomes(old.Address, api.Cooling)
				w.stays(bound.Lease)
				// The old one's runtime says it once more, and passes look.
				if _, err := w.client.Release(ctx, old.ID, api.ReleaseRequest{}); err != nil && !errors.Is(err, client.ErrLeaseGone) {
					t.Error(err)
				}
				for range 3 {
					w.pass()
				}
				w.stays(bound.Lease)
				endYoung()
				w.passesUntil(young.Address, api.Cooling)
			})
		}
	})
}

// L6: a thousand pairs of allocate and release, concurrently, on fifty
// sandboxes and with random delays, every other one bound in between, while
// the watchdog confirms. It ends consistent (the book checks itself when the
// daemon stops), no sandbox ever held what another one did, and a restart goes on.
func TestL6ConcurrentPairs(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	w := newWorld(t, slow, func(c *config.Config) {
		c.Allocation.Cooldown, c.Allocation.CooldownMin = config.Duration(20*time.Millisecond), config.Duration(5*time.Millisecond)
	})
	const pairs, sandboxes, abreast = 1000, 50, 64
	var all sync.WaitGroup
	step, failed := make(chan struct{}, abreast), make(chan error, pairs)
	for i := range pairs {
		step <- struct{}{}
		all.Go(func() {
			defer func() { <-step }()
			random := rand.New(rand.NewPCG(seed, uint64(i)))
			if err := w.pair(random, fmt.Sprint("s", i%sandboxes), fmt.Sprintf("02:00:00:00:%02x:%02x", i>>8, i&0xff)); err != nil {
				failed <- fmt.Errorf("pair %d: %w", i, err)
			}
		})
	}
	all.Wait()
	close(failed)
	for err := range failed {
		t.Error(err)
	}
	left := func() int {
		list, err := w.client.Leases(ctx, client.LeaseFilter{})
		if err != nil {
			t.Fatal(err)
		}
		return len(list.Leases)
	}
	realtest.Eventually(t, wait, "every lease to have ended, and every address to be free", func() bool { return left() == 0 })
	w.oneOwnerAtATime()
	before := w.program.book.Rev()
	w.stopDaemon()
	w.start()
	if rev := w.program.book.Rev(); rev != before || left() != 0 {
		t.Errorf("after a restart: revision %d, before it %d; %d leases", rev, before, left())
	}
	got := make(map[string]bool)
	for i := range sandboxes {
		got[w.allocate(fmt.Sprint("s", i)).Leases[0].Address] = true
	}
	if len(got) != sandboxes {
		t.Errorf("%d sandboxes have %d addresses", sandboxes, len(got))
	}
}

// pair allocates, waits a little, perhaps binds, and releases. Other pairs of
// the same sandbox share its lease, and may have released it by then.
func (w *world) pair(random *rand.Rand, sandbox, mac string) error {
	delay := func() { <-time.After(time.Duration(random.IntN(3000)) * time.Microsecond) }
	own, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	var r *api.AllocateReply
	for {
		var err error
		if r, err = w.client.Allocate(own, api.AllocateRequest{Sandbox: sandbox}); err == nil {
			break
		}
		if !errors.Is(err, client.ErrPoolExhausted) {
			return err
		}
		delay() // until the watchdog has confirmed some of all that was released
	}
	delay()
	id := r.Leases[0].ID
	if random.IntN(2) == 0 {
		if _, err := w.client.Bind(ctx, id, api.BindRequest{MAC: mac}); err != nil &&
			!errors.Is(err, client.ErrLeaseGone) && !errors.Is(err, client.ErrStateNotAllowed) {
			return err
		}
		delay()
	}
	_, err := w.client.Release(own, id, api.ReleaseRequest{})
	if errors.Is(err, client.ErrLeaseGone) {
		return nil // the address has its next owner
	}
	return err
}

// oneOwnerAtATime reads the whole history: each change of an address begins
// where the one before it ended, and none gives it to another lease before
// the last one's has come to rest.
func (w *world) oneOwnerAtATime() {
	w.t.Helper()
	list, err := w.client.History(ctx, client.HistoryFilter{Limit: 1000})
	if err != nil {
		w.t.Fatal(err)
	}
	last := make(map[string]api.Change)
	for _, c := range slices.Backward(list.Changes) {
		before, known := last[c.Address]
		if known && (before.To != c.From || before.LeaseID != c.LeaseID && before.To != api.Cooling && before.To != api.Free) {
			w.t.Errorf("%s: %+v came after %+v", c.Address, c, before)
		}
		last[c.Address] = c
	}
}

// C12: an address goes from A to C, who has another MAC. When it cools the
// host has no neighbour and no tracked connection of A left; it reaches C at
// once though C has said nothing, and B, which remembers A's MAC until C
// announces itself, does within a second of that.
func TestC12NextOwnerIsReached(t *testing.T) {
	realtest.Need(t, "nft")
	ctrdtest.One(t, func(t *testing.T, d *ctrdtest.Daemon) {
		w := newWorld(t, withContainerd(d), slow, pool("10.8.64.0/29"), func(c *config.Config) {
			c.Allocation.Cooldown, c.Allocation.CooldownMin = config.Duration(100*time.Millisecond), config.Duration(100*time.Millisecond)
		})
		w.ns.Exec("nft", "table inet t { chain out { type filter hook output priority 0; ct state new accept; }; }")
		b := w.box(d, "b")
		w.give("x", "10.8.64.3")
		w.give("y", "10.8.64.4")
		owner := w.box(d, "a")
		w.give("z", "10.8.64.6")
		w.watched()
		next := 0
		realtest.InTime(t, time.Second, "b reaches an owner that has announced itself", func() (took time.Duration) {
			next++
			owner, took = w.handOver(d, b, owner, fmt.Sprint("c", next))
			return took
		})
	})
}

// handOver is one round of C12: from A to the next owner, of that name. It
// returns how long after it announced itself B was connected to it.
func (w *world) handOver(d *ctrdtest.Daemon, b, a *box, name string) (c *box, took time.Duration) {
	t := w.t
	t.Helper()
	for _, from := range []*nstest.NS{w.ns, b.port.NS} {
		// The first one may meet a port that does not let frames through yet.
		realtest.Eventually(t, wait, a.name+" to be reached", func() bool { return w.reach(from, a) == nil })
	}
	addr := net.ParseIP(a.held.Address)
	if mac := macOf(t, w.ns, "rt0", addr); mac != a.port.MAC.String() || w.tracked(addr) == 0 {
		t.Fatalf("before, the neighbour is %q and %d connections are tracked: nothing to forget", mac, w.tracked(addr))
	}
	a.port.Close()
	d.Delete(t, "default", a.name)
	w.becomes(a.held.Address, api.Cooling)
	if mac := macOf(t, w.ns, "rt0", addr); mac != "" || w.tracked(addr) != 0 {
		t.Errorf("left are the neighbour %q and %d connections", mac, w.tracked(addr))
	}
	realtest.Eventually(t, wait, "the cooldown", func() bool {
		_, err := w.client.Allocate(ctx, api.AllocateRequest{Sandbox: name})
		return err == nil
	})
	c = w.box(d, name)
	if c.held.Address != a.held.Address || c.port.MAC.String() == a.port.MAC.String() {
		t.Fatalf("%s has %s and %s", c.name, c.held.Address, c.port.MAC)
	}
	for ns, link := range map[*nstest.NS]string{w.ns: c.port.HostName, c.port.NS: "eth0"} {
		realtest.Eventually(t, wait, link+" to be up", func() bool {
			l, err := ns.Netlink().LinkByName(link)
			return err == nil && l.Attrs().OperState == netlink.OperUp
		})
	}
	if err := w.reach(w.ns, c); err != nil {
		t.Errorf("the host does not reach %s: %v", c.name, err)
	}
	if mac := macOf(t, b.port.NS, "eth0", addr); mac != a.port.MAC.String() {
		t.Errorf("b remembers %q: nothing to announce", mac)
	}
	// B asks for nothing meanwhile, so only the announcement shows it.
	began := time.Now()
	c.announce(t)
	realtest.Eventually(t, wait, "the announcement to reach b", func() bool { return macOf(t, b.port.NS, "eth0", addr) == c.port.MAC.String() })
	err := w.reach(b.port.NS, c)
	took = time.Since(began)
	if err != nil {
		t.Errorf("b does not reach %s, which has announced itself: %v", c.name, err)
	}
	t.Logf("%s was reached %v after it had announced itself", c.name, took)
	return c, took
}

// announce makes the kernel send a gratuitous ARP, as it does with arp_notify
// when a MAC is set (RFC 5227, section 2.3).
func (b *box) announce(t *testing.T) {
	t.Helper()
	var err error
	b.port.NS.Do(func() { err = os.WriteFile("/proc/sys/net/ipv4/conf/eth0/arp_notify", []byte("1"), 0) })
	eth0, found := b.port.NS.Netlink().LinkByName("eth0")
	if err = errors.Join(err, found); err == nil {
		err = b.port.NS.Netlink().LinkSetHardwareAddr(eth0, b.port.MAC)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// reach connects to a box from a namespace. That counts only when the first
// segment came through: the kernel sends it again after a second, so a
// connection that needed no other was made in less, however busy the machine.
func (w *world) reach(from *nstest.NS, to *box) (err error) {
	w.t.Helper()
	var l net.Listener
	to.port.NS.Do(func() { l, err = net.Listen("tcp", net.JoinHostPort(to.held.Address, "0")) })
	if err != nil {
		return err
	}
	defer l.Close()
	from.Do(func() {
		var c net.Conn
		if c, err = net.DialTimeout("tcp", l.Addr().String(), wait); err != nil {
			return
		}
		defer c.Close()
		var raw syscall.RawConn
		if raw, err = c.(*net.TCPConn).SyscallConn(); err != nil {
			return
		}
		var info *unix.TCPInfo
		asked := raw.Control(func(fd uintptr) { info, err = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO) })
		if err = errors.Join(err, asked); err == nil && info.Total_retrans > 0 {
			err = fmt.Errorf("%d segments were sent again", info.Total_retrans)
		}
	})
	return err
}

// macOf is what a neighbour table has for an address; "" for nothing.
func macOf(t *testing.T, ns *nstest.NS, dev string, addr net.IP) string {
	t.Helper()
	l, err := ns.Netlink().LinkByName(dev)
	if err != nil {
		t.Fatal(err)
	}
	all, err := ns.Netlink().NeighList(l.Attrs().Index, netlink.FAMILY_V4)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range all {
		if n.IP.Equal(addr) {
			return n.HardwareAddr.String()
		}
	}
	return ""
}

// tracked counts the host's tracked connections that have an address at an
// end.
func (w *world) tracked(addr net.IP) (n int) {
	w.t.Helper()
	w.ns.Do(func() {
		nl, err := netlink.NewHandle(unix.NETLINK_NETFILTER)
		if err != nil {
			w.t.Fatal(err)
		}
		defer nl.Close()
		flows, err := nl.ConntrackTableList(netlink.ConntrackTable, unix.AF_INET)
		if err != nil {
			w.t.Fatal(err)
		}
		for _, f := range flows {
			if slices.ContainsFunc([]net.IP{f.Forward.SrcIP, f.Forward.DstIP, f.Reverse.SrcIP, f.Reverse.DstIP}, addr.Equal) {
				n++
			}
		}
	})
	return n
}
