package watchdog

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/ipam/ipamtest"
	"github.com/ipamd/ipamd/workload"
)

// born makes a lease of one boot, so many seconds after it.
func born(id, sandbox string, at int, change ...func(*ipam.Lease)) *ipam.Lease {
	return ipamtest.Bound(id, sandbox, sandbox, at, change...)
}

var records = ipamtest.Records

func names(all []Container) string {
	var out []string
	for _, c := range all {
		out = append(out, c.ID)
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

func work(id, sandbox, lease string) Record {
	return Record{Container: Container{Namespace: "default", ID: id}, Sandbox: sandbox, LeaseID: lease}
}

// G7: what blocks no release is a label alone, without a task, and idle or beyond the
// grace of the release, whether the attempt, the board or neither has seen it.
func TestG7WhatBlocksNoRelease(t *testing.T) {
	l := born("L", "a", 1, records("recorded"), func(l *ipam.Lease) { l.State = ipam.Releasing })
	alone, named := work("c", "a", ""), work("c", "a", "L")
	tasked, recorded := alone, work("recorded", "a", "")
	tasked.Task = true
	c := alone.Container
	found := map[Container]lookedUp{c: {Look: Look{Found: true}}}
	for name, tt := range map[string]struct {
		a           attempt
		list, board []Record
		want        bool
	}{
		"idle":                                    {attempt{facts: facts{looks: found, blockNothing: map[Container]bool{c: true}}}, []Record{alone}, []Record{alone}, true},
		"young":                                   {attempt{facts: facts{looks: found}}, []Record{alone}, []Record{alone}, false},
		"with a task when it was asked":           {attempt{graceOver: true, facts: facts{looks: found}}, []Record{alone}, []Record{alone}, false},
		"made since it was asked":                 {attempt{}, []Record{alone}, []Record{alone}, false},
		"made since, beyond the grace":            {attempt{graceOver: true}, []Record{alone}, []Record{alone}, true},
		"made since, not on the board yet":        {attempt{graceOver: true}, []Record{alone}, nil, true},
		"made since, the board shows a task":      {attempt{graceOver: true}, []Record{alone}, []Record{tasked}, false},
		"idle, and the board shows a task":        {attempt{facts: facts{looks: found, blockNothing: map[Container]bool{c: true}}}, []Record{alone}, []Record{tasked}, false},
		"with the lease's id, beyond the grace":   {attempt{graceOver: true}, []Record{named}, []Record{named}, false},
		"recorded by the lease, beyond the grace": {attempt{graceOver: true}, []Record{recorded}, []Record{recorded}, false},
	} {
		tt.a.lease, tt.a.leases = l, workload.NewLeases([]*ipam.Lease{l})
		if got := tt.a.ignored(newIndex(tt.list), newIndex(tt.board))(tt.list[0].Container); got != tt.want {
			t.Errorf("%s: blocks no release %v, want %v", name, got, tt.want)
		}
	}
}

// A bound lease is forsaken only when the container that it records last was there
// while it did, and nothing of it is.
func TestForsaken(t *testing.T) {
	next := born("M", "a", 9, records("c2"), func(l *ipam.Lease) { l.UID = "a2" })
	for name, tt := range map[string]struct {
		lease      *ipam.Lease
		was, there []Record
		others     []*ipam.Lease
		want       bool
		seenAt     int64
	}{
		"all were there, none is":     {born("L", "a", 1, records("c1", "c2")), []Record{work("c1", "", ""), work("c2", "", "")}, nil, nil, true, 7},
		"the last was never seen":     {born("L", "a", 1, records("c1", "c2")), []Record{work("c1", "", "")}, nil, nil, false, 7},
		"only the last was seen":      {born("L", "a", 1, records("c1", "c2")), []Record{work("c2", "", "")}, nil, nil, true, 7},
		"one is there":                {born("L", "a", 1, records("c1", "c2")), []Record{work("c1", "", "")}, []Record{work("c2", "", "")}, nil, false, 7},
		"one that is not recorded is": {born("L", "a", 1, records("c1")), []Record{work("c1", "a", "")}, []Record{work("c3", "a", "")}, nil, false, 7},
		"only the next incarnation's": {born("L", "a", 1, records("c1")), []Record{work("c1", "a", "")}, []Record{work("c2", "a", "")}, []*ipam.Lease{next}, true, 7},
		"it records none":             {born("L", "a", 1), []Record{work("c1", "a", "")}, nil, nil, false, 7},
		"it is paused":                {born("L", "a", 1, records("c1"), func(l *ipam.Lease) { l.State = ipam.Paused }), []Record{work("c1", "", "")}, nil, nil, false, 7},
		"it is reserved":              {born("L", "a", 1, records("c1"), func(l *ipam.Lease) { l.State = ipam.Reserved }), []Record{work("c1", "", "")}, nil, nil, false, 7},
		"it was there for an earlier lease, or before a resume": {born("L", "a", 1, records("c1")), []Record{work("c1", "a", "")}, nil, nil, false, 6},
	} {
		r := newIndex(nil)
		r.use([]*ipam.Lease{tt.lease})
		r.read(tt.was, tt.seenAt)
		r.read(tt.there, 9)
		if got := r.containersGone(tt.lease, func() *workload.Leases { return workload.NewLeases(append(tt.others, tt.lease)) }); got != tt.want {
			t.Errorf("%s: %v, want %v", name, got, tt.want)
		}
	}
}

// W9: that a lease was there is remembered through changes that are not of its use, a
// conflict that was noted, and through a container that took another's place without
// a word that the first has gone. A container that is recorded anew is awaited.
func TestW9ForsakenThroughChanges(t *testing.T) {
	at := func(rev int64, ids ...string) *ipam.Lease {
		return born("L", "a", 1, records(ids...), func(l *ipam.Lease) { l.Rev = rev })
	}
	resumed := at(8, "c1")
	resumed.Since = ipam.Stamp{BootID: "one", Boottime: time.Minute}
	type step struct {
		lease *ipam.Lease
		there string // the only container there is
	}
	for name, tt := range map[string]struct {
		steps []step
		want  bool
	}{
		"a conflict is noted behind the container's end": {[]step{{at(5, "c1"), "c1"}, {at(5, "c1"), ""}, {at(8, "c1"), ""}}, true},
		"a conflict is noted in between":                 {[]step{{at(5, "c1"), "c1"}, {at(8, "c1"), ""}}, true},
		"another took its place":                         {[]step{{at(5, "c1"), "c1"}, {at(5, "c1"), "c2"}, {at(9, "c1", "c2"), "c2"}, {at(9, "c1", "c2"), ""}}, true},
		"another took its place before this daemon":      {[]step{{at(9, "c1", "c2"), "c2"}, {at(9, "c1", "c2"), ""}}, true},
		"another is about to take its place":             {[]step{{at(5, "c1"), "c1"}, {at(9, "c1", "c2"), ""}}, false},
		"it is recorded again and about to be made":      {[]step{{at(5, "c1"), "c1"}, {at(7, "c2"), "c2"}, {at(9, "c2", "c1"), ""}}, false},
		"it is resumed":                                  {[]step{{at(5, "c1"), "c1"}, {resumed, ""}}, false},
	} {
		r := newIndex(nil)
		for _, s := range tt.steps {
			var there []Record
			if s.there != "" {
				there = []Record{work(s.there, "a", "")}
			}
			r.use([]*ipam.Lease{s.lease})
			r.read(there, s.lease.Rev)
		}
		last := tt.steps[len(tt.steps)-1].lease
		if got := r.containersGone(last, func() *workload.Leases { return workload.NewLeases([]*ipam.Lease{last}) }); got != tt.want {
			t.Errorf("%s: %v, want %v", name, got, tt.want)
		}
	}
}

// Who left is remembered, by the labels it had last, until too many have.
func TestTheIndexRemembers(t *testing.T) {
	l := born("L", "a", 1, records("c1"))
	r := newIndex([]Record{work("c1", "", ""), work("app", "a", ""), work("moved", "a", "")})
	r.read([]Record{work("moved", "b", "")}, 9)
	if got := names(r.of(l, new(workload.Leases), false)); got != "" {
		t.Errorf("there is %q", got)
	}
	if got := names(r.of(l, new(workload.Leases), true)); got != "app c1" {
		t.Errorf("there was %q", got)
	}
	if r.there(c1) || !r.went(c1, 0) || r.went(c1, 1) || r.past() != 2 || r.present != 1 {
		t.Errorf("c1 there %v, left %v; %d of the past, %d present", r.there(c1), r.went(c1, 0), r.past(), r.present)
	}
	r.forget(recordedIn([]*ipam.Lease{l}))
	if got := names(r.of(l, new(workload.Leases), true)); got != "c1" || !r.there(Container{Namespace: "default", ID: "moved"}) || r.past() != 1 {
		t.Errorf("after forgetting there was %q, of %+v", got, r.all)
	}
}

// The board's containers: each once, with or without addresses; no other's
// sightings.
func TestOnBoard(t *testing.T) {
	b := census.NewBoard()
	one := census.Sighting{Namespace: "default", Container: "c1", Sandbox: "a", UID: "a1"}
	two, three := one, one
	two.Addr, three.Addr = netip.MustParseAddr("10.8.64.2"), netip.MustParseAddr("10.8.64.3")
	b.Replace(census.Runtime, map[string][]census.Sighting{"default/c1": {two, three}, "default/c2": {{Namespace: "default", Container: "c2"}}}, nil)
	b.Replace(census.Netns, map[string][]census.Sighting{"s": {{Addr: two.Addr, Container: "c3"}}}, nil)
	r := newIndex(onBoard(b.By(census.Runtime)))
	if r.all.Len() != 2 || r.present != 2 || r.member(c1).UID != "a1" {
		t.Errorf("the index is %+v", r.all)
	}
}
