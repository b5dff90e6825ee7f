package helper

import (
	"context"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/internal/nstest"
	"github.com/ipamd/ipamd/internal/realtest"
	"github.com/ipamd/ipamd/plumb"
)

// Which ports may be taken away as never reported, by what their owners' leases say.
func TestUnreported(t *testing.T) {
	now := time.Now()
	at := func(d time.Duration) *time.Time { at := now.Add(d); return &at }
	lease := func(s api.State, by *time.Time, host string) api.Lease {
		return api.Lease{UID: "u", Interface: "eth0", State: s, BindBy: by, HostInterface: host}
	}
	for name, c := range map[string]struct {
		of   []api.Lease
		goes bool
	}{
		"no lease":                  {nil, false},
		"reserved, in time":         {[]api.Lease{lease(api.Reserved, at(time.Minute), "")}, false},
		"reserved, just past":       {[]api.Lease{lease(api.Reserved, at(-time.Second), "")}, false},
		"reserved, long past":       {[]api.Lease{lease(api.Reserved, at(-time.Hour), "")}, true},
		"released, never bound":     {[]api.Lease{lease(api.Releasing, nil, "")}, true},
		"cools, never bound":        {[]api.Lease{lease(api.Cooling, nil, "")}, true},
		"cools, once bound":         {[]api.Lease{lease(api.Cooling, nil, "sb1")}, false},
		"cools, asked for again":    {[]api.Lease{lease(api.Cooling, nil, ""), lease(api.Reserved, at(time.Minute), "")}, false},
		"released, once bound":      {[]api.Lease{lease(api.Releasing, nil, "sb1")}, false},
		"bound by its containers":   {[]api.Lease{lease(api.Bound, nil, "")}, false},
		"bound":                     {[]api.Lease{lease(api.Bound, nil, "sb1")}, false},
		"paused":                    {[]api.Lease{lease(api.Paused, nil, "")}, false},
		"quarantined":               {[]api.Lease{lease(api.Quarantined, nil, "")}, false},
		"one of two families bound": {[]api.Lease{lease(api.Releasing, nil, ""), lease(api.Bound, nil, "sb1")}, false},
		"the other is bound":        {[]api.Lease{lease(api.Bound, nil, "sb1"), lease(api.Releasing, nil, "")}, false},
		"both released":             {[]api.Lease{lease(api.Releasing, nil, ""), lease(api.Releasing, nil, "")}, true},
	} {
		got := unreported(c.of, map[string]bool{plumb.HostName("u/eth0"): true}, now)
		if got["u/eth0"] != c.goes || len(got) > 1 {
			t.Errorf("%s: %v", name, got)
		}
		if got := unreported(c.of, map[string]bool{plumb.HostName("u/eth1"): true}, now); len(got) != 0 {
			t.Errorf("%s, and the port is another interface's: %v", name, got)
		}
	}
}

// A helper that goes on takes away what was not reported, too, and never beside a piece of work:
// that may be the very report.
func TestSweepsGoOn(t *testing.T) {
	realtest.Root(t)
	host, guest := nstest.New(t), nstest.New(t)
	host.Bridge("rt0", "10.8.64.1/24")
	const owner = "u/eth0"
	var err error
	host.Do(func() {
		_, err = plumb.Make(t.Context(), plumb.Spec{Owner: owner, Bridge: "rt0", Host: plumb.HostName(owner), Netns: guest.Path(),
			Guest: "eth0", Addresses: []netip.Prefix{netip.MustParsePrefix("10.8.64.2/24")}})
	})
	if err != nil {
		t.Fatal(err)
	}
	there := func() bool { return strings.Contains(host.Exec("ip", "link"), plumb.HostName(owner)) }
	left := func(context.Context) ([]api.Lease, error) {
		return []api.Lease{{UID: "u", Interface: "eth0", State: api.Releasing}}, nil
	}
	ctx, stop := context.WithCancel(t.Context())
	h := &hand{log: slog.New(slog.DiscardHandler)}
	unlock, err := h.owners.Lock(ctx, owner)
	if err != nil {
		t.Fatal(err)
	}
	over := make(chan struct{})
	go func() {
		defer close(over)
		host.Do(func() { h.sweeps(ctx, left, 10*time.Millisecond) })
	}()
	time.Sleep(100 * time.Millisecond)
	if !there() {
		t.Error("swept beside a piece of work")
	}
	unlock()
	realtest.Eventually(t, 10*time.Second, "the port to go", func() bool { return !there() })
	stop()
	<-over
}
