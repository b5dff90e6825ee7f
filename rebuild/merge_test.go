package rebuild

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/ipamd/ipamd/internal/ranges"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb/salvage"
)

// record makes a record of rows like "2 id bound sandbox", of 10.8.64.2, or "16/28 id bound
// sandbox".
func record(rows string, ended ...string) salvage.Found {
	s := salvage.Found{Ended: make(map[string]bool)}
	for i, row := range strings.Split(rows, ", ") {
		f := append(strings.Fields(row), "", "", "", "")
		if f[0] == "" {
			continue
		}
		first, length, _ := strings.Cut(f[0], "/")
		l := &ipam.Lease{Addr: netip.MustParseAddr("10.8.64." + first), ID: f[1], State: ipam.State(f[2]), Sandbox: f[3], UID: f[3], Interface: "eth0", Rev: int64(i + 1)}
		if length != "" {
			l.PrefixLen, _ = strconv.Atoi(length)
		}
		if f[3] != "" && l.State == ipam.Bound {
			l.HostInterface = "veth-" + f[3]
		}
		s.Leases = append(s.Leases, l)
	}
	for _, id := range ended {
		s.Ended[id] = true
	}
	return s
}

// A merging is two records, of two epochs, and what is made of them.
type merging struct {
	older, present string
	ended          []string
	want, leftOut  string
}

func (c merging) test(t *testing.T) {
	older := record(c.older)
	older.Epoch = "of before"
	m := merge(older, record(c.present, c.ended...), "backup")
	if got := rowsOf(m); got != c.want {
		t.Errorf("it has %q, want %q", got, c.want)
	}
	if got := leftOutOf(t, m); got != c.leftOut {
		t.Errorf("it leaves out %q, want %q", got, c.leftOut)
	}
}

// What the present book knows wins over an older record, and only what it does not know
// comes from there.
func TestMerge(t *testing.T) {
	for name, c := range map[string]merging{
		"only the backup has it":                           {"2 a bound x", "", nil, "2 a bound x backup", ""},
		"only the present book has it":                     {"", "2 a bound x", nil, "2 a bound x book", ""},
		"both have the lease":                              {"2 a bound x", "2 a releasing x", nil, "2 a releasing x book", ""},
		"it has ended since":                               {"2 a bound x", "", []string{"a"}, "", "2 a"},
		"it has ended, and its address cools":              {"2 a bound x", "2 a cooling x", []string{"a"}, "2 a cooling x book", ""},
		"its rest is over":                                 {"2 a cooling x", "", []string{"a"}, "", "2 a"},
		"its rest is over and another has it":              {"2 a cooling x", "2 b bound y", []string{"a"}, "2 b bound y book", "2 a"},
		"another has its address":                          {"2 a bound x", "2 b bound y", nil, "2 b bound y book", "2 a"},
		"the present book knows no owner":                  {"2 a bound x", "2 b quarantined", nil, "2 a bound x backup", ""},
		"the present book knows no owner, and its end":     {"2 a bound x", "2 b quarantined", []string{"a"}, "2 b quarantined book", "2 a"},
		"a quarantine in both":                             {"2 a quarantined", "2 b quarantined", nil, "2 b quarantined book", "2 a"},
		"the sandbox has another address now":              {"2 a bound x", "3 b bound x", nil, "3 b bound x book, 2 a bound x backup", ""},
		"it cools there after another's lease":             {"2 a paused x", "2 b cooling y", []string{"b"}, "2 a paused x backup", "2 b"},
		"it cools there after another's, and it ended":     {"2 a paused x", "2 b cooling y", []string{"a", "b"}, "2 b cooling y book", "2 a"},
		"two that cool":                                    {"2 a cooling x", "2 b cooling y", []string{"b"}, "2 b cooling y book", "2 a"},
		"a stranger's, that another cooled with":           {"2 a quarantined", "2 b cooling y", []string{"b"}, "2 b cooling y book", "2 a"},
		"the same sandbox had it again, and it cools":      {"2 a paused x", "2 b cooling x", []string{"b"}, "2 b cooling x book", "2 a"},
		"a rest, and a stranger is seen since":             {"2 a cooling x", "2 b quarantined", nil, "2 b quarantined book", "2 a"},
		"no owner is known by either, and it cooled there": {"2 a cooling x", "", nil, "2 a cooling x backup", ""},
	} {
		t.Run(name, c.test)
	}
}

// A book that is the backup's future gave an address to another behind the end of the lease, also
// where its history does not show that end any more.
func TestMergeOfOneEpoch(t *testing.T) {
	m := merge(record("2 a paused x"), record("2 b cooling y", "b"), "backup")
	if got := rowsOf(m); got != "2 b cooling y book" || leftOutOf(t, m) != "2 a" {
		t.Errorf("it has %q, and leaves out %q", got, leftOutOf(t, m))
	}
}

// rowsOf is the rows of a merged record, and where each is from, as record has them.
func rowsOf(m merged) string {
	var rows []string
	for _, l := range m.Leases {
		rows = append(rows, strings.Join(strings.Fields(strings.TrimPrefix(l.Text(), "10.8.64.")+" "+l.ID+" "+string(l.State)+" "+l.Sandbox+" "+m.from[l.Addr]), " "))
	}
	return strings.Join(rows, ", ")
}

func leftOutOf(t *testing.T, m merged) string {
	t.Helper()
	var left []string
	for _, o := range m.leftOut {
		left = append(left, strings.TrimPrefix(o.Address, "10.8.64.")+" "+o.LeaseID)
		if o.Why == "" || o.Outcome != "left_out" {
			t.Errorf("it is left out as %+v", o)
		}
	}
	return strings.Join(left, ", ")
}

// An operator's hold is no quarantine that the backup explains, and a lease of which the
// present book lost the plumbing has that of the backup.
func TestMergeKeepsWhatIsHeld(t *testing.T) {
	present := record("2 b quarantined, 3 c bound y")
	present.Leases[0].Hold = "a printer"
	present.Leases[1].HostInterface = ""
	m := merge(record("2 a bound x, 3 c bound y"), present, "backup")
	if len(m.Leases) != 2 || m.Leases[0].ID != "b" || m.Leases[1].HostInterface != "veth-y" {
		t.Errorf("it has %+v", m.Leases)
	}
}

// What the older record knows of an address that outlived its pool is only of the row that it
// has there: behind another's lease it would take that one's id away.
func TestMergeOfWithheld(t *testing.T) {
	older, present := record("2 a quarantined x, 3 b quarantined y, 16/31 c quarantined z"), record("3 d bound w, 17 e bound v, 20 f cooling u")
	withhold := func(r *salvage.Found) {
		r.Withheld = make(map[netip.Addr]ipam.Withheld)
		for _, l := range r.Leases {
			if l.State != ipam.Bound {
				r.Withheld[l.Addr] = ipam.Withheld{Addr: l.Addr, PrefixLen: l.PrefixLen, LeaseID: l.ID, Bridge: "br9"}
			}
		}
	}
	withhold(&older)
	withhold(&present)
	m := merge(older, present, "backup")
	var got []string
	for _, w := range m.Withheld {
		got = append(got, strings.TrimPrefix(w.Addr.String(), "10.8.64.")+fmt.Sprintf("/%d ", w.PrefixLen)+w.LeaseID+" "+w.Bridge)
	}
	slices.Sort(got)
	if want := []string{"16/0 c br9", "2/0 a br9", "20/0 f br9"}; !slices.Equal(got, want) {
		t.Errorf("it has %q, want %q", got, want)
	}
}

// What cooled in the backup is given again before what the present book released, in the
// order of its release, also of what a pool had taken over from one that was removed.
func TestMergeKeepsTheOrderOfReuse(t *testing.T) {
	older, present := record("2 a cooling x, 3 b cooling y"), record("4 c cooling z")
	older.Leases[0].Rev, older.Leases[0].Cooled, older.Leases[1].Rev, present.Leases[0].Rev = 600, 500, 550, 20
	m := merge(older, present, "backup")
	slices.SortFunc(m.Leases, func(x, y *ipam.Lease) int { return cmp.Compare(x.CoolingRev(), y.CoolingRev()) })
	if got, want := rowsOf(m), "2 a cooling x backup, 3 b cooling y backup, 4 c cooling z book"; got != want {
		t.Errorf("they are given again as %q, want %q", got, want)
	}
}

// What cannot be read of the present book is not given because a backup is silent of it,
// and not withheld twice where the backup knows it.
func TestMergeOfUnreadableRows(t *testing.T) {
	present := record("")
	for _, text := range []string{"10.8.64.2", "10.8.64.3"} {
		r, err := ranges.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		present.Named = append(present.Named, r)
	}
	m := merge(record("2 a bound x"), present, "backup")
	if len(m.Named) != 1 || m.Named[0].String() != "10.8.64.3" || len(m.Leases) != 1 {
		t.Errorf("it has %v and %v", m.Leases, m.Named)
	}
}

// Of two delegated prefixes, or of one and an address, one contains the other. The part in
// which the other record wins is its; the rest is kept in the largest prefixes that it makes.
func TestMergeOfDelegatedPrefixes(t *testing.T) {
	for name, c := range map[string]merging{
		"an address in a prefix of now":             {"20 a bound x", "16/28 b bound y", nil, "16/28 b bound y book", "20 a"},
		"a prefix in a larger one":                  {"24/30 a bound x", "16/28 b bound y", nil, "16/28 b bound y book", "24/30 a"},
		"another beside it":                         {"32/28 a bound x", "16/28 b bound y", nil, "16/28 b bound y book, 32/28 a bound x backup", ""},
		"the same one":                              {"16/28 a bound x", "16/28 a releasing x", nil, "16/28 a releasing x book", ""},
		"it has ended since":                        {"16/28 a bound x", "20 b bound y", []string{"a"}, "20 b bound y book", "16/28 a"},
		"a prefix around an address":                {"16/30 a bound x", "17 b bound y", nil, "17 b bound y book, 16 bound x backup, 18/31 bound x backup", ""},
		"a prefix around its first address":         {"16/30 a bound x", "16 b bound y", nil, "16 b bound y book, 17 bound x backup, 18/31 bound x backup", ""},
		"a prefix around a smaller one":             {"16/28 a cooling x", "20/30 b bound y", nil, "20/30 b bound y book, 16/30 cooling x backup, 24/29 cooling x backup", ""},
		"a prefix around two that are all of it":    {"16/31 a bound x", "16 b bound y, 17 c bound z", nil, "16 b bound y book, 17 c bound z book", "16/31 a"},
		"strangers are seen in it":                  {"16/28 a bound x", "16 b quarantined, 20 c quarantined", nil, "16/28 a bound x backup", ""},
		"a stranger is seen where it cooled":        {"16/31 a cooling x", "16 b quarantined", nil, "16 b quarantined book, 17 cooling x backup", ""},
		"others rest in it":                         {"16/28 a bound x", "17 b cooling y, 20 c cooling z", []string{"b", "c"}, "16/28 a bound x backup", "17 b, 20 c"},
		"another is in it, and one cools":           {"16/30 a bound x", "16 b bound y, 17 c cooling z", []string{"c"}, "16 b bound y book, 17 bound x backup, 18/31 bound x backup", "17 c"},
		"it is in a prefix that cools":              {"17 a paused x", "16/30 b cooling y", []string{"b"}, "16 cooling y book, 18/31 cooling y book, 17 a paused x backup", ""},
		"two are in a prefix that cools":            {"16/31 a bound x, 19 c bound z", "16/30 b cooling y", []string{"b"}, "18 cooling y book, 16/31 a bound x backup, 19 c bound z backup", ""},
		"all of a prefix that cools is in two":      {"16 a bound x, 17 c bound z", "16/31 b cooling y", []string{"b"}, "16 a bound x backup, 17 c bound z backup", "16/31 b"},
		"one that has ended is in it, where it was": {"16/28 a cooling x", "20 b bound y", []string{"a"}, "20 b bound y book", "16/28 a"},
	} {
		t.Run(name, c.test)
	}
}

// Of a backup come pools of names that the present book never had, but for those in which it
// has a lease of another pool, and no generation falls.
func TestMergeOfPools(t *testing.T) {
	pool := func(name, prefix string, generation int64) *ipam.Pool {
		return &ipam.Pool{PoolSpec: ipam.PoolSpec{Name: name, Prefix: netip.MustParsePrefix(prefix)}, UID: name, Generation: generation}
	}
	older := salvage.Found{Pools: []*ipam.Pool{pool("kept", "10.1.0.0/16", 2), pool("removed", "10.2.0.0/16", 5), pool("begun-anew", "10.3.0.0/16", 7), pool("only", "10.4.0.0/16", 3), pool("kept", "fd00::/64", 4), pool("around", "10.8.64.0/24", 6)},
		Names: []ipam.PoolName{{Name: "kept", Family: 4, Configured: "older"}, {Name: "gone", Family: 4, Generation: 9}}}
	present := salvage.Found{Pools: []*ipam.Pool{pool("kept", "10.1.0.0/17", 4), pool("begun-anew", "10.3.0.0/17", 1)},
		Names: []ipam.PoolName{{Name: "kept", Family: 4, Configured: "now"}, {Name: "removed", Family: 4, Generation: 3}}}
	present.Leases = record("16/28 a bound x").Leases
	present.Leases[0].PoolUID = "kept" // outside of it
	m := merge(older, present, "backup")
	var got []string
	for _, p := range m.Pools {
		got = append(got, fmt.Sprint(p.Name, " ", p.Prefix, " ", p.Generation))
	}
	for _, n := range m.Names {
		got = append(got, fmt.Sprint(n.Name, " ", n.Family, " ", n.Generation, " ", n.Configured))
	}
	want := []string{"kept 10.1.0.0/17 4", "begun-anew 10.3.0.0/17 6", "only 10.4.0.0/16 3", "kept fd00::/64 4", "kept 4 0 now", "removed 4 5 ", "gone 4 9 ", "around 4 6 "}
	if !slices.Equal(got, want) {
		t.Errorf("it has %q, want %q", got, want)
	}
	if len(m.unexplained) != 1 || !strings.Contains(m.unexplained[0], "around") {
		t.Errorf("it says %q", m.unexplained)
	}
}
