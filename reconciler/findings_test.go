package reconciler

import (
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/ipam/ipamtest"
)

// asWorld is what doctor sees of a world of lines.
func (w *world) asWorld() World {
	return World{Leases: w.book, Census: w.census, Runtime: w.runtime, Place: place,
		Blockers: func(*ipam.Lease) []string { return nil }, Now: w.now}
}

// full is a world whose last pass could not quarantine addr.
func full(addr string) func(*World) {
	return func(w *World) {
		w.Last = &Report{Findings: []Finding{{Kind: quarantineFull, Addr: netip.MustParseAddr(addr), Detail: "it is not quarantined", Since: boot.Wall, Repair: "ipamctl quarantine ls"}}}
	}
}

// Each disagreement of book, wire and runtime, with the words and the verb
// that a person gets.
func TestDiagnoseWorkloads(t *testing.T) {
	const a2 = "10.8.64.2"
	type lines = []line
	for name, tt := range map[string]struct {
		world  lines
		more   func(*World)
		want   []string // "kind address", in order
		says   string   // in the first one's detail
		repair string   // in the first one's verb
	}{
		"all agree":                           {lines{lease(a2, bound, "A", ipamtest.Records("c1")), container("c1", owner("A"), ip(a2), runs), container("c2", owner("A"))}, nil, nil, "", ""},
		"bound, its container claims nothing": {lines{lease(a2, bound, "A", ipamtest.Records("c1")), container("c1")}, nil, nil, "", ""},

		"a workload without a lease":            {lines{container("c1", owner("A"), ip(a2), runs)}, nil, []string{"unleased 10.8.64.2"}, `sandbox "A" in container default/c1, which claims it: it holds no lease`, "ipamctl reconcile"},
		"one on an address that cools":          {lines{lease(a2, cooling, "B"), container("c1", owner("A"), ip(a2))}, nil, []string{"unleased 10.8.64.2"}, `sandbox "A"`, "ipamctl reconcile"},
		"one that is older than the quarantine": {lines{lease(a2, quarantine, "", age(0)), container("c1", owner("A"), ip(a2))}, nil, []string{"quarantined 10.8.64.2", "unleased 10.8.64.2"}, "", "whois"},
		"one on an operator's quarantine":       {lines{lease(a2, quarantine, "", setAside), container("c1", owner("A"), ip(a2))}, nil, []string{"quarantined 10.8.64.2", "unleased 10.8.64.2"}, "", ""},
		"one without an owner":                  {lines{container("c1", ip(a2))}, nil, []string{"unleased 10.8.64.2"}, "container default/c1, which claims it: it holds no lease of it and names no owner", "ipamctl whois 10.8.64.2"},
		"one on the gateway":                    {lines{container("c1", owner("A"), ip("10.8.64.1"))}, nil, []string{"unleased 10.8.64.1"}, "it is the gateway", "whois"},
		"one on an excluded address":            {lines{container("c1", owner("A"), ip("10.8.64.200"))}, nil, []string{"unleased 10.8.64.200"}, "excluded", "whois"},
		"one on no address of ours":             {lines{container("c1", owner("A"), ip("192.0.2.1"))}, nil, nil, "", ""},
		"the host on an excluded address":       {lines{seen(host, "10.8.64.200")}, nil, nil, "", ""},

		"two claim a free address": {lines{container("c1", owner("A"), ip(a2)), container("c2", owner("B"), ip(a2))}, nil, []string{"two_claimants 10.8.64.2"},
			`sandbox "A" in container default/c1 and sandbox "B" in container default/c2`, "whois"},
		"two claim a held one": {lines{lease(a2, bound, "A", ipamtest.Records("c1")), container("c1", owner("A"), ip(a2)), container("c2", owner("B"), ip(a2))}, nil,
			[]string{"two_claimants 10.8.64.2"}, "a person has to say", "whois"},
		"another owner": {lines{lease(a2, bound, "A", ipamtest.Records("c1")), container("c2", owner("B"), ip(a2))}, nil, []string{"conflict 10.8.64.2"},
			`held by sandbox "A", but the runtime witness sees it under another in container default/c2`, "whois"},

		"its own port, another MAC": {lines{lease(a2, bound, "A", on("veth1"), mac("fe:01")), seen(netns, a2, port("veth1"), hw("02:01")), seen(neighbour, a2, port("veth1"), hw("02:01"))}, nil, []string{"binding_differs 10.8.64.2"},
			`sandbox "A" is bound with MAC fe:01, and the netns witness sees it with 02:01 on veth1`, "ipamctl bind lease of 10.8.64.2 --mac 02:01"},
		"its own port, another MAC, its container runs": {lines{lease(a2, bound, "A", on("veth1"), mac("fe:01"), ipamtest.Records("c1")), container("c1", ip(a2), runs), seen(netns, a2, port("veth1"), hw("02:01"))}, nil, []string{"binding_differs 10.8.64.2"}, "", "ipamctl bind"},
		"its own port, another MAC, its container is gone": {lines{lease(a2, bound, "A", on("veth1"), mac("fe:01"), ipamtest.Records("c1")), seen(netns, a2, port("veth1"), hw("02:01"))}, nil, []string{"conflict 10.8.64.2"},
			"MAC 02:01, not fe:01", "whois"},
		"another port, its own MAC": {lines{lease(a2, bound, "A", on("veth1"), mac("02:01")), seen(netns, a2, port("veth2"), hw("02:01"))}, nil, []string{"conflict 10.8.64.2"},
			"on veth2 (02:01): the recorded MAC 02:01, port veth2, not veth1", "whois"},
		"its own port, and a stranger": {lines{lease(a2, bound, "A", on("veth1"), mac("fe:01")), seen(netns, a2, port("veth1"), hw("02:01")), seen(netns, a2, port("veth2"), hw("02:02"))}, nil, []string{"conflict 10.8.64.2"}, "", "whois"},
		"a stray on the wire": {lines{lease(a2, bound, "A", ipamtest.Records("c1"), on("veth1")), seen(netns, a2, port("veth1"))}, nil, []string{"stray 10.8.64.2"},
			"the runtime shows no container of it, yet the netns witness sees it on veth1", "whois"},
		"a late one on the wire": {lines{lease(a2, reserved, "A", age(11*time.Minute)), seen(netns, a2)}, nil, []string{"reserved_past_deadline 10.8.64.2", "stray 10.8.64.2"}, "not bound it within 10m", "ipamctl release"},

		"releasing, blocked": {lines{lease(a2, releasing, "A", age(2*time.Hour), ipamtest.Records("c1"))}, func(w *World) {
			w.Blockers = func(l *ipam.Lease) []string { return []string{"container default/c1 is there", "port veth1"} }
		}, []string{"releasing_stuck 10.8.64.2"}, "not confirmed: container default/c1 is there; port veth1", "ipamctl show"},
		"releasing, for an unknown reason": {lines{lease(a2, releasing, "A", age(2*time.Hour))}, func(w *World) {
			w.Blockers = func(*ipam.Lease) []string { return nil }
		}, []string{"releasing_stuck 10.8.64.2"}, "is not confirmed", "ipamctl show"},

		"G7: a record of a released sandbox": {lines{lease(a2, cooling, "A"), container("c1", owner("A")), container("c2", owner("A"))}, nil, []string{"record_ignored 10.8.64.2"},
			`container default/c1, and 1 more, carries the name of sandbox "A" and has no task`, "ctr -n default containers info c1"},
		"a record of a released sandbox that has another lease":      {lines{lease(a2, cooling, "A"), lease("10.8.64.3", reserved, "A", age(time.Minute)), container("c1", owner("A"))}, nil, nil, "", ""},
		"a record of a released sandbox, its task is not known":      {lines{lease(a2, cooling, "A"), container("c1", owner("A"), func(b *body) { b.Note = "containerd could not tell" })}, nil, nil, "", ""},
		"a record of a released sandbox that carries its lease's id": {lines{lease(a2, cooling, "A"), container("c1", leased("lease of "+a2))}, nil, nil, "", ""},

		"a row that its pool would not give":    {lines{lease("10.8.64.200", bound, "A", ipamtest.Records("c1")), container("c1")}, nil, []string{"outside_pool 10.8.64.200"}, "it is excluded", "ipamctl show"},
		"a row that its pool keeps for another": {lines{lease("10.8.64.77", bound, "A", ipamtest.Records("c1")), container("c1")}, nil, []string{"kept_for_another 10.8.64.77"}, `keeps it for sandbox "db"`, "ipamctl show"},
		"a row that its pool keeps for it":      {lines{lease("10.8.64.77", bound, "db", ipamtest.Records("c1")), container("c1")}, nil, nil, "", ""},
		"a row of no pool":                      {lines{lease("192.0.2.1", cooling, "A")}, nil, []string{"outside_pool 192.0.2.1"}, "in no pool", "ipamctl show"},

		"a bound one is missed since a while": {lines{lease(a2, bound, "A", ipamtest.Records("c1"))}, func(w *World) {
			w.Last = &Report{AbsentSince: map[string]time.Time{"lease of " + a2: boot.Wall.Add(-time.Minute)}}
		}, []string{"bound_unseen 10.8.64.2"}, `no witness sees sandbox "A"`, "ipamctl show"},
		"one that was not quarantined":    {lines{seen(netns, a2)}, full(a2), []string{"foreign 10.8.64.2", "quarantine_full 10.8.64.2"}, "", "whois"},
		"one that cools, not quarantined": {lines{lease(a2, cooling, "B"), seen(netns, a2)}, full(a2), []string{"foreign 10.8.64.2", "quarantine_full 10.8.64.2"}, "", "whois"},
		"one that is not seen any more":   {nil, full(a2), nil, "", ""},
		"one that was quarantined since":  {lines{lease(a2, quarantine, ""), seen(netns, a2)}, full(a2), []string{"quarantined 10.8.64.2"}, "", "whois"},
		"one that another holds since":    {lines{lease(a2, bound, "A", ipamtest.Records("c1")), container("c1", owner("A"), ip(a2), runs)}, full(a2), nil, "", ""},
		"another finding of the pass before": {lines{lease(a2, bound, "A", ipamtest.Records("c1")), container("c1")}, func(w *World) {
			w.Last = &Report{Findings: []Finding{{Kind: "foreign", Addr: netip.MustParseAddr(a2)}}}
		}, nil, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := worldOf(tt.world...).asWorld()
			if tt.more != nil {
				tt.more(&w)
			}
			found := Diagnose(w)
			got := kinds(t, found)
			for _, f := range found {
				if f.Kind == "bound_unseen" && !f.Since.Equal(boot.Wall.Add(-time.Minute)) {
					t.Errorf("it is unseen since %v", f.Since)
				}
			}
			if !slices.Equal(got, tt.want) {
				t.Fatalf("found %q, want %q", got, tt.want)
			}
			if len(found) > 0 && (!strings.Contains(found[0].Detail, tt.says) || !strings.Contains(found[0].Repair, tt.repair)) {
				t.Errorf("%s says %q, repaired by %q; want %q and %q in them", got[0], found[0].Detail, found[0].Repair, tt.says, tt.repair)
			}
		})
	}
}

// kinds is the kind of each finding, and its address, where it has one; none lacks what a person needs.
func kinds(t *testing.T, found []Finding) (all []string) {
	t.Helper()
	for _, f := range found {
		kind := f.Kind
		if f.Addr.IsValid() {
			kind = fmt.Sprint(f.Kind, " ", f.Addr)
		}
		all = append(all, kind)
		if f.Detail == "" || f.Repair == "" || f.Since.IsZero() {
			t.Errorf("%s says %q, since %v, repaired by %q", kind, f.Detail, f.Since, f.Repair)
		}
	}
	return all
}

// What a pass reports doctor finds too, by the same words.
func TestDoctorAndPassAgree(t *testing.T) {
	w := worldOf(
		container("c1", owner("A"), ip("10.8.64.2")), container("c2", owner("B"), ip("10.8.64.2")),
		lease("10.8.64.3", bound, "C", ipamtest.Records("c3")), container("c4", owner("D"), ip("10.8.64.3")),
		lease("10.8.64.4", bound, "E", ipamtest.Records("c5")), seen(netns, "10.8.64.4"),
		lease("10.8.64.5", cooling, "F", age(0)), container("c6", owner("G"), ip("10.8.64.5")),
		lease("10.8.64.6", bound, "H", on("veth6"), mac("fe:06")), seen(netns, "10.8.64.6", port("veth6"), hw("02:06")),
	)
	found := Diagnose(w.asWorld())
	if d := w.decide(); !reflect.DeepEqual(d.findings, found) || len(found) != 5 {
		t.Errorf("a pass reports\n\t%+v\nand doctor finds\n\t%+v", d.findings, found)
	}
}
