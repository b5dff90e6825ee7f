package ctrd_test

import (
	"context"
	"syscall"
	"testing"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/ipamd/ipamd/internal/ctrdtest"
	"github.com/ipamd/ipamd/watchdog"
	"github.com/ipamd/ipamd/watchdog/ctrd"
)

func named(id string) watchdog.Container {
	return watchdog.Container{Namespace: "sandboxes", ID: id}
}

// lookIs looks at a container by its id.
func (x *world) lookIs(id string, want watchdog.Look) {
	x.Helper()
	if got, err := x.w.Look(x.Context(), named(id)); err != nil || got != want {
		x.Errorf("a look at %s: %+v, %v; want %+v", id, got, err, want)
	}
}

func (x *world) runs(ids ...string) {
	x.Helper()
	for _, id := range ids {
		x.d.Run(x, ctrdtest.Spec{Namespace: "sandboxes", ID: id, Labels: map[string]string{ownerLabel: "s-" + id, leaseLabel: "l-" + id}})
	}
}

func TestLook(t *testing.T) {
	ctrdtest.Each(t, func(t *testing.T, d *ctrdtest.Daemon) {
		x := look(t, d)
		x.runs("running", "stopped", "deleted")
		x.container("record", "10.8.64.2")
		d.StopTask(t, "sandboxes", "stopped")
		d.Delete(t, "sandboxes", "deleted")
		there := watchdog.Look{Found: true}
		x.lookIs("running", there)
		x.lookIs("stopped", there)
		x.lookIs("record", there)
		x.lookIs("deleted", watchdog.Look{})
		x.lookIs("never", watchdog.Look{})

		list, err := x.w.List(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		got := make(map[string]string)
		for _, w := range list {
			if w.Made.IsZero() || time.Since(w.Made) > time.Hour {
				t.Errorf("%s was created at %v", w.Container, w.Made)
			}
			got[w.String()] = w.Sandbox + " " + w.LeaseID
		}
		if len(got) != 3 || got["sandboxes/running"] != "s-running l-running" || got["sandboxes/record"] != "s-record " {
			t.Errorf("the list has %v", got)
		}
	})
}

// containerd answers NotFound for a running task whose record is gone. It is
// there nevertheless, whatever its state, and a frozen shim makes it unknown,
// not absent.
func TestLookFindsATaskWithoutRecord(t *testing.T) {
	ctrdtest.Each(t, func(t *testing.T, d *ctrdtest.Daemon) {
		x := look(t, d)
		hasty := look(t, d, func(c *ctrd.Config) { c.Timeout = time.Second }).w
		x.runs("running", "paused", "stopped", "frozen")
		d.Pause(t, "sandboxes", "paused")
		d.StopTask(t, "sandboxes", "stopped")
		for _, id := range []string{"running", "paused", "stopped", "frozen"} {
			d.DeleteRecord(t, "sandboxes", id)
		}
		d.FreezeShim(t, "sandboxes", "frozen")
		for _, id := range []string{"running", "paused", "stopped"} {
			x.lookIs(id, watchdog.Look{Task: "unknown"})
		}
		if got, err := hasty.Look(t.Context(), named("frozen")); err == nil {
			t.Errorf("with a frozen shim: %+v, want an error", got)
		}
		if x.w.Signal(t.Context(), named("running"), syscall.SIGKILL) == nil {
			t.Error("a signal to a task that cannot be reached was no error")
		}
		if x.w.DeleteTask(t.Context(), named("running")) == nil {
			t.Error("the deletion of a task that cannot be reached was no error")
		}
		d.ThawShim(t, "sandboxes", "frozen")
		x.lookIs("frozen", watchdog.Look{Task: "unknown"})
	})
}

// A frozen shim holds up its own container only, and what cannot be removed
// keeps its record.
func TestFrozenShimHoldsUpNoOther(t *testing.T) {
	ctrdtest.Each(t, func(t *testing.T, d *ctrdtest.Daemon) {
		x := look(t, d, func(c *ctrd.Config) { c.Timeout = time.Hour })
		x.runs("stuck", "well")
		d.FreezeShim(t, "sandboxes", "stuck")
		frozen := make(chan error, 1)
		ctx, giveUp := context.WithCancel(t.Context())
		go func() { frozen <- x.w.Signal(ctx, named("stuck"), syscall.SIGKILL) }()
		for range 50 {
			x.lookIs("stuck", watchdog.Look{Found: true}) // its record answers; the shim is not asked
			x.lookIs("well", watchdog.Look{Found: true})
			x.lookIs("gone", watchdog.Look{})
		}
		if list, err := x.w.List(t.Context()); err != nil || len(list) != 2 {
			t.Errorf("the list: %v, %v", list, err)
		}
		select {
		case err := <-frozen:
			t.Errorf("looks waited for the frozen shim; its own call ended with %v", err)
		default:
		}
		giveUp()
		if <-frozen == nil {
			t.Error("a frozen shim took a signal")
		}
		d.ThawShim(t, "sandboxes", "stuck")
		if err := x.w.Delete(t.Context(), named("well")); err == nil {
			t.Error("a record was deleted under a running task")
		}
		x.lookIs("well", watchdog.Look{Found: true})
	})
}

func TestRemoveAfterTheThaw(t *testing.T) {
	ctrdtest.Each(t, func(t *testing.T, d *ctrdtest.Daemon) {
		x := look(t, d)
		hasty := look(t, d, func(c *ctrd.Config) { c.Timeout = 500 * time.Millisecond }).w
		x.runs("stuck")
		d.FreezeShim(t, "sandboxes", "stuck")
		for verb, err := range map[string]error{
			"signal":      hasty.Signal(t.Context(), named("stuck"), syscall.SIGKILL),
			"task delete": hasty.DeleteTask(t.Context(), named("stuck")),
			"delete":      hasty.Delete(t.Context(), named("stuck")),
		} {
			if err == nil {
				t.Errorf("%s of a frozen container succeeded", verb)
			}
		}
		x.lookIs("stuck", watchdog.Look{Found: true})
		d.ThawShim(t, "sandboxes", "stuck")
		for range 2 { // twice is once
			if err := x.w.Signal(t.Context(), named("stuck"), syscall.SIGKILL); err != nil {
				t.Error(err)
			}
			x.eventually("the task is deleted", func() bool { return x.w.DeleteTask(t.Context(), named("stuck")) == nil })
			if err := x.w.Delete(t.Context(), named("stuck")); err != nil {
				t.Error(err)
			}
		}
		x.lookIs("stuck", watchdog.Look{})
	})
}

// The kill of a paused container ends it, and its snapshot goes with it.
func TestRemovePausedAndSnapshot(t *testing.T) {
	ctrdtest.Each(t, func(t *testing.T, d *ctrdtest.Daemon) {
		x := look(t, d)
		x.runs("paused")
		d.Pause(t, "sandboxes", "paused")
		if err := x.w.Signal(t.Context(), named("paused"), syscall.SIGKILL); err != nil {
			t.Error(err)
		}
		if err := x.w.DeleteTask(t.Context(), named("paused")); err != nil {
			t.Error(err)
		}
		if err := x.w.Delete(t.Context(), named("paused")); err != nil {
			t.Error(err)
		}

		ctx, cancel := context.WithTimeout(namespaces.WithNamespace(t.Context(), "sandboxes"), soon)
		defer cancel()
		native := d.Client().SnapshotService("native")
		root := snapshots.WithLabels(map[string]string{"containerd.io/gc.root": "kept"}) // so that only Delete removes it
		if _, err := native.Prepare(ctx, "its-own", "", root); err != nil {
			t.Fatal(err)
		}
		if _, err := d.Client().NewContainer(ctx, "snap", containerd.WithSnapshotter("native"), containerd.WithSnapshot("its-own"),
			containerd.WithRuntime("io.containerd.runc.v2", nil), containerd.WithSpec(&specs.Spec{Version: "1.0.2"})); err != nil {
			t.Fatal(err)
		}
		if err := x.w.Delete(t.Context(), named("snap")); err != nil {
			t.Error(err)
		}
		if _, err := native.Stat(ctx, "its-own"); err == nil {
			t.Error("the snapshot stays")
		}
	})
}

// A containerd that is killed is an error at once, and no absence; back, it
// answers the very next look.
func TestLookWhileDown(t *testing.T) {
	ctrdtest.Each(t, func(t *testing.T, d *ctrdtest.Daemon) {
		x := look(t, d, func(c *ctrd.Config) { c.Timeout = time.Hour })
		x.runs("app")
		x.run()
		x.eventually("the first reading", x.speaks)
		x.lookIs("app", watchdog.Look{Found: true})
		for range 3 {
			lost := x.w.Changed()
			d.Kill9()
			at, giveUp := context.WithTimeout(t.Context(), soon)
			for range 5 {
				if got, err := x.w.Look(at, named("app")); err == nil {
					t.Errorf("a look at a dead containerd: %+v", got)
				}
				if _, err := x.w.List(at); err == nil {
					t.Error("a dead containerd was listed")
				}
			}
			if at.Err() != nil {
				t.Errorf("that took more than %v", soon)
			}
			giveUp()
			<-lost
			back := x.w.Changed()
			d.Restart()
			x.lookIs("app", watchdog.Look{Found: true})
			<-back
			x.eventually("a reading", x.speaks)
		}
		changed := x.w.Changed()
		x.container("next", "10.8.64.9")
		<-changed
	})
}

// A container that claims nothing is on the board too.
func TestContainerWithoutAddressIsSeen(t *testing.T) {
	ctrdtest.Each(t, func(t *testing.T, d *ctrdtest.Daemon) {
		const uid = "ipamd.dev/sandbox-uid"
		x := look(t, d, func(c *ctrd.Config) { c.UIDLabel = uid })
		x.run()
		x.eventually("the first reading", x.speaks)
		d.Run(t, ctrdtest.Spec{Namespace: "sandboxes", ID: "plain", Labels: map[string]string{
			ownerLabel: "a", uid: "a-2", leaseLabel: "l",
		}})
		bare := func() (n int) {
			for addr, seen := range x.board.Census().Seen {
				if addr.IsValid() {
					t.Errorf("%s is seen", addr)
				}
				for _, s := range seen {
					if s.Container == "plain" && s.Sandbox == "a" && s.UID == "a-2" && s.LeaseID == "l" && s.Task == "running" {
						n++
					}
				}
			}
			return n
		}
		x.eventually("it is seen", func() bool { return bare() == 1 })
		d.Delete(t, "sandboxes", "plain")
		x.eventually("it is gone", func() bool { return bare() == 0 })
	})
}
