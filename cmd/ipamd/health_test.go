package main

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/config"
	"github.com/ipamd/ipamd/internal/realtest"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb/netdbtest"
)

// Each of the three that systemd's watchdog is notified of can be stuck alone,
// and is named then.
func TestAlive(t *testing.T) {
	t.Parallel()
	w := newWorld(t, slow)
	w.stopDaemon()
	p := w.newProgram()
	if err := p.open(ctx); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.close(); err != nil {
			t.Error(err)
		}
	})
	p.ready.SetCounted() // before it the loops do not run, and they are not asked for
	// run runs a loop until it is asked to stop.
	run := func(loop func(context.Context) error) (stop func()) {
		ctx, cancel := context.WithCancel(ctx)
		ended := make(chan error, 1)
		go func() { ended <- loop(ctx) }()
		return func() {
			cancel()
			if err := <-ended; err != nil {
				t.Errorf("asked to stop, a loop returned %v", err)
			}
		}
	}
	// On a machine that stands still another one may be late, too, and be named.
	stuck := func(what, where string) {
		t.Helper()
		realtest.Eventually(t, wait, what+": "+where+" to be named", func() bool {
			err := p.prover.Prove(ctx, 300*time.Millisecond)
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("%s: alive says %v, want %q in it", what, err, where)
			}
			return strings.Contains(err.Error(), where)
		})
	}
	goesOn := func(what string) {
		t.Helper()
		if err := p.prover.Prove(ctx, wait); err != nil {
			t.Errorf("%s: alive says %v", what, err)
		}
	}

	stop := run(p.watchdog.Run)
	stuck("no passes are made", "passes")
	stop()
	stop = run(p.reconciler.Run)
	stuck("no release is confirmed", "confirmation of releases")
	defer stop()
	defer run(p.watchdog.Run)()
	goesOn("all run")

	// A transaction that does not end stalls the writer.
	l := netdbtest.Reserve(t, p.book, "a")
	held, free, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	seen := errors.New("it is seen")
	go func() {
		_, err := p.book.ReleaseAt(ctx, netdbtest.Who(ipam.ByWatchdog, "released"), l.ID, l.Rev, func() error {
			close(held)
			<-free
			return seen
		})
		ended <- err
	}()
	<-held
	stuck("the writer hangs in a transaction", "ping")
	close(free)
	if err := <-ended; !errors.Is(err, seen) {
		t.Errorf("the transaction ended with %v", err)
	}
	goesOn("the writer writes again")
}

// Whether addresses can be given is one fact, reported in four places: /readyz, the
// status, the metric and systemd's status line. So it is of pools that are
// full, of all of them and of one.
func TestFullPoolsAreReportedAlike(t *testing.T) {
	t.Parallel()
	w := newWorld(t, slow, pool("10.8.64.0/30"), func(c *config.Config) {
		c.Allocation.Exhausted = "strict"
		c.Pools = append(c.Pools, config.Pool{Name: "second", Prefix: "10.9.0.0/32", Gateway: config.NoGateway})
	})
	gets := func(when, why string, full, second float64) {
		t.Helper()
		metrics := w.scrapeOf()
		if one, two := metrics[`pool_exhausted{family="v4",pool="default"}`], metrics[`pool_exhausted{family="v4",pool="second"}`]; one != full || two != second {
			t.Errorf("%s: exhausted are, as metrics, %v and %v, want %v and %v", when, one, two, full, second)
		}
		health, err := w.client.Ready(ctx)
		if (err == nil) != (why == "") || err != nil && strings.Join(health.Reasons, "; ") != why {
			t.Errorf("%s: /readyz says %+v, %v", when, health, err)
		}
		status, err := w.client.Status(ctx)
		if err != nil || status.Ready != (why == "") || strings.Join(status.NotReady, "; ") != why {
			t.Errorf("%s: the status says %v, %q, %v", when, status.Ready, status.NotReady, err)
		}
		if (metrics["ready"] == 1) != (why == "") {
			t.Errorf("%s: the metric says %v", when, metrics["ready"])
		}
		line := "STATUS=ready: "
		if why != "" {
			line = "STATUS=not ready: " + why
		}
		if got := w.program.statusLine(); !strings.HasPrefix(got, line) {
			t.Errorf("%s: systemd gets %q", when, got)
		}
	}
	gets("nothing is given", "", 0, 0)
	l := w.allocate("a").Leases[0]
	gets("one pool is full", "", 1, 0)
	if _, err := w.client.Allocate(ctx, api.AllocateRequest{Sandbox: "b", Pool: "second"}); err != nil {
		t.Fatal(err)
	}
	gets("both are full", "every pool is exhausted", 1, 1)
	bindAndRelease(w, l)
	gets("one cools, and must not be given early", "every pool is exhausted", 1, 1)
}
