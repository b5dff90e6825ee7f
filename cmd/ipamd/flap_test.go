package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/client"
	"github.com/ipamd/ipamd/config"
	"github.com/ipamd/ipamd/internal/realtest"
)

// A port goes down and up, and leaves rt0 and comes back, twenty times,
// and a pass is made of each. In each fifth round the kernel's news alone reports
// that the port left, and that it came back. The lease stays bound at its
// revision, its owner is answered at the end, and any other that asks gets another
// address, of which there are enough. What is remembered does not grow, nor
// does the log.
func TestFlappingPort(t *testing.T) {
	w := newWorld(t, slow, pool("10.8.64.0/22"), func(c *config.Config) { c.Reconcile.Misses = 1 })
	l := w.give("a", "10.8.64.2").Leases[0]
	p := w.ns.Port("rt0", "10.8.64.2/22")
	r, err := w.client.Bind(ctx, l.ID, api.BindRequest{Netns: p.NS.Path(), HostInterface: p.HostName, MAC: p.MAC.String()})
	if err != nil {
		t.Fatal(err)
	}
	near, err := w.ns.Netlink().LinkByName(p.HostName)
	if err != nil {
		t.Fatal(err)
	}
	rt0 := w.linkIndex("rt0")
	counted := func(there bool) {
		t.Helper()
		realtest.Eventually(t, wait, fmt.Sprintf("the port to be counted: %v", there), func() bool {
			return (w.program.bridge.Statuses()[0].Ports == 1) == there && seenBy(w, "10.8.64.2", "netns") == there
		})
	}
	counted(true)
	logged, began := len(w.log.String()), time.Now()
	newcomers := 0
	for round := range 20 {
		for i, flap := range []func() error{
			func() error { return w.ns.Netlink().LinkSetDown(near) },
			func() error { return w.ns.Netlink().LinkSetUp(near) },
			func() error { return w.ns.Netlink().LinkSetNoMaster(near) },
			func() error { return w.ns.Netlink().LinkSetMasterByIndex(near, rt0) },
		} {
			if err := flap(); err != nil {
				t.Fatal(err)
			}
			if leaves, comes := i == 2, i == 3; round%5 == 0 && (leaves || comes) {
				counted(comes)
			}
			newcomers++
			if got := w.allocate(fmt.Sprint("s", newcomers)).Leases[0]; got.Address == l.Address {
				t.Fatalf("another: %+v", got)
			}
			w.pass() // after the news, for it reads everything
			w.stays(r.Lease)
		}
	}
	// Not before: no pass releases a lease that was answered just now.
	if err := w.ns.Netlink().LinkSetNoMaster(near); err != nil {
		t.Fatal(err)
	}
	counted(false)
	if again := w.allocate("a"); !again.Existing || again.Leases[0].ID != l.ID {
		t.Errorf("while the port is away, its owner is answered %+v", again)
	}
	if err := w.ns.Netlink().LinkSetMasterByIndex(near, rt0); err != nil {
		t.Fatal(err)
	}
	realtest.Eventually(t, wait, "its owner to be answered", func() bool {
		again, err := w.client.Allocate(ctx, api.AllocateRequest{Sandbox: "a"})
		return err == nil && again.Existing && again.Leases[0].ID == l.ID && seenBy(w, "10.8.64.2", "netns")
	})
	w.stays(r.Lease)
	if got := w.findings(); len(got) != 0 {
		t.Errorf("doctor says %v", got)
	}
	if n := w.program.bridge.Statuses()[0].Ports; n != 1 {
		t.Errorf("rt0 has %d ports", n)
	}
	if seen := w.program.board.Census().Seen; len(seen) != 2 { // the gateway's, too
		t.Errorf("the board has %d addresses", len(seen))
	}
	// What repeats is reported once, and counted once in each minute.
	most := 20 * (1 + int(time.Since(began)/time.Minute))
	if lines := strings.Count(w.log.String()[logged:], "\n"); lines > most {
		t.Errorf("200 flaps were reported in %d lines", lines)
	}
	history, err := w.client.History(ctx, client.HistoryFilter{Address: "10.8.64.2"})
	if err != nil || len(history.Changes) != 2 {
		t.Errorf("its history is %+v, %v", history, err)
	}
}
