package main

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/client"
	"github.com/ipamd/ipamd/internal/nstest"
	"github.com/ipamd/ipamd/internal/realtest"
)

// What the rules are, over the socket: each port with its lease and what was refused of it;
// and, when the table is read while nothing has repaired it yet, by what it differs.
func TestRulesOverTheSocket(t *testing.T) {
	t.Parallel()
	w := newWorld(t, enforced)
	a, at := w.plugIn("a")
	b, _ := w.plugIn("b")
	w.ns.Port("rt0") // without a lease
	_, err := w.client.Rules(ctx, "")
	must(t, err) // counting begins a moment after a bind, and with a reading
	out := at.NS.Wire("eth0")
	for range 7 { // of a type that nothing else here sends
		out.Send(nstest.Frame(net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, at.MAC, 0x88b5, make([]byte, 46)...))
	}
	var r *api.RulesReply
	realtest.Eventually(t, wait, "the port without a lease to be known, and what was sent to be refused", func() bool {
		r, err = w.client.Rules(ctx, "")
		must(t, err)
		return len(r.Ports) == 3 && slices.ContainsFunc(r.Ports, func(p api.PortRules) bool { return len(p.Refused) > 0 && p.Refused[0].Packets >= 7 })
	})
	if r.Mode != "enforce" || r.Unleased != "allow" || r.Table != "bridge ipamd" || !r.Held || !r.Compared || len(r.Differences) != 0 || len(r.Ports) != 3 {
		t.Errorf("the rules are %+v", r)
	}
	i := slices.IndexFunc(r.Ports, func(p api.PortRules) bool { return p.Port == at.HostName })
	if i < 0 {
		t.Fatalf("%s is not among %+v", at.HostName, r.Ports)
	}
	if p := r.Ports[i]; len(p.Allowed) != 1 || p.Allowed[0] != (api.Allowed{Address: a.Address, MAC: at.MAC.String(), LeaseID: a.ID, Sandbox: "a"}) ||
		len(p.Refused) != 1 || p.Refused[0].Reason != "type" || p.Refused[0].Packets != 7 {
		t.Errorf("the port of a: %+v", p)
	}
	if one, err := w.client.Rules(ctx, b.ID); err != nil || len(one.Ports) != 1 || one.Ports[0].Allowed[0].LeaseID != b.ID || one.Compared {
		t.Errorf("of b alone: %+v, %v", one, err)
	}

	// A daemon whose loops do not run yet repairs nothing.
	w.stopDaemon()
	p := w.newProgram()
	must(t, p.open(ctx))
	defer func() { must(t, p.close()) }()
	must(t, p.refresh(ctx))
	p.startRules(ctx, p.log)
	element := func(addr string) string { return "{ " + at.HostName + " . " + at.MAC.String() + " . " + addr + " }" }
	w.nft("delete", "element", "bridge", "ipamd", "ipv4", element(a.Address))
	w.nft("add", "element", "bridge", "ipamd", "ipv4", element("10.8.64.99"))
	differs, err := p.showRules(ctx, "")
	must(t, err)
	want := []api.RuleDifference{{Missing: true, Element: true, Port: at.HostName, LeaseID: a.ID}, {Element: true, Port: at.HostName}}
	for i, d := range differs.Differences {
		if i >= len(want) || !strings.Contains(d.What, map[bool]string{true: a.Address, false: "10.8.64.99"}[d.Missing]) {
			t.Fatalf("it differs by %+v", differs.Differences)
		}
		if d.What = ""; d != want[i] {
			t.Errorf("it differs by %+v, want %+v", differs.Differences[i], want[i])
		}
	}
	if len(differs.Differences) != len(want) {
		t.Errorf("it differs by %+v", differs.Differences)
	}
}

// Rules that are read while leases are bound differ from the book at no moment: a reading
// that a bind has changed is not compared.
func TestRulesAreComparedBesideBinds(t *testing.T) {
	t.Parallel()
	w := newWorld(t, enforced)
	_, port := w.plugIn("first")
	var leases []api.Lease
	for i := range 60 {
		leases = append(leases, w.allocate(fmt.Sprint("s", i)).Leases[0])
	}
	done := make(chan error, 1)
	go func() {
		for _, l := range leases { // all on one port
			err := client.Retry(ctx, func(ctx context.Context) error { // a busy kernel may not say in time which link it is
				_, err := w.client.Bind(ctx, l.ID, api.BindRequest{HostInterface: port.HostName, MAC: port.MAC.String()})
				return err
			})
			if err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	for compared, bound := 0, false; !bound || compared == 0; {
		select {
		case err := <-done:
			must(t, err)
			bound = true
		default:
		}
		r, err := w.client.Rules(ctx, "")
		must(t, err)
		if len(r.Differences) > 0 {
			t.Fatalf("it differs by %+v", r.Differences)
		}
		if r.Compared {
			compared++
		}
	}
}

// Without rules there are none to show.
func TestRulesThatAreOff(t *testing.T) {
	t.Parallel()
	w := newWorld(t, quick)
	if r, err := w.client.Rules(ctx, ""); err != nil || r.Mode != "off" || len(r.Ports) != 0 || r.Compared {
		t.Errorf("%+v, %v", r, err)
	}
}
