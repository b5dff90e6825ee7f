package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/internal/ctrdtest"
	"github.com/ipamd/ipamd/internal/ownertest"
	"github.com/ipamd/ipamd/internal/realtest"
)

// A sandbox begins anew while the end of its first life is noticed. Whatever
// the runtime is answered, it can bind: a lease that it was answered with does
// not cool a moment later.
func TestAskedAgainWhileTheFirstLifeEnds(t *testing.T) {
	t.Parallel()
	ctrdtest.One(t, func(t *testing.T, d *ctrdtest.Daemon) {
		w := newWorld(t, withContainerd(d), slow, pool("10.8.64.0/21"))
		const most = 600
		same, all := 0, 0
		for ; all < 60 || same == 0 && all < most; all++ { // chance decides who comes first
			name := fmt.Sprint("s", all)
			l := w.allocate(name).Leases[0]
			id := w.record(d, l, name+"-1")
			w.bind(l, id)
			d.Delete(t, "default", id)
			<-time.After(rand.N(5 * time.Millisecond))
			now := w.allocate(name)
			if now.Existing {
				same++
			}
			l = now.Leases[0]
			w.bind(l, w.record(d, l, name+"-2"))
		}
		t.Logf("%d of %d were answered the lease that they had", same, all)
		if same == 0 {
			t.Error("no caller came before the end of the first life was noticed")
		}
	})
}

// A sandbox was given its lease again while its old container is there, and its
// owner says that it is gone: the container stays until the sandbox has bound.
func TestAskedAgainWhileItIsAnOrphan(t *testing.T) {
	t.Parallel()
	ctrdtest.One(t, func(t *testing.T, d *ctrdtest.Daemon) {
		o := ownertest.Start(t)
		o.Set("valid", "bystander", "a")
		w := newWorld(t, withContainerd(d), slow, owned(o.Socket))
		l := w.allocate("a").Leases[0]
		l = w.bind(l, w.record(d, l, "a-1"))
		if now := w.allocate("a"); !now.Existing || now.Leases[0].ID != l.ID {
			t.Fatalf("given again was %+v", now)
		}
		o.Set("gone", "a")
		realtest.Eventually(t, wait, "doctor to report the orphan", func() bool { return slices.Contains(w.findings(), "orphan") })
		lists := o.Lists()
		realtest.Eventually(t, wait, "more sweeps", func() bool { return o.Lists() >= lists+5 })
		if now := w.whois(l.Address); now.State != api.Bound || now.Lease.Revision != l.Revision || !seenBy(w, l.Address, "runtime") {
			t.Errorf("it is %s, seen by %+v", now.State, now.Witnesses)
		}
		w.bind(l, "a-1")
		w.becomes(l.Address, api.Cooling)
	})
}

// record makes a container that has a record and nothing else.
func (w *world) record(d *ctrdtest.Daemon, l api.Lease, id string) string {
	w.t.Helper()
	d.Create(w.t, ctrdtest.Spec{ID: id, Labels: leased(l)})
	realtest.Eventually(w.t, wait, "container "+id+" to be seen", func() bool { return seenBy(w, l.Address, "runtime") })
	return id
}

// A container that failed to start is removed, and its sandbox's second one is
// bound: also where a pass bound the lease to the first in between.
func TestSecondContainerOfANewLease(t *testing.T) {
	t.Parallel()
	ctrdtest.One(t, func(t *testing.T, d *ctrdtest.Daemon) {
		w := newWorld(t, withContainerd(d), slow)
		run := func(l api.Lease, id string) {
			d.Run(t, ctrdtest.Spec{ID: id, Labels: leased(l)})
			realtest.Eventually(t, wait, "container "+id+" to be seen", func() bool { return seenBy(w, l.Address, "runtime") })
		}
		other := w.allocate("other").Leases[0]
		run(other, "other-1")
		other = w.bind(other, "other-1")
		w.watched()
		l := w.allocate("new").Leases[0]
		run(l, "new-1")
		w.pass()
		if w.state(l.Address) != api.Bound {
			t.Fatalf("after a pass %s is %s", l.Address, w.state(l.Address))
		}
		d.Delete(t, "default", "new-1")
		d.Delete(t, "default", "other-1")
		w.becomes(other.Address, api.Cooling) // the watchdog has looked at both
		w.bind(l, w.record(d, l, "new-2"))
	})
}

// A reservation that is asked for again when its time to bind is nearly over,
// or was over, has time to be bound.
func TestAskedAgainWhenItsTimeIsOver(t *testing.T) {
	t.Parallel()
	w := newWorld(t, slow)
	const short = 50 * time.Millisecond
	ask := api.AllocateRequest{Sandbox: "a", BindWithin: api.Lasting(short)}
	first, err := w.client.Allocate(ctx, ask)
	if err != nil {
		t.Fatal(err)
	}
	<-time.After(2 * short)
	ask.BindWithin = "10m"
	again, err := w.client.Allocate(ctx, ask)
	if err != nil || !again.Existing || again.Leases[0].ID != first.Leases[0].ID {
		t.Fatalf("asked again: %+v, %v", again, err)
	}
	if by := again.Leases[0].BindBy; by == nil || time.Until(*by) < 9*time.Minute {
		t.Errorf("it is to be bound by %v", by)
	}
	for range 3 {
		w.pass()
	}
	if _, err := w.client.Bind(ctx, first.Leases[0].ID, api.BindRequest{HostInterface: "veth17"}); err != nil {
		t.Error(err)
	}
}
