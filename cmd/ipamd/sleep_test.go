package main

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/internal/ctrdtest"
	"github.com/ipamd/ipamd/internal/realtest"
)

// pauses says of a sandbox, as its runtime does, that it is paused, and how.
func (w *world) pauses(b *box, mode api.SleepMode) {
	w.t.Helper()
	if _, err := w.client.Pause(ctx, b.held.ID, api.PauseRequest{Mode: mode, Wake: &api.WakePolicy{Ports: []string{"8080"}}}); err != nil {
		w.t.Fatal(err)
	}
}

// sleepsOn fails unless a sandbox is paused, through passes that would resume or reap it.
func (w *world) sleepsOn(b *box, when string) {
	w.t.Helper()
	for range 3 {
		w.pass()
		if s := w.state(b.held.Address); s != api.Paused {
			w.t.Fatalf("%s: it is %s: %s", when, s, w.reasons(b.held.Address))
		}
	}
}

// Z1, Z13: a runtime says that it hibernates a sandbox, and writes a checkpoint before it ends the
// task: for long, and, as containerd does, with the task frozen and resumed in between. Passes, news
// and a start of the daemon meanwhile leave the lease paused, and it keeps its address once the task
// is gone. A task made anew has it bound.
func TestZ1Z13HibernatedForLong(t *testing.T) {
	t.Parallel()
	ctrdtest.One(t, func(t *testing.T, d *ctrdtest.Daemon) {
		w := newWorld(t, withContainerd(d), hasty)
		b := w.site(d, "a")
		w.pauses(b, api.Hibernate)
		w.sleepsOn(b, "while its task runs")
		w.stopDaemon()
		w.start()
		w.sleepsOn(b, "after a start")
		seen := func(task string) {
			t.Helper()
			realtest.Eventually(t, wait, "its task to be seen "+task, func() bool {
				return slices.ContainsFunc(w.whois(b.held.Address).Witnesses, func(a api.WitnessAnswer) bool {
					return slices.ContainsFunc(a.Seen, func(s api.Sighting) bool { return s.Task == task })
				})
			})
			time.Sleep(time.Second) // for the news
		}
		d.Pause(t, "default", "a")
		seen("paused")
		d.Resume(t, "default", "a")
		seen("running")
		w.sleepsOn(b, "after its checkpoint")
		d.Delete(t, "default", "a")
		b.port.Close()
		realtest.Eventually(t, wait, "its tasks to be seen gone", func() bool { return strings.HasSuffix(w.reasons(b.held.Address), " paused seen_still") })
		w.sleepsOn(b, "when its task is gone")

		b.port = w.ns.Port("rt0", b.held.Address+"/24")
		named := labels("a", b.held.Address)
		named["ipamd.dev/lease-id"] = b.held.ID
		d.Run(t, ctrdtest.Spec{ID: "a", Labels: named, Netns: b.port.NS.Path()})
		if _, err := w.client.Bind(ctx, b.held.ID, api.BindRequest{Netns: b.port.NS.Path(), HostInterface: b.port.HostName, MAC: b.port.MAC.String()}); err != nil {
			t.Fatal(err)
		}
		w.becomes(b.held.Address, api.Bound)
	})
}

// remade deletes a sandbox's container, and makes one of the same name where it was.
func (b *box) remade(t *testing.T, d *ctrdtest.Daemon) {
	t.Helper()
	d.Delete(t, "default", b.name)
	d.Run(t, ctrdtest.Spec{ID: b.name, Labels: labels(b.name, b.held.Address), Netns: b.port.NS.Path()})
}

// Z16, Z17: a sandbox that is paused and was not seen to stand still is bound once its task was made
// anew, also while the daemon was down; and once the machine has booted, which no task outlives. That
// its labels change is no news of its task.
func TestZ16Z17MadeAnewSinceItWasPaused(t *testing.T) {
	t.Parallel()
	ctrdtest.One(t, func(t *testing.T, d *ctrdtest.Daemon) {
		w := newWorld(t, withContainerd(d), hasty)
		b := w.site(d, "a")
		for _, mode := range []api.SleepMode{api.Freeze, api.Hibernate} {
			w.pauses(b, mode)
			w.sleepsOn(b, "while its task runs")
			for _, id := range []string{"", b.held.ID} {
				d.SetLabels(t, "default", "a", map[string]string{"ipamd.dev/lease-id": id})
				realtest.Eventually(t, wait, "its label to be seen", func() bool {
					return slices.ContainsFunc(w.whois(b.held.Address).Witnesses, func(a api.WitnessAnswer) bool {
						return slices.ContainsFunc(a.Seen, func(s api.Sighting) bool { return s.Container == "a" && s.LeaseID == id })
					})
				})
				w.sleepsOn(b, "with other labels")
			}
			w.stopDaemon()
			b.remade(t, d)
			w.start()
			w.becomes(b.held.Address, api.Bound)

			w.pauses(b, mode)
			w.stopDaemon()
			w.booted()
			w.start()
			w.becomes(b.held.Address, api.Bound)
		}
	})
}

// Z8: a runtime says of a sandbox that it is paused, not how, and freezes it a moment later. Passes and
// a start of the daemon in between leave the lease paused, and the resume has it bound.
func TestZ8APlainPauseBeforeTheFreeze(t *testing.T) {
	t.Parallel()
	ctrdtest.One(t, func(t *testing.T, d *ctrdtest.Daemon) {
		w := newWorld(t, withContainerd(d), hasty)
		b := w.site(d, "a")
		if _, err := w.client.Pause(ctx, b.held.ID, api.PauseRequest{}); err != nil {
			t.Fatal(err)
		}
		w.sleepsOn(b, "while its task runs")
		w.stopDaemon()
		w.start()
		w.sleepsOn(b, "after a start")
		d.Pause(t, "default", "a")
		w.sleepsOn(b, "when it is frozen")
		d.Resume(t, "default", "a")
		w.becomes(b.held.Address, api.Bound)
	})
}

// A sandbox that traffic is to wake, and whose port is gone, is a finding; one that sleeps well is none.
func TestASleeperWhosePortIsGoneIsFound(t *testing.T) {
	t.Parallel()
	ctrdtest.One(t, func(t *testing.T, d *ctrdtest.Daemon) {
		w := newWorld(t, withContainerd(d), slow)
		b := w.site(d, "a")
		w.pauses(b, api.Freeze)
		d.Pause(t, "default", "a")
		realtest.Eventually(t, wait, "its task to be seen frozen", func() bool { return strings.Contains(w.reasons(b.held.Address), "seen_still") })
		found := func(want ...string) {
			t.Helper()
			realtest.Eventually(t, wait, "the findings", func() bool { return slices.Equal(w.findings(), want) })
		}
		found()
		b.port.Close()
		found("paused_unwatched " + b.held.Address)
		if _, err := w.client.Pause(ctx, b.held.ID, api.PauseRequest{}); err != nil { // nothing wakes it any more
			t.Fatal(err)
		}
		found()
	})
}

// Z8, Z16: a runtime says that it freezes a sandbox, and does so after a pass. The lease is paused
// from its word on, so traffic begins a flight whenever it comes; and what others resume is bound, also
// what they resumed while the daemon was down.
func TestZ8Z16APassBeforeTheFreeze(t *testing.T) {
	t.Parallel()
	ctrdtest.One(t, func(t *testing.T, d *ctrdtest.Daemon) {
		w := newWorld(t, withContainerd(d), hasty)
		b := w.site(d, "a")
		for round, down := range []bool{false, true} {
			w.pauses(b, api.Freeze)
			w.sleepsOn(b, "while its task runs")
			d.Pause(t, "default", "a")
			answered := make(chan error, 1)
			go func() { _, err := fetch(w.ns, b.held.Address); answered <- err }()
			realtest.Eventually(t, wait, "a flight", func() bool {
				l, err := w.client.Lease(ctx, b.held.ID)
				return err == nil && l.Lease.State == api.Paused && l.Lease.Sleep != nil && l.Lease.Sleep.Flight != nil && l.Lease.Sleep.Flight.Ended == nil
			})
			realtest.Eventually(t, wait, "its task to be seen frozen", func() bool { return strings.Count(w.reasons(b.held.Address), "seen_still") > round })
			if down {
				w.stopDaemon()
			}
			d.Resume(t, "default", "a")
			if down {
				w.start()
			}
			w.becomes(b.held.Address, api.Bound)
			if err := <-answered; err != nil {
				t.Error(err)
			}
		}
	})
}

// A sandbox whose owner says that it freezes it is frozen and resumed between two passes, and a whole
// reading is the first to show that it runs again: its lease does not stay paused.
func TestZ16AResumeThatAWholeReadingShows(t *testing.T) {
	t.Parallel()
	ctrdtest.One(t, func(t *testing.T, d *ctrdtest.Daemon) {
		w := newWorld(t, withContainerd(d), hasty)
		b := w.box(d, "a")
		w.pauses(b, api.Freeze)
		w.sleepsOn(b, "while its task runs")
		shows := func(task string) func() bool {
			return func() bool {
				return slices.ContainsFunc(w.program.board.By(census.Runtime), func(s census.Sighting) bool { return s.Container == "a" && s.Task == task })
			}
		}
		goOn := w.holdPasses()
		d.Pause(t, "default", "a")
		realtest.Eventually(t, wait, "its event to be read", shows("paused"))
		reading, end := context.WithCancel(ctx)
		done := make(chan struct{})
		go func() { // one whole reading after the other, so that none of the container alone is first
			defer close(done)
			for reading.Err() == nil {
				_ = w.program.runtime.Refresh(reading)
			}
		}()
		d.Resume(t, "default", "a")
		realtest.Eventually(t, wait, "it to run again", shows("running"))
		end()
		<-done
		goOn()
		w.passesUntil(b.held.Address, api.Bound)
	})
}
