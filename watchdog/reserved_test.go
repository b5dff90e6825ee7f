package watchdog_test

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/ipamd/ipamd/internal/ctrdtest"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb/netdbtest"
	"github.com/ipamd/ipamd/watchdog"
)

// P6. An address that was on the wire cools, though its lease was never bound
// and no witness sees it any more, and so does a prefix around it; and what the kernel remembers of it is deleted.
func TestAReservationThatWasOnTheWireCools(t *testing.T) {
	s := newScene(t, ctrdtest.Start(t, ctrdtest.V2))
	a := netdbtest.Reserve(t, s.book, "a")
	p := s.ns.Port("rt0", a.Addr.String()+"/24")
	s.eventually("it is seen", func() bool { return len(s.board.About(a.Addr).Seen) > 0 })
	p.Close()
	s.eventually("it is unseen", func() bool { return s.board.About(a.Addr).Unseen() })
	s.ns.Exec("ip", "neigh", "replace", a.Addr.String(), "lladdr", "02:00:00:00:00:02", "dev", "rt0", "nud", "stale")
	s.release(&sandbox{name: "a", lease: a})
	s.cools(&sandbox{name: "a", lease: a})
	for {
		b := &sandbox{name: "b", lease: netdbtest.Reserve(t, s.book, "b")}
		s.ns.Exec("ip", "neigh", "replace", b.lease.Addr.String(), "lladdr", "02:00:00:00:00:03", "dev", "rt0", "nud", "stale")
		began := time.Now()
		l, _ := s.release(b)
		if l.State == ipam.Free {
			break
		}
		if time.Since(began) < watchdog.ReleaseAsk {
			t.Errorf("one that never was on the wire is %s", l.State)
			break
		}
		s.cools(b) // the answer did not wait for a machine that stood still
	}
	prefix := &sandbox{name: "p", lease: netdbtest.ReservePrefix(t, s.book, "p", 30)}
	inside := prefix.lease.Addr.Next().Next()
	p = s.ns.Port("rt0", inside.String()+"/24")
	s.eventually("an address of a prefix is seen", func() bool { return len(s.board.About(inside).Seen) > 0 })
	p.Close()
	s.eventually("it is unseen", func() bool { return s.board.About(inside).Unseen() })
	s.ns.Exec("ip", "neigh", "replace", inside.String(), "lladdr", "02:00:00:00:00:02", "dev", "rt0", "nud", "stale")
	if l, blockers := s.release(prefix); l.State == ipam.Free {
		t.Errorf("a prefix of which an address was on the wire is %s, %+v", l.State, blockers)
	}
	s.cools(prefix)
	if left := s.ns.Exec("ip", "neigh", "show", "dev", "rt0", "nud", "all"); strings.Contains(left, "lladdr 02:00:00:00:00:0") {
		t.Errorf("left of them: %s", left)
	}
}

// A reservation is released while its container was made just now, and the
// runtime's witness may not have learned of it: it is never free. Nor is it with a
// runtime that hangs, which does not hang the caller.
func TestReleaseOfAReservationAsksTheRuntime(t *testing.T) {
	ctrdtest.One(t, func(t *testing.T, d *ctrdtest.Daemon) {
		s := newScene(t, d)
		for i := range 20 {
			b := &sandbox{name: fmt.Sprint("s", i)}
			b.lease = netdbtest.Reserve(t, s.book, b.name)
			labels := s.labels(b)
			switch i % 3 {
			case 1:
				labels = map[string]string{"runtime.computer/entity-id": b.name}
			case 2:
				labels = map[string]string{"ipamd.dev/lease-id": b.lease.ID}
			}
			d.Create(t, ctrdtest.Spec{Namespace: space, ID: b.name, Labels: labels})
			if l, _ := s.release(b); l.State != ipam.Releasing {
				t.Fatalf("%s is %s", b.name, l.State)
			}
		}
		d.Freeze()
		defer d.Thaw()
		// The second one answers in half of its caller's time, which is less than the watchdog would
		// take; a machine may stand still for the other half.
		for i, within := range []time.Duration{soon, watchdog.ReleaseAsk * 9 / 10} {
			var l *ipam.Lease
			var blockers []watchdog.Blocker
			var err error
			for try := range 3 {
				stuck := netdbtest.Reserve(t, s.book, fmt.Sprintf("stuck-%d-%d", i, try))
				call, cancel := context.WithTimeout(ctx, within)
				l, blockers, err = s.Release(call, client, stuck.ID, "", 0)
				cancel()
				if err == nil {
					break
				}
			}
			if err != nil || l.State != ipam.Releasing || len(blockers) == 0 {
				t.Errorf("with a runtime that hangs, within %v: %+v, %+v, %v", within, l, blockers, err)
			}
		}
	})
}

// hookedPorts calls hook when everything was asked and found gone.
type hookedPorts struct {
	watchdog.Kernel
	hook func()
}

func (h *hookedPorts) Forget(ctx context.Context, of ...netip.Prefix) error {
	if h.hook != nil {
		h.hook()
	}
	return h.Kernel.Forget(ctx, of...)
}

// P3. A container without an address is made after the runtime's list was read,
// and its witness reports before the commit: the commit sees it, by its id, its
// lease label or its owner label, of a release and of a reservation.
func TestAContainerBetweenListAndCommit(t *testing.T) {
	h := &hookedPorts{}
	s := newScene(t, ctrdtest.Start(t, ctrdtest.V2), func(c *watchdog.Config) { h.Kernel, c.Kernel = c.Kernel, h })
	for i, by := range []string{"id", "lease", "owner", "lease", "owner"} {
		id := fmt.Sprint("c", i)
		b := &sandbox{name: fmt.Sprint("s", i), lease: netdbtest.Reserve(t, s.book, fmt.Sprint("s", i))}
		if bound := i < 3; bound {
			l, err := s.book.Bind(ctx, client, b.lease.ID, 0, ipam.Binding{Containers: []ipam.Container{{Namespace: space, ID: id}}})
			s.check(err)
			b.lease = l
		}
		labels := map[string]map[string]string{"lease": {"ipamd.dev/lease-id": b.lease.ID}, "owner": {"runtime.computer/entity-id": b.name}}[by]
		made := id
		if by != "id" {
			made = "other-" + id
		}
		reached := make(chan struct{})
		h.hook = func() {
			select {
			case <-reached:
				return
			default:
			}
			s.d.Create(t, ctrdtest.Spec{Namespace: space, ID: made, Labels: labels})
			s.eventually("it is on the board", func() bool { return s.onBoard(made) })
			close(reached)
		}
		s.release(b)
		select {
		case <-reached:
		case <-time.After(soon):
			t.Fatalf("by its %s: nothing was forgotten", by)
		}
		s.eventually("an attempt met it", func() bool {
			found := s.Blockers(s.now(b))
			return len(found) > 0 && found[0].Kind == watchdog.KindContainer && strings.Contains(found[0].Detail, made+" is there")
		})
		if l := s.now(b); l.State != ipam.Releasing {
			t.Errorf("by its %s: it is %s", by, l.State)
		}
		s.d.Delete(t, space, made)
		s.cools(b)
	}
}
