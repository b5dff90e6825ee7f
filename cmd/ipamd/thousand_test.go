package main

import (
	"fmt"
	"net/netip"
	"sync"
	"testing"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/internal/nstest"
	"github.com/ipamd/ipamd/internal/realtest"
)

// portsBehind is a thousand in a soak, and else more than one message of the kernel's has room for.
func portsBehind() int {
	if hasMinutes() {
		return 1000
	}
	return 250
}

// Hundreds of namespaces behind rt0, or a thousand, every tenth a stranger among the addresses
// that are given: no sandbox gets a stranger's; a pass sees all of them and is
// complete; doctor names the strangers and no other; so does a daemon that
// is started beside them; and an address that a port takes when all are there
// is not given.
func TestThousandPorts(t *testing.T) {
	realtest.Long(t)
	w := newWorld(t, slow, pool("10.8.64.0/20"))
	ports := portsBehind()
	strangers := ports / 10
	foreign := make(map[string]bool)
	at := netip.MustParseAddr("10.8.64.5")
	for range strangers {
		w.ns.Port("rt0", at.String()+"/20")
		foreign[at.String()] = true
		for range ports / strangers {
			at = at.Next()
		}
	}
	leases := make([]api.Lease, ports-strangers)
	var callers sync.WaitGroup
	step := make(chan struct{}, 16)
	for i := range leases {
		step <- struct{}{}
		callers.Go(func() {
			defer func() { <-step }()
			r, err := w.client.Allocate(ctx, api.AllocateRequest{Sandbox: fmt.Sprint("s", i)})
			if err != nil {
				t.Error(err)
				return
			}
			leases[i] = r.Leases[0]
		})
	}
	callers.Wait()
	holder := make(map[string]string)
	var last *nstest.Port
	for _, l := range leases {
		if t.Failed() {
			return
		}
		if foreign[l.Address] || holder[l.Address] != "" {
			t.Fatalf("%s was given to %s; it is a stranger's, or %q has it", l.Address, l.Sandbox, holder[l.Address])
		}
		holder[l.Address] = l.Sandbox
		last = w.ns.Port("rt0", l.Address+"/20")
		if _, err := w.client.Bind(ctx, l.ID, api.BindRequest{Netns: last.NS.Path(), HostInterface: last.HostName, MAC: last.MAC.String()}); err != nil {
			t.Fatal(err)
		}
	}
	all := func() {
		t.Helper()
		r := w.pass()
		if !r.Complete || r.Seen != ports+1 || r.Absent != 0 { // and the gateway
			t.Errorf("a pass sees %d, misses %d, complete %v", r.Seen, r.Absent, r.Complete)
		}
		named := make(map[string]bool)
		for _, f := range w.findings() {
			var kind, addr string
			if _, err := fmt.Sscan(f, &kind, &addr); err != nil || kind != "quarantined" || !foreign[addr] {
				t.Errorf("doctor says %s", f)
			}
			named[addr] = true
		}
		if len(named) != strangers {
			t.Errorf("doctor names %d strangers of %d", len(named), strangers)
		}
	}
	all()
	w.stopDaemon()
	w.start()
	all()

	next := w.allocate("next").Leases[0].Address
	if foreign[next] || holder[next] != "" {
		t.Errorf("%s was given", next)
	}
	taken := netip.MustParseAddr(next).Next()
	for foreign[taken.String()] {
		taken = taken.Next()
	}
	last.AddAddr(taken.String() + "/20")
	if r := w.allocate("behind"); r.Leases[0].Address == taken.String() {
		t.Errorf("%s was given, which %s took", taken, last.HostName)
	}
	realtest.Eventually(t, wait, "the one that took it to be reported", func() bool { return w.state(taken.String()) == api.Quarantined })
}
