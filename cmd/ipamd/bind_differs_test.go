package main

import (
	"encoding/json"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/config"
	"github.com/ipamd/ipamd/internal/realtest"
)

// A bind that names the MAC of the veth's host end is accepted with a warning that
// names field, given and seen; doctor has one finding of the lease, which accuses
// no other, and the bind that it advises ends it. A port that is none, and a
// namespace that is another's, are named as well. A stranger is one all the same.
func TestF29ABindIsComparedWithTheKernel(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *config.Config) { c.Reconcile.Every = config.Duration(time.Hour) })
	const at = "10.8.64.2"
	l := w.give("a", at).Leases[0]
	bindTo := func(id string, where api.BindRequest) []api.BindWarning {
		t.Helper()
		r, err := w.client.Bind(ctx, id, where)
		if err != nil {
			t.Fatal(err)
		}
		return r.Warnings
	}
	bind := func(where api.BindRequest) []api.BindWarning { t.Helper(); return bindTo(l.ID, where) }
	// Another lease: a pass on news of the port would find a stranger beside this bind.
	later := w.give("b", "10.8.64.3").Leases[0]
	if got := bindTo(later.ID, api.BindRequest{HostInterface: "veth9", MAC: "02:00:00:00:00:77", Netns: "/run/netns/later"}); len(got) != 0 {
		t.Errorf("nothing is plugged yet, and the bind warns: %+v", got)
	}
	if _, err := w.client.Release(ctx, later.ID, api.ReleaseRequest{}); err != nil {
		t.Fatal(err)
	}
	w.gone(later)
	port := w.ns.Port("rt0", at+"/24")
	host, err := w.ns.Netlink().LinkByName(port.HostName)
	if err != nil {
		t.Fatal(err)
	}
	hostMAC, mac := host.Attrs().HardwareAddr.String(), port.MAC.String()

	got := bind(api.BindRequest{HostInterface: port.HostName, MAC: strings.ToUpper(hostMAC), Netns: port.NS.Path()})
	if len(got) != 1 || got[0].Field != "mac" || got[0].Given != hostMAC || got[0].Seen != mac || !strings.Contains(got[0].Message, "host's end") {
		t.Fatalf("the host end's MAC: %+v, seen is %s", got, mac)
	}
	logged := func() int { return strings.Count(w.log.String(), "a bind differs from what the kernel shows") }
	if n := logged(); n != 1 || !strings.Contains(w.log.String(), hostMAC) {
		t.Errorf("%d lines of it are in the log", n)
	}
	// A pass, and what the wire says of it, change nothing: one finding, no conflict.
	w.ns.Do(func() {
		if c, err := net.DialTimeout("tcp", net.JoinHostPort(at, "9"), wait); err == nil { // refused, by who has the address
			c.Close()
		}
	})
	realtest.Eventually(t, wait, "the neighbour table to have it", func() bool { return len(seenNow(w, at, "neighbour")) == 1 })
	if _, err := w.client.Reconcile(ctx, api.ReconcileRequest{}); err != nil {
		t.Fatal(err)
	}
	d, err := w.client.Doctor(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if len(d.Findings) != 1 {
		t.Fatalf("doctor finds %+v", d.Findings)
	}
	f := d.Findings[0]
	if f.Kind != "binding_differs" || f.LeaseID != l.ID || f.Repair != "ipamctl bind "+l.ID+" --mac "+mac {
		t.Errorf("doctor finds %+v", f)
	}
	for _, part := range []string{hostMAC, mac, port.HostName, `"a"`} {
		if !strings.Contains(f.Detail, part) {
			t.Errorf("%s is not in %q", part, f.Detail)
		}
	}
	for _, s := range seenNow(w, at, "netns") {
		if s.Belongs == api.Stranger {
			t.Errorf("whois calls the owner a stranger: %+v", s)
		}
	}
	if got := bind(api.BindRequest{MAC: mac}); len(got) != 0 {
		t.Errorf("the right MAC: %+v", got)
	}
	if got := w.findings(); len(got) != 0 {
		t.Errorf("with the right MAC doctor finds %v", got)
	}
	other := w.ns.Port("rt0")
	for field, where := range map[string]api.BindRequest{
		"host_interface": {HostInterface: "eth0"},
		"netns":          {HostInterface: port.HostName, Netns: other.NS.Path()},
	} {
		got := bind(where)
		if len(got) != 1 || got[0].Field != field || got[0].Given == "" || got[0].Seen == "" {
			t.Errorf("a wrong %s: %+v", field, got)
		}
	}
	if got := bind(api.BindRequest{HostInterface: port.HostName, MAC: mac, Netns: port.NS.Path()}); len(got) != 0 {
		t.Errorf("all is right: %+v", got)
	}

	// With the wrong MAC again, another one with the address is a stranger, and
	// nothing else is found while it is there.
	bind(api.BindRequest{MAC: hostMAC})
	if got := w.noted(at); len(got) != 0 {
		t.Errorf("before there is a stranger the history has %v", got)
	}
	stranger := w.ns.Port("rt0", at+"/24")
	realtest.Eventually(t, wait, "the conflict to be noted", func() bool { return len(w.noted(at)) == 1 })
	if got := w.findings(); !slices.Equal(got, []string{"conflict " + at}) {
		t.Errorf("with a stranger doctor finds %v", got)
	}
	if c := w.status().LastConflict; !slices.ContainsFunc(c.Evidence, func(e api.Sighting) bool { return e.MAC == stranger.MAC.String() }) {
		t.Errorf("the evidence is %+v", c.Evidence)
	}
	if raw, _ := json.Marshal(api.LeaseReply{}); strings.Contains(string(raw), "warnings") {
		t.Errorf("an answer without warnings has some: %s", raw)
	}
}
