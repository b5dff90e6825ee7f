package main

import (
	"encoding/json"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/config"
	"github.com/ipamd/ipamd/internal/realtest"
	"github.com/ipamd/ipamd/netdb"
)

// A bind that names the MAC of the veth's host end is accepted with a warning that
// names field, given and seen; doctor has one finding of the lease, which accuses
// nobody, and the bind that it advises ends it. A port that is none, and a
// namespace that is another's, are named as well. A stranger is one all the same.
func TestF29ABindIsComparedWithTheKernel(t *testing.T) {
	w := newWorld(t, func(c *config.Config) { c.Reconcile.Every = config.Duration(time.Hour) })
	const at = "10.8.64.2"
	l := w.give("a", at).Leases[0]
	bind := func(where api.BindRequest) []api.BindWarning {
		t.Helper()
		r, err := w.client.Bind(ctx, l.ID, where)
		if err != nil {
			t.Fatal(err)
		}
		return r.Warnings
	}
	if got := bind(api.BindRequest{HostInterface: "veth1", MAC: "02:00:00:00:00:77", Netns: "/run/netns/later"}); len(got) != 0 {
		t.Errorf("nothing is plugged yet, and the bind warns: %+v", got)
	}
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
	if f.Kind != "binding_differs" || f.LeaseID != l.ID || f.Mend != "ipamctl bind "+l.ID+" --mac "+mac {
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
}

// What a bind's warnings are, by what it names and what the kernel shows.
func TestF29BindWarnings(t *testing.T) {
	const mac, hostMAC, other = "02:00:00:00:00:01", "fe:00:00:00:00:01", "02:00:00:00:00:99"
	ports := map[string]string{"veth1": hostMAC, "veth2": "fe:00:00:00:00:02"}
	own := census.Sighting{Witness: census.Netns, Port: "veth1", MAC: mac, Netns: "nsid:7 (blue)"}
	strange := census.Sighting{Witness: census.Netns, Port: "veth2", MAC: other, Netns: "nsid:8"}
	answer := census.Sighting{Witness: census.Probe, Port: "veth1", MAC: other}
	both := netdb.Binding{HostInterface: "veth1", MAC: mac}
	type seen = []census.Sighting
	for name, tt := range map[string]struct {
		recorded netdb.Binding // beside what is asked
		asked    netdb.Binding
		seen     seen
		netns    namespace
		want     []string // field, given, seen
	}{
		"all as it is":                        {asked: both, seen: seen{own, answer}},
		"nothing is seen yet":                 {asked: netdb.Binding{HostInterface: "veth9", MAC: mac, Netns: "/n"}},
		"the wire alone answers":              {asked: both, seen: seen{answer}},
		"containers alone":                    {asked: netdb.Binding{Containers: []netdb.Container{{Namespace: "n", ID: "c"}}}, recorded: netdb.Binding{MAC: other}, seen: seen{own}},
		"the host end's MAC":                  {asked: netdb.Binding{HostInterface: "veth1", MAC: hostMAC}, seen: seen{own}, want: []string{"mac", hostMAC, mac}},
		"the same, before it has the address": {asked: netdb.Binding{HostInterface: "veth1", MAC: hostMAC}, want: []string{"mac", hostMAC, ""}},
		"the same, its port is recorded":      {recorded: netdb.Binding{HostInterface: "veth1"}, asked: netdb.Binding{MAC: hostMAC}, seen: seen{own}, want: []string{"mac", hostMAC, mac}},
		"another MAC":                         {asked: netdb.Binding{MAC: other}, seen: seen{own}, want: []string{"mac", other, mac}},
		"another MAC, a stranger has it":      {asked: netdb.Binding{HostInterface: "veth1", MAC: other}, seen: seen{strange, own}, want: []string{"mac", other, mac}},
		"a stranger beside it":                {asked: both, seen: seen{strange, own}},
		"a MAC of both ends":                  {asked: netdb.Binding{MAC: hostMAC}, seen: seen{{Witness: census.Netns, Port: "veth1", MAC: hostMAC}}},
		"a MAC that could not be read":        {asked: both, seen: seen{{Witness: census.Netns, Port: "veth1"}}},
		"no port of the bridge":               {asked: netdb.Binding{HostInterface: "eth0", MAC: mac}, seen: seen{own}, want: []string{"host_interface", "eth0", "veth1"}},
		"another port":                        {asked: netdb.Binding{HostInterface: "veth2"}, seen: seen{own}, want: []string{"host_interface", "veth2", "veth1"}},
		"one of several ports to it": {asked: netdb.Binding{HostInterface: "veth2"},
			seen: seen{{Witness: census.Netns, Port: "veth1", MAC: mac, Leads: census.NewPorts("veth1", "veth2")}}},
		"the namespace":                     {asked: netdb.Binding{Netns: "/n"}, seen: seen{own}, netns: namespace{known: true, id: 7}},
		"another namespace":                 {asked: netdb.Binding{Netns: "/n"}, seen: seen{own}, netns: namespace{known: true, id: 70}, want: []string{"netns", "/n", "nsid:7 (blue)"}},
		"one that no port leads to":         {asked: netdb.Binding{Netns: "/n"}, seen: seen{own}, netns: namespace{known: true, id: -1}, want: []string{"netns", "/n", "nsid:7 (blue)"}},
		"one that could not be asked about": {asked: netdb.Binding{Netns: "/n"}, seen: seen{own}},
	} {
		t.Run(name, func(t *testing.T) {
			l := &netdb.Lease{HostInterface: tt.recorded.HostInterface, MAC: tt.recorded.MAC, Netns: tt.recorded.Netns}
			for at, to := range map[*string]string{&l.HostInterface: tt.asked.HostInterface, &l.MAC: tt.asked.MAC, &l.Netns: tt.asked.Netns} {
				if to != "" {
					*at = to
				}
			}
			var got []string
			for _, w := range bindWarnings(l, tt.asked, kernelView{seen: tt.seen, ports: ports, netns: tt.netns}) {
				got = append(got, w.Field, w.Given, w.Seen)
				if w.Message == "" || !strings.Contains(w.Message, w.Seen) || !strings.Contains(w.Message, w.Given) {
					t.Errorf("its message: %q", w.Message)
				}
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
	if raw, _ := json.Marshal(api.LeaseReply{}); strings.Contains(string(raw), "warnings") {
		t.Errorf("an answer without warnings has some: %s", raw)
	}
}
