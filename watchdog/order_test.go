package watchdog_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/internal/ctrdtest"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/watchdog"
)

// A record is gone while its task lives, and the task's shim is frozen: that
// release waits, by the task, and holds up no other lease's even with hardly any
// room.
func TestAStuckShimHoldsUpNoOther(t *testing.T) {
	ctrdtest.One(t, func(t *testing.T, d *ctrdtest.Daemon) {
		s := newScene(t, d, func(c *watchdog.Config) { c.Parallel, c.Timeout = 2, 2*time.Second })
		stuck := s.plugged("stuck", "c0")
		s.d.FreezeShim(t, space, "c0")
		s.d.DeleteRecord(t, space, "c0")
		s.release(stuck)
		s.eventually("the task is a blocker", func() bool {
			b := s.Blockers(s.now(stuck))
			return len(b) > 0 && (b[0].Kind == watchdog.KindTask || b[0].Kind == watchdog.KindRuntime)
		})
		for i := range 20 {
			b := s.bare(fmt.Sprint("s", i), fmt.Sprint("c-s", i))
			s.d.Delete(t, space, fmt.Sprint("c-s", i))
			s.release(b)
			s.cools(b)
		}
		if l := s.now(stuck); l.State != ipam.Releasing {
			t.Errorf("the stuck one is %s", l.State)
		}
	})
}

// A released address that stays on the wire after its workload was removed is
// quarantined, with the evidence: after the longest wait or, when a container
// of another claims it, at once.
func TestReleasedAddressStaysOnTheWire(t *testing.T) {
	d := ctrdtest.Start(t, ctrdtest.Debian)
	for name, tt := range map[string]struct {
		most   time.Duration
		by     func(*scene, *sandbox)
		reason string
	}{
		"a person has it by hand": {time.Nanosecond, func(s *scene, b *sandbox) {
			s.ns.Port("rt0", b.lease.Addr.String()+"/24")
		}, "still_on_the_wire"},
		"another container claims it": {time.Hour, func(s *scene, b *sandbox) {
			d.Create(s, ctrdtest.Spec{Namespace: space, ID: "impostor", Labels: map[string]string{
				"runtime.computer/entity-id": "impostor", "runtime.computer/ip": b.lease.Addr.String()}})
			s.Cleanup(func() { d.Delete(s, space, "impostor") })
			s.eventually("the claim is on the board", func() bool { return s.onBoard("impostor") })
		}, "claimed_by_another"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, d, func(c *watchdog.Config) { c.ReleasingMax = tt.most })
			b := s.bare("a", "c1")
			tt.by(s, b)
			s.eventually("it is seen", func() bool { return len(s.board.About(b.lease.Addr).Seen) > 0 })
			s.release(b)
			if l := s.now(b); l.State != ipam.Releasing {
				t.Fatalf("with its own container there it is %s", l.State)
			}
			s.d.Delete(t, space, "c1")
			s.eventually("it is quarantined", func() bool { return s.now(b).State == ipam.Quarantined })
			if l := s.now(b); l.Reason != tt.reason || len(l.Evidence) == 0 || l.Sandbox != "a" {
				t.Errorf("quarantined as %+v", l)
			}
		})
	}
}

// The bridge is gone, and comes back: while it cannot be read nothing is
// confirmed.
func TestNoBridgeConfirmsNothing(t *testing.T) {
	d := ctrdtest.Start(t, ctrdtest.Debian)
	s := newScene(t, d)
	b := s.bare("a", "c1")
	l, err := s.ns.Netlink().LinkByName("rt0")
	s.check(err)
	s.check(s.ns.Netlink().LinkDel(l))
	s.eventually("a kernel witness is silent", func() bool { return !s.board.About(b.lease.Addr).Unseen() && len(s.board.Silent()) > 0 })
	s.release(b)
	s.d.Delete(t, space, "c1")
	s.eventually("an attempt met the silence", func() bool {
		found := s.Blockers(s.now(b))
		return len(found) > 0 && found[0].Kind == watchdog.KindSilent
	})
	if silent := s.board.Silent(); s.now(b).State != ipam.Releasing || silent[0].Witness == census.Runtime {
		t.Fatalf("it is %s, silent %+v", s.now(b).State, silent)
	}
	s.ns.Bridge("rt0", "10.8.64.1/24")
	s.cools(b)
}
