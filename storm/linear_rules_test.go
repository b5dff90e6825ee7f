package storm_test

import (
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ipamd/ipamd/api"
)

var (
	two   = netip.MustParseAddr("10.8.0.2")
	three = netip.MustParseAddr("10.8.0.3")
)

// sound is a history without a fault: a had .2, bound it and released it; b has
// it after the cooldown, asks again, and lists have it. A release of b's was
// never answered. Each call makes a new one for a case to spoil.
func sound() []call {
	at := func(ms int) moment { return moment(ms) * time.Millisecond }
	return []call{
		0: {Verb: allocating, UID: "a", Asked: at(1), Answered: at(5), Lease: "A", Addr: two},
		1: {Verb: binding, UID: "a", Asked: at(6), Answered: at(7), Lease: "A", Addr: two},
		2: {Verb: listingAll, Asked: at(8), Answered: at(9), Open: map[netip.Addr]ownership{two: {"A", "a", true}}},
		3: {Verb: releasing, UID: "a", Asked: at(10), Answered: at(11), Lease: "A", Addr: two},
		4: {Verb: allocating, UID: "b", Asked: at(2000), Answered: at(2010), Lease: "B", Addr: two, Client: 1},
		5: {Verb: allocating, UID: "b", Asked: at(2020), Answered: at(2030), Lease: "B", Addr: two, Client: 1, Existing: true},
		6: {Verb: listingAll, Asked: at(2040), Answered: at(2050), Open: map[netip.Addr]ownership{two: {"B", "b", false}}},
		7: {Verb: releasing, UID: "b", Asked: at(2060), Answered: never, Lease: "B", Addr: two, Client: 1},
		8: {Verb: listingAll, Asked: at(2070), Answered: at(2080)},
	}
}

// refused is a call that found the pool exhausted.
func refused(c call) call {
	return call{Client: c.Client, Verb: c.Verb, UID: c.UID, Asked: c.Asked, Answered: c.Answered, Refused: api.PoolExhausted}
}

// TestLinearFindsEveryFault spoils the sound history in one way at a time. The
// words and porcupine are two judges: each has to find it by itself.
func TestLinearFindsEveryFault(t *testing.T) {
	const ms = time.Millisecond
	for name, c := range map[string]struct {
		spoil   func([]call) []call
		want    string // how its words begin; "" for none
		crooked bool
	}{
		"sound": {func(h []call) []call { return h }, "", false},
		"two owners": {func(h []call) []call {
			h[2], h[3] = call{Verb: listingAll}, call{Verb: listingAll} // before all
			return h
		}, "two owners", true},
		"the release was asked for too late": {func(h []call) []call { h[3].Asked, h[3].Answered = 2015*ms, 2016*ms; return h }, "two owners", true},
		"the release and the allocate met":   {func(h []call) []call { h[3].Asked, h[3].Answered, h[4].Early = 1800*ms, 2015*ms, true; return h }, "", false},
		"the release was never answered":     {func(h []call) []call { h[3].Answered = never; return h }, "", false},
		"reused inside the cooldown":         {func(h []call) []call { h[3].Asked, h[3].Answered = 1500*ms, 1501*ms; return h }, "reused too soon", true},
		"reused early, and said so":          {func(h []call) []call { h[3].Asked, h[3].Answered, h[4].Early = 1500*ms, 1501*ms, true; return h }, "", false},
		"reused inside the least cooldown":   {func(h []call) []call { h[3].Asked, h[3].Answered, h[4].Early = 1900*ms, 1901*ms, true; return h }, "reused too soon", true},
		"reused by its own sandbox": {func(h []call) []call {
			h[0].UID, h[1].UID, h[3].UID = "b", "b", "b"
			h[2].Open[two] = ownership{"A", "b", true}
			h[3].Asked, h[3].Answered = 1900*ms, 1901*ms
			return h
		}, "", false},
		"never bound, so never cooled": {func(h []call) []call {
			h[1], h[2].Open[two] = call{Verb: listingAll}, ownership{"A", "a", false}
			h[3].Asked, h[3].Answered = 1900*ms, 1901*ms
			return h
		}, "", false},
		"missing at the release":           {func(h []call) []call { h[3].Gone = true; return h }, "missing", true},
		"a retry gets another lease":       {func(h []call) []call { h[5].Lease, h[5].Addr, h[5].Existing = "C", three, false; return h }, "another lease", true},
		"a retry gets another one's lease": {func(h []call) []call { h[5].Lease = "C"; return h }, "another lease", true},
		"the lease is missing in a list":   {func(h []call) []call { h[6].Open = nil; return h }, "missing", true},
		"the list has another lease there": {func(h []call) []call { h[6].Open[two] = ownership{"C", "c", false}; return h }, "missing", true},
		"missing at the end":               {func(h []call) []call { return slices.Delete(h, 7, 8) }, "missing", true},
		"a list that was lost or refused shows nothing": {func(h []call) []call {
			return append(h, call{Verb: listingAll, Asked: 2032 * ms, Answered: never, Left: 2038 * ms, Over: 2500 * ms},
				call{Verb: listingAll, Asked: 2032 * ms, Answered: 2038 * ms, Refused: api.NotReady},
				call{Verb: listingAll, Asked: 2 * ms, Answered: never, Left: 3 * ms})
		}, "", false},
		"missing at the bind": {func(h []call) []call { h[1].Gone = true; return h }, "missing", true},
		"gone, for its release was on its way": {func(h []call) []call {
			h[1].Gone, h[1].Answered, h[2], h[3].Asked = true, 20*ms, call{Verb: listingAll}, 6*ms
			return h
		}, "", false},
		"a lease that a lost call made": {func(h []call) []call {
			h[4].Existing = true
			return append(h, call{Verb: allocating, UID: "b", Asked: 1990 * ms, Answered: never, Client: 2})
		}, "", false},
		"a lease that no call made": {func(h []call) []call { h[4].Existing = true; return h }, "", true},
		"a lost call that came too late to have made it": {func(h []call) []call {
			h[4].Existing = true
			return append(h, call{Verb: allocating, UID: "b", Asked: 2015 * ms, Answered: never, Client: 2})
		}, "", true},
		"a lost call that another's lease cannot come from": {func(h []call) []call {
			h[4].Existing = true
			return append(h, call{Verb: allocating, UID: "c", Asked: 1990 * ms, Answered: never, Client: 2})
		}, "", true},
		"released, and listed as held after that": {func(h []call) []call { h[3].Asked, h[3].Answered = 7*ms+1, 7*ms+2; return h }, "", true},
		"a retry after a lost reply gets another lease": {func(h []call) []call {
			h[4] = call{Verb: allocating, UID: "b", Asked: 2000 * ms, Answered: never}
			h[5].Lease, h[5].Addr, h[5].Existing = "C", three, false
			h[6] = call{Verb: listingAll, Asked: 2040 * ms, Answered: 2050 * ms, Open: map[netip.Addr]ownership{two: {"B", "b", false}, three: {"C", "b", false}}}
			return h[:7]
		}, "two leases", true},
		"a retry after a lost reply, which a list has shown, gets another lease": {func(h []call) []call {
			h[4] = call{Verb: allocating, UID: "b", Asked: 2000 * ms, Answered: never}
			h[5].Lease, h[5].Addr, h[5].Existing = "C", three, false
			h[6] = call{Verb: listingAll, Asked: 2012 * ms, Answered: 2015 * ms, Open: map[netip.Addr]ownership{two: {"B", "b", false}}}
			return h[:7]
		}, "another lease", true},
		"two lost calls made two leases, and neither was released": {func(h []call) []call {
			lost := call{Verb: allocating, UID: "b", Asked: 2000 * ms, Answered: never}
			return append(h[:4], lost, lost, call{Verb: listingAll, Asked: 2040 * ms, Answered: 2050 * ms,
				Open: map[netip.Addr]ownership{two: {"B", "b", false}, three: {"C", "b", false}}})
		}, "two leases", true},
		"a release that was lost, or not: the sandbox has another lease and keeps the first": {func(h []call) []call {
			return append(h[:7], call{Verb: releasing, UID: "b", Asked: 2060 * ms, Answered: never, Lease: "B", Addr: two},
				call{Verb: allocating, UID: "b", Asked: 2070 * ms, Answered: 2080 * ms, Lease: "C", Addr: three},
				call{Verb: listingAll, Asked: 2090 * ms, Answered: 2100 * ms, Open: map[netip.Addr]ownership{two: {"B", "b", false}, three: {"C", "b", false}}})
		}, "two leases", true},
		"one lost call cannot have made two leases": {func(h []call) []call {
			lost := call{Verb: allocating, UID: "b", Asked: 2000 * ms, Answered: never}
			return append(h[:4], lost,
				call{Verb: allocating, UID: "b", Asked: 2020 * ms, Answered: 2030 * ms, Lease: "B", Addr: two, Existing: true},
				call{Verb: releasing, UID: "b", Asked: 2040 * ms, Answered: 2050 * ms, Lease: "B", Addr: two},
				call{Verb: allocating, UID: "b", Asked: 2060 * ms, Answered: 2070 * ms, Lease: "C", Addr: three, Existing: true})
		}, "", true},
		"a lost call that died with ipamd cannot have made it": {func(h []call) []call {
			return append(h[:4],
				call{Verb: allocating, UID: "b", Asked: 1200 * ms, Answered: never, Left: 1210 * ms, Over: 1300 * ms},
				call{Verb: allocating, UID: "b", Asked: 1400 * ms, Answered: 1410 * ms, Refused: api.PoolExhausted},
				call{Verb: allocating, UID: "b", Asked: 2000 * ms, Answered: 2010 * ms, Lease: "B", Addr: two, Existing: true})
		}, "", true},
		"a stranger's lost call, shown by a list inside the least cooldown": {func(h []call) []call {
			return append(h[:4],
				call{Verb: allocating, UID: "b", Asked: 11 * ms, Answered: never},
				call{Verb: listingAll, Asked: 13 * ms, Answered: 15 * ms, Open: map[netip.Addr]ownership{two: {"B", "b", false}}},
				call{Verb: allocating, UID: "b", Asked: 250 * ms, Answered: 260 * ms, Lease: "B", Addr: two, Existing: true, Early: true})
		}, "reused too soon", true},
		"a stranger's lost call, which was no early reuse": {func(h []call) []call {
			return append(h[:4],
				call{Verb: allocating, UID: "b", Asked: 11 * ms, Answered: never},
				call{Verb: allocating, UID: "b", Asked: 250 * ms, Answered: 260 * ms, Lease: "B", Addr: two, Existing: true})
		}, "reused too soon", true},
		"a stranger's lost call, which was an early reuse": {func(h []call) []call {
			return append(h[:4],
				call{Verb: allocating, UID: "b", Asked: 11 * ms, Answered: never},
				call{Verb: allocating, UID: "b", Asked: 250 * ms, Answered: 260 * ms, Lease: "B", Addr: two, Existing: true, Early: true})
		}, "", false},
		"a lost bind that was done, as a list shows": {func(h []call) []call {
			h[1].Answered, h[3].Asked, h[3].Answered = never, 1998*ms, 1999*ms
			return h
		}, "reused too soon", true},
		"a lost bind that was done, as the release shows": {func(h []call) []call {
			h[1].Answered, h[2], h[3].Asked, h[3].Answered, h[3].Bound = never, call{Verb: listingAll}, 1998*ms, 1999*ms, true
			return h
		}, "reused too soon", true},
		"a lost bind that was done, and the address cooled": {func(h []call) []call { h[1].Answered = never; return h }, "", false},
		"a lost bind that nothing shows": {func(h []call) []call {
			h[1].Answered, h[2], h[3].Asked, h[3].Answered = never, call{Verb: listingAll}, 1998*ms, 1999*ms
			return h
		}, "", false},
		"bound, and no call bound it":           {func(h []call) []call { h[6].Open[two] = ownership{"B", "b", true}; return h }, "", true},
		"bound, and a list does not show it":    {func(h []call) []call { h[2].Open[two] = ownership{"A", "a", false}; return h }, "", true},
		"refused, though it has a lease":        {func(h []call) []call { h[5] = refused(h[5]); return h }, "refused", true},
		"refused, while it was released":        {func(h []call) []call { h[5] = refused(h[5]); h[7].Asked = 2025 * ms; h[6].Open = nil; return h }, "", false},
		"refused, before it was given anything": {func(h []call) []call { h[4].Asked, h[5] = 1990*ms, refused(h[4]); return h }, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			calls := c.spoil(sound())
			expect(t, blame(calls, tightRest), c.want)
			illegal, unknown := crooked(calls, tightRest, judging)
			if len(illegal) > 0 != c.crooked || len(unknown) > 0 {
				t.Errorf("porcupine refuses %q and gives up on %q, want a refusal: %v", illegal, unknown, c.crooked)
			}
		})
	}
}

// TestATrialNeedsItsFloors: a run in which too little happened proves nothing.
func TestATrialNeedsItsFloors(t *testing.T) {
	var floor, half tally
	for i, c := range floor.all() {
		*c.did, *half.all()[i].did = 10, 5
	}
	if got := floor.below(floor); len(got) > 0 {
		t.Errorf("what is enough is not: %q", got)
	}
	if got := (tally{}).below(floor); len(got) != len(floor.all()) {
		t.Errorf("of %d floors it misses %q", len(floor.all()), got)
	}
	if got := floor.in(30 * time.Second); got != half {
		t.Errorf("half a minute has %+v", got)
	}
}

// TestLinearForgetsNoRest: a lease that was never bound does not end the rest
// of the address. The sandbox comes back for its address, releases it unbound, and a stranger has it
// inside the cooldown.
func TestLinearForgetsNoRest(t *testing.T) {
	const ms = time.Millisecond
	calls := []call{
		{Verb: allocating, UID: "a", Asked: 1 * ms, Answered: 2 * ms, Lease: "A", Addr: two},
		{Verb: binding, UID: "a", Asked: 3 * ms, Answered: 4 * ms, Lease: "A", Addr: two},
		{Verb: releasing, UID: "a", Asked: 5 * ms, Answered: 6 * ms, Lease: "A", Addr: two},
		{Verb: allocating, UID: "a", Asked: 7 * ms, Answered: 8 * ms, Lease: "B", Addr: two},
		{Verb: releasing, UID: "a", Asked: 9 * ms, Answered: 10 * ms, Lease: "B", Addr: two},
		{Verb: allocating, UID: "c", Asked: 11 * ms, Answered: 12 * ms, Lease: "C", Addr: two},
	}
	expect(t, blame(calls, tightRest), "reused too soon")
	if illegal, _ := crooked(calls, tightRest, judging); len(illegal) == 0 {
		t.Error("porcupine takes it")
	}
}

// TestLinearWithoutTheBook: what is refused while the files are away did not happen,
// but for what was under way when they went; and nothing is acknowledged without them.
func TestLinearWithoutTheBook(t *testing.T) {
	const ms = time.Millisecond
	refused := func(asked, answered moment) call {
		return call{Verb: allocating, UID: "b", Asked: asked * ms, Answered: answered * ms, Refused: api.BookReadonly}
	}
	whole, index := []away{{100 * ms, 200 * ms, false}}, []away{{100 * ms, 200 * ms, true}}
	for name, c := range map[string]struct {
		aways []away
		calls []call
		sure  []bool
	}{
		"under way as they went":            {whole, []call{refused(99, 101)}, []bool{false}},
		"the first one":                     {whole, []call{refused(110, 120)}, []bool{false}},
		"behind the first one":              {whole, []call{refused(110, 120), refused(121, 130)}, []bool{false, true}},
		"beside the first one":              {whole, []call{refused(110, 120), refused(119, 130)}, []bool{false, false}},
		"answered as they came back":        {whole, []call{refused(110, 120), refused(121, 201)}, []bool{false, false}},
		"the index alone":                   {index, []call{refused(110, 120)}, []bool{true}},
		"the index alone, and it came back": {index, []call{refused(110, 201)}, []bool{false}},
		"for no known reason":               {nil, []call{refused(110, 120)}, []bool{false}},
	} {
		t.Run(name, func(t *testing.T) {
			unsure(c.calls, c.aways)
			for i, sure := range c.sure {
				if got := c.calls[i]; got.lost() == sure || got.lost() && got.Over != got.Left {
					t.Errorf("call %d is %+v, sure %v", i, got, sure)
				}
			}
		})
	}
	given := call{Verb: allocating, UID: "b", Asked: 110 * ms, Answered: 120 * ms, Lease: "B", Addr: three}
	again, before := given, given
	again.Existing, before.Asked = true, 99*ms
	for name, c := range map[string]struct {
		aways []away
		call  call
		want  string
	}{
		"given":                  {whole, given, "acknowledged without the book"},
		"given before":           {whole, before, ""},
		"answered again":         {whole, again, ""},
		"without the index":      {index, given, ""},
		"the book was there":     {nil, given, ""},
		"refused, as it has to ": {whole, refused(110, 120), ""},
	} {
		t.Run(name, func(t *testing.T) { expect(t, acknowledged([]call{c.call}, c.aways), c.want) })
	}
}

// TestLinearLeavesEvidence: a fault that is found can be looked at.
func TestLinearLeavesEvidence(t *testing.T) {
	calls := sound()
	calls[6].Open = nil
	illegal, _ := crooked(calls, tightRest, judging)
	where, err := evidence(t.TempDir(), 7, calls, tightRest, illegal)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(where, "seed-7-") {
		t.Errorf("%s does not name the seed", where)
	}
	for file, want := range map[string]string{"history.jsonl": `"Lease":"B"`, two.String() + ".html": "lease B"} {
		if b, err := os.ReadFile(filepath.Join(where, file)); err != nil || !strings.Contains(string(b), want) {
			t.Errorf("%s: %v, and no %q in %d bytes", file, err, want, len(b))
		}
	}
}
