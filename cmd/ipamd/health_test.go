package main

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/ipamd/ipamd/netdb"
	"github.com/ipamd/ipamd/netdb/netdbtest"
)

// Each of the three that systemd's watchdog is told about can be stuck alone,
// and is named then.
func TestAlive(t *testing.T) {
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
	stuck := func(what, where string) {
		t.Helper()
		err := p.alive(ctx, 300*time.Millisecond)
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), where) {
			t.Errorf("%s: alive says %v, want %q in it", what, err, where)
		}
	}
	goesOn := func(what string) {
		t.Helper()
		if err := p.alive(ctx, wait); err != nil {
			t.Errorf("%s: alive says %v", what, err)
		}
	}

	stop := run(p.watchdog.Run)
	stuck("no passes are made", "passes")
	stop()
	stop = run(p.reconciler.Run)
	stuck("nobody confirms releases", "confirmation of releases")
	defer stop()
	defer run(p.watchdog.Run)()
	goesOn("all run")

	// A transaction that does not end stalls the writer.
	l := netdbtest.Reserve(t, p.book, "a")
	held, free, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	seen := errors.New("it is seen")
	go func() {
		_, err := p.book.ReleaseAt(ctx, netdbtest.Who(netdb.ByWatchdog, "released"), l.ID, l.Rev, func() error {
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

// A wall clock that was moved since the start is told by how far and which way;
// time that passes is no step.
func TestClockStep(t *testing.T) {
	for _, tt := range []struct {
		name string
		was  func(*netdb.Stamp) // of the start, as seen from now
		want time.Duration
	}{
		{"started just now", func(*netdb.Stamp) {}, 0},
		{"an hour has passed", func(s *netdb.Stamp) { s.Wall, s.Boottime = s.Wall.Add(-time.Hour), s.Boottime-time.Hour }, 0},
		{"moved forward by an hour", func(s *netdb.Stamp) { s.Wall = s.Wall.Add(-time.Hour) }, time.Hour},
		{"moved back by an hour", func(s *netdb.Stamp) { s.Wall = s.Wall.Add(time.Hour) }, -time.Hour},
		{"moved back by two hours in the course of one", func(s *netdb.Stamp) {
			s.Wall, s.Boottime = s.Wall.Add(time.Hour), s.Boottime-time.Hour
		}, -2 * time.Hour},
	} {
		t.Run(tt.name, func(t *testing.T) {
			start := netdb.Now()
			tt.was(&start)
			if got := (clock{start}).step(); got < tt.want-time.Second || got > tt.want+time.Second {
				t.Errorf("stepped by %v, want %v", got, tt.want)
			}
		})
	}
}
