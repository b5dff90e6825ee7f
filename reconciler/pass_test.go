package reconciler

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb"
	"github.com/ipamd/ipamd/netdb/netdbtest"
	"github.com/ipamd/ipamd/workload"
)

var ctx = context.Background()

// A yard is a reconciler on a real book and a real board, with a dog that
// looks at both. Its clock stands still unless the test moves it.
type yard struct {
	*Reconciler
	t     *testing.T
	book  *netdb.Book
	board *census.Board
	dog   *dog
	clock *netdbtest.Clock
	log   *strings.Builder

	passes  []*Report
	homing  sync.Mutex
	homes   map[uint32]census.Home // under homing: a reconciler that runs asks meanwhile
	refresh func(context.Context) error
}

// A dog is the reconciler's Watchdog: it looks at the board once more, and has
// the book do it at the revision of the plan.
type dog struct {
	*yard
	mu     sync.Mutex
	gone   map[string]bool // by lease id: what a look-up answers
	before func()          // runs ahead of every look-up
	err    error           // of every release
	asked  []string        // "reap 10.8.64.2"
}

func newYard(t *testing.T, opts netdb.Options, prefix string) *yard {
	t.Helper()
	y := &yard{t: t, clock: netdbtest.NewClock(), board: census.NewBoard(runtime, netns), log: new(strings.Builder), homes: make(map[uint32]census.Home)}
	opts.Now = y.clock.Now
	y.book = netdbtest.OpenAt(t, filepath.Join(t.TempDir(), "book.db"), opts)
	netdbtest.Pool(t, y.book, "default", prefix)
	y.dog = &dog{yard: y, gone: make(map[string]bool)}
	y.board.Replace(runtime, nil, nil)
	y.board.Replace(netns, nil, nil)
	y.refresh = func(context.Context) error { return nil }
	var err error
	y.Reconciler, err = New(Config{
		Book: y.book, Board: y.board, Prober: &wire{}, Watchdog: y.dog,
		Refresh: func(ctx context.Context) error { return y.refresh(ctx) },
		Settle:  func(context.Context, ...netip.Addr) error { return nil },
		Home: func(_ context.Context, pid uint32) (census.Home, error) {
			y.homing.Lock()
			defer y.homing.Unlock()
			return y.homes[pid], nil
		},
		Runtime: true, Misses: 3, Age: 15 * time.Minute, MaxReleases: 0.10, LeastReleases: 5,
		Quarantine: 15 * time.Minute, Every: 5 * time.Minute, Window: time.Millisecond,
		Now: y.clock.Now, Log: slog.New(slog.NewTextHandler(y.log, nil)), OnPass: func(r *Report) { y.passes = append(y.passes, r) },
	})
	if err != nil {
		t.Fatal(err)
	}
	return y
}

// wire is a Prober that is not answered.
type wire struct{ asked []netip.Addr }

func (w *wire) Probe(_ context.Context, a netip.Addr) error { w.asked = append(w.asked, a); return nil }

func (d *dog) Gone(_ context.Context, l *ipam.Lease, _ *workload.Leases) (bool, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.before != nil {
		d.before()
	}
	return d.gone[l.ID], nil
}

func (d *dog) Left(context.Context, *ipam.Lease) (string, error) { return "", nil }

func (d *dog) empty(l *ipam.Lease) error {
	rows, _ := d.book.Leases()
	v := view{book: rows, census: d.board.Census()}
	if v.index(); len(v.of(l)) > 0 || len(v.census.Seen[l.Addr]) > 0 {
		return errors.New("it is there")
	}
	return nil
}

func (d *dog) Reap(ctx context.Context, l *ipam.Lease, reason string) (bool, string, error) {
	return d.let("reap", l, func(unseen func() error) error {
		_, err := d.book.ReleaseAt(ctx, by(reason), l.ID, l.Rev, unseen)
		return err
	})
}

func (d *dog) Expire(ctx context.Context, l *ipam.Lease, reason string) (bool, string, error) {
	return d.let("expire", l, func(unseen func() error) error {
		_, err := d.book.Expire(ctx, ipam.Who{Actor: ipam.ByWatchdog, Reason: reason}, l.ID, l.Rev, unseen)
		return err
	})
}

func (d *dog) let(verb string, l *ipam.Lease, do func(unseen func() error) error) (bool, string, error) {
	d.mu.Lock()
	d.asked = append(d.asked, verb+" "+l.Addr.String())
	if d.err != nil {
		d.mu.Unlock()
		return false, "", d.err
	}
	d.mu.Unlock()
	found := errors.New("nothing")
	err := do(func() error { found = d.empty(l); return found })
	if err != nil && err == found {
		return false, found.Error(), nil
	}
	return err == nil, "", err
}

// show puts containers and sightings on the board, each line a scope.
func (y *yard) show(lines ...line) {
	scopes := map[census.Witness]map[string][]census.Sighting{runtime: {}, netns: {}}
	w := worldOf(lines...)
	y.homing.Lock()
	maps.Copy(y.homes, w.homes)
	y.homing.Unlock()
	for addr, seen := range w.census.Seen {
		for _, s := range seen {
			s.At = time.Time{} // the board dates it
			scope := s.Container + addr.String() + s.Port
			scopes[s.Witness][scope] = append(scopes[s.Witness][scope], s)
		}
	}
	for by, all := range scopes {
		y.board.Replace(by, all, nil)
	}
	for _, s := range w.census.Silent {
		y.board.Silence(s.Witness, errors.New(s.Reason))
	}
}

// reserve gives a sandbox the next address; hold binds it to a container.
func (y *yard) reserve(sandbox string) *ipam.Lease {
	y.t.Helper()
	return netdbtest.Reserve(y.t, y.book, sandbox)
}

func (y *yard) hold(sandbox, container string) *ipam.Lease {
	y.t.Helper()
	l, err := y.book.Bind(ctx, netdbtest.Who(ipam.ByClient, "bound"), y.reserve(sandbox).ID, 0,
		ipam.Binding{Containers: []ipam.Container{{Namespace: "default", ID: container}}})

	if err != nil {
		y.t.Fatal(err)
	}
	return l
}

func (y *yard) quarantineByHand(addr string) *ipam.Lease {
	y.t.Helper()
	l, err := y.book.Quarantine(ctx, netdbtest.Who(ipam.ByAllocator, "seen_on_wire"), netip.MustParseAddr(addr), evidenceOf(netns))
	if err != nil {
		y.t.Fatal(err)
	}
	return l
}

// passed makes a pass and says what came of it: "adopt 10.8.64.2 A done".
func (y *yard) passed(m Mode) []string {
	y.t.Helper()
	rep, err := y.Pass(ctx, m)
	if err != nil {
		y.t.Fatal(err)
	}
	var out []string
	for _, a := range rep.Actions {
		out = append(out, strings.Join(strings.Fields(strings.Join([]string{a.Kind, a.Addr.String(), a.Sandbox, a.Result}, " ")), " "))
	}
	for _, f := range rep.Findings {
		out = append(out, "report "+f.Kind+" "+f.Addr.String())
	}
	return out
}

func (y *yard) pass(want ...string) {
	y.t.Helper()
	y.passIn(Mode{}, want...)
}

func (y *yard) passIn(m Mode, want ...string) {
	y.t.Helper()
	if got := y.passed(m); !slices.Equal(got, want) {
		y.t.Errorf("a pass did\n\t%s\nwant\n\t%s", strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
	}
}

// states says what the book holds: "10.8.64.2 bound A".
func (y *yard) states() []string {
	var out []string
	rows, _ := y.book.Leases()
	for _, l := range rows {
		out = append(out, strings.TrimSpace(l.Addr.String()+" "+string(l.State)+" "+l.Sandbox))
	}
	return out
}

func (y *yard) holds(want ...string) {
	y.t.Helper()
	if got := y.states(); !slices.Equal(got, want) {
		y.t.Errorf("the book holds\n\t%s\nwant\n\t%s", strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
	}
}

func (y *yard) minutes(n int) { y.clock.Pass(time.Duration(n) * time.Minute) }

func plain(t *testing.T) *yard { return newYard(t, netdbtest.Options(), "10.8.64.0/24") }

// One pass of each kind of step, on a real book, and one after it that finds
// nothing to do.
func TestPassMakesThemAgree(t *testing.T) {
	y := plain(t)
	y.hold("A", "c1")               // .2, is gone
	y.hold("B", "c2")               // .3, is paused
	y.reserve("C")                  // .4, never comes
	y.quarantineByHand("10.8.64.5") // goes unseen
	p := y.hold("P", "c6")
	if p.Addr.String() != "10.8.64.6" {
		t.Fatalf("P holds %s", p.Addr)
	}
	if _, err := y.book.Pause(ctx, netdbtest.Who(ipam.ByClient, "paused"), p.ID, 0); err != nil {
		t.Fatal(err)
	}
	there := []line{
		container("c2", owner("B"), ip("10.8.64.3"), task(taskPaused)),
		container("c6", owner("P"), ip("10.8.64.6"), runs),
		lives("c7", "D", "10.8.64.17"),
		lives("c8", "E", "10.8.64.18", frozen),
		seen(netns, "10.8.64.19", port("veth9")),
	}
	y.show(there[:1]...)
	y.pass("pause 10.8.64.3 B done")
	y.minutes(8)
	y.show(there[:2]...)
	y.pass("resume 10.8.64.6 P done")
	y.minutes(8)
	y.show(there...)
	y.pass("reap 10.8.64.2 A done", "expire 10.8.64.4 C done", "clear 10.8.64.5 done",
		"adopt 10.8.64.17 D done", "adopt 10.8.64.18 E done", "quarantine 10.8.64.19 done")
	y.holds("10.8.64.2 releasing A", "10.8.64.3 paused B", "10.8.64.5 cooling", "10.8.64.6 bound P",
		"10.8.64.17 bound D", "10.8.64.18 paused E", "10.8.64.19 quarantined")
	y.pass()
	q := y.reserve("Q") // .20 and on are never-used; .4 is free again
	y.show(append(there, lives("c9", "Q", q.Addr.String()))...)
	y.pass("bind " + q.Addr.String() + " Q done")
	y.pass()
	rep := y.Last()
	if rep == nil || rep.Preview || !rep.Complete || rep.Leases != 8 || rep.Seen != 6 || rep.Absent != 0 || rep.Held != nil || len(y.passes) != 6 || y.passes[5] != rep {
		t.Errorf("the last of %d reports is %+v", len(y.passes), rep)
	}
}

// R4: a lease that is made between the two readings is no miss, and a workload
// that comes alive between the reading and the reaping is not reaped.
func TestWhatChangesDuringAPassIsLeftAlone(t *testing.T) {
	t.Run("made between the two readings", func(t *testing.T) {
		y := plain(t)
		y.show(container("other"))
		y.refresh = func(context.Context) error {
			if len(y.states()) == 0 {
				y.hold("C", "c1")
			}
			return nil
		}
		y.pass()
		y.holds("10.8.64.2 bound C")
		if len(y.known.missed) != 0 || y.Last().Absent != 0 || y.Last().Leases != 0 {
			t.Errorf("it was missed: %+v, %+v", y.known.missed, y.Last())
		}
	})
	comes := map[string]struct {
		alive func(*yard, *ipam.Lease)
		why   string
	}{
		"its container starts": {func(y *yard, _ *ipam.Lease) {
			y.show(container("c1", owner("A"), ip("10.8.64.2"), runs))
		}, "it is there"},
		"its address answers": {func(y *yard, _ *ipam.Lease) { y.show(container("other"), seen(netns, "10.8.64.2")) }, "it is there"},
		"its owner binds it anew": {func(y *yard, l *ipam.Lease) {
			if _, err := y.book.Bind(ctx, netdbtest.Who(ipam.ByClient, "bound"), l.ID, 0, ipam.Binding{HostInterface: "veth1"}); err != nil {
				t.Error(err)
			}
		}, ""},
	}
	for name, tt := range comes {
		t.Run(name+" before it is reaped", func(t *testing.T) {
			y := plain(t)
			l := y.hold("A", "c1")
			y.show(container("other"))
			for range 2 {
				y.pass()
				y.minutes(8)
			}
			y.dog.before = func() { tt.alive(y, l) }
			y.pass("reap 10.8.64.2 A skipped")
			y.holds("10.8.64.2 bound A")
			if a := y.Last().Actions[0]; !strings.Contains(a.Reason, tt.why) || a.Err != "" {
				t.Errorf("skipped: %+v, want %q", a, tt.why)
			}
			if !slices.Equal(y.dog.asked, []string{"reap 10.8.64.2"}) {
				t.Errorf("the watchdog was asked to %q", y.dog.asked)
			}
		})
	}
}

// Every step applies to the row that it was decided on, and to no later one.
func TestStepsOnRowsThatChanged(t *testing.T) {
	y := plain(t)
	gone := y.hold("G", "g") // .2: its look-up is when the others change
	r := y.reserve("R")      // .3
	y.show(container("other"))
	y.pass()
	y.minutes(8)
	y.pass()
	y.minutes(8)
	y.show(lives("c1", "R", "10.8.64.3"), lives("c2", "B", "10.8.64.4"), seen(netns, "10.8.64.5"))
	var once sync.Once
	y.dog.before = func() {
		once.Do(func() {
			if _, err := y.book.Bind(ctx, netdbtest.Who(ipam.ByClient, "bound"), r.ID, 0, ipam.Binding{HostInterface: "veth3"}); err != nil {
				t.Error(err)
			}
			y.reserve("X") // .4
			y.reserve("Y") // .5
		})
	}
	y.pass("reap 10.8.64.2 G done", "bind 10.8.64.3 R skipped", "adopt 10.8.64.4 B skipped", "quarantine 10.8.64.5 skipped")
	y.holds("10.8.64.2 releasing G", "10.8.64.3 bound R", "10.8.64.4 reserved X", "10.8.64.5 reserved Y")
	if l, _ := y.book.At(r.Addr); l.HostInterface != "veth3" || len(l.Containers) != 0 {
		t.Errorf("what its owner said was overwritten: %+v", l)
	}
	for _, a := range y.Last().Actions {
		if a.Err != "" {
			t.Errorf("%s %s is reported as an error: %s", a.Kind, a.Addr, a.Err)
		}
	}
	if y.dog.gone[gone.ID] {
		t.Error("it was not reported that it is gone")
	}
}

// A preview plans, and neither does nor remembers anything.
func TestPreviewDoesNothing(t *testing.T) {
	y := plain(t)
	y.hold("A", "c1")
	y.show(lives("c7", "D", "10.8.64.17"))
	rev := y.book.Rev()
	for range 5 {
		y.passIn(Mode{Preview: true}, "adopt 10.8.64.17 D planned")
		y.minutes(20)
	}
	if y.book.Rev() != rev || y.Last() != nil || len(y.passes) != 0 || len(y.known.missed) != 0 || y.log.Len() != 0 {
		t.Errorf("at revision %d, was %d; last %+v, %d reported, known %+v, logged %q", y.book.Rev(), rev, y.Last(), len(y.passes), y.known, y.log)
	}
	y.pass("adopt 10.8.64.17 D done")
	y.minutes(8)
	y.passIn(Mode{Preview: true})
	y.pass()
	y.minutes(8)
	y.passIn(Mode{Preview: true}, "reap 10.8.64.2 A planned")
	y.pass("reap 10.8.64.2 A done")
}

// R9: a pass that would release too much releases none and says so, once;
// with an operator's word it does it. What is proven gone goes on.
func TestHeldUntilConfirmed(t *testing.T) {
	y := plain(t)
	var held, done []string
	for i := range 7 {
		l := y.hold("A"+string(rune('0'+i)), "c"+string(rune('0'+i)))
		if i == 0 {
			y.dog.gone[l.ID] = true
			held = append(held, "reap 10.8.64.2 A0 done")
			continue
		}
		held = append(held, "reap "+l.Addr.String()+" "+l.Sandbox+" held")
		done = append(done, "reap "+l.Addr.String()+" "+l.Sandbox+" done")
	}
	y.show(container("other"))
	y.pass()
	y.minutes(8)
	y.pass()
	y.minutes(8)
	y.pass(held...)
	first := y.Last().Started
	for range 3 {
		y.minutes(5)
		y.pass(held[1:]...)
	}
	if h := y.Last().Held; h == nil || h.Releases != 6 || h.Most != 5 || !h.Since.Equal(first) || !y.Last().Started.After(first) {
		t.Fatalf("held: %+v, first at %v", h, first)
	}
	if since := y.Last().AbsentSince; len(since) != 6 || !since[missedOne(y)].Before(first) {
		t.Errorf("missed since %v", since)
	}
	if n := strings.Count(y.log.String(), "held until"); n != 1 {
		t.Errorf("it was logged %d times: %s", n, y.log)
	}
	if y.dog.asked[len(y.dog.asked)-1] != "reap 10.8.64.2" {
		t.Errorf("the watchdog was asked to %q", y.dog.asked)
	}
	y.passIn(Mode{Preview: true}, held[1:]...)
	y.show(container("other"), silent(netns))
	y.passIn(Mode{Confirm: true})
	y.show(container("other"))
	y.passIn(Mode{Confirm: true}, done...)
	y.pass()
	if y.Last().Held != nil || strings.Count(y.log.String(), "not held any more") == 0 {
		t.Errorf("held yet: %+v; %s", y.Last().Held, y.log)
	}
}

// An empty list of a runtime that had containers ends no quarantine until an operator confirms; a report says so.
func TestAnEmptyListEndsNoQuarantine(t *testing.T) {
	y := plain(t)
	y.hold("A", "c1")
	y.quarantineByHand("10.8.64.9")
	for range 2 {
		y.show(container("c1", owner("A"), ip("10.8.64.2"), runs))
		y.pass()
		y.minutes(8)
	}
	y.show()
	y.pass("clear 10.8.64.9 held")
	if h := y.Last().Held; h == nil || h.Releases != 1 || !strings.Contains(h.Reason, "no container at all") {
		t.Errorf("held: %+v", h)
	}
	y.holds("10.8.64.2 bound A", "10.8.64.9 quarantined")
	y.passIn(Mode{Confirm: true}, "clear 10.8.64.9 done")
	y.holds("10.8.64.2 bound A", "10.8.64.9 cooling")
}

// missedOne is the lease of the second address.
func missedOne(y *yard) string {
	l, _ := y.book.At(at(3))
	return l.ID
}

// A reading that failed frees nothing, even if no witness fell silent over it, and
// does not keep a pass from adopting.
func TestAFailedReading(t *testing.T) {
	y := plain(t)
	y.hold("A", "c1")
	y.show(lives("c7", "D", "10.8.64.17"))
	y.refresh = func(context.Context) error { return errors.New("rtnetlink is closed") }
	y.pass("adopt 10.8.64.17 D done")
	for range 5 {
		y.minutes(8)
		y.pass()
	}
	if rep := y.Last(); rep.Complete || len(rep.Silent) != 1 || rep.Silent[0].Reason != "rtnetlink is closed" || rep.Absent != 1 {
		t.Errorf("the report is %+v", rep)
	}
	y.holds("10.8.64.2 bound A", "10.8.64.17 bound D")
}

// R6: a release that fails is tried in each pass, is reported as an error, and
// ends once it works.
func TestAReleaseThatFails(t *testing.T) {
	y := plain(t)
	l := y.hold("A", "c1")
	y.show(container("other"))
	y.dog.err = errors.New("the book cannot be written")
	for i := range 12 {
		if i < 2 {
			y.pass()
		} else if y.pass("reap 10.8.64.2 A skipped"); y.Last().Actions[0].Err != y.dog.err.Error() {
			t.Errorf("reported as %+v", y.Last().Actions[0])
		}
		y.minutes(8)
	}
	if m := y.known.missed[l.ID]; len(y.known.missed) != 1 || m.count != 3 || len(y.dog.asked) != 10 {
		t.Errorf("remembered %+v; asked %q", y.known.missed, y.dog.asked)
	}
	y.dog.err = nil
	y.pass("reap 10.8.64.2 A done")
	y.pass()
	if len(y.known.missed) != 0 {
		t.Errorf("remembered %+v", y.known.missed)
	}
}

// Beyond the quarantine's share of a pool nothing is quarantined, and a person
// is reported.
func TestQuarantineIsFull(t *testing.T) {
	y := newYard(t, netdbtest.Options(), "10.8.64.0/29") // five addresses, of which one
	y.show(seen(netns, "10.8.64.3", port("veth1")), seen(netns, "10.8.64.4", port("veth2")))
	y.pass("quarantine 10.8.64.3 done", "quarantine 10.8.64.4 skipped", "report quarantine_full 10.8.64.4")
	if a := y.Last().Actions[1]; !strings.Contains(a.Err, ipam.ErrQuarantineFull.Error()) {
		t.Errorf("skipped as %+v", a)
	}
	first := y.Last().Started
	y.minutes(8)
	y.pass("quarantine 10.8.64.4 skipped", "report quarantine_full 10.8.64.4")
	y.holds("10.8.64.3 quarantined")
	if full := y.Last().Findings[0]; !full.Since.Equal(first) || !first.Before(y.Last().Started) {
		t.Errorf("it is full since %v, the passes began at %v", full.Since, first)
	}
}

// R7 on a real book: both claimants are reported, the address is quarantined
// with both as evidence, and the pool does not give it.
func TestTwoClaimants(t *testing.T) {
	y := plain(t)
	both := []line{container("c1", owner("A"), ip("10.8.64.2"), runs), container("c2", owner("B"), ip("10.8.64.2"), runs)}
	y.show(both...)
	y.pass("quarantine 10.8.64.2 done", "report two_claimants 10.8.64.2")
	l, _ := y.book.At(netip.MustParseAddr("10.8.64.2"))
	if len(y.Last().Findings) == 0 {
		t.FailNow()
	}
	for _, id := range []string{"c1", "c2"} {
		if !strings.Contains(string(l.Evidence), id) || !strings.Contains(y.Last().Findings[0].Detail, id) {
			t.Errorf("%s is not named: %s; %+v", id, l.Evidence, y.Last().Findings)
		}
	}
	if third := y.reserve("C"); third.Addr.String() != "10.8.64.3" {
		t.Errorf("a third sandbox got %s", third.Addr)
	}
	y.pass("report two_claimants 10.8.64.2")
}

// R8, F4: two incarnations of one sandbox have a lease each; the older one's is
// reaped while the newer one lives, which that does not touch.
func TestIncarnations(t *testing.T) {
	y := plain(t)
	old := y.hold("A", "c1")
	young, err := y.book.Adopt(ctx, by("adopted"), ipam.Adoption{Addr: netip.MustParseAddr("10.8.64.9"), Sandbox: "A", UID: "second",
		Binding: ipam.Binding{Containers: []ipam.Container{{Namespace: "default", ID: "c2"}}}})
	if err != nil {
		t.Fatal(err)
	}
	y.show(container("c2", owner("A"), as("second"), ip("10.8.64.9"), runs))
	for _, want := range [][]string{nil, nil, {"reap 10.8.64.2 A done"}, nil} {
		y.pass(want...)
		y.minutes(8)
	}
	y.holds("10.8.64.2 releasing A", "10.8.64.9 bound A")
	if _, err := y.book.Release(ctx, netdbtest.Who(ipam.ByClient, "released"), old.ID, "", 0); err != nil {
		t.Fatal(err)
	}
	y.pass()
	if l, _ := y.book.At(young.Addr); l.Rev != young.Rev {
		t.Errorf("the second incarnation's lease was touched: %+v", l)
	}
}

// New refuses what it cannot work with.
func TestNewRefuses(t *testing.T) {
	good := plain(t).Config
	for name, spoil := range map[string]func(*Config){
		"no book":         func(c *Config) { c.Book = nil },
		"no board":        func(c *Config) { c.Board = nil },
		"no prober":       func(c *Config) { c.Prober = nil },
		"no watchdog":     func(c *Config) { c.Watchdog = nil },
		"no refresh":      func(c *Config) { c.Refresh = nil },
		"no settle":       func(c *Config) { c.Settle = nil },
		"no clock":        func(c *Config) { c.Now = nil },
		"no log":          func(c *Config) { c.Log = nil },
		"no misses":       func(c *Config) { c.Misses = 0 },
		"no age":          func(c *Config) { c.Age = 0 },
		"no share":        func(c *Config) { c.MaxReleases = 0 },
		"more than all":   func(c *Config) { c.MaxReleases = 1.1 },
		"none at least":   func(c *Config) { c.LeastReleases = 0 },
		"no quarantine":   func(c *Config) { c.Quarantine = 0 },
		"no time between": func(c *Config) { c.Every = -1 },
		"no probe window": func(c *Config) { c.Window = 0 },
	} {
		c := good
		spoil(&c)
		if r, err := New(c); err == nil || r != nil {
			t.Errorf("%s: taken", name)
		}
	}
	good.OnPass = nil
	if _, err := New(good); err != nil {
		t.Error(err)
	}
}
