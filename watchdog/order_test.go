package watchdog_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/internal/ctrdtest"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb/netdbtest"
	"github.com/ipamd/ipamd/watchdog"
)

// W3. No change that makes an address reusable precedes the last successful
// removal of a container of its sandbox: over random sandboxes, with releases
// and removals in random order. Some containers carry labels; some are known
// by the lease's record alone, and no witness ties them to the address.
func TestW3NothingCoolsBeforeTheLastRemoval(t *testing.T) {
	ctrdtest.One(t, func(t *testing.T, d *ctrdtest.Daemon) {
		seed := uint64(time.Now().UnixNano())
		t.Logf("seed %d", seed)
		random := rand.New(rand.NewPCG(seed, seed))
		s := newScene(t, d)

		const sandboxes = 60
		type removal struct {
			of *sandbox
			id string // "" is the release
		}
		var all []*sandbox
		var todo []removal
		for i := range sandboxes {
			b := &sandbox{name: fmt.Sprint("s", i), lease: netdbtest.Reserve(t, s.book, fmt.Sprint("s", i))}
			all = append(all, b)
			var ids []string
			for n := range 1 + random.IntN(3) {
				spec := ctrdtest.Spec{Namespace: space, ID: fmt.Sprintf("%s-%d", b.name, n)}
				if random.IntN(2) == 0 {
					spec.Labels = s.labels(b)
				}
				if i%20 == 0 {
					d.Run(t, spec)
				} else {
					d.Create(t, spec)
				}
				ids = append(ids, spec.ID)
				todo = append(todo, removal{b, spec.ID})
			}
			s.bind(b, ids...)
			if random.IntN(4) > 0 {
				todo = append(todo, removal{b, ""})
			}
		}
		s.noticed()
		random.Shuffle(len(todo), func(i, j int) { todo[i], todo[j] = todo[j], todo[i] })

		last := make(map[*sandbox]time.Duration) // by the book's clock, when the latest removal began
		for _, r := range todo {
			if r.id == "" {
				s.release(r.of)
				continue
			}
			began := s.book.Now().Boottime
			d.Delete(t, space, r.id)
			last[r.of] = began
		}
		for _, b := range all {
			s.cools(b)
			for _, c := range s.changes(b) {
				if reusable := c.To == ipam.Cooling || c.To == ipam.Free; reusable && c.At.Boottime < last[b] {
					t.Errorf("%s was reusable %v before its last container's removal began: %s",
						b.name, last[b]-c.At.Boottime, story(s.changes(b)))
				}
			}
		}
	})
}

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
		s.eventually("the task is told", func() bool {
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
		"somebody has it by hand": {time.Nanosecond, func(s *scene, b *sandbox) {
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
