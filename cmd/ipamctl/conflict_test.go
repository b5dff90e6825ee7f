package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ipamd/ipamd/api"
)

// An address that two use is told by the status with who is on it, although
// nothing is quarantined for it; so many of them that a screen still holds all.
func TestStatusNamesAddressesInConflict(t *testing.T) {
	w := runner()
	pass := *w.status.LastPass
	pass.Reports = []api.Finding{
		{Kind: "stray", Address: "10.8.64.99", Detail: "its runtime is gone", Mend: "ipamctl whois 10.8.64.99"},
		{Kind: "two_claimants", Address: "10.8.64.2", Detail: "the runtime shows it claimed by a and b", Mend: "ipamctl whois 10.8.64.2"},
	}
	for i := range 9 {
		pass.Reports = append(pass.Reports, api.Finding{Kind: "conflict", Address: fmt.Sprintf("10.8.64.%d", 30+i),
			Detail: fmt.Sprintf("held by sandbox %q, but the netns witness sees it under somebody else on veth%d", "web", i)})
	}
	w.status.LastPass = &pass
	w.serve(t)
	for _, width := range []int{0, 40, 80} {
		s := &screen{terminal: width > 0, columns: width, env: map[string]string{"NO_COLOR": "1"}}
		if code := w.ctl(t, s, "status"); code != exitOK {
			t.Errorf("exit %d: %s", code, s.err.String())
		}
		said := strings.Join(strings.Fields(s.out.String()), " ")
		for _, want := range []string{"In conflict: 10 addresses", "10.8.64.2: the runtime shows it claimed by a and b",
			"10.8.64.36: held by sandbox", "on veth6", "and 2 more: ipamctl doctor", "next: ipamctl whois 10.8.64.2"} {
			if !strings.Contains(said, want) {
				t.Errorf("%d columns: %q is not in\n%s", width, want, s.out.String())
			}
		}
		for _, none := range []string{"10.8.64.99", "10.8.64.37:"} {
			if strings.Contains(said, none) {
				t.Errorf("%d columns: %q is in\n%s", width, none, s.out.String())
			}
		}
	}
}

// The last conflict is told with who was seen, and whether it is over.
func TestStatusTellsTheLastConflict(t *testing.T) {
	w := runner()
	w.status.LastConflict = &api.Change{Address: "10.8.64.7", At: before(2 * time.Minute), From: api.Free, To: api.Quarantined, Reason: "seen_on_wire",
		Evidence: []api.Sighting{{Address: "10.8.64.7", Witness: "netns", Port: "veth9", MAC: "02:00:00:00:00:09", At: before(2 * time.Minute)}}}
	for stands, want := range map[bool]string{
		true:  "10.8.64.7 2m0s ago, still quarantined: ipamctl whois 10.8.64.7 netns: port veth9, mac 02:00:00:00:00:09, 2m0s ago",
		false: "10.8.64.7 2m0s ago, over: ipamctl whois 10.8.64.7 netns: port veth9, mac 02:00:00:00:00:09, 2m0s ago",
	} {
		w.status.LastConflictStands = stands
		s := &screen{}
		w.serve(t).ctl(t, s, "status")
		if said := strings.Join(strings.Fields(s.out.String()), " "); !strings.Contains(said, "Last conflict "+want) {
			t.Errorf("%q is not in\n%s", want, s.out.String())
		}
	}
}
