package main

import (
	"errors"
	"strings"
	"testing"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/client"
	"github.com/ipamd/ipamd/internal/realtest"
)

// A port goes down and up, and leaves rt0 and comes back, two hundred times.
// Its lease stays bound at its revision, is never its owner's own conflict, and
// nobody gets its address, which is the only one. What is remembered does not
// grow, nor does the log.
func TestFlappingPort(t *testing.T) {
	w := newWorld(t, quick, pool("10.8.64.0/30"), func(c *Config) { c.Reconcile.Misses = 1 })
	l := w.give("a", "10.8.64.2").Leases[0]
	p := w.ns.Port("rt0", "10.8.64.2/30")
	r, err := w.client.Bind(ctx, l.ID, api.BindRequest{Netns: p.NS.Path(), HostInterface: p.HostName, MAC: p.MAC.String()})
	if err != nil {
		t.Fatal(err)
	}
	near, err := w.ns.Netlink().LinkByName(p.HostName)
	if err != nil {
		t.Fatal(err)
	}
	rt0 := w.linkIndex("rt0")
	said := len(w.log.String())
	refused := func() {
		t.Helper()
		if r, err := w.client.Allocate(ctx, api.AllocateRequest{Sandbox: "b"}); !errors.Is(err, client.ErrPoolExhausted) {
			t.Fatalf("somebody else: %+v, %v", r, err)
		}
	}
	for range 200 {
		for _, flap := range []func() error{
			func() error { return w.ns.Netlink().LinkSetDown(near) },
			func() error { return w.ns.Netlink().LinkSetUp(near) },
			func() error { return w.ns.Netlink().LinkSetNoMaster(near) },
			func() error { return w.ns.Netlink().LinkSetMasterByIndex(near, rt0) },
		} {
			if err := flap(); err != nil {
				t.Fatal(err)
			}
			refused()
			w.stays(r.Lease)
		}
	}
	realtest.Eventually(t, wait, "its owner to be answered", func() bool {
		again, err := w.client.Allocate(ctx, api.AllocateRequest{Sandbox: "a"})
		return err == nil && again.Existing && again.Leases[0].ID == l.ID && seenBy(w, "10.8.64.2", "netns")
	})
	w.stays(r.Lease)
	if got := w.findings(); len(got) != 0 {
		t.Errorf("doctor says %v", got)
	}
	if n := w.program.bridge.Status().Ports; n != 1 {
		t.Errorf("rt0 has %d ports", n)
	}
	if seen := w.program.board.Census().Seen; len(seen) != 2 { // the gateway's, too
		t.Errorf("the board has %d addresses", len(seen))
	}
	if lines := strings.Count(w.log.String()[said:], "\n"); lines > 20 {
		t.Errorf("800 flaps were told in %d lines", lines)
	}
	history, err := w.client.History(ctx, client.HistoryFilter{Address: "10.8.64.2"})
	if err != nil || len(history.Changes) != 2 {
		t.Errorf("its history is %+v, %v", history, err)
	}
}
