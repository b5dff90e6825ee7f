package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/client"
	"github.com/ipamd/ipamd/config"
	"github.com/ipamd/ipamd/internal/realtest"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb"
)

// bindAndRelease takes a lease to cooling.
func bindAndRelease(w *world, l api.Lease) {
	w.t.Helper()
	if _, err := w.client.Bind(ctx, l.ID, api.BindRequest{MAC: "02:00:00:00:00:01"}); err != nil {
		w.t.Fatal(err)
	}
	r, err := w.client.Release(ctx, l.ID, api.ReleaseRequest{Wait: "60s"})
	if err != nil || !cools(r.Lease) {
		w.t.Fatalf("release of a bound lease: %+v, %v", r, err)
	}
}

// cools reports whether a lease that was bound has ended: it cools, or, where the answer
// took longer than a short cooldown, it is free since.
func cools(l api.Lease) bool { return l.State == api.Cooling || l.State == api.Free }

// L2: the same request again gets the same lease, and no new revision.
func TestL2AllocateIsIdempotent(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first := w.allocate("a")
	again := w.allocate("a")
	if !again.Existing || first.Existing || again.Leases[0].ID != first.Leases[0].ID || again.Revision != first.Revision {
		t.Errorf("first %+v, again %+v", first, again)
	}
	other, err := w.client.Allocate(ctx, api.AllocateRequest{Sandbox: "a", Interface: "eth1"})
	if err != nil || other.Existing || other.Leases[0].Address == first.Leases[0].Address {
		t.Errorf("another interface: %+v, %v", other, err)
	}
	// A higher attempt is the same lease, noted once.
	for range 2 {
		second, err := w.client.Allocate(ctx, api.AllocateRequest{Sandbox: "a", Attempt: 2})
		if err != nil || !second.Existing || second.Leases[0].ID != first.Leases[0].ID || second.Leases[0].Attempt != 2 ||
			second.Revision != other.Revision+1 {
			t.Errorf("attempt 2: %+v, %v", second, err)
		}
	}
	w.stopDaemon()
	w.start()
	if again := w.allocate("a"); !again.Existing || again.Leases[0].ID != first.Leases[0].ID {
		t.Errorf("after a restart: %+v", again)
	}
}

// L4 and L3 over the socket: late verbs about a lease whose address has
// another owner say so and touch nothing.
func TestL4LateReleaseOverTheSocket(t *testing.T) {
	t.Parallel()
	w := newWorld(t, quick, pool("10.8.64.0/30"))
	a := w.give("a", "10.8.64.2").Leases[0]
	bindAndRelease(w, a)
	if r, err := w.client.Release(ctx, a.ID, api.ReleaseRequest{}); err != nil || !cools(r.Lease) {
		t.Errorf("released again: %+v, %v", r, err)
	}
	var b *api.AllocateReply
	realtest.Eventually(t, wait, "the cooldown", func() (ok bool) {
		var err error
		b, err = w.client.Allocate(ctx, api.AllocateRequest{Sandbox: "b"})
		return err == nil
	})
	if _, err := w.client.Release(ctx, a.ID, api.ReleaseRequest{}); !errors.Is(err, client.ErrLeaseGone) {
		t.Errorf("late release: %v", err)
	}
	if got, err := w.client.Lease(ctx, b.Leases[0].ID); err != nil || got.Lease.State != api.Reserved || got.Lease.Revision != b.Leases[0].Revision {
		t.Errorf("b's lease is %+v, %v", got, err)
	}
}

// L7 over the socket: a full pool says so, with what it is full of, and
// readyz turns red; a lease that was never bound and is not seen goes free at
// once.
func TestL7FullPoolAndReadiness(t *testing.T) {
	t.Parallel()
	w := newWorld(t, pool("10.8.64.0/30"))
	if _, err := w.client.Ready(ctx); err != nil {
		t.Fatal(err)
	}
	l := w.give("a", "10.8.64.2").Leases[0]
	_, err := w.client.Allocate(ctx, api.AllocateRequest{Sandbox: "b"})
	var refusal *api.Error
	if !errors.As(err, &refusal) || refusal.Code != api.PoolExhausted || !refusal.Retryable || refusal.Details["by_state"] == nil {
		t.Errorf("full: %v", err)
	}
	if h, err := w.client.Ready(ctx); err == nil || !strings.Contains(strings.Join(h.Reasons, " "), "exhausted") {
		t.Errorf("readyz: %+v, %v", h, err)
	}
	r, err := w.client.Release(ctx, l.ID, api.ReleaseRequest{})
	if err != nil || r.Lease.State != api.Free {
		t.Fatalf("release of an unbound unseen lease: %+v, %v", r, err)
	}
	w.give("b", "10.8.64.2")
}

// L8 over the socket: at exhaustion "oldest" gives the address released
// longest ago after cooldown_min, says early_reuse and moves a counter;
// "strict" refuses until the cooldown is over.
func TestL8EarlyReuseIsReported(t *testing.T) {
	t.Parallel()
	slow := func(c *config.Config) {
		c.Allocation.Cooldown = config.Duration(time.Hour)
		c.Allocation.CooldownMin = config.Duration(200 * time.Millisecond)
	}
	w := newWorld(t, slow, pool("10.8.64.0/30"))
	bindAndRelease(w, w.give("a", "10.8.64.2").Leases[0])
	var r *api.AllocateReply
	realtest.Eventually(t, wait, "cooldown_min", func() bool {
		var err error
		r, err = w.client.Allocate(ctx, api.AllocateRequest{Sandbox: "b"})
		return err == nil
	})
	if !r.EarlyReuse {
		t.Errorf("not reported: %+v", r)
	}
	if got := w.metric("early_reuse_total"); got != "1" {
		t.Errorf("early_reuse_total is %s", got)
	}
	w = newWorld(t, slow, pool("10.8.64.0/30"), func(c *config.Config) { c.Allocation.Exhausted = "strict" })
	bindAndRelease(w, w.give("a", "10.8.64.2").Leases[0])
	l, _ := w.program.book.At(w.program.book.Pools()[0].Gateway.Next())
	realtest.Eventually(t, wait, "cooldown_min", func() bool { return ipam.Now().Since(l.Since) > 250*time.Millisecond })
	r, err := w.client.Allocate(ctx, api.AllocateRequest{Sandbox: "b"})
	var refusal *api.Error
	if !errors.As(err, &refusal) || refusal.Code != api.PoolExhausted || refusal.Details["next_in"] == nil || !strings.Contains(refusal.Message, "will have cooled in") {
		t.Errorf("strict gave %+v, %v, %+v", r, err, refusal)
	}
}

// L10 over the socket: a row that cannot be read is in the log, the metric
// and doctor, and blocks nothing.
func TestL10UnreadableRowIsReported(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.give("a", "10.8.64.2")
	w.stopDaemon()
	w.edit(`PRAGMA ignore_check_constraints = 1; UPDATE leases SET state = 'dreaming'`)
	w.edited = append(w.edited, netdb.RowsAreReadable, netdb.RowsHaveTheirLast)
	w.start()
	w.give("b", "10.8.64.3")
	if !strings.Contains(w.log.String(), "dreaming") {
		t.Error("the log does not have it")
	}
	if got := w.metric("unreadable_rows"); got != "1" {
		t.Errorf("unreadable_rows is %s", got)
	}
	if got := w.findings(); !slices.Contains(got, "unreadable_row") {
		t.Errorf("doctor says %v", got)
	}
	if _, err := w.client.Allocate(ctx, api.AllocateRequest{Sandbox: "c", Address: "10.8.64.2"}); !errors.Is(err, client.ErrAddressTaken) {
		t.Errorf("a wish for its address: %v", err)
	}
	w.stopDaemon()
}

// L18 over the socket: a sandbox made again within the cooldown gets its
// address back while it is not seen, under a new lease; not while another is on
// it.
func TestL18OwnAddressComesBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.give("a", "10.8.64.2").Leases[0]
	bindAndRelease(w, a)
	w.give("b", "10.8.64.3")
	back := w.give("a", "10.8.64.2")
	if back.Existing || back.Leases[0].ID == a.ID {
		t.Errorf("came back as %+v", back)
	}
	bindAndRelease(w, back.Leases[0])
	w.holdPasses()
	w.ns.Port("rt0", "10.8.64.2/24")
	if r := w.give("a", "10.8.64.4"); len(r.Skipped) != 1 {
		t.Errorf("with a stranger on it: %+v", r)
	}
}

// Scenario P8: a dual-stack request gets one address of each family or none.
func TestDualStackIsAllOrNothing(t *testing.T) {
	w := prepare(t, func(c *config.Config) {
		c.Pools = append(c.Pools, config.Pool{Name: "default", Prefix: "fd00:8::/126"})
	})
	w.ns.Bridge("rt0", "10.8.64.1/24", "fd00:8::1/126")
	w.start()
	both, err := w.client.Allocate(ctx, api.AllocateRequest{Sandbox: "a", Family: api.Dual})
	if err != nil || len(both.Leases) != 2 || both.Leases[0].Address != "10.8.64.2" || both.Leases[1].Address != "fd00:8::2" {
		t.Fatalf("dual: %+v, %v", both, err)
	}
	if again, err := w.client.Allocate(ctx, api.AllocateRequest{Sandbox: "a", Family: api.Dual}); err != nil || !again.Existing {
		t.Errorf("again: %+v, %v", again, err)
	}
	goOn := w.holdPasses()
	port := w.ns.Port("rt0", "fd00:8::3/126")
	// The kernel reports a new IPv6 address a moment after it is there.
	realtest.Eventually(t, wait, "the stranger to be seen", func() bool { return seenBy(w, "fd00:8::3", "netns") })
	rev := w.program.book.Rev()
	_, err = w.client.Allocate(ctx, api.AllocateRequest{Sandbox: "b", Family: api.Dual})
	if !errors.Is(err, client.ErrPoolExhausted) {
		t.Errorf("v6 is full: %v", err)
	}
	list, _ := w.client.Leases(ctx, client.LeaseFilter{Sandbox: "b"})
	if len(list.Leases) != 0 {
		t.Errorf("half a success left %+v", list.Leases)
	}
	changes, err := w.client.History(ctx, client.HistoryFilter{})
	if err != nil || changes.Revision != rev+1 || changes.Changes[0].To != api.Quarantined {
		t.Errorf("after the refusal: %+v, %v", changes, err)
	}
	goOn()
	port.Close()
	if one, err := w.client.Allocate(ctx, api.AllocateRequest{Sandbox: "b", Family: api.V4}); err != nil || len(one.Leases) != 1 || one.Existing {
		t.Errorf("v4 alone: %+v, %v", one, err)
	}
}

// L5 over the socket: a cancel that comes first refuses its attempt, also
// across a restart.
func TestL5CancelOverTheSocket(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	if _, err := w.client.Cancel(ctx, api.CancelRequest{UID: "a", Attempt: 1}); err != nil {
		t.Fatal(err)
	}
	w.stopDaemon()
	w.start()
	if _, err := w.client.Allocate(ctx, api.AllocateRequest{Sandbox: "a"}); !errors.Is(err, client.ErrAttemptCancelled) {
		t.Errorf("attempt 1: %v", err)
	}
	if r, err := w.client.Allocate(ctx, api.AllocateRequest{Sandbox: "a", Attempt: 2}); err != nil || r.Leases[0].Attempt != 2 {
		t.Errorf("attempt 2: %+v, %v", r, err)
	}
}

// Addresses that were probed ahead are given as such; a request that outruns
// the probes says so.
func TestProbesRunAhead(t *testing.T) {
	w := newWorld(t, func(c *config.Config) { c.Probe.Ahead = 4; c.Probe.Window = config.Duration(300 * time.Millisecond) })
	n := 0
	realtest.Eventually(t, wait, "a candidate that was probed ahead", func() bool {
		quiet := time.Now() // a time without demand, as long as two windows
		realtest.Eventually(t, wait, "the probes' windows", func() bool { return time.Since(quiet) > 600*time.Millisecond })
		n++
		return len(w.allocate(strings.Repeat("x", n)).Unprobed) == 0
	})
	var outran atomic.Bool
	var all sync.WaitGroup
	for i := range 100 {
		all.Go(func() {
			r, err := w.client.Allocate(ctx, api.AllocateRequest{Sandbox: fmt.Sprint("y", i)})
			if err != nil {
				t.Error(err)
			} else if len(r.Unprobed) > 0 {
				outran.Store(true)
			}
		})
	}
	all.Wait()
	if !outran.Load() {
		t.Error("100 requests at once never outran 4 probes")
	}
}
