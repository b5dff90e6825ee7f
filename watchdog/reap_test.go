package watchdog_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/ipamd/ipamd/internal/ctrdtest"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb/netdbtest"
	"github.com/ipamd/ipamd/watchdog"
)

// says is an owner with one answer to all.
type says struct {
	verdict atomic.Int32
	broken  atomic.Bool
}

func (o *says) List(context.Context) ([]watchdog.Owned, error) { return nil, nil }

func (o *says) Look(context.Context, string) (watchdog.Verdict, error) {
	if o.broken.Load() {
		return watchdog.Gone, errors.New("timed out")
	}
	return watchdog.Verdict(o.verdict.Load()), nil
}

// R4. A reap looks everything up anew, and does nothing when anything is
// there, came alive, changed, or cannot be asked.
func TestR4ReapLooksAgain(t *testing.T) {
	ctrdtest.One(t, func(t *testing.T, d *ctrdtest.Daemon) {
		s := newScene(t, d)
		keeps := func(b *sandbox, why string) {
			t.Helper()
			let, reply, err := s.Reap(ctx, s.now(b), "reaped")
			if let || err != nil || !strings.Contains(reply, why) {
				t.Errorf("reap %s: released %v, %q, %v; want it blocked, %q", b.name, let, reply, err, why)
			}
		}
		a := s.bare("a", "c1")
		if gone, err := s.Gone(ctx, a.lease, nil); gone || err != nil {
			t.Errorf("with a record it is gone: %v, %v", gone, err)
		}
		keeps(a, "c1 is there")
		// Only a label ties this one to the sandbox.
		b := &sandbox{name: "b", lease: netdbtest.Reserve(t, s.book, "b")}
		d.Create(t, ctrdtest.Spec{Namespace: space, ID: "app", Labels: map[string]string{"runtime.computer/entity-id": "b"}})
		l, err := s.book.Bind(ctx, client, b.lease.ID, 0, ipam.Binding{Containers: []ipam.Container{{Namespace: space, ID: "never-made"}}})
		s.check(err)
		b.lease = l
		if gone, err := s.Gone(ctx, b.lease, nil); !gone || err != nil {
			t.Errorf("without its record it is not gone: %v, %v", gone, err)
		}
		keeps(b, "app is there")
		// A port and its address, with no container at all.
		p := s.plugged("p")
		keeps(p, "is a port of rt0")
		p.port.DelAddr(p.lease.Addr.String() + "/24")
		p.port.Close()
		s.eventually("the port's leaving is known", func() bool { return s.board.About(p.lease.Addr).Unseen() })
		old := *s.now(p)
		if old.Rev--; true {
			let, why, err := s.Reap(ctx, &old, "reaped")
			if let || err != nil || why != "it has changed meanwhile" {
				t.Errorf("at an older revision: released %v, %q, %v", let, why, err)
			}
		}
		let, why, err := s.Reap(ctx, s.now(p), "reaped")
		if !let || err != nil {
			t.Fatalf("nothing is left and it is blocked: %q, %v", why, err)
		}
		s.cools(p)
		if got := story(s.changes(p)[2:]); got != "releasing:reaped cooling:removal_confirmed" {
			t.Errorf("its story: %s", got)
		}
		// Nothing of it was ever on the bridge.
		off := &sandbox{name: "off", lease: netdbtest.Reserve(t, s.book, "off")}
		off.lease, err = s.book.Bind(ctx, client, off.lease.ID, 0, ipam.Binding{MAC: "02:00:00:00:99:01",
			Plug: ipam.Plug{Boot: ipam.Now().BootID, Unseen: true}})
		s.check(err)
		keeps(off, "nothing of it was ever seen")
		// It was not looked at whether it was, as an ipamd of before did not.
		before := &sandbox{name: "before", lease: netdbtest.Reserve(t, s.book, "before")}
		before.lease, err = s.book.Bind(ctx, client, before.lease.ID, 0, ipam.Binding{MAC: "02:00:00:00:99:02"})
		s.check(err)
		keeps(before, "nothing of it was ever seen")
		// Could not ask is not "not there".
		s.d.Delete(t, space, "app")
		s.d.Kill9()
		keeps(b, "")
		if gone, err := s.Gone(ctx, b.lease, nil); gone || err == nil {
			t.Errorf("containerd is down and it is gone: %v, %v", gone, err)
		}
	})
}

// A reserved lease past its deadline ends, unless its owner keeps it, the wire
// shows it, or a container that may be about to use it is there, by whichever
// label. One that was on the wire cools; any other is free.
func TestExpire(t *testing.T) {
	owner := &says{}
	d := ctrdtest.Start(t, ctrdtest.Debian)
	s := newScene(t, d, func(c *watchdog.Config) { c.Owner = owner })
	l, never := netdbtest.Reserve(t, s.book, "a"), netdbtest.Reserve(t, s.book, "b")
	keeps := func(l *ipam.Lease, why string) {
		t.Helper()
		if let, reply, err := s.Expire(ctx, l, "expired"); let || err != nil || !strings.Contains(reply, why) {
			t.Errorf("released %v, %q, %v; want it blocked, %q", let, reply, err, why)
		}
	}
	expires := func(l *ipam.Lease) {
		t.Helper()
		s.eventually("it expires", func() bool {
			let, _, err := s.Expire(ctx, l, "expired")
			return let && err == nil
		})
	}
	keeps(l, "no answer about a")
	owner.verdict.Store(int32(watchdog.Valid))
	keeps(l, "says that a is valid")
	owner.verdict.Store(int32(watchdog.Gone))
	owner.broken.Store(true)
	keeps(l, "timed out")
	owner.broken.Store(false)
	port := s.ns.Port("rt0", l.Addr.String()+"/24")
	keeps(l, "sees "+l.Addr.String())
	port.Close()
	for _, label := range []map[string]string{{"ipamd.dev/lease-id": l.ID}, {"runtime.computer/entity-id": "a"}} {
		d.Create(t, ctrdtest.Spec{Namespace: space, ID: "c1", Labels: label})
		keeps(l, "c1 is there")
		d.Delete(t, space, "c1")
	}
	// Its sandbox lives with another lease: no reason to keep this one.
	other := s.reserved(s.book.Pools()[0], "a", "a", "eth1")
	d.Create(t, ctrdtest.Spec{Namespace: space, ID: "c2", Labels: map[string]string{"runtime.computer/entity-id": "a", "ipamd.dev/lease-id": other.ID}})
	d.Create(t, ctrdtest.Spec{Namespace: space, ID: "c3", Labels: map[string]string{"runtime.computer/entity-id": "a"}})
	_, err := s.book.Bind(ctx, client, other.ID, 0, ipam.Binding{Containers: []ipam.Container{{Namespace: space, ID: "c3"}}})
	s.check(err)
	expires(l)
	d.Delete(t, space, "c2")
	d.Delete(t, space, "c3")
	s.cools(&sandbox{name: "a", lease: l})
	expires(never)
	if _, row := s.book.At(never.Addr); row {
		t.Error("one that never was on the wire left a row")
	}
}

// W1. With an owner to ask, a workload that vanished is released only when the
// owner calls it gone.
func TestOwnerKeepsTheForsaken(t *testing.T) {
	owner := &says{}
	d := ctrdtest.Start(t, ctrdtest.Debian)
	s := newScene(t, d, func(c *watchdog.Config) { c.Owner = owner })
	a, b := s.running("a", "c1"), s.running("b", "c2")
	s.d.Delete(t, space, "c1")
	if got := s.blocked(a, "owner"); !strings.Contains(got, "no answer about a") {
		t.Errorf("blocked because %q", got)
	}
	owner.verdict.Store(int32(watchdog.Valid))
	if let, why, err := s.Reap(ctx, s.now(a), "reaped"); let || err != nil || !strings.Contains(why, "valid") {
		t.Errorf("reaped: %v, %q, %v", let, why, err)
	}
	if l := s.now(a); l.State != ipam.Bound {
		t.Fatalf("it is %s", l.State)
	}
	owner.verdict.Store(int32(watchdog.Gone))
	s.d.Delete(t, space, "c2")
	s.cools(b)
	s.cools(a)
}
