package watchdog

import (
	"context"
	"testing"
	"time"

	"github.com/ipamd/ipamd/internal/realtest"
	"github.com/ipamd/ipamd/ipam"
	. "github.com/ipamd/ipamd/netdb/netdbtest"
)

// One Run at a time; the next one begins with nothing remembered. While it
// runs a release with nothing left comes back cooling; before and after, it is
// recorded and waits.
func TestRun(t *testing.T) {
	w, book, _ := newWatchdog(t)
	bound := func(name string) *ipam.Lease {
		l := Reserve(t, book, name)
		if _, err := book.Bind(ctx, client, l.ID, 0, ipam.Binding{HostInterface: "veth-" + name}); err != nil {
			t.Fatal(err)
		}
		return l
	}
	release := func(l *ipam.Lease) ipam.State {
		t.Helper()
		got, blockers, err := w.Release(ctx, client, l.ID, "", 0)
		if err != nil || (got.State == ipam.Releasing) != (len(blockers) > 0) {
			t.Fatalf("released to %+v, blocked by %+v, %v", got, blockers, err)
		}
		return got.State
	}
	for range 2 {
		if s := release(bound("before")); s != ipam.Releasing {
			t.Errorf("before Run it is %s", s)
		}
		run, stop := context.WithCancel(ctx)
		done := make(chan error, 1)
		go func() { done <- w.Run(run) }()
		realtest.Eventually(t, time.Minute, "the release of before Run is confirmed", func() bool {
			return len(book.InState(ipam.Releasing)) == 0
		})
		if err := w.Run(ctx); err == nil {
			t.Error("a second Run began")
		}
		realtest.Eventually(t, time.Minute, "a release comes back cooling", func() bool {
			return release(bound("during")) == ipam.Cooling
		})
		stop()
		if err := <-done; err != nil {
			t.Errorf("asked to stop, it returned %v", err)
		}
	}
	if s := release(bound("after")); s != ipam.Releasing || w.running || len(w.tracks) != 0 {
		t.Errorf("after Run it is %s; running %v, %d tracks", s, w.running, len(w.tracks))
	}
}
