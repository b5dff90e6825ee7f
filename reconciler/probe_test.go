package reconciler

import (
	"encoding/json"
	"net/netip"
	"testing"
	"time"

	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/ipam"
)

func noContainer(*ipam.Lease) bool { return false }

func evidenceOf(witnesses ...census.Witness) json.RawMessage {
	var seen []census.Sighting
	for _, w := range witnesses {
		seen = append(seen, census.Sighting{Addr: two, Witness: w})
	}
	b, err := json.Marshal(seen)
	if err != nil {
		panic(err) // sightings always marshal
	}
	return b
}

// Who is asked about: whom a probe has seen, then or now.
func TestWhoIsAskedAbout(t *testing.T) {
	unseen := func(netip.Addr) census.Answer { return census.Answer{} }
	answers := func(netip.Addr) census.Answer {
		return census.Answer{Seen: []census.Sighting{{Witness: census.Neighbour}, {Witness: census.Probe}}}
	}
	for name, tt := range map[string]struct {
		evidence json.RawMessage
		hold     string
		about    func(netip.Addr) census.Answer
		state    ipam.State
		asked    bool
	}{
		"a probe saw it then":             {evidenceOf(census.Probe), "", unseen, ipam.Quarantined, true},
		"a probe among others":            {evidenceOf(census.Netns, census.Probe), "", unseen, ipam.Quarantined, true},
		"a probe sees it now":             {evidenceOf(census.Netns), "", answers, ipam.Quarantined, true},
		"another witness saw it":          {evidenceOf(census.Netns), "", unseen, ipam.Quarantined, false},
		"evidence that cannot be read":    {json.RawMessage(`{"witness":7}`), "", unseen, ipam.Quarantined, false},
		"an operator quarantined it":      {evidenceOf(census.Probe), "a printer", answers, ipam.Quarantined, false},
		"it is bound":                     {evidenceOf(census.Probe), "", answers, ipam.Bound, false},
		"without evidence and unseen now": {nil, "", unseen, ipam.Quarantined, false},
	} {
		ask, wait := toProbe([]*ipam.Lease{{Addr: two, State: tt.state, Evidence: tt.evidence, Hold: tt.hold}}, tt.about, netip.Addr{})
		if (len(ask) == 1) != tt.asked || len(wait) != 0 {
			t.Errorf("%s: asks %v, lets %v wait", name, ask, wait)
		}
	}
}

// The questions of a pass are bounded, and every address has its turn before
// one has its second.
func TestProbesGoRound(t *testing.T) {
	const n = 2*probesMost + 10
	var book []*ipam.Lease
	for i, a := 0, two; i < n; i, a = i+1, a.Next() {
		book = append(book, &ipam.Lease{Addr: a, State: ipam.Quarantined, Evidence: evidenceOf(census.Probe)})
	}
	times := make(map[netip.Addr]int)
	var last netip.Addr
	for pass := range 9 {
		ask, wait := toProbe(book, func(netip.Addr) census.Answer { return census.Answer{} }, last)
		if len(ask) != probesMost || len(ask)+len(wait) != n {
			t.Fatalf("pass %d asks about %d, lets %d wait", pass, len(ask), len(wait))
		}
		for _, a := range ask {
			times[a]++
			last = a
		}
		for _, l := range book {
			if fair := (pass + 1) * probesMost / n; times[l.Addr] < fair || times[l.Addr] > fair+1 {
				t.Fatalf("after pass %d %s was asked about %d times", pass, l.Addr, times[l.Addr])
			}
		}
	}
}

// A pass that could not ask about an address counts for nothing, and takes
// nothing back.
func TestAnAddressThatWasNotProbedIsNotUnseen(t *testing.T) {
	q := []*ipam.Lease{{ID: "q", Addr: two, State: ipam.Quarantined, Evidence: evidenceOf(census.Probe)}}
	unasked := map[netip.Addr]bool{two: true}
	var known map[string]unseen
	for _, p := range []struct {
		at      time.Duration
		unasked map[netip.Addr]bool
		ends    bool
	}{{0, nil, false}, {5, unasked, false}, {10, nil, false}, {20, unasked, false}, {25, unasked, false}, {30, nil, true}} {
		var actions []*ipam.Lease
		actions, known = unseenLong(q, empty(), true, noContainer, p.unasked, known, enough, after(p.at*time.Minute))
		if (len(actions) == 1) != p.ends {
			t.Errorf("after %d minutes: %d actions", p.at, len(actions))
		}
	}
}

// F12: what an operator holds, or is there for an unknown reason, stays quarantined. A word
// in the evidence is no hold, whatever it says.
func TestF12AnOperatorsHoldStands(t *testing.T) {
	for _, q := range [][]*ipam.Lease{
		{{ID: "q", Addr: two, State: ipam.Quarantined, Hold: "a printer"}},
		{{ID: "q", Addr: two, State: ipam.Quarantined, Hold: "a printer", Evidence: evidenceOf(census.Netns)}},
		{{ID: "q", Addr: two, State: ipam.Quarantined, Evidence: json.RawMessage(`7`)}},
	} {
		var known map[string]unseen
		for i := range 10 {
			var actions []*ipam.Lease
			if actions, known = unseenLong(q, empty(), true, noContainer, nil, known, enough, after(time.Duration(i)*time.Hour)); len(actions) != 0 {
				t.Errorf("%+v ended after %d hours", q[0], i)
			}
		}
	}
}
