package watchdog_test

import (
	"testing"
	"time"

	"github.com/ipamd/ipamd/internal/ctrdtest"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/watchdog"
)

// A lease whose owner has asked for it again does not end for want of its first
// workload, by the watchdog or by the reconciler's word, until the owner had
// time to bind it anew. What the owner binds, if to the same, or releases, ends
// as ever.
func TestAskedAgain(t *testing.T) {
	ctrdtest.One(t, func(t *testing.T, d *ctrdtest.Daemon) {
		s := newScene(t, d)
		again, late, bound, released := s.running("again", "again-1"), s.running("late", "late-1"), s.running("bound", "bound-1"), s.running("released", "released-1")
		s.Answered(again.lease, time.Hour)
		s.Answered(late.lease, time.Nanosecond)
		s.Answered(bound.lease, time.Hour)
		s.Answered(released.lease, time.Hour)
		s.Bound(bound.lease, bound.lease, time.Now())
		s.release(released)
		s.noticed()
		for _, id := range []string{"again-1", "late-1", "bound-1", "released-1"} {
			s.d.Delete(s, space, id)
		}
		s.cools(late)
		s.cools(bound)
		s.cools(released)
		s.blocked(again, watchdog.KindOwner)
		if let, why, err := s.Reap(ctx, s.now(again), "absent"); let || why == "" || err != nil {
			t.Errorf("reaped: %v, %q, %v", let, why, err)
		}
		if l := s.now(again); l.State != ipam.Bound || l.Rev != again.lease.Rev {
			t.Errorf("%s: %s", again.name, story(s.changes(again)))
		}
		s.Answered(s.now(again), time.Nanosecond)
		// Unless the watchdog, which tries now and then, comes first.
		if let, why, err := s.Reap(ctx, s.now(again), "absent"); err != nil || !let && s.now(again).State == ipam.Bound {
			t.Errorf("not reaped when its time was over: %q, %v", why, err)
		}
		s.cools(again)
	})
}
