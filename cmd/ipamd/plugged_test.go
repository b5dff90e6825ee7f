package main

import (
	"strings"
	"testing"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/internal/nstest"
	"github.com/ipamd/ipamd/internal/realtest"
)

// A port that once had a name keeps no later lease of that name, and keeps the
// lease that was bound to it, whatever it is called by then.
func TestF11AReusedNameKeepsNoOthersLease(t *testing.T) {
	t.Parallel()
	w := newWorld(t, slow)
	plug := func(sandbox, as string) (*nstest.Port, api.Lease) {
		t.Helper()
		l := w.allocate(sandbox).Leases[0]
		p := w.ns.Port("rt0", l.Address+"/24")
		if p.HostName != as {
			w.rename(p.HostName, as)
		}
		if _, err := w.client.Bind(ctx, l.ID, api.BindRequest{HostInterface: as}); err != nil {
			t.Fatal(err)
		}
		w.seenBehind(l.Address, as)
		return p, l
	}
	one := w.ns.Port("rt0", "10.8.64.200/24") // one of those that are ready before they are anybody's
	w.seenBehind("10.8.64.200", "veth1")
	w.rename("veth1", "first0")
	w.seenBehind("10.8.64.200", "first0")
	first := w.allocate("first").Leases[0]
	if _, err := w.client.Bind(ctx, first.ID, api.BindRequest{HostInterface: "first0"}); err != nil {
		t.Fatal(err)
	}

	port, second := plug("second", "veth1")
	port.NS.Delete() // and with it its port
	if _, err := w.client.Release(ctx, second.ID, api.ReleaseRequest{}); err != nil {
		t.Fatal(err)
	}
	w.becomes(second.Address, api.Cooling)

	w.rename("first0", "moved0")
	one.DelAddr("10.8.64.200/24") // no witness sees anything behind it
	w.seenBehind("10.8.64.200", "")
	r, err := w.client.Release(ctx, first.ID, api.ReleaseRequest{})
	if err != nil || len(r.Blockers) != 1 || !strings.Contains(r.Blockers[0].Detail, "moved0, which was first0, is a port") {
		t.Errorf("released: %+v, %v", r, err)
	}
	w.ns.Exec("ip", "link", "del", "moved0")
	w.becomes(first.Address, api.Cooling)
}

func (w *world) rename(from, to string) {
	w.t.Helper()
	w.ns.Exec("ip", "link", "set", from, "down")
	w.ns.Exec("ip", "link", "set", from, "name", to)
	w.ns.Exec("ip", "link", "set", to, "up")
}

// seenBehind waits until the namespace behind a port shows an address; "" is
// that none does.
func (w *world) seenBehind(addr, port string) {
	w.t.Helper()
	realtest.Eventually(w.t, wait, addr+" to be seen behind "+port, func() bool {
		for _, a := range w.whois(addr).Witnesses {
			for _, s := range a.Seen {
				if a.Witness == "netns" {
					return s.Port == port
				}
			}
		}
		return port == ""
	})
}
