package main

import (
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/client"
	"github.com/ipamd/ipamd/config"
	"github.com/ipamd/ipamd/internal/realtest"
)

// sleepersThatWake moves the metrics of those that sleep, and compares them with what was asked,
// acknowledged and sent.
func sleepersThatWake(t *testing.T, moved map[string]bool) {
	w := newWorld(t, slow, func(c *config.Config) { c.Idle.After = config.Duration(time.Second) })
	l, _ := w.plugIn("a")
	sample := func(name, want string) {
		t.Helper()
		realtest.Eventually(t, wait, fmt.Sprintf("%s to be %s", name, want), func() bool { return w.metric(name) == want })
	}
	sample("idle_leases", "1")
	sample(`quiet_leases{for="1s"}`, "1")
	asleep := func() {
		t.Helper()
		if _, err := w.client.Pause(ctx, l.ID, api.PauseRequest{Mode: api.Freeze, Wake: &api.WakePolicy{}}); err != nil {
			t.Fatal(err)
		}
	}
	ack := func(outcome string) {
		t.Helper()
		now, err := w.client.Lease(ctx, l.ID)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.client.AckWake(ctx, l.ID, api.AckRequest{Flight: now.Lease.Sleep.Flight.ID, Outcome: outcome}); err != nil {
			t.Fatal(err)
		}
	}
	asleep()
	if _, err := w.client.Wake(ctx, l.ID, api.WakeRequest{Wait: "1ms"}); !errors.Is(err, client.ErrWakeTimeout) {
		t.Fatal(err)
	}
	sample("wakes_unacknowledged", "1")
	w.knock(l.Address)
	sample(`wake_copies_total{kind="suppressed"}`, "1")
	ack("refused")
	sample("wakes_unacknowledged", "0")
	sample(`wakes_total{cause="api",result="refused"}`, "1")
	if _, err := w.client.Wake(ctx, l.ID, api.WakeRequest{}); err != nil {
		t.Fatal(err)
	}
	ack("woken")
	asleep()
	if _, err := w.client.Wake(ctx, l.ID, api.WakeRequest{}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.client.Resume(ctx, l.ID, api.PauseRequest{}); err != nil { // wakes it as well
		t.Fatal(err)
	}
	if _, err := w.client.Resume(ctx, l.ID, api.PauseRequest{}); err != nil {
		t.Fatal(err)
	}
	sample(`wakes_total{cause="api",result="woken"}`, "2")
	sample(`wake_seconds_count{cause="api"}`, "2")
	asleep()
	w.knock(l.Address)
	realtest.Eventually(t, wait, "a wake by traffic", func() bool { return w.metric("wakes_unacknowledged") == "1" })
	ack("woken")
	sample(`wakes_total{cause="traffic",result="woken"}`, "1")
	sample(`wake_seconds_count{cause="traffic"}`, "1")
	asleep()
	if _, err := w.client.Wake(ctx, l.ID, api.WakeRequest{}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.client.Release(ctx, l.ID, api.ReleaseRequest{}); err != nil {
		t.Fatal(err)
	}
	sample(`wakes_total{cause="api",result="released"}`, "1")
	sample(`wakes_total{cause="api",result="woken"}`, "2")
	sample(`wake_seconds_count{cause="api"}`, "2")
	for _, name := range []string{"idle_leases", "quiet_leases", "wakes_total", "wake_seconds", "wakes_unacknowledged", "wake_copies_total"} {
		moved["ipamd_"+name] = true
	}
}

// TestWakesAreCounted: each wake once, by any way that it ended.
func TestWakesAreCounted(t *testing.T) {
	t.Parallel()
	sleepersThatWake(t, map[string]bool{})
}

// knock has the host send one SYN, which no process listens to.
func (w *world) knock(to string) {
	w.t.Helper()
	w.ns.Do(func() {
		if c, err := net.DialTimeout("tcp", net.JoinHostPort(to, "80"), wait); err == nil {
			_ = c.Close()
			w.t.Error("a process listens")
		}
	})
}
