package ctrd_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	eventsapi "github.com/containerd/containerd/api/events"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/containerd/v2/pkg/protobuf/types"

	"github.com/ipamd/ipamd/internal/ctrdtest"
	"github.com/ipamd/ipamd/watchdog/ctrd"
)

// C4, the seeing part: a stopped container counts, one without a task too;
// when the record goes, the address goes out of sight by the event of that.
func TestC4StoppedCountsUntilDeleted(t *testing.T) {
	ctrdtest.Each(t, func(t *testing.T, d *ctrdtest.Daemon) {
		x := look(t, d)
		x.run()
		x.eventually("the first reading", x.speaks)

		d.Run(t, ctrdtest.Spec{Namespace: "sandboxes", ID: "app", Labels: map[string]string{ipLabel: "10.8.64.2"}})
		state := func(want string) func() bool {
			return func() bool {
				s := x.seen("10.8.64.2")
				return len(s) == 1 && s[0].Task == want
			}
		}
		x.eventually("running", state("running"))
		d.Pause(t, "sandboxes", "app")
		x.eventually("paused", state("paused"))
		d.Resume(t, "sandboxes", "app")
		x.eventually("resumed", state("running"))
		d.StopTask(t, "sandboxes", "app")
		x.eventually("stopped", state("stopped"))

		x.container("record", "10.8.64.3")
		x.eventually("a record without a task", func() bool { return x.by("10.8.64.3") == "sandboxes/record" })
		d.SetLabels(t, "sandboxes", "record", map[string]string{ipLabel: "10.8.64.4"})
		x.eventually("another label", func() bool { return x.by("10.8.64.4") == "sandboxes/record" && x.by("10.8.64.3") == "" })

		d.Delete(t, "sandboxes", "app")
		x.eventually("unseen", func() bool { return x.by("10.8.64.2") == "" })
		if !x.speaks() {
			t.Errorf("silent: %s", x.silence())
		}
	})
}

// What an event says is not believed: a forged one costs a look and no more.
func TestEventsAreNotBelieved(t *testing.T) {
	ctrdtest.Each(t, func(t *testing.T, d *ctrdtest.Daemon) {
		x := look(t, d)
		x.container("live", "10.8.64.2")
		x.run()
		x.eventually("the first reading", x.speaks)
		began := x.seen("10.8.64.2")[0].At

		ctx, cancel := context.WithTimeout(namespaces.WithNamespace(t.Context(), "sandboxes"), soon)
		defer cancel()
		for _, forged := range []struct {
			topic string
			event any
		}{
			{"/containers/delete", &eventsapi.ContainerDelete{ID: "live"}},
			{"/containers/update", &eventsapi.ContainerUpdate{ID: "live", Labels: map[string]string{ipLabel: "10.8.64.9"}}},
			{"/containers/create", &eventsapi.ContainerCreate{ID: "nobody"}},
			{"/tasks/exit", &eventsapi.TaskExit{ContainerID: "live", ID: "an-exec"}},
			{"/tasks/delete", &eventsapi.TaskDelete{ContainerID: "nobody"}},
			{"/containers/create", &types.Empty{}}, // names no container
		} {
			if err := d.Client().EventService().Publish(ctx, forged.topic, forged.event); err != nil {
				t.Fatal(err)
			}
		}
		x.container("after", "10.8.64.3") // its event comes behind the forged ones
		x.eventually("the next container", func() bool { return x.by("10.8.64.3") != "" })
		if got := x.by("10.8.64.2"); got != "sandboxes/live" {
			t.Errorf(".2 is claimed by %q", got)
		}
		if got := x.seen("10.8.64.2"); len(got) == 1 && !got[0].At.Equal(began) {
			t.Error("a look that found nothing new began the sighting anew")
		}
		if got := len(x.board.Census().Seen); got != 2 {
			t.Errorf("%d addresses are seen, want 2: %v", got, x.board.Census().Seen)
		}
		if !x.speaks() {
			t.Errorf("silent: %s", x.silence())
		}
	})
}

// A whole reading that began before a look-up must not bring back what the
// look-up found gone: readings run here without pause while containers come
// and go, and an address that went out of sight stays there.
func TestOldNewsNeverWins(t *testing.T) {
	ctrdtest.Each(t, func(t *testing.T, d *ctrdtest.Daemon) {
		x := look(t, d)
		for i := range 50 { // so that a reading takes its time
			x.container(fmt.Sprint("other", i), fmt.Sprintf("10.8.65.%d", i+1))
		}
		x.run()
		x.eventually("the first reading", x.speaks)

		ctx, stop := context.WithCancel(t.Context())
		var readers sync.WaitGroup
		for range 2 {
			readers.Go(func() {
				for ctx.Err() == nil {
					if err := x.w.Refresh(ctx); err != nil && ctx.Err() == nil {
						t.Error(err)
						return
					}
				}
			})
		}
		var lags []time.Duration
		for i := range 10 {
			id, ip := fmt.Sprint("brief", i), fmt.Sprintf("10.8.64.%d", i+1)
			x.container(id, ip)
			x.eventually(ip+" is seen", func() bool { return x.by(ip) != "" })
			d.Delete(t, "sandboxes", id)
			gone := time.Now()
			x.eventually(ip+" is unseen", func() bool { return x.by(ip) == "" })
			lags = append(lags, time.Since(gone))
			for range 3 {
				<-x.board.Changed()
				if got := x.by(ip); got != "" {
					t.Fatalf("%s was unseen and is claimed again, by %q", ip, got)
				}
			}
		}
		stop()
		readers.Wait()
		slices.Sort(lags)
		t.Logf("unseen after Delete returned, with readings without pause: median %v, worst %v", lags[len(lags)/2], lags[len(lags)-1])
	})
}

// What happens right after the first reading must not fall between it and a
// subscription that containerd has not taken up yet.
func TestNothingFallsBetween(t *testing.T) {
	ctrdtest.Each(t, func(t *testing.T, d *ctrdtest.Daemon) {
		var lags []time.Duration
		for i := range 20 {
			x := look(t, d)
			x.container(fmt.Sprint("before", i), "10.8.64.2")
			stop := x.run()
			x.eventually("the first reading", x.speaks)
			x.container(fmt.Sprint("after", i), "10.8.64.3")
			x.eventually("what came next", func() bool { return x.by("10.8.64.3") != "" })

			d.Delete(t, "sandboxes", fmt.Sprint("after", i))
			gone := time.Now()
			x.eventually("what went next", func() bool { return x.by("10.8.64.3") == "" })
			lags = append(lags, time.Since(gone))
			d.Delete(t, "sandboxes", fmt.Sprint("before", i))
			stop()
		}
		slices.Sort(lags)
		t.Logf("unseen after Delete returned: median %v, worst %v", lags[len(lags)/2], lags[len(lags)-1])
	})
}

// Run leaves nothing behind, and its end is a silence: nothing looks any more.
func TestRunLeavesNoGoroutine(t *testing.T) {
	ctrdtest.Each(t, func(t *testing.T, d *ctrdtest.Daemon) {
		x := look(t, d)
		x.container("app", "10.8.64.2")
		before := runtime.NumGoroutine()
		stop := x.run()
		x.eventually("the first reading", x.speaks)
		if err := x.w.Refresh(t.Context()); err != nil {
			t.Error(err)
		}
		stop()
		x.eventually("all goroutines end", func() bool { return runtime.NumGoroutine() <= before })
		if x.speaks() || x.by("10.8.64.2") == "" {
			t.Errorf("after the end: silence %q, .2 claimed by %q", x.silence(), x.by("10.8.64.2"))
		}

		y := look(t, d, func(c *ctrd.Config) { c.Address += ".missing" })
		stop = y.run()
		y.eventually("an attempt", func() bool { return y.silence() != "has not reported yet" })
		stop()
		y.eventually("all goroutines end", func() bool { return runtime.NumGoroutine() <= before })
	})
}
