package watchdog

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/netdb"
	"github.com/ipamd/ipamd/workload"
)

// born makes a lease of one boot, so many seconds after it.
func born(id, sandbox string, at int, change ...func(*netdb.Lease)) *netdb.Lease {
	l := &netdb.Lease{ID: id, Rev: 7, Sandbox: sandbox, UID: sandbox, PoolUID: "p", Interface: "eth0", State: netdb.Bound,
		Created: netdb.Stamp{Wall: time.Unix(int64(at), 0), BootID: "one", Boottime: time.Duration(at) * time.Second}}
	for _, c := range change {
		c(l)
	}
	return l
}

func records(ids ...string) func(*netdb.Lease) {
	return func(l *netdb.Lease) {
		for _, id := range ids {
			l.Containers = append(l.Containers, netdb.Container{Namespace: "default", ID: id})
		}
	}
}

func names(all []Container) string {
	var out []string
	for _, c := range all {
		out = append(out, c.ID)
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

func work(id, sandbox, lease string) Workload {
	return Workload{Container: Container{"default", id}, Sandbox: sandbox, LeaseID: lease}
}

// A bound lease is forsaken only when all that it records was there, and
// nothing of it is.
func TestForsaken(t *testing.T) {
	next := born("M", "a", 9, records("c2"), func(l *netdb.Lease) { l.UID = "a2" })
	for name, tt := range map[string]struct {
		lease      *netdb.Lease
		was, there []Workload
		others     []*netdb.Lease
		want       bool
		seenAt     int64
	}{
		"all were there, none is":     {born("L", "a", 1, records("c1", "c2")), []Workload{work("c1", "", ""), work("c2", "", "")}, nil, nil, true, 7},
		"one was never seen":          {born("L", "a", 1, records("c1", "c2")), []Workload{work("c1", "", "")}, nil, nil, false, 7},
		"one is there":                {born("L", "a", 1, records("c1", "c2")), []Workload{work("c1", "", "")}, []Workload{work("c2", "", "")}, nil, false, 7},
		"one that is not recorded is": {born("L", "a", 1, records("c1")), []Workload{work("c1", "a", "")}, []Workload{work("c3", "a", "")}, nil, false, 7},
		"only the next incarnation's": {born("L", "a", 1, records("c1")), []Workload{work("c1", "a", "")}, []Workload{work("c2", "a", "")}, []*netdb.Lease{next}, true, 7},
		"it records none":             {born("L", "a", 1), []Workload{work("c1", "a", "")}, nil, nil, false, 7},
		"it is paused":                {born("L", "a", 1, records("c1"), func(l *netdb.Lease) { l.State = netdb.Paused }), []Workload{work("c1", "", "")}, nil, nil, false, 7},
		"it is reserved":              {born("L", "a", 1, records("c1"), func(l *netdb.Lease) { l.State = netdb.Reserved }), []Workload{work("c1", "", "")}, nil, nil, false, 7},
		"it was there for an earlier lease, or before a resume": {born("L", "a", 1, records("c1")), []Workload{work("c1", "a", "")}, nil, nil, false, 6},
	} {
		r := newIndex(nil)
		r.read(tt.was, tt.seenAt)
		r.read(tt.there, 9)
		if got := r.forsaken(tt.lease, func() *workload.Leases { return workload.NewLeases(append(tt.others, tt.lease)) }); got != tt.want {
			t.Errorf("%s: %v, want %v", name, got, tt.want)
		}
	}
}

// Who left is remembered, by the labels it had last, until too many have.
func TestTheIndexRemembers(t *testing.T) {
	l := born("L", "a", 1, records("c1"))
	r := newIndex([]Workload{work("c1", "", ""), work("app", "a", ""), work("moved", "a", "")})
	r.read([]Workload{work("moved", "b", "")}, 9)
	if got := names(r.of(l, new(workload.Leases), false)); got != "" {
		t.Errorf("there is %q", got)
	}
	if got := names(r.of(l, new(workload.Leases), true)); got != "app c1" {
		t.Errorf("there was %q", got)
	}
	if r.there(c1) || !r.left(c1, 0) || r.left(c1, 1) || r.past() != 2 || r.present != 1 {
		t.Errorf("c1 there %v, left %v; %d of the past, %d present", r.there(c1), r.left(c1, 0), r.past(), r.present)
	}
	r.forget(recordedIn([]*netdb.Lease{l}))
	if got := names(r.of(l, new(workload.Leases), true)); got != "c1" || !r.there(Container{"default", "moved"}) || r.past() != 1 {
		t.Errorf("after forgetting there was %q, of %+v", got, r.all)
	}
}

// The board's containers: each once, with or without addresses; nobody else's
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
