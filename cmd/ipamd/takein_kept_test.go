package main

import (
	"testing"

	"github.com/ipamd/ipamd/api"
)

// anew gives a stopped world a new book in each way in which an old one goes into it.
var anew = map[string]func(w *world, backup string) error{
	"restore": func(w *world, backup string) error { _, err := w.takeIn(backup, true); return err },
	"rebuild": func(w *world, _ string) error { _, err := w.rebuild(force); return err },
}

// A live lease is in the new book with its attempt, labels and age: a cancel of an attempt
// long ago that arrives behind a restore or a rebuild releases nothing.
func TestANewBookKeepsTheAttempt(t *testing.T) {
	t.Parallel()
	for name, make := range anew {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, slow, runnerOne)
			r, err := w.client.Allocate(ctx, api.AllocateRequest{Sandbox: "live", Attempt: 7, Labels: map[string]string{"team": "x"}})
			must(t, err)
			live := w.wiredOn("rt0", r.Leases[0])
			file := w.backup()
			w.stopDaemon()
			must(t, make(w, file))
			w.start()
			now, err := w.client.Lease(ctx, live.held.ID)
			must(t, err)
			if l := now.Lease; l.Attempt != 7 || l.Labels["team"] != "x" || !l.Created.Equal(live.held.Created) {
				t.Errorf("it was %+v, and is %+v", live.held, l)
			}
			late, err := w.client.Cancel(ctx, api.CancelRequest{UID: "live", Attempt: 3})
			must(t, err)
			if len(late.Released) > 0 || w.state(live.held.Address) != api.Bound {
				t.Errorf("a cancel of attempt 3 released %+v", late.Released)
			}
		})
	}
}
