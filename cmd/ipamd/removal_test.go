package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/client"
	"github.com/ipamd/ipamd/config"
	"github.com/ipamd/ipamd/internal/ctrdtest"
	"github.com/ipamd/ipamd/internal/nstest"
	"github.com/ipamd/ipamd/internal/realtest"
	"github.com/ipamd/ipamd/ipam"
)

// A box is a sandbox as a runtime makes it: a lease, a port, a container.
type box struct {
	name string
	port *nstest.Port
	held api.Lease
}

// box allocates, plumbs, runs and binds.
func (w *world) box(d *ctrdtest.Daemon, name string) *box {
	w.t.Helper()
	return w.boxOf(name, func(b *box) { b.run(w, d) })
}

// boxOf is a box whose container is made by what it is given.
func (w *world) boxOf(name string, contain func(*box)) *box {
	w.t.Helper()
	b := &box{name: name, held: w.allocate(name).Leases[0]}
	b.port = w.ns.Port("rt0", fmt.Sprintf("%s/%d", b.held.Address, b.held.PrefixLen))
	contain(b)
	if _, err := w.client.Bind(ctx, b.held.ID, api.BindRequest{Containers: []api.Container{{Namespace: "default", ID: name}},
		Netns: b.port.NS.Path(), HostInterface: b.port.HostName, MAC: b.port.MAC.String()}); err != nil {
		w.t.Fatal(err)
	}
	return b
}

func (b *box) run(w *world, d *ctrdtest.Daemon) {
	w.t.Helper()
	named := labels(b.name, b.held.Address)
	named["ipamd.dev/lease-id"] = b.held.ID
	d.Run(w.t, ctrdtest.Spec{ID: b.name, Labels: named, Netns: b.port.NS.Path()})
	realtest.Eventually(w.t, wait, "the container to be seen", func() bool { return seenBy(w, b.held.Address, "runtime") })
}

// becomes waits until an address is in a state.
func (w *world) becomes(addr string, want api.State) {
	w.t.Helper()
	realtest.Eventually(w.t, wait, addr+" to be "+string(want), func() bool { return w.is(addr, want) })
}

// is reports whether an address is in a state; cooling is one that has cooled and
// is free since: with a short cooldown no witness sees it cool.
func (w *world) is(addr string, want api.State) bool {
	w.t.Helper()
	who := w.whois(addr)
	return who.State == want ||
		want == api.Cooling && who.State == api.Free && len(who.History) > 0 && who.History[0].From == api.Cooling
}

// slow makes passes so rare that none runs.
func slow(c *config.Config) { c.Reconcile.Every = config.Duration(time.Hour) }

// W2: a shim is frozen, so containerd cannot remove the container. A release
// that came before stays releasing with its blocker, no sandbox gets the address,
// and the cooldown starts when the removal succeeds.
func TestW2RemovalThatFails(t *testing.T) {
	t.Parallel()
	ctrdtest.One(t, func(t *testing.T, d *ctrdtest.Daemon) {
		w := newWorld(t, withContainerd(d), impatient, slow, pool("10.8.64.0/30"))
		a := w.box(d, "a")
		d.FreezeShim(t, "default", "a")
		r, err := w.client.Release(ctx, a.held.ID, api.ReleaseRequest{})
		if err != nil || r.Lease.State != api.Releasing {
			t.Fatalf("release: %+v, %v", r, err)
		}
		named := func(b api.Blocker) bool { return b.Kind == "container" && strings.Contains(b.Detail, "default/a") }
		realtest.Eventually(t, wait, "the blocker to be named", func() bool {
			now, err := w.client.Lease(ctx, a.held.ID)
			return err == nil && now.Lease.State == api.Releasing && slices.ContainsFunc(now.Blockers, named)
		})
		a.port.Close()
		if _, err := w.client.Allocate(ctx, api.AllocateRequest{Sandbox: "b"}); err == nil {
			t.Error("its address was given")
		}
		d.ThawShim(t, "default", "a")
		before := time.Now()
		d.Delete(t, "default", "a")
		w.becomes(a.held.Address, api.Cooling)
		if last := w.whois(a.held.Address).History[0]; last.To != api.Cooling || last.At.Before(before) {
			t.Errorf("it cools by %+v, and was removed after %v", last, before)
		}
	})
}

// W4: the container that the lease records is gone, another of the same
// sandbox lives in the same namespace: releasing, and show names it.
func TestW4SurvivorIsNamed(t *testing.T) {
	t.Parallel()
	ctrdtest.One(t, func(t *testing.T, d *ctrdtest.Daemon) {
		w := newWorld(t, withContainerd(d), slow)
		a := w.box(d, "a")
		d.Run(t, ctrdtest.Spec{ID: "a-app", Labels: map[string]string{"runtime.computer/entity-id": "a"}, Netns: a.port.NS.Path()})
		d.Delete(t, "default", "a")
		if _, err := w.client.Release(ctx, a.held.ID, api.ReleaseRequest{}); err != nil {
			t.Fatal(err)
		}
		realtest.Eventually(t, wait, "the survivor to be named", func() bool {
			now, err := w.client.Lease(ctx, a.held.ID)
			return err == nil && now.Lease.State == api.Releasing &&
				slices.ContainsFunc(now.Blockers, func(b api.Blocker) bool { return strings.Contains(b.Detail, "default/a-app") || b.Kind == "port" })
		})
		a.port.Close()
		realtest.Eventually(t, wait, "only the survivor to be left", func() bool {
			now, err := w.client.Lease(ctx, a.held.ID)
			return err == nil && now.Lease.State == api.Releasing && len(now.Blockers) > 0 && strings.Contains(now.Blockers[0].Detail, "default/a-app")
		})
		d.Delete(t, "default", "a-app")
		w.becomes(a.held.Address, api.Cooling)
	})
}

// unread is a time behind the start of a daemon in which it does not read all that
// containerd has once more: what it learns of by then, events have reported.
const unread = 30 * time.Second

// W6 and W9: Release is not called. While the namespace lives the lease stays;
// when container and namespace are gone, events end it, once, with its reason,
// and no pass runs.
func TestW6W9RemovalWithoutARelease(t *testing.T) {
	ctrdtest.One(t, func(t *testing.T, d *ctrdtest.Daemon) {
		w := newWorld(t, withContainerd(d), slow)
		b := w.box(d, "b")
		gone := 0
		realtest.InTime(t, unread, "the end of a", func() time.Duration {
			gone++
			a := w.box(d, fmt.Sprint("a", gone))
			w.watched()
			began := time.Now()
			a.port.Close()
			d.Delete(t, "default", a.name)
			w.becomes(a.held.Address, api.Cooling)
			took := time.Since(began)
			if got := ends(w, a); got != "removed, removal_confirmed" {
				t.Errorf("it ended by: %s", got)
			}
			return took
		})
		// A container that is replaced in place keeps its lease.
		d.Delete(t, "default", "b")
		realtest.Eventually(t, wait, "the container to be missed", func() bool { return !seenBy(w, b.held.Address, "runtime") })
		b.run(w, d)
		if who := w.whois(b.held.Address); who.State != api.Bound || who.Lease.ID != b.held.ID {
			t.Errorf("a replaced container's lease: %+v", who.Lease)
		}
	})
}

// ends says by which reasons a box's lease was released and confirmed.
func ends(w *world, b *box) string {
	var reasons []string
	for _, c := range w.whois(b.held.Address).History {
		if c.LeaseID == b.held.ID && (c.To == api.Releasing || c.To == api.Cooling) {
			reasons = append(reasons, c.Reason)
		}
	}
	slices.Reverse(reasons)
	return strings.Join(reasons, ", ")
}

// W7: containers are deleted while the daemon is down. After its start each
// lease ends once, and the brake does not take the empty list for a lost
// runtime, because look-ups by id say the same.
func TestW7DeletedWhileDown(t *testing.T) {
	t.Parallel()
	ctrdtest.One(t, func(t *testing.T, d *ctrdtest.Daemon) {
		const many = 50 // of 50: far beyond the brake
		w := newWorld(t, withContainerd(d), quick, func(c *config.Config) {
			c.Allocation.Cooldown = config.Duration(time.Hour)
			c.Reconcile.Age = config.Duration(100 * time.Millisecond)
		})
		var all []*box
		for i := range many { // each fifth runs; of the others containerd has the record
			all = append(all, w.boxOf(fmt.Sprint("s", i), func(b *box) {
				if i%5 == 0 {
					b.run(w, d)
				} else {
					w.record(d, b.held, b.name)
				}
			}))
		}
		w.stopDaemon()
		for _, b := range all {
			d.Delete(t, "default", b.name)
			b.port.Close()
		}
		w.start()
		for _, b := range all {
			w.becomes(b.held.Address, api.Cooling)
			if got := ends(w, b); got != "reaped, removal_confirmed" {
				t.Errorf("%s ended by: %s", b.name, got)
			}
		}
		if got := w.metric("reap_held_total"); got != "0" {
			t.Errorf("%s passes were held", got)
		}
	})
}

// R2: the book is lost entirely. Every live container has its lease back
// before the first request is answered.
func TestR2BookLost(t *testing.T) {
	t.Parallel()
	ctrdtest.One(t, func(t *testing.T, d *ctrdtest.Daemon) {
		w := newWorld(t, withContainerd(d))
		w.stopDaemon()
		const many = 70 // beyond every brake and every share of the pool
		for i := range many {
			name, port := fmt.Sprint("s", i), w.ns.Port("rt0", addr(2+i)+"/24")
			d.Run(t, ctrdtest.Spec{ID: name, Labels: labels(name, addr(2+i)), Netns: port.NS.Path()})
		}
		w.loseBook()
		w.start()
		w.give("new", addr(2+many))
		list, err := w.client.Leases(ctx, client.LeaseFilter{State: string(api.Bound)})
		if err != nil || len(list.Leases) != many {
			t.Fatalf("%d leases are back, %v", len(list.Leases), err)
		}
		for i, l := range list.Leases {
			if l.Sandbox != fmt.Sprint("s", i) || l.Address != addr(2+i) {
				t.Errorf("%s has %s", l.Sandbox, l.Address)
			}
		}
	})
}

// R3: containerd is killed under live sandboxes. Passes while it is down, and
// in its first second, free nothing.
func TestR3ContainerdKilled(t *testing.T) {
	t.Parallel()
	ctrdtest.One(t, func(t *testing.T, d *ctrdtest.Daemon) {
		w := newWorld(t, withContainerd(d), quick, func(c *config.Config) {
			c.Reconcile.Age, c.Reconcile.Misses = config.Duration(time.Millisecond), 1
		})
		a := w.box(d, "a")
		// One that only containerd knows of: no port, nothing on the wire.
		quiet := w.allocate("quiet").Leases[0]
		d.Run(t, ctrdtest.Spec{ID: "quiet", Labels: leased(quiet)})
		w.becomes(quiet.Address, api.Bound)
		d.Kill9()
		for range 5 {
			r, err := w.client.Reconcile(ctx, api.ReconcileRequest{Confirm: true})
			if err != nil || r.Report.Complete || len(r.Report.Actions) != 0 {
				t.Errorf("a pass without containerd: %+v, %v", r, err)
			}
		}
		d.Restart()
		second, again := time.Now().Add(time.Second), 0
		realtest.Eventually(t, wait, "five passes that every witness answers", func() bool {
			r, err := w.client.Reconcile(ctx, api.ReconcileRequest{})
			if err != nil {
				t.Fatal(err)
			}
			if r.Report.Complete {
				again++
			}
			return again >= 5 && time.Now().After(second)
		})
		for _, addr := range []string{a.held.Address, quiet.Address} {
			if got := w.state(addr); got != api.Bound {
				t.Errorf("%s is %s", addr, got)
			}
		}
	})
}

// R7: two containers claim one address. Both are reported, neither is touched,
// and no third sandbox gets it.
func TestR7TwoClaimants(t *testing.T) {
	t.Parallel()
	ctrdtest.One(t, func(t *testing.T, d *ctrdtest.Daemon) {
		w := newWorld(t, withContainerd(d), quick)
		w.stopDaemon()
		for _, name := range []string{"a", "b"} {
			d.Create(t, ctrdtest.Spec{ID: name, Labels: labels(name, "10.8.64.2")})
		}
		w.start()
		w.give("c", "10.8.64.3")
		who := w.whois("10.8.64.2")
		if who.State != api.Quarantined || len(who.Lease.Evidence) != 2 {
			t.Errorf("whois says %+v", who)
		}
		if !slices.Contains(w.findings(), "two_claimants 10.8.64.2") {
			t.Errorf("doctor says %v", w.findings())
		}
	})
}

// R9: a pass that would let more go than the brake allows lets none go and
// says so, until an operator confirms.
func TestR9Brake(t *testing.T) {
	t.Parallel()
	w := newWorld(t, quick, func(c *config.Config) {
		c.Allocation.Cooldown = config.Duration(time.Hour)
		c.Reconcile.Misses, c.Reconcile.LeastReleases = 1, 2
	})
	for i := range 3 {
		l, port := w.allocate(fmt.Sprint("s", i)).Leases[0], w.ns.Port("rt0")
		if _, err := w.client.Bind(ctx, l.ID, api.BindRequest{HostInterface: port.HostName}); err != nil {
			t.Fatal(err)
		}
		port.Close()
	}
	// All three come of age at once, however long it took to make them: one by
	// one they would be released, as the brake allows.
	w.stopDaemon()
	w.cfg.Reconcile.Age = config.Duration(time.Millisecond)
	w.start()
	var held *api.ReconcileReply
	realtest.Eventually(t, wait, "a pass to be held", func() bool {
		var err error
		held, err = w.client.Reconcile(ctx, api.ReconcileRequest{})
		return err == nil && held.Report.Held != nil
	})
	if held.Report.Held.Releases != 3 || held.Report.Held.Most != 2 || !slices.Contains(w.findings(), "reap_held") {
		t.Errorf("held: %+v; doctor says %v", held.Report.Held, w.findings())
	}
	if list, err := w.client.Leases(ctx, client.LeaseFilter{State: string(api.Bound)}); err != nil || len(list.Leases) != 3 {
		t.Errorf("%+v, %v", list, err)
	}
	preview, err := w.client.Reconcile(ctx, api.ReconcileRequest{Preview: true})
	if err != nil || len(preview.Report.Actions) != 3 || preview.Report.Actions[0].Kind != "reap" {
		t.Errorf("preview: %+v, %v", preview, err)
	}
	if _, err := w.client.Reconcile(ctx, api.ReconcileRequest{Confirm: true}); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		w.becomes(addr(2+i), api.Cooling)
	}
}

// W8: the clients hang up in the middle of their releases. What they asked for
// ends all the same. Every second one hangs up at any time, the others when the
// daemon has learned of them.
func TestW8ClientsHangUp(t *testing.T) {
	t.Parallel()
	w := newWorld(t, slow)
	port := w.ns.Port("rt0") // of them all, so that no release is over at once
	var held []api.Lease
	for i := range 100 {
		l := w.allocate(fmt.Sprint("s", i)).Leases[0]
		if _, err := w.client.Bind(ctx, l.ID, api.BindRequest{HostInterface: port.HostName}); err != nil {
			t.Fatal(err)
		}
		held = append(held, l)
	}
	for i, l := range held {
		short, cancel := context.WithTimeout(ctx, time.Duration(i)*100*time.Microsecond)
		if i%2 == 1 {
			cancel()
			short, cancel = w.untilEnded(l)
		}
		_, _ = w.client.Release(short, l.ID, api.ReleaseRequest{Wait: "30s"}) // it may have been received, or not
		cancel()
	}
	arrived := 0
	for _, l := range held {
		if w.state(l.Address) != api.Bound {
			arrived++ // and it is not asked again
		} else if _, err := w.client.Release(ctx, l.ID, api.ReleaseRequest{}); err != nil {
			t.Error(err)
		}
	}
	if arrived == 0 {
		t.Error("no call that hung up was received")
	}
	port.Close()
	for _, l := range held {
		w.becomes(l.Address, api.Cooling)
	}
}

// untilEnded is a context that ends when a lease is not bound any more.
func (w *world) untilEnded(l api.Lease) (context.Context, context.CancelFunc) {
	short, cancel := context.WithTimeout(ctx, wait)
	go func() {
		defer cancel()
		for {
			changed := w.program.book.Changed()
			if now, err := w.program.book.Lease(l.ID); err != nil || now.State != ipam.Bound {
				return
			}
			select {
			case <-changed:
			case <-short.Done():
				return
			}
		}
	}()
	return short, cancel
}
