package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/internal/realtest"
)

// One stranger that answers for every address is one finding of a kind, with how
// many addresses it has and the first of them: four hundred lines hide the other
// finding that there is.
func TestF26OneStrangerIsOneFinding(t *testing.T) {
	w := prepare(t, slow)
	w.ns.Bridge("rt0", "10.8.64.1/24")
	stranger := w.ns.Port("rt0")
	stranger.NS.Exec("ip", "route", "add", "local", "10.8.64.0/24", "dev", "eth0")
	w.start()     // before that no address was asked for ahead
	for range 2 { // as many conflicts as one allocation meets, each
		if r, err := w.client.Allocate(ctx, api.AllocateRequest{Sandbox: "a"}); err == nil {
			t.Fatalf("%s was given, and a stranger answers for it", r.Leases[0].Address)
		}
	}
	other := w.ns.Port("rt0", "10.8.64.250/24")
	w.seenBehind("10.8.64.250", other.HostName)

	d, err := w.client.Doctor(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if len(d.Findings) > 10 {
		t.Errorf("%d findings about one stranger and another", len(d.Findings))
	}
	i := slices.IndexFunc(d.Findings, func(f api.Finding) bool { return f.Kind == "quarantined" })
	if i < 0 {
		t.Fatalf("nothing is quarantined: %+v", d.Findings)
	}
	f := d.Findings[i]
	if f.Count < 32 || len(f.Addresses) != 16 || f.Address != f.Addresses[0] || f.Since.IsZero() ||
		!strings.Contains(f.Detail, stranger.MAC.String()) || !strings.Contains(f.Detail, stranger.HostName) {
		t.Errorf("the stranger is reported as %+v", f)
	}
	if !slices.ContainsFunc(d.Findings, func(f api.Finding) bool { return f.Kind == "foreign" && f.Address == "10.8.64.250" }) {
		t.Errorf("the other one is hidden: %+v", d.Findings)
	}
	realtest.Eventually(t, wait, "status counts what doctor says, of what is quarantined meanwhile, too", func() bool {
		s, err := w.client.Status(ctx)
		if err != nil {
			return false
		}
		d, err := w.client.Doctor(ctx)
		return err == nil && slices.ContainsFunc(d.Findings, func(f api.Finding) bool { return f.Kind == "quarantined" && f.Count == s.Findings["quarantined"] })
	})
}
