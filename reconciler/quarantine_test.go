package reconciler

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/ipam"
)

const enough = 15 * time.Minute

var (
	two   = netip.MustParseAddr("10.8.64.2")
	three = netip.MustParseAddr("10.8.64.3")
	boot  = ipam.Stamp{Wall: time.Unix(1_750_000_000, 0), Boottime: time.Hour, BootID: "one"}
)

func after(d time.Duration) ipam.Stamp {
	s := boot
	s.Wall, s.Boottime = s.Wall.Add(d), s.Boottime+d
	return s
}

// unseen is a complete census of nothing; seenAt one of an address; silentCensus one
// that a witness is missing from.
func empty() census.Census { return census.Census{} }

func seenAt(a netip.Addr) census.Census {
	return census.Census{Seen: map[netip.Addr][]census.Sighting{a: {{Addr: a, Witness: census.Netns, Port: "veth1"}}}}
}

func silentCensus() census.Census {
	return census.Census{Silent: []census.Silence{{Witness: census.Runtime, Reason: "not there", Since: boot.Wall}}}
}

// When a quarantine ends: not seen for long enough, over at least three whole and complete
// censuses, without one sighting in between.
func TestQuarantineEnds(t *testing.T) {
	type pass struct {
		at     time.Duration
		census census.Census
		news   bool // it reads nothing anew
	}
	q := &ipam.Lease{ID: "q", Addr: two, State: ipam.Quarantined}
	former := func(p ipam.Plug) *ipam.Lease {
		return &ipam.Lease{ID: "q", Addr: two, State: ipam.Quarantined, Reason: ipam.Rebuilt, Sandbox: "a", Plug: p}
	}
	minutes := func(c census.Census, at ...time.Duration) (out []pass) {
		for _, m := range at {
			out = append(out, pass{at: m * time.Minute, census: c})
		}
		return out
	}
	news := func(c census.Census, at ...time.Duration) []pass {
		out := minutes(c, at...)
		for i := range out {
			out[i].news = true
		}
		return out
	}
	join := func(parts ...[]pass) (out []pass) {
		for _, p := range parts {
			out = append(out, p...)
		}
		return out
	}
	for name, tt := range map[string]struct {
		lease  *ipam.Lease
		passes []pass
		ends   int // the pass that ends it, from 1; 0: none
	}{
		"three unseen censuses over the time":      {q, minutes(empty(), 0, 7, 15), 3},
		"three unseen censuses, a moment too soon": {q, []pass{{at: 0}, {at: time.Minute}, {at: enough - 1}}, 0},
		"two unseen censuses, however far apart":   {q, minutes(empty(), 0, 60), 0},
		"one unseen census":                        {q, minutes(empty(), 60), 0},
		"seen all along":                           {q, minutes(seenAt(two), 0, 15, 30, 45), 0},
		"seen once in between starts all over":     {q, join(minutes(empty(), 0, 7), minutes(seenAt(two), 14), minutes(empty(), 15, 22, 29, 30)), 7},
		"another address is seen":                  {q, minutes(seenAt(three), 0, 7, 15), 3},
		"never a complete census":                  {q, minutes(silentCensus(), 0, 15, 30, 45), 0},
		"a silence counts for nothing":             {q, join(minutes(empty(), 0, 7), minutes(silentCensus(), 15, 20), minutes(empty(), 21)), 5},
		"a silence takes nothing back":             {q, join(minutes(empty(), 0), minutes(silentCensus(), 1), minutes(empty(), 7, 15)), 4},
		"news count for nothing":                   {q, join(news(empty(), 0, 7), minutes(empty(), 15, 16), news(empty(), 30, 31), minutes(empty(), 32)), 7},
		"news alone":                               {q, news(empty(), 0, 15, 30, 45), 0},
		"a sighting in news starts all over":       {q, join(minutes(empty(), 0, 7), news(seenAt(two), 8), minutes(empty(), 15, 22, 30)), 6},
		"a lease in another state":                 {&ipam.Lease{ID: "q", Addr: two, State: ipam.Bound}, minutes(empty(), 0, 15, 30), 0},
		"of before a rebuild":                      {former(ipam.Plug{Boot: boot.BootID}), minutes(empty(), 0, 7, 15), 3},
		"of before a rebuild, never seen":          {former(ipam.Plug{Boot: boot.BootID, Unseen: true}), minutes(empty(), 0, 15, 30, 45), 0},
		"and the machine was booted since":         {former(ipam.Plug{Boot: "the boot before", Unseen: true}), minutes(empty(), 0, 7, 15), 3},
		"never seen, and released":                 {&ipam.Lease{ID: "q", Addr: two, State: ipam.Quarantined, Sandbox: "a", Plug: ipam.Plug{Boot: boot.BootID, Unseen: true}}, minutes(empty(), 0, 7, 15), 3},
		"the clock stands still":                   {q, minutes(empty(), 0, 0, 0, 0), 0},
	} {
		t.Run(name, func(t *testing.T) {
			var known map[string]unseen
			for i, p := range tt.passes {
				var actions []*ipam.Lease
				actions, known = unseenLong([]*ipam.Lease{tt.lease}, p.census, !p.news, noContainer, nil, known, enough, after(p.at))
				if (len(actions) == 1) != (i+1 == tt.ends) {
					t.Fatalf("pass %d, after %v: %d actions, want it to end in pass %d", i+1, p.at, len(actions), tt.ends)
				}
			}
		})
	}
}

// A reboot proves nothing about the time before it; being unseen goes on
// counting from the boot.
func TestQuarantineAcrossAReboot(t *testing.T) {
	q := []*ipam.Lease{{ID: "q", Addr: two, State: ipam.Quarantined}}
	known := map[string]unseen{"q": {since: boot, censuses: leastCensuses}}
	soon := ipam.Stamp{Wall: boot.Wall.Add(24 * time.Hour), Boottime: time.Minute, BootID: "two"}
	if actions, _ := unseenLong(q, empty(), true, noContainer, nil, known, enough, soon); len(actions) != 0 {
		t.Error("a minute after a reboot the quarantine ended by the wall clock")
	}
	soon.Boottime = enough
	if actions, _ := unseenLong(q, empty(), true, noContainer, nil, known, enough, soon); len(actions) != 1 {
		t.Error("fifteen minutes after a reboot it did not end")
	}
}

// What is remembered belongs to a lease, and is forgotten with it: another
// quarantine of the same address starts again.
func TestTheTimeUnseenBelongsToTheLease(t *testing.T) {
	first := &ipam.Lease{ID: "first", Addr: two, State: ipam.Quarantined}
	second := &ipam.Lease{ID: "second", Addr: two, State: ipam.Quarantined}
	var known map[string]unseen
	for range 3 {
		_, known = unseenLong([]*ipam.Lease{first}, empty(), true, noContainer, nil, known, enough, after(0))
	}
	actions, known := unseenLong([]*ipam.Lease{second}, empty(), true, noContainer, nil, known, enough, after(time.Hour))
	if len(actions) != 0 || len(known) != 1 || known["second"].censuses != 1 {
		t.Errorf("the second quarantine began with %+v, %d actions", known, len(actions))
	}
	if actions, known = unseenLong(nil, empty(), true, noContainer, nil, known, enough, after(time.Hour)); len(actions) != 0 || len(known) != 0 {
		t.Errorf("without quarantines %+v is remembered, %d actions", known, len(actions))
	}
}

// Random passes over a few addresses: nothing ends that was seen, or that
// could not be asked about, within the time; what ends was not seen in at least
// three complete censuses; what is remembered is bounded.
func TestQuarantineRandomly(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type past struct {
			begun    time.Duration
			complete int
			empty    bool
		}
		model := make(map[string]*past)
		var book []*ipam.Lease
		for i := range 4 {
			l := &ipam.Lease{ID: fmt.Sprint("q", i), Addr: netip.AddrFrom4([4]byte{10, 8, 64, byte(2 + i)}), State: ipam.Quarantined}
			book, model[l.ID] = append(book, l), &past{}
		}
		var known map[string]unseen
		var now time.Duration
		for range rapid.IntRange(1, 40).Draw(t, "passes") {
			now += time.Duration(rapid.IntRange(0, 8).Draw(t, "minutes")) * time.Minute
			c := census.Census{Seen: make(map[netip.Addr][]census.Sighting)}
			if rapid.IntRange(0, 4).Draw(t, "silent") == 0 {
				c.Silent = silentCensus().Silent
			}
			for _, l := range book {
				p := model[l.ID]
				switch {
				case rapid.IntRange(0, 5).Draw(t, "seen") == 0:
					c.Seen[l.Addr] = []census.Sighting{{Addr: l.Addr}}
					*p = past{}
				case c.Complete() && !p.empty:
					*p = past{begun: now, complete: 1, empty: true}
				case c.Complete():
					p.complete++
				}
			}
			var actions []*ipam.Lease
			actions, known = unseenLong(book, c, true, noContainer, nil, known, enough, after(now))
			ended := make(map[string]bool)
			for _, a := range actions {
				ended[a.ID] = true
			}
			for id, p := range model {
				should := c.Complete() && p.empty && p.complete >= leastCensuses && now-p.begun >= enough
				if ended[id] != should {
					t.Fatalf("%s ends: %v, want %v (unseen since %v in %d censuses, now %v)", id, ended[id], should, p.begun, p.complete, now)
				}
			}
			if len(known) > len(book) {
				t.Fatalf("%d are remembered of %d", len(known), len(book))
			}
		}
	})
}
