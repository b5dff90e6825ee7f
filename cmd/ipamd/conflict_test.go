package main

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ipamd/ipamd/allocator"
	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/client"
	"github.com/ipamd/ipamd/config"
	"github.com/ipamd/ipamd/internal/ctrdtest"
	"github.com/ipamd/ipamd/internal/nstest"
	"github.com/ipamd/ipamd/internal/realtest"
)

// C1: the book says .2 is free, a namespace on rt0 holds it. Allocate gives
// .3; .2 is quarantined with its evidence, by one change and one count, and
// is shown as quarantined, not as reserved.
func TestC1AddressHeldBehindAPortIsNotGiven(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.holdPasses()
	port := w.ns.Port("rt0", "10.8.64.2/24")
	r := w.give("a", "10.8.64.3")
	if len(r.Skipped) != 1 || r.Skipped[0].Address != "10.8.64.2" {
		t.Errorf("skipped %+v", r.Skipped)
	}
	who := w.whois("10.8.64.2")
	if who.State != api.Quarantined || who.Owner != "" || len(who.History) != 1 {
		t.Errorf("whois says %+v", who)
	}
	var e *api.Sighting
	for i, s := range who.Lease.Evidence {
		if s.Witness == "netns" {
			e = &who.Lease.Evidence[i]
		}
	}
	if e == nil || e.MAC != port.MAC.String() || e.Port != port.HostName || !strings.HasPrefix(e.Netns, "nsid:") {
		t.Errorf("evidence is %+v", who.Lease.Evidence)
	}
	if got := w.metric(`conflicts_total{witness="netns"}`); got != "1" {
		t.Errorf("conflicts_total is %s", got)
	}
	if got := w.metric(`quarantined_total{reason="seen_on_wire"}`); got != "1" {
		t.Errorf("quarantined_total is %s", got)
	}
	list, err := w.client.Leases(ctx, client.LeaseFilter{})
	if err != nil || len(list.Leases) != 2 || list.Leases[0].State != api.Quarantined || list.Leases[1].State != api.Reserved {
		t.Errorf("leases: %+v, %v", list, err)
	}
	_, err = w.client.Allocate(ctx, api.AllocateRequest{Sandbox: "b", Address: "10.8.64.2"})
	if !errors.Is(err, client.ErrAddressQuarantined) {
		t.Errorf("a wish for it: %v", err)
	}
}

// C1 with containers: the evidence names the container that holds the
// address, and the sandbox it belongs to.
func TestC1EvidenceNamesTheContainer(t *testing.T) {
	t.Parallel()
	ctrdtest.One(t, func(t *testing.T, d *ctrdtest.Daemon) {
		w := newWorld(t, withContainerd(d))
		w.holdPasses() // one may see the port before there is a container
		port := w.ns.Port("rt0", "10.8.64.2/24")
		d.Run(t, ctrdtest.Spec{ID: "c1", Labels: labels("lost", "10.8.64.2"), Netns: port.NS.Path()})
		realtest.Eventually(t, wait, "the container to be seen", func() bool { return seenBy(w, "10.8.64.2", "runtime") })
		w.give("a", "10.8.64.3")
		for _, s := range w.whois("10.8.64.2").Lease.Evidence {
			if s.Witness == "runtime" && s.Container == "c1" && s.Namespace == "default" && s.Sandbox == "lost" {
				return
			}
		}
		t.Errorf("no evidence of the container: %+v", w.whois("10.8.64.2").Lease.Evidence)
	})
}

func seenBy(w *world, addr, witness string) bool {
	for _, a := range w.whois(addr).Witnesses {
		if a.Witness == witness {
			return a.Answer == "seen"
		}
	}
	return false
}

// C2: addresses added by hand, in a namespace on rt0 or on rt0 itself, are
// never given, are shown as foreign, and become free again by themselves once
// they are gone.
func TestC2AddressesAddedByHand(t *testing.T) {
	t.Parallel()
	w := newWorld(t, quick, pool("10.8.64.0/29"), func(c *config.Config) { c.Allocation.QuarantineShare = 1 })
	goOn := w.holdPasses()
	port := w.ns.Port("rt0")
	port.AddAddr("10.8.64.2/24")
	w.ns.AddAddr("rt0", "10.8.64.3/24")
	if got := w.findings(); !slices.Contains(got, "foreign 10.8.64.2") || !slices.Contains(got, "foreign 10.8.64.3") {
		t.Errorf("doctor says %v", got)
	}
	goOn()
	w.give("a", "10.8.64.4")
	for i, want := range []string{"10.8.64.5", "10.8.64.6"} {
		w.give(fmt.Sprint("b", i), want)
	}
	if _, err := w.client.Allocate(ctx, api.AllocateRequest{Sandbox: "c"}); !errors.Is(err, client.ErrPoolExhausted) {
		t.Errorf("with both still there: %v", err)
	}
	port.DelAddr("10.8.64.2/24")
	w.ns.DelAddr("rt0", "10.8.64.3/24")
	got := make(map[string]bool)
	for i := range 2 {
		realtest.Eventually(t, wait, "an address to be free again", func() bool {
			r, err := w.client.Allocate(ctx, api.AllocateRequest{Sandbox: fmt.Sprint("c", i)})
			if err == nil {
				got[r.Leases[0].Address] = true
			}
			return err == nil
		})
	}
	if !got["10.8.64.2"] || !got["10.8.64.3"] {
		t.Errorf("got %v", got)
	}
}

// C3: with 31 candidates in use the 32nd is given; with 32 the answer is
// conflict_limit with the list. Asking 8 more times counts no address twice
// and does not eat the pool.
func TestC3ConflictLimit(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	port := w.ns.Port("rt0")
	for i := range 31 {
		port.AddAddr(addr(2+i) + "/24")
	}
	w.give("a", addr(33))
	for i := range 219 {
		port.AddAddr(addr(34+i) + "/24")
	}
	_, err := w.client.Allocate(ctx, api.AllocateRequest{Sandbox: "b"})
	var refusal *api.Error
	if !errors.As(err, &refusal) || refusal.Code != api.ConflictLimit || !refusal.Retryable {
		t.Fatalf("all in use: %v", err)
	}
	if list, ok := refusal.Details["addresses"].([]any); !ok || len(list) != 32 {
		t.Errorf("the refusal lists %v", refusal.Details["addresses"])
	}
	for range 8 {
		w.client.Allocate(ctx, api.AllocateRequest{Sandbox: "b"}) // finds .253 in the end
	}
	w.give("b2", addr(254))
	// Only addresses in use are left, most of them beyond the quarantine's
	// share: each is met again and again.
	for range 8 {
		if _, err := w.client.Allocate(ctx, api.AllocateRequest{Sandbox: "c"}); !errors.Is(err, client.ErrConflictLimit) {
			t.Errorf("nothing is left: %v", err)
		}
	}
	pools, err := w.client.Pools(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if q := pools.Pools[0].ByState["quarantined"]; q != 63 { // a quarter of 253
		t.Errorf("%d addresses are quarantined", q)
	}
	// Some were quarantined by a pass on the news, before an allocation met them.
	if got, _ := strconv.Atoi(w.metric(`conflicts_total{witness="netns"}`)); got < 32 || got > 250 {
		t.Errorf("%d conflicts are counted, 250 addresses are in use", got)
	}
	port.Close()
	if got := w.allocate("c").Leases[0].Address; got == addr(33) {
		t.Errorf("got %s, which a holds", got)
	}
}

// C4: a stopped container whose record exists still owns its address; when
// the record goes, events say so, without a pass.
func TestC4StoppedContainerStillOwnsItsAddress(t *testing.T) {
	t.Parallel()
	ctrdtest.One(t, func(t *testing.T, d *ctrdtest.Daemon) {
		w := newWorld(t, withContainerd(d), quick, func(c *config.Config) { c.Reconcile.Every = config.Duration(time.Hour) }, pool("10.8.64.0/30"))
		d.Run(t, ctrdtest.Spec{ID: "c1", Labels: labels("a", "10.8.64.2")})
		d.StopTask(t, "default", "c1")
		realtest.Eventually(t, wait, "the container to be seen", func() bool { return seenBy(w, "10.8.64.2", "runtime") })
		if _, err := w.client.Allocate(ctx, api.AllocateRequest{Sandbox: "b"}); !errors.Is(err, client.ErrPoolExhausted) {
			t.Errorf("with a stopped container: %v", err)
		}
		// A pass on the news quarantines it, where no allocation has: a record that
		// never held a lease may claim what it likes.
		w.becomes("10.8.64.2", api.Quarantined)
		w.watched()
		if _, err := w.client.Allocate(ctx, api.AllocateRequest{Sandbox: "b"}); !errors.Is(err, client.ErrPoolExhausted) {
			t.Errorf("with a stopped container whose address was quarantined: %v", err)
		}
		d.Delete(t, "default", "c1")
		realtest.Eventually(t, wait, "the address to be given again", func() bool {
			_, err := w.client.Allocate(ctx, api.AllocateRequest{Sandbox: "b"})
			return err == nil
		})
	})
}

// C5: with containerd down the kernel's word is enough, unless the
// configuration wants every witness's. With a kernel witness down nothing is
// given, whatever the configuration.
func TestC5SilentWitnesses(t *testing.T) {
	t.Parallel()
	ctrdtest.One(t, func(t *testing.T, d *ctrdtest.Daemon) {
		w := newWorld(t, withContainerd(d), func(c *config.Config) { c.Bridge.Refresh = config.Duration(time.Hour) }) // a reading ends a silence
		d.Kill9()
		realtest.Eventually(t, wait, "the loss of containerd to be known", func() bool { return slices.Contains(w.findings(), "witness_silent") })
		w.give("a", "10.8.64.2")
		w.stopDaemon()
		w.cfg.Allocation.Require = "all"
		w.start()
		rev := w.program.book.Rev()
		_, err := w.client.Allocate(ctx, api.AllocateRequest{Sandbox: "b"})
		if !errors.Is(err, client.ErrEvidenceUnavailable) || !strings.Contains(err.Error(), "runtime") {
			t.Errorf("require all, containerd down: %v", err)
		}
		if w.program.book.Rev() != rev {
			t.Error("the refusal changed the book")
		}
		d.Restart()
		realtest.Eventually(t, wait, "containerd to be followed again", func() bool {
			_, err := w.client.Allocate(ctx, api.AllocateRequest{Sandbox: "b"})
			return err == nil
		})
		// One kernel witness cannot answer, the others can.
		for _, silent := range []census.Witness{census.Netns, census.Host, census.Neighbour} {
			rev = w.program.book.Rev()
			w.program.board.Silence(silent, errors.New("the dump was interrupted again and again"))
			_, err = w.client.Allocate(ctx, api.AllocateRequest{Sandbox: "c"})
			if !errors.Is(err, client.ErrEvidenceUnavailable) || !strings.Contains(err.Error(), string(silent)) {
				t.Errorf("the %s witness is silent: %v", silent, err)
			}
			if w.program.book.Rev() != rev {
				t.Error("the refusal changed the book")
			}
			w.program.board.Replace(silent, nil, nil)
		}
		// The sockets to the kernel die under the daemon.
		if err := w.program.bridge.Close(); err != nil {
			t.Fatal(err)
		}
		rev = w.program.book.Rev()
		_, err = w.client.Allocate(ctx, api.AllocateRequest{Sandbox: "c"})
		if !errors.Is(err, client.ErrEvidenceUnavailable) && !errors.Is(err, client.ErrBridgeNotReady) {
			t.Errorf("the kernel cannot be read: %v", err)
		}
		if w.program.book.Rev() != rev {
			t.Error("the refusal changed the book")
		}
	})
}

// C6: a living container's label cannot be read, and it is not known where it lives.
// The census is incomplete: nothing is freed, and allocation leans on the kernel.
func TestC6UnreadableLabel(t *testing.T) {
	ctrdtest.One(t, func(t *testing.T, d *ctrdtest.Daemon) {
		w := newWorld(t, withContainerd(d), quick)
		w.loseHomes()
		port := w.ns.Port("rt0", "10.8.64.2/24")
		l := w.give("a", "10.8.64.3").Leases[0]
		d.Run(t, ctrdtest.Spec{ID: "odd", Labels: labels("x", "not-an-address")})
		realtest.Eventually(t, wait, "the silence", func() bool { return slices.Contains(w.findings(), "witness_silent") })
		// A release of a lease that was never bound would end at once.
		r, err := w.client.Release(ctx, l.ID, api.ReleaseRequest{})
		if err != nil || r.Lease.State != api.Releasing || !slices.ContainsFunc(r.Blockers, func(b api.Blocker) bool { return b.Kind == "silent" && strings.Contains(b.Detail, "odd") }) {
			t.Errorf("released under silence: %+v, %v", r, err)
		}
		// Neither does a quarantine end.
		port.DelAddr("10.8.64.2/24")
		rev, quiet := w.program.book.Rev(), time.Now()
		realtest.Eventually(t, wait, "three quarantines' time", func() bool {
			return time.Since(quiet) > 3*time.Duration(w.cfg.Allocation.Quarantine)
		})
		if w.program.book.Rev() != rev || w.state("10.8.64.2") != api.Quarantined {
			t.Errorf("under silence .2 became %s", w.state("10.8.64.2"))
		}
		w.give("b", "10.8.64.4")
		d.Delete(t, "default", "odd")
		realtest.Eventually(t, wait, "the quarantine to end", func() bool { return w.state("10.8.64.2") != api.Quarantined })
	})
}

// C7: neighbour entries that prove nothing, and the owner's own answers on a
// retry, are no conflict.
func TestC7NoFalseConflicts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	// Entries of dead containers: failed, stale, and without anybody behind.
	w.ns.Exec("ip", "neigh", "add", "10.8.64.2", "lladdr", "02:00:00:00:00:99", "nud", "stale", "dev", "rt0")
	w.ns.Exec("ip", "neigh", "add", "10.8.64.3", "nud", "failed", "dev", "rt0")
	l := w.give("a", "10.8.64.2").Leases[0]
	w.give("b", "10.8.64.3")
	// a plumbs its address, answers for it, and asks again before it binds.
	port := w.ns.Port("rt0", "10.8.64.2/24")
	port.NS.Exec("ip", "neigh", "flush", "dev", "eth0")
	if again := w.give("a", "10.8.64.2"); !again.Existing || again.Leases[0].ID != l.ID || len(again.Skipped) != 0 {
		t.Errorf("before the bind: %+v", again)
	}
	if _, err := w.client.Bind(ctx, l.ID, api.BindRequest{HostInterface: port.HostName, MAC: port.MAC.String()}); err != nil {
		t.Fatal(err)
	}
	if again := w.give("a", "10.8.64.2"); !again.Existing || again.Leases[0].State != api.Bound {
		t.Errorf("after the bind: %+v", again)
	}
	if got := w.metric(`conflicts_total{witness="neighbour"}`); got != "0" {
		t.Errorf("%s conflicts by neighbours", got)
	}
}

// C8: who holds an address does not answer for it, or cannot be reached. The
// address is not given all the same: another witness speaks.
func TestC8SilentHoldersKeepTheirAddress(t *testing.T) {
	t.Parallel()
	for name, quieten := range map[string]func(*nstest.NS, *nstest.Port){
		"it ignores ARP": func(_ *nstest.NS, p *nstest.Port) {
			p.NS.Exec("sh", "-c", "echo 8 > /proc/sys/net/ipv4/conf/all/arp_ignore")
		},
		"its port is isolated": func(ns *nstest.NS, p *nstest.Port) {
			ns.Exec("bridge", "link", "set", "dev", p.HostName, "isolated", "on", "learning", "off")
		},
		"its port listens for STP": func(ns *nstest.NS, p *nstest.Port) {
			ns.Exec("ip", "link", "set", "rt0", "type", "bridge", "stp_state", "1", "forward_delay", "1500")
			ns.Exec("ip", "link", "set", p.HostName, "down")
			ns.Exec("ip", "link", "set", p.HostName, "up")
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			quieten(w.ns, w.ns.Port("rt0", "10.8.64.2/24"))
			notGiven(w)
			if !seenBy(w, "10.8.64.2", "netns") {
				t.Errorf("whois says %+v", w.whois("10.8.64.2").Witnesses)
			}
		})
	}
}

// C8: so does a container whose cgroup is frozen.
func TestC8FrozenContainerKeepsItsAddress(t *testing.T) {
	t.Parallel()
	ctrdtest.One(t, func(t *testing.T, d *ctrdtest.Daemon) {
		w := newWorld(t, withContainerd(d))
		port := w.ns.Port("rt0", "10.8.64.2/24")
		d.Run(t, ctrdtest.Spec{ID: "c1", Labels: labels("frozen", "192.0.2.1"), Netns: port.NS.Path()})
		d.Pause(t, "default", "c1")
		realtest.Eventually(t, wait, "the container to be seen frozen", func() bool {
			for _, a := range w.whois("192.0.2.1").Witnesses {
				if slices.ContainsFunc(a.Seen, func(s api.Sighting) bool { return s.Container == "c1" && s.Task == "paused" }) {
					return true
				}
			}
			return false
		})
		notGiven(w)
	})
}

// notGiven allocates, and fails unless .2 is passed over and quarantined: by the
// allocation itself, or by a pass on the news if that came first.
func notGiven(w *world) {
	w.t.Helper()
	r := w.give("a", "10.8.64.3")
	if len(r.Skipped) > 1 || len(r.Skipped) == 1 && r.Skipped[0].Address != "10.8.64.2" {
		w.t.Errorf("skipped %+v", r.Skipped)
	}
	if who := w.whois("10.8.64.2"); who.State != api.Quarantined || len(who.Lease.Evidence) == 0 {
		w.t.Errorf("whois says %+v", who)
	}
}

// A bound lease whose address the wire shows under another is not
// answered as if all were well, and is not taken from its sandbox either.
func TestBoundLeaseInConflictIsHeldAndReported(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l := w.give("a", "10.8.64.2").Leases[0]
	if _, err := w.client.Bind(ctx, l.ID, api.BindRequest{HostInterface: "veth-a", MAC: "02:00:00:00:00:01"}); err != nil {
		t.Fatal(err)
	}
	w.holdPasses() // one on the news notes the conflict, at its own time
	w.ns.Port("rt0", "10.8.64.2/24")
	rev := w.program.book.Rev()
	if _, err := w.client.Allocate(ctx, api.AllocateRequest{Sandbox: "a"}); !errors.Is(err, client.ErrAddressTaken) {
		t.Errorf("allocate again: %v", err)
	}
	if w.program.book.Rev() != rev {
		t.Error("the book changed")
	}
	if got := w.findings(); !slices.Contains(got, "conflict 10.8.64.2") {
		t.Errorf("doctor says %v", got)
	}
}

// C10: after a conflict the same sandbox's retry gets another address.
func TestC10RetryAfterAConflictGetsAnotherAddress(t *testing.T) {
	t.Parallel()
	ctrdtest.One(t, func(t *testing.T, d *ctrdtest.Daemon) {
		w := newWorld(t, withContainerd(d))
		l := w.give("a", "10.8.64.2").Leases[0]
		port := w.ns.Port("rt0", "10.8.64.2/24")
		d.Run(t, ctrdtest.Spec{ID: "c1", Labels: labels("somebody-else", "10.8.64.2"), Netns: port.NS.Path()})
		realtest.Eventually(t, wait, "the stranger to be seen, and its task to run", func() bool {
			runs := func(a api.WitnessAnswer) bool {
				return slices.ContainsFunc(a.Seen, func(s api.Sighting) bool { return s.Task == "running" })
			}
			return seenBy(w, "10.8.64.2", "netns") && slices.ContainsFunc(w.whois("10.8.64.2").Witnesses, runs)
		})
		r := w.give("a", "10.8.64.3")
		if r.Existing || len(r.Skipped) != 1 || r.Skipped[0].Address != "10.8.64.2" {
			t.Errorf("the retry got %+v", r)
		}
		// The watchdog may have quarantined it already: another claims it.
		if got, err := w.client.Lease(ctx, l.ID); err != nil || got.Lease.State != api.Releasing && got.Lease.State != api.Quarantined {
			t.Errorf("the conflicted lease is %+v, %v", got, err)
		}
		if again := w.give("a", "10.8.64.3"); !again.Existing {
			t.Error("the next retry got a new lease")
		}
	})
}

// C11: without a usable bridge nothing is reserved and the reason is reported;
// with bridge.manage it is made.
func TestC11BridgeNotReady(t *testing.T) {
	for name, tt := range map[string]struct {
		make func(w *world)
		says string
	}{
		"missing":             {func(*world) {}, "rt0"},
		"not a bridge":        {func(w *world) { w.ns.Exec("ip", "link", "add", "rt0", "type", "veth", "peer", "name", "rt0p") }, "not a bridge"},
		"without its gateway": {func(w *world) { w.ns.Bridge("rt0", "10.9.0.1/24") }, "10.8.64.1"},
		"down": {func(w *world) {
			w.ns.Bridge("rt0", "10.8.64.1/24")
			w.ns.Exec("ip", "link", "set", "rt0", "down")
		}, "down"},
	} {
		t.Run(name, func(t *testing.T) {
			w := prepare(t)
			tt.make(w)
			w.start()
			rev := w.program.book.Rev()
			_, err := w.client.Allocate(ctx, api.AllocateRequest{Sandbox: "a"})
			if !errors.Is(err, client.ErrBridgeNotReady) || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("allocate: %v", err)
			}
			if w.program.book.Rev() != rev {
				t.Error("something was reserved")
			}
			if _, err := w.client.Ready(ctx); !errors.Is(err, client.ErrNotReady) {
				t.Errorf("readyz: %v", err)
			}
		})
	}
	t.Run("managed", func(t *testing.T) {
		w := prepare(t, func(c *config.Config) { c.Bridge.Manage = true })
		w.start()
		w.give("a", "10.8.64.2")
		w.ns.Exec("ip", "link", "del", "rt0")
		realtest.Eventually(t, wait, "rt0 to be made again", func() bool {
			_, err := w.client.Allocate(ctx, api.AllocateRequest{Sandbox: "b"})
			return err == nil
		})
	})
	t.Run("repaired by hand", func(t *testing.T) {
		w := prepare(t)
		w.start()
		w.ns.Bridge("rt0", "10.8.64.1/24")
		realtest.Eventually(t, wait, "rt0 to be known", func() bool {
			_, err := w.client.Allocate(ctx, api.AllocateRequest{Sandbox: "b"})
			return err == nil
		})
	})
}

// The row of a running container's address is lost while the daemon is away:
// the incident. Its sandbox has its lease back before the first request is
// answered, and no other gets the address (R1).
func TestTheIncident(t *testing.T) {
	t.Parallel()
	ctrdtest.One(t, func(t *testing.T, d *ctrdtest.Daemon) {
		w := newWorld(t, withContainerd(d), pool("10.8.64.0/29"))
		l := w.give("a", "10.8.64.2").Leases[0]
		port := w.ns.Port("rt0", "10.8.64.2/24")
		named := labels("a", "10.8.64.2")
		named["ipamd.dev/lease-id"] = l.ID
		d.Run(t, ctrdtest.Spec{ID: "a", Labels: named, Netns: port.NS.Path()})
		if _, err := w.client.Bind(ctx, l.ID, api.BindRequest{Containers: []api.Container{{Namespace: "default", ID: "a"}}, HostInterface: port.HostName}); err != nil {
			t.Fatal(err)
		}
		w.stopDaemon()
		w.edit(`DELETE FROM leases; DELETE FROM changes`)
		w.start()
		w.give("b", "10.8.64.3")
		who := w.whois("10.8.64.2")
		if who.State != api.Bound || who.Owner != "a" || who.Lease.ID != l.ID || who.Lease.HostInterface != port.HostName ||
			!seenBy(w, "10.8.64.2", "runtime") || !seenBy(w, "10.8.64.2", "netns") {
			t.Errorf("whois says %+v", who)
		}
		if again := w.allocate("a"); !again.Existing || again.Leases[0].ID != l.ID {
			t.Errorf("asked again, a gets %+v", again)
		}
		if len(w.findings()) != 0 {
			t.Errorf("doctor says %v", w.findings())
		}
	})
}

// A runtime that has not been read yet may know who holds an address: nothing
// is given before every witness was asked once.
func TestNothingIsGivenBeforeTheFirstCensus(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.stopDaemon()
	p := w.newProgram()
	if err := p.open(ctx); err != nil {
		t.Fatal(err)
	}
	defer p.close()
	if err := p.bridge.Refresh(ctx); err != nil { // the kernel has answered; the census is not done
		t.Fatal(err)
	}
	ask := allocator.Request{Sandbox: "a"}
	if r, err := p.allocator.Allocate(ctx, ask); !errors.Is(err, allocator.ErrNotReady) {
		t.Errorf("before the first census: %+v, %v", r, err)
	}
	if !p.count(ctx) {
		t.Fatal("the first census was not taken")
	}
	if _, err := p.allocator.Allocate(ctx, ask); err != nil {
		t.Errorf("after it: %v", err)
	}
}

// Many allocate at once while strangers hold every other address: no sandbox gets
// one of theirs, no sandbox gets another's.
func TestAStrangersAddressIsNotGivenUnderLoad(t *testing.T) {
	w := newWorld(t, func(c *config.Config) { c.Allocation.QuarantineShare = 1 })
	port := w.ns.Port("rt0")
	for i := 2; i < 130; i += 2 {
		port.AddAddr(addr(i) + "/24")
	}
	got := make(chan string, 100)
	for c := range 20 {
		go func() {
			for i := range 5 {
				r, err := w.client.Allocate(ctx, api.AllocateRequest{Sandbox: fmt.Sprintf("s-%d-%d", c, i)})
				if err != nil {
					t.Error(err)
					got <- ""
					continue
				}
				got <- r.Leases[0].Address
			}
		}()
	}
	seen := make(map[string]bool)
	for range 100 {
		a := <-got
		if a == "" {
			continue
		}
		if last := netip.MustParseAddr(a).As4()[3]; seen[a] || last%2 == 0 && last < 130 {
			t.Errorf("%s was given", a)
		}
		seen[a] = true
	}
}

// L15: a second daemon on the same book, or on the same bridge with another
// book, refuses to start and names the first. What the first left behind when
// it died does not block.
func TestL15SecondDaemonIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	same := w.newProgram()
	if err := same.open(ctx); err == nil || !strings.Contains(err.Error(), fmt.Sprint(os.Getpid())) {
		t.Errorf("same book: %v", err)
	}
	other := w.newProgram()
	other.cfg.Book.Path += "2"
	other.cfg.Socket.Path += "2"
	if err := other.open(ctx); err == nil || !strings.Contains(err.Error(), fmt.Sprint(os.Getpid())) || !strings.Contains(err.Error(), "rt0") {
		t.Errorf("same bridge: %v", err)
	}
	w.give("a", "10.8.64.2")
	w.stopDaemon()
	// What a killed daemon leaves: a socket on which no process listens, and a lock
	// file that is not locked, with the pid of a process that is gone.
	stale, err := net.ListenUnix("unix", &net.UnixAddr{Name: w.cfg.Socket.Path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	stale.SetUnlinkOnClose(false)
	stale.Close()
	if fi, err := os.Lstat(w.cfg.Socket.Path); err != nil || fi.Mode().Type() != os.ModeSocket {
		t.Fatalf("there is no stale socket: %v, %v", fi, err)
	}
	const gone = 1 << 22 // above every pid that Linux gives
	if err := os.WriteFile(w.cfg.Book.Path+".lock", fmt.Appendln(nil, gone), 0o600); err != nil {
		t.Fatal(err)
	}
	w.start()
	w.give("b", "10.8.64.3")
}
