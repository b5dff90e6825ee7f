package census_test

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ipamd/ipamd/census"
)

var (
	two      = netip.MustParseAddr("10.8.64.2")
	three    = netip.MustParseAddr("10.8.64.3")
	began    = time.Unix(1_750_000_000, 0)
	later    = began.Add(time.Minute)
	errCause = errors.New("the socket is closed")
)

// scopes is a report: scope to what is seen there.
type scopes = map[string][]census.Sighting

func at(a netip.Addr, port string) census.Sighting {
	return census.Sighting{Addr: a, Port: port, At: began}
}

// seen lists who sees an address, as "witness port", in the board's order.
func seen(b *census.Board, a netip.Addr) []string {
	var out []string
	for _, s := range b.About(a).Seen {
		out = append(out, string(s.Witness)+" "+s.Port)
	}
	return out
}

func want(t *testing.T, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("seen by %q, want %q", got, want)
	}
}

// A witness that has not reported yet is silent, and a silence is not "unseen".
func TestNothingIsUnseenBeforeEveryWitnessAnswered(t *testing.T) {
	b := census.NewBoard(census.Netns, census.Runtime)
	for _, step := range []struct {
		report func()
		silent []census.Witness
	}{
		{func() {}, []census.Witness{census.Netns, census.Runtime}},
		{func() { b.ReplaceScope(census.Netns, "ns1", nil) }, []census.Witness{census.Netns, census.Runtime}},
		{func() { b.ReplaceScope(census.Netns, "ns1", []census.Sighting{at(three, "veth1")}) }, []census.Witness{census.Netns, census.Runtime}},
		{func() { b.Replace(census.Netns, nil, nil) }, []census.Witness{census.Runtime}},
		{func() { b.Replace(census.Runtime, nil, errCause) }, []census.Witness{census.Runtime}},
		{func() { b.Replace(census.Runtime, nil, nil) }, nil},
	} {
		step.report()
		a := b.About(two)
		var silent []census.Witness
		for _, s := range a.Silent {
			silent = append(silent, s.Witness)
		}
		if !slices.Equal(silent, step.silent) || a.Unseen() != (len(silent) == 0) || b.Census().Complete() != (len(silent) == 0) {
			t.Errorf("silent are %v, want %v; unseen %v", silent, step.silent, a.Unseen())
		}
	}
	if answered := b.About(two).Answered; !slices.Equal(answered, []census.Witness{census.Netns, census.Runtime}) {
		t.Errorf("answered %v", answered)
	}
}

// A silence says why and since when, keeps what was seen before, and the next
// whole report ends it. A report of one scope does not.
func TestSilenceKeepsWhatWasSeen(t *testing.T) {
	b := census.NewBoard(census.Netns)
	b.Replace(census.Netns, scopes{"ns1": {at(two, "veth1")}}, nil)
	b.Silence(census.Netns, errCause)
	want(t, seen(b, two), "netns veth1")
	first := b.Silent()
	if len(first) != 1 || first[0].Reason != errCause.Error() || first[0].Since.IsZero() {
		t.Fatalf("silent: %+v", first)
	}
	b.Silence(census.Netns, errors.New("still closed"))
	if again := b.Silent(); len(again) != 1 || again[0].Reason != "still closed" || again[0].Since != first[0].Since {
		t.Errorf("a longer silence is %+v, began as %+v", again, first)
	}
	if s, silent := b.About(three).KernelSilent(); !silent || s.Witness != census.Netns {
		t.Errorf("a kernel witness is silent: %+v, %v", s, silent)
	}
	b.ReplaceScope(census.Netns, "ns2", []census.Sighting{at(three, "veth2")})
	if len(b.Silent()) != 1 {
		t.Error("one scope ended the silence")
	}
	b.Replace(census.Netns, nil, nil)
	want(t, seen(b, two))
	if !b.About(two).Unseen() || !b.About(three).Unseen() {
		t.Error("not unseen after a whole report of nothing")
	}
}

// An incomplete report stands for what it names, and is a silence for the
// rest.
func TestIncompleteReport(t *testing.T) {
	b := census.NewBoard(census.Runtime)
	b.Replace(census.Runtime, scopes{"default/c1": {at(two, "")}}, errCause)
	want(t, seen(b, two), "runtime ")
	if b.About(three).Unseen() {
		t.Error("an address that the report may have missed is unseen")
	}
	if _, silent := b.About(three).KernelSilent(); silent {
		t.Error("the runtime is no kernel witness")
	}
}

// What is in a scope is replaced as a whole; other scopes and other
// witnesses stay.
func TestScopes(t *testing.T) {
	b := census.NewBoard(census.Netns, census.Host)
	b.Replace(census.Netns, scopes{"ns1": {at(two, "veth1"), at(three, "veth1")}, "ns2": {at(two, "veth2")}}, nil)
	b.Replace(census.Host, scopes{"host": {at(two, "rt0")}}, nil)
	b.ReplaceScope(census.Netns, "ns1", []census.Sighting{at(three, "veth1")})
	want(t, seen(b, two), "netns veth2", "host rt0")
	want(t, seen(b, three), "netns veth1")
	b.ReplaceScope(census.Netns, "ns1", nil)
	want(t, seen(b, three))
	b.ReplaceScope(census.Netns, "not known", nil)
	b.Replace(census.Netns, scopes{"ns3": {at(three, "veth3")}}, nil)
	want(t, seen(b, two), "host rt0")
	want(t, seen(b, three), "netns veth3")
	if c := b.Census(); len(c.Seen) != 2 || len(c.Seen[two]) != 1 || len(c.Seen[three]) != 1 {
		t.Errorf("the census is %+v", c.Seen)
	}
}

// What one witness sees, and nothing of the others'.
func TestBy(t *testing.T) {
	b := census.NewBoard(census.Netns)
	if got := b.By(census.Runtime); len(got) != 0 {
		t.Errorf("no witness sees %+v", got)
	}
	b.Replace(census.Netns, scopes{"ns1": {at(two, "veth1"), at(three, "veth1")}, "ns2": {at(two, "veth2")}}, nil)
	b.Replace(census.Host, scopes{"host": {at(two, "rt0")}}, nil)
	if got := b.By(census.Netns); len(got) != 3 || slices.ContainsFunc(got, func(s census.Sighting) bool { return s.Witness != census.Netns }) {
		t.Errorf("netns sees %+v", got)
	}
	b.ReplaceScope(census.Netns, "ns1", nil)
	if got := b.By(census.Netns); len(got) != 1 || got[0].Port != "veth2" {
		t.Errorf("after a scope went out of sight: %+v", got)
	}
}

// The most specific comes first, whichever reported first; an unknown witness is
// kept too.
func TestOrderByWitness(t *testing.T) {
	b := census.NewBoard()
	all := []census.Witness{census.Probe, census.Host, census.Runtime, census.Neighbour, census.Netns}
	for _, w := range all {
		b.Replace(w, scopes{"s": {at(two, "p")}}, nil)
	}
	want(t, seen(b, two), "runtime p", "netns p", "host p", "neighbour p", "probe p")
	b.Replace("divination", scopes{"s": {at(two, "p")}}, nil)
	if got := seen(b, two); !slices.Contains(got, "divination p") || len(got) != 6 {
		t.Errorf("with an unknown witness: %q", got)
	}
}

// A sighting that stands keeps the moment it began; one that changed begins
// anew. One without a moment gets the present.
func TestSightingsKeepWhenTheyBegan(t *testing.T) {
	b := census.NewBoard()
	one := at(two, "veth1")
	b.ReplaceScope(census.Netns, "ns1", []census.Sighting{one})
	one.At = later
	b.ReplaceScope(census.Netns, "ns1", []census.Sighting{one})
	if got := b.About(two).Seen[0].At; !got.Equal(began) {
		t.Errorf("unchanged, it began %v, want %v", got, began)
	}
	one.Says, one.Note = "02:00:00:00:00:02", "it says so"
	b.ReplaceScope(census.Netns, "ns1", []census.Sighting{one})
	if got := b.About(two).Seen[0]; !got.At.Equal(began) || got.Says != one.Says || got.Note != one.Note {
		t.Errorf("worded otherwise, it is %+v, want %+v since %v", got, one, began)
	}
	one.MAC = "02:00:00:00:00:01"
	b.ReplaceScope(census.Netns, "ns1", []census.Sighting{one})
	if got := b.About(two).Seen[0].At; !got.Equal(later) {
		t.Errorf("changed, it began %v, want %v", got, later)
	}
	b.ReplaceScope(census.Netns, "ns1", nil)
	b.ReplaceScope(census.Netns, "ns1", []census.Sighting{{Addr: two}})
	if b.About(two).Seen[0].At.IsZero() {
		t.Error("a sighting has no moment")
	}
}

// What a container's task does is no other claim: it keeps the moment it began,
// and the task has a moment of its own.
func TestTasksHaveTheirOwnMoment(t *testing.T) {
	b := census.NewBoard()
	post := func(task, note string) census.Sighting {
		b.ReplaceScope(census.Runtime, "c1", []census.Sighting{{Addr: two, Container: "c1", Sandbox: "a", At: began, Task: task, Note: note}})
		return b.About(two).Seen[0]
	}
	first := post("running", "")
	if again := post("running", "said otherwise"); again.TaskAt.IsZero() || !again.TaskAt.Equal(first.TaskAt) || again.Note != "said otherwise" {
		t.Errorf("the same task: %+v after %+v", again, first)
	}
	stopped := post("stopped", "")
	if !stopped.At.Equal(began) || !stopped.TaskAt.After(first.TaskAt) || stopped.Task != "stopped" {
		t.Errorf("stopped: %+v after %+v", stopped, first)
	}
}

// A task was resumed when a report of its container alone shows it running that was paused before;
// that it runs is no such news after a whole report, after another state, or of another task, nor
// are other labels. Since when its process lives is as it was read, however often.
func TestTasksThatBegin(t *testing.T) {
	b := census.NewBoard()
	claims := two
	post := func(alone bool, task string, pid uint32, since time.Time) census.Sighting {
		one := []census.Sighting{{Addr: claims, Container: "c1", Sandbox: "a", At: began, Task: task, PID: pid, Began: since}}
		if alone {
			b.ReplaceScope(census.Runtime, "c1", one)
		} else {
			b.Replace(census.Runtime, scopes{"c1": one}, nil)
		}
		return b.About(claims).Seen[0]
	}
	another, never := began.Add(time.Hour), time.Time{}
	for _, step := range []struct {
		what        string
		alone       bool
		task        string
		pid         uint32
		since, want time.Time
		resumed     bool
	}{
		{"at first, of all", false, "running", 7, began, began, false},
		{"frozen", true, "paused", 7, began.Add(time.Millisecond), began, false},
		{"resumed", true, "running", 7, began.Add(-time.Millisecond), began, true},
		{"again", true, "running", 7, began, began, true},
		{"again, of all", false, "running", 7, began, began, true},
		{"not known", true, "", 0, never, never, false},
		{"known again", true, "running", 7, began, began, false},
		{"frozen again", true, "paused", 7, began, began, false},
		{"another", true, "running", 8, another, another, false},
		{"frozen, of all", false, "paused", 8, another, another, false},
		{"resumed, of all", false, "running", 8, another, another, false},
		{"ended", true, "stopped", 0, never, never, false},
		{"made", true, "created", 9, another, another, false},
		{"started", true, "running", 9, another, another, false},
		{"another of the same number", false, "running", 9, another.Add(time.Hour), another.Add(time.Hour), false},
	} {
		now := post(step.alone, step.task, step.pid, step.since)
		if now.Resumed != step.resumed || !now.Began.Equal(step.want) {
			t.Errorf("%s: resumed %v, began %v", step.what, now.Resumed, now.Began)
		}
	}
	before := b.About(claims).Seen[0].TaskAt
	claims = three // its labels change
	if now := post(true, "running", 9, another.Add(time.Hour)); now.Resumed || !now.TaskAt.Equal(before) {
		t.Errorf("with other labels: %+v, before %v", now, before)
	}
	if now := post(true, "running", 10, another); now.Resumed || now.TaskAt.Equal(before) {
		t.Errorf("with another task: %+v, before %v", now, before)
	}
}

// When a task stood still is known from the reports of its container alone, and stays known
// whichever report shows that it runs; of a task that may be another nothing is.
func TestWhenATaskStoodStill(t *testing.T) {
	type report struct {
		alone bool
		task  string
		pid   uint32
	}
	frozen, thawed := report{true, "paused", 7}, report{false, "running", 7}
	for name, tt := range map[string]struct {
		reports []report
		at      int // which report dates it, from 1; 0: none
	}{
		"it never did":                      {[]report{{true, "running", 7}, thawed}, 0},
		"paused, a whole report shows it":   {[]report{frozen, thawed}, 1},
		"paused twice, alone":               {[]report{frozen, frozen, thawed}, 2},
		"paused in a whole report, too":     {[]report{frozen, {false, "paused", 7}, thawed}, 1},
		"paused in a whole report alone":    {[]report{{false, "paused", 7}, thawed}, 0},
		"it runs for long":                  {[]report{frozen, thawed, thawed, {true, "running", 7}}, 1},
		"another task of its container":     {[]report{frozen, {false, "running", 8}}, 0},
		"its task was not known in between": {[]report{frozen, {true, "", 0}, thawed}, 0},
		"it is gone, and one is made again": {[]report{frozen, {true, "stopped", 0}, {true, "created", 9}, {true, "running", 9}}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			b := census.NewBoard()
			var dated []time.Time
			for _, r := range tt.reports {
				one := []census.Sighting{{Addr: two, Container: "c1", Sandbox: "a", At: began, Task: r.task, PID: r.pid, Began: began}}
				before := time.Now()
				if r.alone {
					b.ReplaceScope(census.Runtime, "c1", one)
				} else {
					b.Replace(census.Runtime, scopes{"c1": one}, nil)
				}
				dated = append(dated, before)
			}
			got := b.About(two).Seen[0].StoodAt
			switch {
			case tt.at == 0 && !got.IsZero():
				t.Errorf("it stood still at %v", got)
			case tt.at > 0 && (got.Before(dated[tt.at-1]) || tt.at < len(dated) && got.After(dated[tt.at])):
				t.Errorf("it stood still at %v, and report %d came behind %v", got, tt.at, dated[tt.at-1])
			}
		})
	}
}

// Spellings of one address are one address; what is no address does no harm;
// and who posted a sighting is not the sighting's to say.
func TestOddSightings(t *testing.T) {
	b := census.NewBoard()
	b.Replace(census.Netns, scopes{"s": {
		{Addr: netip.MustParseAddr("::ffff:10.8.64.2"), Witness: census.Host},
		{Addr: netip.MustParseAddr("fe80::1%eth0")},
		{},
	}}, nil)
	want(t, seen(b, two), "netns ")
	want(t, seen(b, netip.MustParseAddr("fe80::1")), "netns ")
	b.Replace(census.Netns, nil, nil)
	if c := b.Census(); len(c.Seen) != 0 {
		t.Errorf("left behind: %+v", c.Seen)
	}
}

// Every report closes the channel of before it; what a caller got stays as
// it was.
func TestChanged(t *testing.T) {
	b := census.NewBoard(census.Netns)
	for name, report := range map[string]func(){
		"replace": func() { b.Replace(census.Netns, nil, nil) },
		"scope":   func() { b.ReplaceScope(census.Netns, "s", []census.Sighting{at(two, "p")}) },
		"silence": func() { b.Silence(census.Netns, errCause) },
	} {
		changed := b.Changed()
		report()
		select {
		case <-changed:
		default:
			t.Errorf("%s woke no subscriber", name)
		}
	}
	b.Replace(census.Netns, scopes{"s": {at(two, "p")}}, nil)
	a, c := b.About(two), b.Census()
	b.Replace(census.Netns, nil, nil)
	if len(a.Seen) != 1 || a.Seen[0].Port != "p" || len(c.Seen[two]) != 1 {
		t.Errorf("an old answer became %+v, %+v", a, c.Seen)
	}
}

// Readers and witnesses at once; the race detector watches. At the end the
// board holds what each witness said last.
func TestConcurrentReports(t *testing.T) {
	b := census.NewBoard(census.Netns, census.Runtime)
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			w, scope := census.Netns, fmt.Sprint("s", i)
			if i%2 == 0 {
				w = census.Runtime
			}
			for n := range 200 {
				b.ReplaceScope(w, scope, []census.Sighting{at(two, fmt.Sprint(n))})
				b.About(two)
				b.Census()
				b.Changed()
			}
		})
		all.Go(func() {
			for range 400 {
				b.Silence(census.Netns, errCause)
				b.Silent()
			}
		})
	}
	all.Wait()
	if got := b.About(two).Seen; len(got) != 8 {
		t.Fatalf("%d sightings are left, want 8", len(got))
	}
	for _, s := range b.About(two).Seen {
		if s.Port != "199" {
			t.Errorf("the last of %s is %s", s.Witness, s.Port)
		}
	}
}

// Where follows a sentence, and says nothing when nothing is known.
func TestWhere(t *testing.T) {
	for want, s := range map[string]census.Sighting{
		" in container default/c1":    {Namespace: "default", Container: "c1", Port: "veth1"},
		" in nsid:7 behind port vh1":  {Netns: census.NewNetnsID(7, ""), Port: "vh1"},
		" on rt0":                     {Port: "rt0"},
		" on vh1 (02:00:00:00:00:01)": {Port: "vh1", MAC: "02:00:00:00:00:01"},
		"":                            {MAC: "02:00:00:00:00:01"},
	} {
		if got := s.Where(); got != want {
			t.Errorf("%+v is seen %q, want %q", s, got, want)
		}
	}
}
