package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/internal/nstest"
	"github.com/ipamd/ipamd/internal/realtest"
)

// G13: a bind names network namespaces where those are, and nothing else that root
// might open; and leases whose namespaces lie on a file system that hangs keep
// nobody else's release from being confirmed. Theirs waits, with the reason.
func TestG13NetnsPathsOfBinds(t *testing.T) {
	stuck := filepath.Join(t.TempDir(), "stuck")
	answer := nstest.Hang(t, stuck)
	w := newWorld(t, quick, func(c *Config) {
		c.Bridge.Netns = []string{stuck}
		c.Watchdog.Parallel, c.Watchdog.Timeout = 4, duration{300 * time.Millisecond}
	})
	t.Cleanup(answer) // before the daemon stops
	bind := func(sandbox string, where api.BindRequest) (api.Lease, error) {
		l := w.allocate(sandbox).Leases[0]
		_, err := w.client.Bind(ctx, l.ID, where)
		return l, err
	}
	for _, path := range []string{"/dev/watchdog", "/proc/1/root/dev/null", filepath.Join(t.TempDir(), "x"), "/run/netns/../../dev/null"} {
		var refused *api.Error
		if l, err := bind("wrong", api.BindRequest{Netns: path}); !errors.As(err, &refused) || refused.Code != api.InvalidArgument || refused.Details["field"] != "netns" ||
			!strings.Contains(err.Error(), "/run/netns") {
			t.Errorf("%s: %v", path, err)
		} else if now, err := w.client.Lease(ctx, l.ID); err != nil || now.Lease.State != api.Reserved {
			t.Errorf("%s is recorded: %+v, %v", path, now, err)
		}
	}
	var waiting []api.Lease
	for i := range 12 {
		l, err := bind(fmt.Sprint("hangs", i), api.BindRequest{Netns: filepath.Join(stuck, fmt.Sprint(i))})
		if err != nil {
			t.Fatal(err)
		}
		waiting = append(waiting, l)
		if _, err := w.client.Release(ctx, l.ID, api.ReleaseRequest{}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 3 {
		port := w.ns.Port("rt0")
		l, err := bind(fmt.Sprint("other", i), api.BindRequest{Netns: port.NS.Path(), HostInterface: port.HostName, MAC: port.MAC.String()})
		if err != nil {
			t.Fatal(err)
		}
		w.ns.Exec("ip", "link", "del", port.HostName)
		if r, err := w.client.Release(ctx, l.ID, api.ReleaseRequest{Wait: "60s"}); err != nil || r.Lease.State != api.Cooling {
			t.Fatalf("beside looks that hang: %+v, %v", r, err)
		}
	}
	for _, l := range waiting {
		if now, err := w.client.Lease(ctx, l.ID); err != nil || now.Lease.State != api.Releasing || len(now.Blockers) == 0 {
			t.Errorf("a lease whose namespace cannot be looked at: %+v, %v", now, err)
		}
	}
	answer()
	realtest.Eventually(t, wait, "the error of a file system that answers is told", func() bool {
		now, err := w.client.Lease(ctx, waiting[0].ID)
		return err == nil && len(now.Blockers) > 0 && !strings.Contains(now.Blockers[0].Detail, "has not come back")
	})
}
