package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ipamd/ipamd/api"
)

// An address that two use is reported by the status with who is on it, although
// nothing is quarantined for it; so many of them that a screen still holds all.
func TestStatusNamesAddressesInConflict(t *testing.T) {
	w := runner()
	w.findings = []api.Finding{
		{Kind: "stray", Address: "10.8.64.99", Detail: "its runtime is gone", Repair: "ipamctl whois 10.8.64.99"},
		{Kind: "two_claimants", Address: "10.8.64.2", Detail: "the runtime shows it claimed by a and b", Repair: "ipamctl whois 10.8.64.2"},
	}
	for i := range 9 {
		w.findings = append(w.findings, api.Finding{Kind: "conflict", Address: fmt.Sprintf("10.8.64.%d", 30+i),
			Detail: fmt.Sprintf("held by sandbox %q, but the netns witness sees it under another on veth%d", "web", i)})
	}
	for _, f := range w.findings {
		if f.Conflict() {
			w.status.Conflicts = append(w.status.Conflicts, f)
		}
	}
	w.serve(t)
	for _, width := range []int{0, 40, 80} {
		s := &screen{terminal: width > 0, columns: width, env: map[string]string{"NO_COLOR": "1"}}
		if code := w.ctl(t, s, "status"); code != exitOK {
			t.Errorf("exit %d: %s", code, s.err.String())
		}
		output := strings.Join(strings.Fields(s.out.String()), " ")
		for _, want := range []string{"10 addresses in conflict: two use or claim it", "In conflict: 10 addresses", "10.8.64.2: the runtime shows it claimed by a and b",
			"10.8.64.36: held by sandbox", "on veth6", "and 2 more: ipamctl doctor", "next: ipamctl whois 10.8.64.2"} {
			if !strings.Contains(output, want) {
				t.Errorf("%d columns: %q is not in\n%s", width, want, s.out.String())
			}
		}
		for _, none := range []string{"10.8.64.99", "10.8.64.37:"} {
			if strings.Contains(output, none) {
				t.Errorf("%d columns: %q is in\n%s", width, none, s.out.String())
			}
		}
	}
}

// The last conflict is reported with who was seen, and whether it is over.
func TestStatusShowsTheLastConflict(t *testing.T) {
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
		if output := strings.Join(strings.Fields(s.out.String()), " "); !strings.Contains(output, "Last conflict "+want) {
			t.Errorf("%q is not in\n%s", want, s.out.String())
		}
	}
	w.status.LastConflict.From, w.status.LastConflict.To, w.status.LastConflictStands = api.Bound, api.Bound, true
	s := &screen{}
	w.serve(t).ctl(t, s, "status")
	if output := strings.Join(strings.Fields(s.out.String()), " "); !strings.Contains(output, "10.8.64.7 2m0s ago, it stands: ipamctl whois") {
		t.Errorf("a conflict that stands on a held address is not in\n%s", s.out.String())
	}
}

// whois and show begin with the conflict, and mark whose each sighting is, with
// port and MAC of both.
func TestF28WhoisAndShowBeginWithTheConflict(t *testing.T) {
	w := runner()
	seen := []api.Sighting{
		{Address: "10.8.64.2", Witness: "netns", Port: "veth9", MAC: "02:00:00:00:00:99", At: before(3 * time.Second), Belongs: api.Stranger},
		{Address: "10.8.64.2", Witness: "netns", Port: "veth1", MAC: "02:42:0a:08:40:02", At: before(time.Hour), Belongs: api.Owner},
	}
	who := w.whois["10.8.64.2"]
	live := who // the history does not have it yet
	live.Witnesses = []api.WitnessAnswer{{Witness: "netns", Answer: "seen", Seen: seen}}
	noted := who
	lease := *who.Lease
	lease.Conflict = seen
	noted.Lease = &lease
	w.leases[0].Conflict = seen
	w.serve(t)
	output := func(args ...string) string {
		s := &screen{}
		if code := w.ctl(t, s, args...); code != exitOK {
			t.Fatalf("%v: exit %d: %s", args, code, s.err.String())
		}
		return strings.Join(strings.Fields(s.out.String()), " ")
	}
	const head = "is in conflict: bound, it belongs to web-1, and another uses it"
	for name, reply := range map[string]api.WhoisReply{"live": live, "noted": noted} {
		w.whois["10.8.64.2"] = reply
		got := output("whois", "10.8.64.2")
		if !strings.HasPrefix(got, "10.8.64.2 "+head) {
			t.Errorf("%s: whois begins %.90q", name, got)
		}
		for _, want := range []string{"stranger port veth9, mac 02:00:00:00:00:99", "owner port veth1, mac 02:42:0a:08:40:02"} {
			if !strings.Contains(got, want) {
				t.Errorf("%s: %q is not in %s", name, want, got)
			}
		}
	}
	if got := output("show", w.leases[0].Sandbox); !strings.HasPrefix(got, "10.8.64.2/24 "+head) ||
		!strings.Contains(got, "netns stranger port veth9, mac 02:00:00:00:00:99") || !strings.Contains(got, "netns owner port veth1, mac 02:42:0a:08:40:02") {
		t.Errorf("show says %s", got)
	}
}
