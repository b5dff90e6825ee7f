package watchdog_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/ipamd/ipamd/internal/ctrdtest"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb/netdbtest"
	"github.com/ipamd/ipamd/watchdog"
)

// W2. A removal that fails keeps the address: the lease is releasing, and says
// why. When the removal succeeds the cooldown starts at that moment.
func TestW2RemovalFails(t *testing.T) {
	ctrdtest.One(t, func(t *testing.T, d *ctrdtest.Daemon) {
		s := newScene(t, d)
		a := s.plugged("a", "c1")
		s.d.FreezeShim(t, space, "c1")
		short, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		if err := s.runtime.DeleteTask(short, watchdog.Container{Namespace: space, ID: "c1"}); err == nil {
			t.Fatal("the task of a frozen shim could be deleted")
		}
		l, blockers := s.release(a)
		if l.State != ipam.Releasing || len(blockers) == 0 || blockers[0].Kind != watchdog.KindContainer {
			t.Fatalf("released to %s, blocked by %+v", l.State, blockers)
		}
		s.blocked(a, "container", "port")
		if by := s.Blocked(); by["container"] != 1 || len(by) != 1 {
			t.Errorf("counted as blocked: %v", by)
		}
		if b := netdbtest.Reserve(t, s.book, "b"); b.Addr == l.Addr {
			t.Errorf("%s was handed out while it is releasing", b.Addr)
		}
		thawed := s.book.Now()
		s.d.ThawShim(t, space, "c1")
		s.d.Delete(t, space, "c1")
		if s.blocked(a, "port"); s.now(a).State != ipam.Releasing {
			t.Fatalf("with its port on the bridge it is %s", s.now(a).State)
		}
		a.port.Close()
		s.cools(a)
		if now := s.now(a); now.Since.Boottime < thawed.Boottime {
			t.Errorf("the cooldown began at %v, before the removal at %v", now.Since.Boottime, thawed.Boottime)
		}
		if got := story(s.changes(a)[2:]); got != "releasing:released cooling:removal_confirmed" {
			t.Errorf("its story: %s", got)
		}
		if len(s.Blocked()) != 0 {
			t.Errorf("still counted as blocked: %v", s.Blocked())
		}
	})
}

// W4. The pause container is gone, an application's lives on in the same
// network namespace: releasing, and the survivor is named, recorded or not.
func TestW4SurvivorInTheNamespace(t *testing.T) {
	ctrdtest.One(t, func(t *testing.T, d *ctrdtest.Daemon) {
		s := newScene(t, d)
		a := s.plugged("a", "pause")
		s.d.Run(t, ctrdtest.Spec{Namespace: space, ID: "app", Netns: a.port.NS.Path(),
			Labels: map[string]string{"runtime.computer/entity-id": "a"}})
		s.d.Delete(t, space, "pause")
		l, _ := s.release(a)
		if l.State != ipam.Releasing {
			t.Fatalf("released to %s", l.State)
		}
		if got := s.blocked(a, "container", "port"); got != "container sandboxes/app is there" && !strings.HasPrefix(got, "container sandboxes/app is there (task ") {
			t.Errorf("the survivor is reported as %q", got)
		}
		s.d.Delete(t, space, "app")
		s.blocked(a, "port")
		a.port.Close()
		s.cools(a)
	})
}

// G7. A record that carries a sandbox's name and nothing else, made by another, keeps
// its released address a few seconds if it is younger than the release, and no longer
// though such records are made again and again. Older ones, however many, do not keep it
// at all, and what claims the address, too, has it quarantined. One that has or had a task,
// has the lease's own label or is recorded blocks as before.
func TestG7ARecordWithoutATaskBlocksNoRelease(t *testing.T) {
	ctrdtest.One(t, func(t *testing.T, d *ctrdtest.Daemon) {
		var ahead atomic.Int64 // of a clock that stands still
		began := ipam.Now()
		pass := func(d time.Duration) { ahead.Add(int64(d)) }
		const grace = 5 * time.Second
		s := newSceneAt(t, d, func() ipam.Stamp {
			now, more := began, time.Duration(ahead.Load())
			now.Wall, now.Boottime, now.Mono = now.Wall.Add(more), now.Boottime+more, now.Mono+more
			return now
		})
		labels := func(b *sandbox) map[string]string {
			return map[string]string{"runtime.computer/entity-id": b.name}
		}
		claims := func(b *sandbox) map[string]string {
			return map[string]string{"runtime.computer/entity-id": b.name, "runtime.computer/ip": b.lease.Addr.String()}
		}
		record := func(id string, labels map[string]string) {
			s.d.Create(t, ctrdtest.Spec{Namespace: space, ID: id, Labels: labels})
			s.eventually("the board shows "+id, func() bool { return s.onBoard(id) })
		}
		removed := func(b *sandbox, id string) {
			s.d.Delete(t, space, id)
			b.port.Close()
		}
		ends := func(b *sandbox, id string) {
			removed(b, id)
			if l, _ := s.release(b); l.State != ipam.Releasing {
				t.Errorf("%s is released to %s at once", b.name, l.State)
			}
			s.blocked(b, "container")
		}
		a, b, c, e := s.plugged("a", "a1"), s.plugged("b", "b1"), s.plugged("c", "c1"), s.bare("e", "e1")
		f, g, h, i := s.plugged("f", "f1"), s.plugged("g", "g1"), s.plugged("h", "h1"), s.plugged("i", "i1")
		own := labels(b)
		own["ipamd.dev/lease-id"] = b.lease.ID
		record("own", own)
		s.d.Run(t, ctrdtest.Spec{Namespace: space, ID: "ran", Labels: labels(c)})
		s.eventually("the board shows ran", func() bool { return s.onBoard("ran") })
		s.noticed()
		s.d.StopTask(t, space, "ran")
		s.check(s.runtime.DeleteTask(ctx, watchdog.Container{Namespace: space, ID: "ran"}))
		quarantined := func(b *sandbox) {
			t.Helper()
			s.eventually(b.name+" is quarantined", func() bool { return s.now(b).State == ipam.Quarantined })
			if l := s.now(b); l.Reason != "claimed_by_another" || len(l.Evidence) == 0 {
				t.Errorf("%s is quarantined as %+v", b.name, l)
			}
		}

		// Young: made just before the release, and again and again after it.
		churn, stop := context.WithCancel(ctx)
		over := make(chan error, 1)
		go func() {
			made := s.d.Client()
			var err error
			for n := 0; err == nil && churn.Err() == nil; n++ {
				at := namespaces.WithNamespace(ctx, space)
				_, err = made.ContainerService().Create(at, containers.Container{ID: fmt.Sprint("churn-", n), Labels: labels(g),
					Runtime: containers.RuntimeInfo{Name: "io.containerd.runc.v2"}, Spec: &anypb.Any{TypeUrl: "x"}})
				if err == nil && n > 0 {
					err = made.ContainerService().Delete(at, fmt.Sprint("churn-", n-1))
				}
			}
			over <- err
		}()
		removed(g, "g1")
		s.release(g)
		s.eventually("g is blocked by them", func() bool { return len(s.Blockers(s.now(g))) > 0 })
		record("young", labels(a))
		ends(a, "a1")
		record("young-claim", claims(i))
		ends(i, "i1")
		pass(grace)
		s.cools(a)
		s.cools(g)
		quarantined(i)
		stop()
		s.check(<-over)
		if !s.onBoard("young") {
			t.Error("the record is gone")
		}

		// Old: made long before it.
		for n := range 50 {
			s.d.Create(t, ctrdtest.Spec{Namespace: space, ID: fmt.Sprint("old-", n), Labels: labels(f)})
		}
		record("old-claim", claims(h))
		pass(time.Hour)
		removed(f, "f1")
		s.release(f)
		s.cools(f)
		removed(h, "h1")
		s.release(h)
		quarantined(h)

		ends(b, "b1")
		ends(c, "c1")
		s.release(e)
		s.blocked(e, "container")
		pass(grace)
		for id, of := range map[string]*sandbox{"own": b, "ran": c, "e1": e} {
			if l := s.now(of); l.State != ipam.Releasing {
				t.Errorf("%s is %s", of.name, l.State)
			}
			s.d.Delete(t, space, id)
			s.cools(of)
		}
	})
}

// W9. A container is deleted and its port leaves; Release is not called, no
// pass runs: the address cools by events alone. As long as anything is left
// the lease stays bound, so a container can be replaced in place.
func TestW9DeletedContainerCools(t *testing.T) {
	ctrdtest.One(t, func(t *testing.T, d *ctrdtest.Daemon) {
		confirmed := make(chan time.Duration, 10)
		s := newScene(t, d, func(c *watchdog.Config) {
			c.OnConfirm = func(_ *ipam.Lease, took time.Duration) { confirmed <- took }
		})
		a := s.plugged("a", "c1")
		s.d.Delete(t, space, "c1")
		s.blocked(a, "port")
		if l := s.now(a); l.State != ipam.Bound {
			t.Fatalf("with its port on the bridge it is %s", l.State)
		}
		s.d.Run(t, ctrdtest.Spec{Namespace: space, ID: "c1", Labels: s.labels(a), Netns: a.port.NS.Path()})
		s.eventually("the replacement is on the board", func() bool { return s.onBoard("c1") })
		s.d.Delete(t, space, "c1")
		began := time.Now()
		a.port.Close()
		s.cools(a)
		t.Logf("cooling %v after the port's removal; confirmed %v after the release", time.Since(began), <-confirmed)
		if got := story(s.changes(a)[1:]); got != "bound:released releasing:removed cooling:removal_confirmed" {
			t.Errorf("its story: %s", got)
		}

		b := s.running("b", "c2", "c3")
		s.d.Delete(t, space, "c2")
		s.d.Delete(t, space, "c3")
		s.cools(b)
		// A hibernated sandbox has no container, and keeps its address.
		p, q := s.running("p", "c4"), s.running("q", "c5")
		_, err := s.book.Pause(ctx, client, p.lease.ID, 0)
		s.check(err)
		s.d.Delete(t, space, "c4")
		s.d.Delete(t, space, "c5")
		s.cools(q)
		if l := s.now(p); l.State != ipam.Paused {
			t.Errorf("the paused one is %s", l.State)
		}
	})
}

// W8. The clients of 100 releases hang up at once; every release ends, whether
// its record came first or not.
func TestW8ClientsHangUp(t *testing.T) {
	ctrdtest.One(t, func(t *testing.T, d *ctrdtest.Daemon) {
		s := newScene(t, d)
		all := make([]*sandbox, 100)
		for i := range all {
			name := "s" + time.Duration(i).String()
			all[i] = s.bare(name, "c-"+name)
		}
		s.noticed()
		answered := make(chan error, len(all))
		for _, b := range all {
			call, hangUp := context.WithCancel(ctx)
			go func() {
				_, _, err := s.Release(call, client, b.lease.ID, "", 0)
				answered <- err
			}()
			hangUp()
		}
		refused := 0
		for range all {
			if err := <-answered; err != nil {
				refused++
			}
		}
		t.Logf("%d of %d releases were not recorded: their client had gone", refused, len(all))
		for _, b := range all {
			s.d.Delete(t, space, "c-"+b.name)
		}
		for _, b := range all {
			s.cools(b)
		}
	})
}

// C4. A stopped container whose record exists counts as live; its address is
// freed by the event of the record's end.
func TestC4StoppedContainerCounts(t *testing.T) {
	ctrdtest.One(t, func(t *testing.T, d *ctrdtest.Daemon) {
		s := newScene(t, d)
		a := s.plugged("a", "c1")
		s.d.StopTask(t, space, "c1")
		a.port.Close()
		if l, _ := s.release(a); l.State != ipam.Releasing {
			t.Fatalf("released to %s", l.State)
		}
		s.blocked(a, "container")
		s.d.Delete(t, space, "c1")
		s.cools(a)
	})
}

// C6. The labels of a living container cannot be read, nor where it lives: it might
// use any address, so nothing is confirmed until they can.
func TestC6UnreadableLabels(t *testing.T) {
	ctrdtest.One(t, func(t *testing.T, d *ctrdtest.Daemon) {
		s := newScene(t, d)
		a := s.bare("a", "c1")
		s.d.Run(t, ctrdtest.Spec{Namespace: space, ID: "odd", Labels: map[string]string{"runtime.computer/ip": "10.8.64.999"}})
		s.eventually("the runtime witness is silent", func() bool { return len(s.board.Silent()) == 1 })
		s.release(a)
		s.d.Delete(t, space, "c1")
		s.blocked(a, "silent")
		if l := s.now(a); l.State != ipam.Releasing {
			t.Fatalf("it is %s", l.State)
		}
		s.d.SetLabels(t, space, "odd", map[string]string{"runtime.computer/ip": "10.8.64.99"})
		s.cools(a)
	})
}
