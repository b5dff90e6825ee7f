package main

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/internal/nstest"
	"github.com/ipamd/ipamd/internal/realtest"
)

// rulesThatRefuse moves the metrics of the rules, and compares them with what was sent and
// with what another program did.
func rulesThatRefuse(t *testing.T, moved map[string]bool) {
	w := newWorld(t, enforced)
	l, p := w.plugIn("a")
	if _, err := w.client.Rules(ctx, ""); err != nil { // from then on what the port is refused is the lease's
		t.Fatal(err)
	}
	out := p.NS.Wire("eth0")
	all := net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	for range 7 { // of a type that nothing else here sends
		out.Send(nstest.Frame(all, p.MAC, 0x88b5, make([]byte, 46)...))
	}
	sample := func(name, want string) {
		t.Helper()
		realtest.Eventually(t, wait, fmt.Sprintf("%s to be %s", name, want), func() bool { return w.metric(name) == want })
	}
	sample(`refused_packets_total{mode="enforce",reason="type"}`, "7")
	d, err := w.client.Doctor(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if i := slices.IndexFunc(d.Findings, func(f api.Finding) bool {
		return f.Kind == "packets_refused" && strings.Contains(f.Detail, "7 by type")
	}); i < 0 || d.Findings[i].Address != l.Address || !strings.Contains(d.Findings[i].Detail, p.HostName) || !strings.Contains(d.Findings[i].Detail, l.ID) {
		t.Errorf("doctor does not name %s, %s and %s: %+v", p.HostName, l.Address, l.ID, d.Findings)
	}
	w.nft("delete", "table", "bridge", "ipamd")
	sample("rules_changed_total", "1")
	sample("rules_repaired_total", "1")
	sample("rules_held", "1")
	sample(`refused_packets_total{mode="enforce",reason="type"}`, "7")
	for _, name := range []string{"refused_packets_total", "rules_changed_total", "rules_repaired_total", "rules_held"} {
		moved["ipamd_"+name] = true
	}
}

// TestRefusedPacketsAreCounted: what is refused is in the metrics, and stays there when
// another program deletes the table.
func TestRefusedPacketsAreCounted(t *testing.T) {
	t.Parallel()
	rulesThatRefuse(t, map[string]bool{})
}
