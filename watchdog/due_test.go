package watchdog

import (
	"testing"
	"time"

	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/ipam"
)

func found(kind string, at ...any) obstacle {
	o := obstacle{Blocker: Blocker{Kind: kind}}
	for _, a := range at {
		switch a := a.(type) {
		case Container:
			o.container = a
		case census.Witness:
			o.witness = a
		case string:
			o.port = a
		}
	}
	return o
}

// News asks for an attempt only when all that stood in the way may have gone.
func TestLifted(t *testing.T) {
	quiet := newsCounts{5, 5}
	for name, tt := range map[string]struct {
		found  []obstacle
		counts newsCounts
		there  bool // the container, on the board
		seen   []census.Sighting
		mute   []census.Silence
		want   bool
	}{
		"nothing was found":                   {nil, quiet, false, nil, nil, true},
		"a container, and no news":            {[]obstacle{found(KindContainer, c1)}, quiet, false, nil, nil, false},
		"a container that left the board":     {[]obstacle{found(KindContainer, c1)}, newsCounts{6, 5}, false, nil, nil, true},
		"a container that is still on it":     {[]obstacle{found(KindContainer, c1)}, newsCounts{6, 5}, true, nil, nil, false},
		"a task, and no news":                 {[]obstacle{found(KindTask)}, newsCounts{5, 6}, false, nil, nil, false},
		"a task, and news":                    {[]obstacle{found(KindTask)}, newsCounts{6, 5}, false, nil, nil, true},
		"a port, and no news of ports":        {[]obstacle{found(KindPort)}, newsCounts{6, 5}, false, nil, nil, false},
		"a port, and news of ports":           {[]obstacle{found(KindPort)}, newsCounts{5, 6}, false, nil, nil, true},
		"a port that is still one":            {[]obstacle{found(KindPort, "veth1")}, newsCounts{5, 6}, false, nil, nil, false},
		"a port that left":                    {[]obstacle{found(KindPort, "veth2")}, newsCounts{5, 6}, false, nil, nil, true},
		"a port that left, and no news":       {[]obstacle{found(KindPort, "veth2")}, quiet, false, nil, nil, false},
		"a container and a port, news of one": {[]obstacle{found(KindContainer, c1), found(KindPort)}, newsCounts{6, 5}, false, nil, nil, false},
		"a sighting that stands":              {[]obstacle{found(KindSighting, census.Netns)}, quiet, false, []census.Sighting{{Witness: census.Netns}}, nil, false},
		"a sighting that went":                {[]obstacle{found(KindSighting, census.Netns)}, quiet, false, nil, nil, true},
		"another witness sees it now":         {[]obstacle{found(KindSighting, census.Netns)}, quiet, false, []census.Sighting{{Witness: census.Probe}}, nil, true},
		"a silence that stands":               {[]obstacle{found(KindSilent, census.Host)}, quiet, false, nil, []census.Silence{{Witness: census.Host}}, false},
		"a silence that ended":                {[]obstacle{found(KindSilent, census.Host)}, quiet, false, nil, nil, true},
		"news could not be read":              {[]obstacle{found(KindSilent)}, quiet, false, nil, nil, false},
		"the runtime is still lost":           {[]obstacle{found(KindRuntime)}, newsCounts{6, 5}, false, nil, []census.Silence{{Witness: census.Runtime}}, false},
		"the runtime is back":                 {[]obstacle{found(KindRuntime)}, newsCounts{6, 5}, false, nil, nil, true},
		"the runtime did not answer":          {[]obstacle{found(KindRuntime)}, quiet, false, nil, nil, false},
		"the owner keeps it":                  {[]obstacle{found(KindOwner)}, newsCounts{9, 9}, false, nil, nil, false},
		"the book could not write":            {[]obstacle{found(KindUnconfirmed)}, newsCounts{9, 9}, false, nil, nil, false},
	} {
		track := track{found: tt.found, began: quiet}
		got := track.lifted(view{tt.counts, func(Container) bool { return tt.there },
			func(name string) bool { return name == "veth1" },
			func() census.Answer { return census.Answer{Seen: tt.seen, Silent: tt.mute} }})
		if got != tt.want {
			t.Errorf("%s: lifted %v, want %v", name, got, tt.want)
		}
	}
}

// Attempts wait longer and longer when nothing but time asks for them, up to a
// bound, and never go faster than the pause when news does.
func TestDue(t *testing.T) {
	now := time.Unix(1_750_000_000, 0)
	tr := &track{lease: &ipam.Lease{State: ipam.Releasing}}
	if at, _ := tr.due(false); !at.IsZero() {
		t.Errorf("the first is due at %v, want at once", at)
	}
	stuck := []obstacle{found(KindContainer, c1)}
	for i, want := range []time.Duration{50, 100, 200, 400, 800, 1600, 3200, 6400, 12800, 25600, 51200, 60000, 60000} {
		tr.failed(stuck, now, false)
		at, asked := tr.due(false)
		if want *= time.Millisecond; at.Sub(now) != want || asked {
			t.Errorf("attempt %d waits %v (news: %v), want %v", i, at.Sub(now), asked, want)
		}
	}
	for i, want := range []time.Duration{10, 20, 40, 80, 100, 100} {
		tr.failed(stuck, now, true)
		at, asked := tr.due(true)
		if want *= time.Millisecond; at.Sub(now) != want || !asked {
			t.Errorf("by steady news %d: pauses %v (news: %v), want %v", i, at.Sub(now), asked, want)
		}
	}
	tr.failed(stuck, now, false)
	if at, _ := tr.due(true); !at.Equal(now) {
		t.Errorf("after quiet it pauses %v", at.Sub(now))
	}
	tr.failed([]obstacle{found(KindPort)}, now, false)
	if at, _ := tr.due(false); at.Sub(now) != firstWait {
		t.Errorf("after progress it waits %v", at.Sub(now))
	}
	blocked := &track{lease: &ipam.Lease{State: ipam.Bound}}
	for what, most := range map[*obstacle]time.Duration{
		{Blocker: Blocker{Kind: KindRuntime}}: lastWait, {Blocker: Blocker{Kind: KindUnconfirmed}}: lastWait,
		{Blocker: Blocker{Kind: KindPort}}: lastWait, {Blocker: Blocker{Kind: KindPort}, port: "veth1"}: stuckWait,
	} {
		for range 20 {
			tr.failed([]obstacle{*what}, now, false)
			blocked.failed([]obstacle{*what}, now, false)
		}
		if at, _ := tr.due(false); at.Sub(now) != most {
			t.Errorf("behind %+v it waits %v, want %v", *what, at.Sub(now), most)
		}
		if at, _ := blocked.due(false); at.Sub(now) != stuckWait {
			t.Errorf("a bound lease waits %v, want %v", at.Sub(now), stuckWait)
		}
	}
}

// What was read during an attempt is what the next one is about.
func TestRenew(t *testing.T) {
	bound, let := &ipam.Lease{ID: "L", Rev: 7, State: ipam.Bound}, &ipam.Lease{ID: "L", Rev: 8, State: ipam.Releasing}
	tr := &track{lease: bound, newer: let, found: []obstacle{found(KindPort)}, ended: time.Now(), warned: true}
	tr.renew()
	if at, _ := tr.due(false); tr.lease != let || tr.newer != nil || len(tr.found) != 0 || !at.IsZero() || tr.warned {
		t.Errorf("renewed to %+v", tr)
	}
	tr = &track{lease: let, newer: bound, found: []obstacle{found(KindPort)}}
	if tr.renew(); tr.lease != let || len(tr.found) != 1 {
		t.Errorf("an older reading won: %+v", tr)
	}
}
