package orphans

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ipamd/ipamd/ipam"
	. "github.com/ipamd/ipamd/netdb/netdbtest"
	"github.com/ipamd/ipamd/watchdog"
)

// A yard is what a row of a table says is there.
type yard struct {
	leases []*ipam.Lease
	list   []watchdog.Record
	owned  []watchdog.Owned
	before map[string]ipam.Stamp
}

var clock = *NewClock() // never moves

// ago is a moment of both clocks.
func ago(d time.Duration) ipam.Stamp {
	at := clock
	at.Pass(-d)
	return at.Stamp
}

const (
	grace = 3 * time.Minute
	old   = time.Hour
)

type part func(*yard)

// con is a container: its labels, and its age.
func con(id, owner, lease string, age time.Duration) part {
	return func(y *yard) {
		w := watchdog.Record{Container: watchdog.Container{Namespace: "ns", ID: id}, Sandbox: owner, LeaseID: lease}
		if age >= 0 {
			w.Made = ago(age).Wall
		}
		y.list = append(y.list, w)
	}
}

const noAge time.Duration = -1

func lea(id, sandbox, uid string, state ipam.State, age time.Duration, containers ...string) part {
	return func(y *yard) {
		l := &ipam.Lease{ID: id, Addr: netip.MustParseAddr("10.8.64.2"), Sandbox: sandbox, UID: uid, State: state, Created: ago(age)}
		for _, c := range containers {
			l.Containers = append(l.Containers, ipam.Container{Namespace: "ns", ID: c})
		}
		y.leases = append(y.leases, l)
	}
}

func owned(v watchdog.Verdict, names ...string) part {
	return func(y *yard) {
		for _, n := range names {
			y.owned = append(y.owned, watchdog.Owned{Sandbox: n, Verdict: v})
		}
	}
}

// missed says since when the list has not had them as valid.
func missed(long time.Duration, names ...string) part {
	return func(y *yard) {
		for _, n := range names {
			y.before[n] = ago(long)
		}
	}
}

func made(parts ...part) yard {
	y := yard{before: make(map[string]ipam.Stamp)}
	for _, p := range parts {
		p(&y)
	}
	return y
}

// Which sandboxes are suspected, a row for each way to be mistaken about one:
// "a" is to be looked up, "a!" needs no look-up, "a?" cannot be distinguished from
// another one, and behind each stand its containers and leases.
func TestSuspects(t *testing.T) {
	const bound, releasing = ipam.Bound, ipam.Releasing
	other := owned(watchdog.Valid, "other")
	for name, tt := range map[string]struct {
		yard   yard
		want   string
		missed string // whose grace runs
	}{
		"none is there":                    {made(other), "", ""},
		"listed as valid":                  {made(con("c", "a", "", old), owned(watchdog.Valid, "a")), "", ""},
		"listed as something":              {made(con("c", "a", "", old), owned(watchdog.Unknown, "a"), missed(old, "a")), "", ""},
		"not listed, for the first time":   {made(con("c", "a", "", old), other), "", "a"},
		"not listed, for too short":        {made(con("c", "a", "", old), other, missed(grace-1, "a")), "", "a"},
		"not listed, for long":             {made(con("c", "a", "", old), other, missed(grace, "a")), "a[c]", "a"},
		"listed again":                     {made(con("c", "a", "", old), owned(watchdog.Valid, "a"), missed(old, "a")), "", ""},
		"listed as gone, at first":         {made(con("c", "a", "", old), owned(watchdog.Gone, "a")), "", "a"},
		"listed as gone, for long":         {made(con("c", "a", "", old), owned(watchdog.Gone, "a"), missed(grace, "a")), "a![c]", "a"},
		"listed as gone and as valid":      {made(con("c", "a", "", old), owned(watchdog.Gone, "a"), owned(watchdog.Valid, "a"), missed(old, "a")), "", ""},
		"listed as valid and as gone":      {made(con("c", "a", "", old), owned(watchdog.Valid, "a"), owned(watchdog.Gone, "a"), missed(old, "a")), "", ""},
		"listed as gone twice":             {made(con("c", "a", "", old), owned(watchdog.Gone, "a", "a"), missed(old, "a")), "a![c]", "a"},
		"three times, once not gone":       {made(con("c", "a", "", old), owned(watchdog.Gone, "a"), owned(watchdog.Unknown, "a"), owned(watchdog.Gone, "a"), missed(old, "a")), "", ""},
		"a container is young":             {made(con("c", "a", "", old), con("d", "a", "", grace-1), other, missed(old, "a")), "", "a"},
		"a container without a date":       {made(con("c", "a", "", noAge), other, missed(old, "a")), "", "a"},
		"a container of the future":        {made(func(y *yard) { con("c", "a", "", 0)(y); y.list[0].Made = clock.Wall.Add(old) }, other, missed(old, "a")), "", "a"},
		"its lease is young":               {made(con("c", "a", "", old), lea("L", "a", "a", bound, grace-1, "c"), other, missed(old, "a")), "", "a"},
		"made anew under its name":         {made(con("c", "a", "", old), lea("L", "a", "u1", bound, old, "c"), lea("M", "a", "u2", ipam.Reserved, 0), other, missed(old, "a")), "", "a"},
		"its lease is old":                 {made(con("c", "a", "", old), lea("L", "a", "u", bound, old, "c"), other, missed(old, "a")), "a[c L]", "a"},
		"labelled with the uid":            {made(con("c", "u", "", old), lea("L", "a", "u", bound, old, "c"), other, missed(old, "u")), "u[c L]", "u"},
		"two leases, one being released":   {made(con("c", "a", "", old), lea("L", "a", "a", bound, old), lea("M", "a", "b", releasing, old), other, missed(old, "a")), "a[c L M]", "a"},
		"leases that ended do not count":   {made(con("c", "a", "", old), lea("L", "a", "a", ipam.Cooling, 0), lea("M", "a", "a", ipam.Quarantined, 0), other, missed(old, "a")), "a[c]", "a"},
		"no label, but recorded":           {made(con("c", "a", "", old), con("d", "", "", old), lea("L", "a", "a", bound, old, "c", "d"), other, missed(old, "a")), "a[c L]", "a"},
		"no owner label, but the lease's":  {made(con("c", "a", "", old), con("d", "", "L", old), con("e", "", "X", old), lea("L", "a", "a", bound, old, "d"), other, missed(old, "a")), "a[c d L]", "a"},
		"labelled with its lease alone":    {made(con("c", "a", "", old), con("d", "", "L", old), lea("L", "a", "a", bound, old, "c"), other, missed(old, "a")), "a[c d L]", "a"},
		"recorded without a label, young":  {made(con("c", "a", "", old), con("d", "", "", 0), lea("L", "a", "a", bound, old, "d"), other, missed(old, "a")), "", "a"},
		"no owner label at all":            {made(con("c", "", "L", old), lea("L", "a", "a", bound, old, "c"), other, missed(old, "a", "")), "", ""},
		"recorded, and another's by label": {made(con("c", "a", "", old), con("d", "b", "", old), lea("L", "a", "a", bound, old, "c", "d"), owned(watchdog.Valid, "b"), missed(old, "a")), "a?[c L]", "a"},
		"the lease's, and another's":       {made(con("d", "b", "L", old), lea("L", "a", "a", bound, old, "c"), owned(watchdog.Gone, "b"), missed(old, "b")), "b!?[d L]", "b"},
		"named by name and by uid":         {made(con("c", "a", "", old), con("d", "u", "", old), lea("L", "a", "u", bound, old), owned(watchdog.Valid, "u"), missed(old, "a")), "a?[c L]", "a"},
		"a name is no part of another":     {made(con("c", "a", "", old), con("d", "a--b", "", old), lea("L", "a--b", "a--b", bound, old), owned(watchdog.Valid, "a--b"), missed(old, "a")), "a[c]", "a"},
		"in the order of the names":        {made(con("y", "b", "", old), con("z", "a", "", old), con("x", "b", "", old), other, missed(old, "a", "b")), "a[z] b[x y]", "a b"},
		"a clock step makes nothing old": {made(func(y *yard) {
			con("c", "a", "", old)(y)
			y.before["a"] = ipam.Stamp{Wall: clock.Wall.Add(-old), Boottime: clock.Boottime, BootID: "one"}
		}, other), "", "a"},
	} {
		t.Run(name, func(t *testing.T) {
			found, since := suspects(groups(tt.yard.leases, tt.yard.list), tt.yard.owned, tt.yard.before, grace, clock.Stamp)
			var got []string
			for _, s := range found {
				var parts []string
				for _, w := range s.containers {
					parts = append(parts, w.ID)
				}
				for _, l := range s.leases {
					parts = append(parts, l.ID)
				}
				mark := ""
				if s.listed {
					mark = "!"
				}
				if s.dispute != "" {
					mark += "?"
				}
				got = append(got, fmt.Sprintf("%s%s%v", s.sandbox, mark, parts))
			}
			if strings.Join(got, " ") != tt.want {
				t.Errorf("suspected are %v, want %s", got, tt.want)
			}
			if names := strings.Join(slices.Sorted(maps.Keys(since)), " "); names != tt.missed {
				t.Errorf("missed are %q, want %q", names, tt.missed)
			}
			for name, at := range since {
				if first, was := tt.yard.before[name]; was && at != first || !was && at != clock.Stamp {
					t.Errorf("%s is missed since %v", name, at.Wall)
				}
			}
		})
	}
}

// What must not have changed between the judgement and the removal.
func TestGroupsThatChanged(t *testing.T) {
	base := []part{con("c", "a", "", old), con("d", "a", "", old), lea("L", "a", "a", ipam.Bound, old, "c")}
	read := func(more ...part) *group {
		y := made(append(slices.Clone(base), more...)...)
		return groups(y.leases, y.list)[0]
	}
	if !read().same(read()) {
		t.Error("two readings of the same differ")
	}
	for name, change := range map[string]part{
		"a container more":           con("e", "a", "", old),
		"a container without labels": con("e", "", "L", old),
		"a container less":           func(y *yard) { y.list = y.list[1:] },
		"one made anew":              func(y *yard) { y.list[0].Made = clock.Wall },
		"a lease more":               lea("M", "a", "a", ipam.Reserved, 0),
		"its lease moved":            func(y *yard) { y.leases[0].Rev = 2 },
		"its lease ended":            func(y *yard) { y.leases[0].State = ipam.Cooling },
	} {
		if read().same(read(change)) {
			t.Errorf("%s is no change", name)
		}
	}
}
