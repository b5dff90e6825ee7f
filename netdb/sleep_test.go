package netdb_test

import (
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ipamd/ipamd/internal/realtest"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb"
	. "github.com/ipamd/ipamd/netdb/netdbtest"
)

var reconciling = Who(ipam.ByReconciler, "wake_requested")

// frozen is a sleep that a SYN to port 80 of the sandbox's own network ends.
func frozen() ipam.Sleep {
	return ipam.Sleep{Mode: ipam.Freeze, Wake: &ipam.WakePolicy{Sources: []netip.Prefix{netip.MustParsePrefix("10.8.64.0/24")}, Ports: []ipam.PortRange{{First: 80, Last: 80}}}}
}

// asleep is a lease that is paused as how says.
func asleep(t *testing.T, b *netdb.Book, sandbox string, how ipam.Sleep) *ipam.Lease {
	t.Helper()
	l := Reserve(t, b, sandbox)
	if _, err := b.Bind(ctx, client, l.ID, 0, ipam.Binding{HostInterface: "veth-" + sandbox}); err != nil {
		t.Fatal(err)
	}
	l, err := b.PauseAs(ctx, client, l.ID, 0, how)
	if err != nil || l.State != ipam.Paused {
		t.Fatal(l, err)
	}
	return l
}

// A policy that cannot be is refused with its field, and nothing is recorded.
func TestBadWakePoliciesAreRefused(t *testing.T) {
	b := Open(t)
	l := Reserve(t, b, "a")
	if _, err := b.Bind(ctx, client, l.ID, 0, ipam.Binding{HostInterface: "veth-a"}); err != nil {
		t.Fatal(err)
	}
	rev := b.Rev()
	with := func(w ipam.WakePolicy) ipam.Sleep { return ipam.Sleep{Mode: ipam.Freeze, Wake: &w} }
	sources := func(all ...string) (out []netip.Prefix) {
		for _, s := range all {
			out = append(out, netip.MustParsePrefix(s))
		}
		return out
	}
	for name, row := range map[string]struct {
		how   ipam.Sleep
		field string
	}{
		"no mode":                        {ipam.Sleep{}, "mode"},
		"an unknown mode":                {ipam.Sleep{Mode: "doze"}, "mode"},
		"to hibernate it itself":         {ipam.Sleep{Mode: ipam.Hibernate, Do: true}, "do"},
		"port 0":                         {with(ipam.WakePolicy{Ports: []ipam.PortRange{{First: 80, Last: 80}, {}}}), "wake.ports[1]"},
		"a range from 0":                 {with(ipam.WakePolicy{Ports: []ipam.PortRange{{First: 0, Last: 80}}}), "wake.ports[0]"},
		"a range backwards":              {with(ipam.WakePolicy{Ports: []ipam.PortRange{{First: 90, Last: 80}}}), "wake.ports[0]"},
		"a source of another family":     {with(ipam.WakePolicy{Sources: sources("10.0.0.0/8", "fd00::/8")}), "wake.sources[1]"},
		"a multicast source":             {with(ipam.WakePolicy{Sources: sources("0.0.0.0/0", "224.0.0.0/4")}), "wake.sources[1]"},
		"an unmasked source":             {with(ipam.WakePolicy{Sources: sources("10.8.64.1/24")}), "wake.sources[0]"},
		"no source":                      {with(ipam.WakePolicy{Sources: []netip.Prefix{{}}}), "wake.sources[0]"},
		"an unknown protocol":            {with(ipam.WakePolicy{Protocols: []ipam.Protocol{"tcp", "sctp"}}), "wake.protocols[1]"},
		"ports of echo requests":         {with(ipam.WakePolicy{Protocols: []ipam.Protocol{"icmp"}, Ports: []ipam.PortRange{{First: 80, Last: 80}}}), "wake.ports"},
		"a wait that is too short":       {with(ipam.WakePolicy{Wait: time.Millisecond}), "wake.wait"},
		"a wait that is too long":        {with(ipam.WakePolicy{Wait: time.Hour}), "wake.wait"},
		"more sources than a policy has": {with(ipam.WakePolicy{Sources: slices.Repeat(sources("10.0.0.0/8"), 65)}), "wake.sources"},
		"more ports than a policy has":   {with(ipam.WakePolicy{Ports: slices.Repeat([]ipam.PortRange{{First: 80, Last: 80}}, 65)}), "wake.ports"},
	} {
		_, err := b.PauseAs(ctx, client, l.ID, 0, row.how)
		if fe := new(ipam.FieldError); !errors.As(err, &fe) || fe.Field != row.field {
			t.Errorf("%s: %v, want the field %s", name, err, row.field)
		}
	}
	if b.Rev() != rev || b.Sleep(l.ID) != nil {
		t.Errorf("revision went from %d to %d, and %+v is recorded", rev, b.Rev(), b.Sleep(l.ID))
	}
}

// What is recorded of a pause survives a restart and the resume, is no change when it is said
// again, and ends with the lease. A pause that says nothing of it leaves it.
func TestASleepStaysWithItsLease(t *testing.T) {
	path := filepath.Join(t.TempDir(), "book.db")
	b, err := netdb.Open(path, Options())
	if err != nil {
		t.Fatal(err)
	}
	Pool(t, b, "default", "10.8.64.0/24")
	l := asleep(t, b, "a", frozen())
	if again, err := b.PauseAs(ctx, client, l.ID, 0, frozen()); err != nil || again.Rev != l.Rev {
		t.Errorf("said again: %+v, %v", again, err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	b = OpenAt(t, path, Options())
	stored := b.Sleep(l.ID)
	if stored == nil || stored.Mode != ipam.Freeze || stored.Wake.String() != "tcp to 80 from 10.8.64.0/24" || stored.Rev != l.Rev {
		t.Fatalf("after a restart: %+v", stored)
	}
	for _, do := range []func() (*ipam.Lease, error){
		func() (*ipam.Lease, error) { return b.Resume(ctx, client, l.ID, 0) },
		func() (*ipam.Lease, error) { return b.Pause(ctx, reconciling, l.ID, 0) }, // found paused
		func() (*ipam.Lease, error) { return b.Resume(ctx, client, l.ID, 0) },
	} {
		if _, err := do(); err != nil || b.Sleep(l.ID) == nil || b.Sleep(l.ID).Wake == nil {
			t.Errorf("%v: %+v", err, b.Sleep(l.ID))
		}
	}
	if _, err := b.Pause(ctx, client, l.ID, 0); err != nil || b.Sleep(l.ID) != nil {
		t.Errorf("paused without a mode: %v, %+v", err, b.Sleep(l.ID))
	}
	if _, err := b.PauseAs(ctx, client, l.ID, 0, ipam.Sleep{Mode: ipam.Hibernate}); err != nil || b.Sleep(l.ID).Wake != nil {
		t.Errorf("paused in another way: %v, %+v", err, b.Sleep(l.ID))
	}
	if _, err := b.Release(ctx, client, l.ID, "", 0); err != nil || b.Sleep(l.ID) != nil || len(b.Sleeps()) != 0 {
		t.Errorf("released: %v, %+v", err, b.Sleep(l.ID))
	}
}

// A sleep that ends is not there for what comes behind it in the same commit.
func TestASleepEndsWithinACommit(t *testing.T) {
	path := filepath.Join(t.TempDir(), "book.db")
	opts, largest := Options(), 0
	opts.OnCommit = func(_ time.Duration, batch int) { largest = max(largest, batch) }
	b := OpenAt(t, path, opts)
	Pool(t, b, "default", "10.8.64.0/24")
	l := asleep(t, b, "a", frozen())
	changes := []func() error{
		func() error { _, err := b.Pause(ctx, client, l.ID, 0); return err },
		func() error { _, err := b.Still(ctx, reconciling, l.ID, 0); return err },
	}
	unlock := lockOut(t, path)
	done := make(chan error, len(changes))
	for i, change := range changes {
		go func() { done <- change() }()
		realtest.Eventually(t, 10*time.Second, "the change to wait", func() bool { return b.Waiting() == i+1 })
	}
	unlock()
	for range changes {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if s := b.Sleep(l.ID); s != nil || largest != 2 {
		t.Errorf("there is %+v, in a commit of %d changes", s, largest)
	}
}

// A pause without a mode ends what is recorded of one that sleeps already, with a flight that is
// under way; of one of which nothing is recorded it is no change, and a reconciler's never is.
func TestAPlainPauseEndsASleep(t *testing.T) {
	b := Open(t)
	l := asleep(t, b, "a", frozen())
	if _, _, _, err := b.Wake(ctx, reconciling, l.ID, time.Minute, ipam.Cause{By: ipam.ByCall}, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Pause(ctx, client, l.ID, l.Rev); !errors.Is(err, ipam.ErrStale) || b.Sleep(l.ID) == nil {
		t.Errorf("of a revision before: %v, %+v", err, b.Sleep(l.ID))
	}
	rev := b.Rev()
	if _, err := b.Pause(ctx, reconciling, l.ID, 0); err != nil || b.Rev() != rev || b.Sleep(l.ID) == nil {
		t.Errorf("found paused: %v, %+v", err, b.Sleep(l.ID))
	}
	for range 2 {
		if now, err := b.Pause(ctx, client, l.ID, 0); err != nil || now.State != ipam.Paused || now.Since != l.Since || now.Rev != rev+1 || b.Sleep(l.ID) != nil {
			t.Errorf("%+v, %v: %+v", now, err, b.Sleep(l.ID))
		}
	}
}

// Z17: a wake of a lease that was paused without a mode says no mode either, whatever becomes of it, and
// over a restart; the next pause that says one counts.
func TestZ17AWakeSaysNoMode(t *testing.T) {
	path := filepath.Join(t.TempDir(), "book.db")
	b := OpenAt(t, path, Options())
	Pool(t, b, "default", "10.8.64.0/24")
	l := asleep(t, b, "a", frozen())
	if _, err := b.Pause(ctx, client, l.ID, 0); err != nil {
		t.Fatal(err)
	}
	is := func(what string, want bool) {
		t.Helper()
		if s := b.Sleep(l.ID); s == nil || s.Flight == nil || s.Plain != want {
			t.Errorf("%s: %+v", what, s)
		}
	}
	wake := func() {
		t.Helper()
		_, f, _, err := b.Wake(ctx, reconciling, l.ID, time.Minute, ipam.Cause{By: ipam.ByCall}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := b.Land(ctx, reconciling, l.ID, f.ID, ipam.TimedOut, ""); err != nil {
			t.Fatal(err)
		}
	}
	wake()
	is("woken in vain", true)
	Close(t, b)
	b = OpenAt(t, path, Options())
	is("after a restart", true)
	wake()
	is("woken in vain again", true)
	before := b.Sleep(l.ID)
	how := ipam.Sleep{Mode: ipam.Freeze}
	now, err := b.PauseAs(ctx, client, l.ID, 0, how)
	if err != nil {
		t.Fatal(err)
	}
	is("said to be frozen", false)
	if s := b.Sleep(l.ID); s.Still {
		t.Errorf("seen to stand still by nobody: %+v", s)
	}
	if _, err := b.TakeBack(ctx, reconciling, l.ID, now.Since, how, ipam.Paused, before); err != nil {
		t.Fatal(err)
	}
	is("taken back", true)
	if now, err = b.PauseAs(ctx, client, l.ID, 0, how); err != nil {
		t.Fatal(err)
	}
	if _, _, _, err := b.Wake(ctx, reconciling, l.ID, time.Minute, ipam.Cause{By: ipam.ByCall}, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := b.TakeBack(ctx, reconciling, l.ID, now.Since, how, ipam.Paused, nil); err != nil {
		t.Fatal(err)
	}
	is("taken back to nothing, with a flight", true)
}

// A pause that is taken back leaves the lease as it was; a flight that began meanwhile goes on with one
// that sleeps on, and others' later pauses and moves stand.
func TestAPauseIsTakenBack(t *testing.T) {
	b := Open(t)
	l := Reserve(t, b, "a")
	if _, err := b.Bind(ctx, client, l.ID, 0, ipam.Binding{HostInterface: "veth-a"}); err != nil {
		t.Fatal(err)
	}
	back := func(what string, l *ipam.Lease, was ipam.State, before *ipam.Sleep, refused bool) {
		t.Helper()
		rev := b.Rev()
		now, err := b.TakeBack(ctx, reconciling, l.ID, l.Since, frozen(), was, before)
		if errors.Is(err, ipam.ErrState) != refused || !refused && (err != nil || now.State != was) || refused && b.Rev() != rev {
			t.Errorf("%s: %+v, %v", what, now, err)
		}
	}
	pause := func(how ipam.Sleep) *ipam.Lease {
		t.Helper()
		l, err := b.PauseAs(ctx, client, l.ID, 0, how)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	zeroth := pause(frozen())
	if _, _, _, err := b.Wake(ctx, reconciling, l.ID, time.Minute, ipam.Cause{By: ipam.ByCall}, nil); err != nil {
		t.Fatal(err)
	}
	back("of a bound one, with a flight, which ends", zeroth, ipam.Bound, nil, false)
	if s := b.Sleep(l.ID); s != nil {
		t.Errorf("%+v is recorded", s)
	}
	first := pause(frozen())
	back("of a bound one", first, ipam.Bound, nil, false)
	if s := b.Sleep(l.ID); s != nil {
		t.Errorf("%+v is recorded", s)
	}
	back("again", first, ipam.Bound, nil, true)
	second := pause(frozen())
	back("of the pause before", first, ipam.Bound, nil, true)
	hibernated := ipam.Sleep{Mode: ipam.Hibernate}
	pause(hibernated)
	back("paused in another way since", second, ipam.Bound, nil, true)
	if _, err := b.Pause(ctx, client, l.ID, 0); err != nil {
		t.Fatal(err)
	}
	for _, before := range []*ipam.Sleep{nil, &hibernated} {
		third := pause(frozen())
		_, f, _, err := b.Wake(ctx, reconciling, l.ID, time.Minute, ipam.Cause{By: ipam.ByCall}, nil)
		if err != nil {
			t.Fatal(err)
		}
		back("with a flight", third, ipam.Paused, before, false)
		if s := b.Sleep(l.ID); s == nil || s.Wake != nil || s.Flight == nil || s.Flight.ID != f.ID || !s.Flight.Open() {
			t.Errorf("%+v is recorded", s)
		}
		if _, err := b.Land(ctx, reconciling, l.ID, f.ID, ipam.TimedOut, ""); err != nil {
			t.Fatal(err)
		}
	}
}

// That the tasks of a sleeper were seen to stand still is of one pause: it survives a restart and
// another policy, and begins anew with the next pause and with another mode.
func TestThatASleeperStandsStill(t *testing.T) {
	path := filepath.Join(t.TempDir(), "book.db")
	b := OpenAt(t, path, Options())
	Pool(t, b, "default", "10.8.64.0/24")
	l := asleep(t, b, "a", frozen())
	is := func(what string, want bool) {
		t.Helper()
		if s := b.Sleep(l.ID); s == nil || s.Still != want {
			t.Errorf("%s: %+v", what, s)
		}
	}
	pause := func(what string, want bool, how ipam.Sleep) {
		t.Helper()
		if _, err := b.PauseAs(ctx, client, l.ID, 0, how); err != nil {
			t.Fatal(what, err)
		}
		is(what, want)
	}
	seen := func(rev int64) error { return second(b.Still(ctx, reconciling, l.ID, rev)) }
	is("paused a moment ago", false)
	if err := seen(l.Rev - 1); !errors.Is(err, ipam.ErrStale) {
		t.Errorf("seen before the pause: %v", err)
	}
	is("seen before the pause", false)
	for range 2 {
		if err := seen(l.Rev); err != nil || b.Rev() != l.Rev+1 {
			t.Errorf("seen: %v, and the book is at %d after %d", err, b.Rev(), l.Rev)
		}
		is("seen", true)
	}
	Close(t, b)
	b = OpenAt(t, path, Options())
	is("after a restart", true)
	other := frozen()
	other.Wake.Ports = nil
	pause("another policy", true, other)
	pause("another mode", false, ipam.Sleep{Mode: ipam.Hibernate})
	if _, err := b.Resume(ctx, client, l.ID, 0); err != nil {
		t.Fatal(err)
	}
	if err := seen(0); !errors.Is(err, ipam.ErrState) {
		t.Errorf("seen, of a bound one: %v", err)
	}
	if _, err := b.Pause(ctx, Who(ipam.ByReconciler, ipam.RuntimePaused), l.ID, 0); err != nil {
		t.Fatal(err)
	}
	is("seen by a pass, and paused for it", true)
	pause("that it hibernates, behind a pass that saw it frozen for that", false, ipam.Sleep{Mode: ipam.Hibernate})
	if _, err := b.Resume(ctx, client, l.ID, 0); err != nil {
		t.Fatal(err)
	}
	pause("paused anew", false, ipam.Sleep{Mode: ipam.Hibernate})
	if _, err := b.Release(ctx, client, l.ID, "", 0); err != nil {
		t.Fatal(err)
	}
	if err := seen(0); !errors.Is(err, ipam.ErrState) {
		t.Errorf("seen, of a released one: %v", err)
	}
}

// Z4: however many ask at once, by traffic and by call, there is one flight, and one change;
// its key is the lease.
func TestZ4OneFlightALease(t *testing.T) {
	b := Open(t)
	l, other := asleep(t, b, "a", frozen()), asleep(t, b, "b", frozen())
	rev := b.Rev()
	flights := make(chan string, 100)
	var all sync.WaitGroup
	for i := range 100 {
		all.Go(func() {
			by := ipam.Cause{By: ipam.ByCall}
			if i%2 == 0 {
				by = ipam.Cause{By: ipam.ByTraffic, Protocol: ipam.TCP, Port: 80, Source: netip.MustParseAddr("10.8.64.9")}
			}
			_, f, _, err := b.Wake(ctx, reconciling, l.ID, time.Minute, by, nil)
			if err != nil {
				t.Error(err)
				return
			}
			flights <- f.ID
		})
	}
	all.Wait()
	close(flights)
	ids := make(map[string]int)
	for id := range flights {
		ids[id]++
	}
	if len(ids) != 1 || b.Rev() != rev+1 {
		t.Errorf("flights %v, and %d changes", ids, b.Rev()-rev)
	}
	_, f, begun, err := b.Wake(ctx, reconciling, other.ID, time.Minute, ipam.Cause{By: ipam.ByCall}, nil)
	if err != nil || !begun || ids[f.ID] != 0 {
		t.Errorf("another lease: %+v, %v, %v", f, begun, err)
	}
}

// A flight goes from requested over waking to its end, survives a restart in each of these,
// and a resume by any means ends it.
func TestAFlightSurvivesARestart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "book.db")
	b := OpenAt(t, path, Options())
	Pool(t, b, "default", "10.8.64.0/24")
	l := asleep(t, b, "a", frozen())
	cause := ipam.Cause{By: ipam.ByTraffic, Source: netip.MustParseAddr("10.8.64.9"), Port: 80, Protocol: ipam.TCP, Rule: "tcp to 80"}
	_, f, _, err := b.Wake(ctx, reconciling, l.ID, time.Minute, cause, evidence)
	if err != nil {
		t.Fatal(err)
	}
	again := func(phase ipam.FlightPhase) {
		t.Helper()
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		b = OpenAt(t, path, Options())
		if is := b.Sleep(l.ID).Flight; is.ID != f.ID || is.Phase != phase || is.Cause != cause || is.Within != time.Minute {
			t.Errorf("after a restart: %+v", is)
		}
	}
	again(ipam.Requested)
	if _, err := b.TakeOn(ctx, Who(ipam.ByClient, "waking"), l.ID, f.ID); err != nil {
		t.Fatal(err)
	}
	again(ipam.Waking)
	if _, err := b.Resume(ctx, Who(ipam.ByReconciler, "runtime_resumed"), l.ID, 0); err != nil {
		t.Fatal(err)
	}
	again(ipam.Ended)
	if is := b.Sleep(l.ID).Flight; is.Result != ipam.Woken || is.Attempts != 1 {
		t.Errorf("resumed by others: %+v", is)
	}
	if now, none, begun, err := b.Wake(ctx, reconciling, l.ID, time.Minute, cause, nil); err != nil || none != nil || begun || now.State != ipam.Bound {
		t.Errorf("woken while it is bound: %+v, %+v, %v", now, none, err)
	}
}

// A late acknowledgement, and one of a flight that is unknown, change nothing and say so. Z10: nor
// does one for a lease that was released while it was woken, whose flight ended with it.
func TestZ10LateAcknowledgementsChangeNothing(t *testing.T) {
	b := Open(t)
	l := asleep(t, b, "a", frozen())
	_, first, _, err := b.Wake(ctx, reconciling, l.ID, time.Minute, ipam.Cause{By: ipam.ByCall}, nil)
	if err != nil {
		t.Fatal(err)
	}
	late := func(flight string, want error) {
		t.Helper()
		rev := b.Rev()
		for what, err := range map[string]error{
			"taken on": second(b.TakeOn(ctx, reconciling, l.ID, flight)), "announced again": second(b.Announce(ctx, reconciling, l.ID, flight)),
			"woken": second(b.Land(ctx, reconciling, l.ID, flight, ipam.Woken, "")), "refused": second(b.Land(ctx, reconciling, l.ID, flight, ipam.Refused, "no")),
		} {
			if !errors.Is(err, want) {
				t.Errorf("%s: %v, want %v", what, err, want)
			}
		}
		if b.Rev() != rev {
			t.Errorf("revision went from %d to %d", rev, b.Rev())
		}
	}
	late("0197f2c0-5b7e-7c3a-9d41-2f6f0a1b2c3d", ipam.ErrFlightUnknown)
	if _, err := b.Land(ctx, reconciling, l.ID, first.ID, ipam.Refused, "it is gone"); err != nil {
		t.Fatal(err)
	}
	late(first.ID, ipam.ErrFlightEnded)
	_, next, begun, err := b.Wake(ctx, reconciling, l.ID, time.Minute, ipam.Cause{By: ipam.ByCall}, nil)
	if err != nil || !begun {
		t.Fatal(next, err)
	}
	late(first.ID, ipam.ErrFlightUnknown)
	if _, err := b.Release(ctx, client, l.ID, "", 0); err != nil {
		t.Fatal(err)
	}
	late(next.ID, ipam.ErrFlightUnknown)
	Cool(t, b, l)
	late(next.ID, ipam.ErrFlightUnknown)
}

// Z6: after a flight that failed traffic begins the next one no sooner than the back-off, from 1 s
// to 30 s; a call is not held up, and one that succeeds ends it.
func TestZ6TrafficBacksOff(t *testing.T) {
	c := NewClock()
	b, _ := openWith(t, c, "10.8.64.0/24")
	l := asleep(t, b, "a", frozen())
	traffic := ipam.Cause{By: ipam.ByTraffic}
	wake := func(by ipam.Cause) (*ipam.Flight, error) {
		_, f, _, err := b.Wake(ctx, reconciling, l.ID, time.Minute, by, nil)
		return f, err
	}
	for i, pause := range []time.Duration{1, 2, 4, 8, 16, 30, 30} {
		f, err := wake(traffic)
		if err != nil {
			t.Fatal(i, err)
		}
		if _, err := b.Land(ctx, reconciling, l.ID, f.ID, ipam.TimedOut, fmt.Sprint("attempt ", i)); err != nil {
			t.Fatal(err)
		}
		c.Pass(pause*time.Second - time.Millisecond)
		if f, err := wake(traffic); !errors.Is(err, ipam.ErrBackOff) {
			t.Errorf("%v after failure %d: %+v, %v", pause*time.Second, i+1, f, err)
		}
		c.Pass(time.Millisecond)
	}
	f, err := wake(traffic)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Land(ctx, reconciling, l.ID, f.ID, ipam.Refused, "no"); err != nil {
		t.Fatal(err)
	}
	if f, err = wake(ipam.Cause{By: ipam.ByCall}); err != nil {
		t.Fatal("a call is held up:", err)
	}
	if _, err := b.Land(ctx, reconciling, l.ID, f.ID, ipam.Woken, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Pause(ctx, client, l.ID, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := wake(traffic); err != nil {
		t.Error("held up after one that succeeded:", err)
	}
}

// A sandbox that others have resumed since its wakes failed is well: the next pause begins without a
// back-off, and so does the one after a failure in it.
func TestZ6ABackOffEndsWithTheResume(t *testing.T) {
	c := NewClock()
	b, _ := openWith(t, c, "10.8.64.0/24")
	l := asleep(t, b, "a", frozen())
	fail := func() (failed int) {
		_, f, _, err := b.Wake(ctx, reconciling, l.ID, time.Minute, ipam.Cause{By: ipam.ByTraffic}, nil)
		if err != nil {
			t.Error("traffic is held up:", err)
			return 0
		}
		if _, err := b.Land(ctx, reconciling, l.ID, f.ID, ipam.TimedOut, ""); err != nil {
			t.Fatal(err)
		}
		return b.Sleep(l.ID).Flight.Failed
	}
	for range 3 {
		fail()
		c.Pass(30 * time.Second)
	}
	fail()
	if _, err := b.Resume(ctx, client, l.ID, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := b.PauseAs(ctx, client, l.ID, 0, frozen()); err != nil {
		t.Fatal(err)
	}
	if n := fail(); n != 1 {
		t.Errorf("%d wakes in a row have failed, by what is recorded", n)
	}
}

// A row of a sleep that was edited to mean nothing is reported and passed over: its lease is
// paused without a policy, a call wakes it, and no other row is touched by it.
func TestSleepsThatMeanNothing(t *testing.T) {
	for name, c := range map[string]struct{ edit, says string }{
		"a policy with a field of another type": {`policy = '{"ports": "80"}'`, "policy"},
		"a policy that cannot be":               {`policy = '{"protocols": ["sctp"]}'`, "wake.protocols[0]"},
		"sources of another family":             {`policy = '{"sources": ["fd00::/64"]}'`, "wake.sources[0]"},
		"a task that ipamd cannot make anew":    {`mode = 'hibernate', do_pause = 1`, "do"},
		"a flight in no phase":                  {`flight = '{"id": "f", "phase": "landed"}'`, "flight"},
		"a flight that is none":                 {`flight = 'null'`, "flight"},
		"a lease that is not there":             {`lease_id = '00000000-0000-0000-0000-000000000000'`, "no open lease"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "book.db")
			b := OpenAt(t, path, Options())
			Pool(t, b, "default", "10.8.64.0/24")
			edited, other := asleep(t, b, "a", frozen()), asleep(t, b, "b", frozen())
			Close(t, b)
			if err := tryRaw(path, fmt.Sprintf(`UPDATE sleeps SET %s WHERE lease_id = '%s'`, c.edit, edited.ID)); err != nil {
				t.Fatal(err)
			}
			b = OpenAt(t, path, Options())
			bad := b.Info().Unreadable
			if len(bad) != 1 || !strings.HasPrefix(bad[0].Row, "sleep of ") || !strings.Contains(bad[0].Reason, c.says) {
				t.Errorf("it reports %+v", bad)
			}
			if b.Sleep(edited.ID) != nil || b.Sleep(other.ID) == nil {
				t.Errorf("%+v, and beside it %+v", b.Sleep(edited.ID), b.Sleep(other.ID))
			}
			if l, f, begun, err := b.Wake(ctx, reconciling, edited.ID, time.Minute, ipam.Cause{By: ipam.ByCall}, nil); err != nil || !begun || f == nil || l.State != ipam.Paused {
				t.Error(l, f, begun, err)
			}
			if err := b.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}
