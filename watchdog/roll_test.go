package watchdog

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/netdb"
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

func incarnate(id, sandbox, uid string) Workload {
	return Workload{Container: Container{"default", id}, Sandbox: sandbox, UID: uid}
}

// R8. Which containers belong to the lease L of sandbox a, incarnation a1.
func TestBelongs(t *testing.T) {
	old := born("L", "a", 1, records("c1"), func(l *netdb.Lease) { l.UID, l.State = "a1", netdb.Releasing })
	next := func(change ...func(*netdb.Lease)) *netdb.Lease {
		return born("M", "a", 9, append(change, func(l *netdb.Lease) { l.UID = "a2" })...)
	}
	for name, tt := range map[string]struct {
		others []*netdb.Lease
		there  []Workload
		want   string
	}{
		"recorded, whatever its labels":             {nil, []Workload{work("c1", "", "")}, "c1"},
		"by its lease label":                        {nil, []Workload{work("c2", "", "L")}, "c2"},
		"by the sandbox's name":                     {nil, []Workload{work("c2", "a", "")}, "c2"},
		"by the incarnation":                        {nil, []Workload{work("c2", "a1", "")}, "c2"},
		"told twice":                                {nil, []Workload{work("c1", "a", "L"), work("c1", "a", "L")}, "c1"},
		"another sandbox's":                         {nil, []Workload{work("c2", "b", "X"), work("c3", "", "")}, ""},
		"the same name in another namespace":        {nil, []Workload{{Container: Container{"other", "c1"}}}, ""},
		"the next incarnation's by its lease label": {[]*netdb.Lease{next()}, []Workload{work("c2", "a", "M")}, ""},
		"the next incarnation's by its record":      {[]*netdb.Lease{next(records("c2"))}, []Workload{work("c2", "a", "")}, ""},
		"nobody knows which incarnation's":          {[]*netdb.Lease{next()}, []Workload{work("c2", "a", "")}, "c2"},
		"recorded in both is the next one's":        {[]*netdb.Lease{next(records("c1"))}, []Workload{work("c1", "a", "")}, ""},
		"and so is what carries the next one's id":  {[]*netdb.Lease{next()}, []Workload{work("c1", "a", "M")}, ""},
		"what carries its own id stays its own":     {[]*netdb.Lease{next(records("c1"))}, []Workload{work("c1", "a", "L")}, "c1"},
		"what was there before the next one, and is recorded in both": {[]*netdb.Lease{next(records("c1"))},
			[]Workload{{Container: c1, Sandbox: "a", Created: time.Unix(5, 0)}}, "c1"},
		"what came after it, and is recorded in both": {[]*netdb.Lease{next(records("c1"))},
			[]Workload{{Container: c1, Sandbox: "a", Created: time.Unix(10, 0)}}, ""},
		"by the sandbox's name, and its uid":               {nil, []Workload{incarnate("c2", "a", "a1")}, "c2"},
		"by the incarnation, with another uid":             {nil, []Workload{incarnate("c2", "a1", "a2")}, ""},
		"another incarnation's by its uid":                 {nil, []Workload{incarnate("c2", "a", "a2")}, ""},
		"and so with its lease":                            {[]*netdb.Lease{next()}, []Workload{incarnate("c2", "a", "a2")}, ""},
		"recorded, whatever its uid":                       {nil, []Workload{incarnate("c1", "a", "a2")}, "c1"},
		"labelled with the lease, whatever its uid":        {nil, []Workload{{Container: Container{"default", "c2"}, Sandbox: "a", UID: "a2", LeaseID: "L"}}, "c2"},
		"a lease of before is no successor":                {[]*netdb.Lease{born("M", "a", 0, records("c2"))}, []Workload{work("c2", "a", "M")}, "c2"},
		"one of the same moment is none":                   {[]*netdb.Lease{born("M", "a", 1, records("c2"))}, []Workload{work("c2", "a", "M")}, "c2"},
		"one that was let go is none":                      {[]*netdb.Lease{next(func(l *netdb.Lease) { l.State = netdb.Releasing })}, []Workload{work("c2", "a", "M")}, "c2"},
		"the sandbox's other interface is none":            {[]*netdb.Lease{next(func(l *netdb.Lease) { l.Interface = "eth1" })}, []Workload{work("c2", "a", "M")}, "c2"},
		"nor its lease in another pool, of another family": {[]*netdb.Lease{next(func(l *netdb.Lease) { l.PoolUID = "q" })}, []Workload{work("c2", "a", "M")}, "c2"},
	} {
		h := newKin(append(tt.others, old)).heirs(old)
		if got := names(newRoll(tt.there).of(old, h, false)); got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}

// A lease that names no incarnation is of each.
func TestBelongsToAnyIncarnation(t *testing.T) {
	if got := names(newRoll([]Workload{incarnate("c1", "a", "a1"), incarnate("c2", "a", "a2")}).of(born("L", "a", 1), heirs{}, false)); got != "c1 c2" {
		t.Errorf("there is %q", got)
	}
}

// A container that was made anew for another incarnation is that one's.
func TestIncarnationOfAReusedID(t *testing.T) {
	old := born("L", "a", 1, func(l *netdb.Lease) { l.UID = "a1" })
	r := newRoll([]Workload{incarnate("c2", "a", "a1")})
	before := names(r.of(old, heirs{}, false))
	r.call([]Workload{incarnate("c2", "a", "a2")}, 9)
	if after := names(r.of(old, heirs{}, true)); before != "c2" || after != "" {
		t.Errorf("it had %q, and has %q", before, after)
	}
}

// A name that is used again is its successor's, and nobody else's.
func TestHeirsOfPlumbing(t *testing.T) {
	plug := func(host, netns string) func(*netdb.Lease) {
		return func(l *netdb.Lease) { l.HostInterface, l.Netns = host, netns }
	}
	both := plug("veth1", "/run/netns/a")
	old := born("L", "a", 5, both)
	for name, tt := range map[string]struct {
		other       *netdb.Lease
		host, netns bool
	}{
		"a successor without plumbing": {born("M", "a", 9), false, false},
		"one that has the port":        {born("M", "a", 9, plug("veth1", "")), true, false},
		"and the namespace":            {born("M", "a", 9, both), true, true},
		"an older one has it":          {born("M", "a", 1, both), false, false},
		"after a reboot": {born("M", "a", 1, plug("veth1", ""), func(l *netdb.Lease) {
			l.Created.BootID, l.Created.Wall = "two", time.Unix(6, 0)
		}), true, false},
		"a younger one that was let go":     {born("M", "a", 9, both, func(l *netdb.Lease) { l.State = netdb.Releasing }), false, false},
		"another sandbox's":                 {born("M", "b", 9, both), false, false},
		"the sandbox's other interface's":   {born("M", "a", 9, both, func(l *netdb.Lease) { l.Interface = "eth1" }), false, false},
		"its lease of another pool, family": {born("M", "a", 9, both, func(l *netdb.Lease) { l.PoolUID = "q" }), false, false},
	} {
		h := newKin([]*netdb.Lease{old, tt.other}).heirs(old)
		if h.host != tt.host || h.netns != tt.netns {
			t.Errorf("%s: host %v, netns %v", name, h.host, h.netns)
		}
	}
	bare := born("L", "a", 1)
	if h := newKin([]*netdb.Lease{bare, born("M", "a", 9)}).heirs(bare); h.host || h.netns {
		t.Error("nothing recorded is nobody's")
	}
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
		r := newRoll(nil)
		r.call(tt.was, tt.seenAt)
		r.call(tt.there, 9)
		if got := r.forsaken(tt.lease, func() kin { return newKin(append(tt.others, tt.lease)) }); got != tt.want {
			t.Errorf("%s: %v, want %v", name, got, tt.want)
		}
	}
}

// Who left is remembered, by the labels it had last, until too many have.
func TestRollRemembers(t *testing.T) {
	l := born("L", "a", 1, records("c1"))
	r := newRoll([]Workload{work("c1", "", ""), work("app", "a", ""), work("moved", "a", "")})
	r.call([]Workload{work("moved", "b", "")}, 9)
	if got := names(r.of(l, heirs{}, false)); got != "" {
		t.Errorf("there is %q", got)
	}
	if got := names(r.of(l, heirs{}, true)); got != "app c1" {
		t.Errorf("there was %q", got)
	}
	if r.there(c1) || !r.left(c1, 0) || r.left(c1, 1) || r.past() != 2 || r.present != 1 {
		t.Errorf("c1 there %v, left %v; %d of the past, %d present", r.there(c1), r.left(c1, 0), r.past(), r.present)
	}
	r.forget(recordedIn([]*netdb.Lease{l}))
	if got := names(r.of(l, heirs{}, true)); got != "c1" || !r.there(Container{"default", "moved"}) || r.past() != 1 {
		t.Errorf("after forgetting there was %q, of %+v", got, r.members)
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
	r := newRoll(onBoard(b.By(census.Runtime)))
	if len(r.members) != 2 || r.present != 2 || len(r.bySandbox["a"]) != 1 || r.bySandbox["a"][0].UID != "a1" {
		t.Errorf("the roll is %+v", r)
	}
}
