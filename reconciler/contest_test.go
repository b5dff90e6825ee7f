package reconciler

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/internal/realtest"
	"github.com/ipamd/ipamd/ipam"
)

// noted counts the changes of a book that note conflicts, by their reason.
func (y *yard) noted() (begun, ended int) {
	y.t.Helper()
	past, err := y.book.History(ctx, ipam.Query{Limit: 10_000})
	if err != nil {
		y.t.Fatal(err)
	}
	for _, c := range past {
		switch c.Who.Reason {
		case ipam.ConflictSeen:
			begun++
		case ipam.ConflictOver:
			ended++
		}
	}
	return begun, ended
}

// A stranger that comes and goes every second for an hour is noted a few times,
// and its conflict ends when the witnesses have all been silent about it for long
// enough: a witness that cannot answer ends nothing.
func TestF27FlappingStrangerFloodsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := runShift(t, nil)
		defer s.stop()
		l := s.hold("A", "c1")
		own := container("c1", owner("A"), ip(l.Addr.String()), runs)
		other := container("c2", owner("B"), ip(l.Addr.String()), runs)
		for range 1800 {
			s.show(own, other)
			wait(ctx, time.Second)
			s.show(own)
			wait(ctx, time.Second)
		}
		if begun, ended := s.noted(); begun != 1 || ended != 0 {
			t.Errorf("an hour of flapping: %d begins and %d ends", begun, ended)
		}
		if n := s.Conflicts(); n != 1 {
			t.Errorf("%d conflicts stand", n)
		}
		s.show(own, silent(netns))
		wait(ctx, time.Hour)
		if _, ended := s.noted(); ended != 0 {
			t.Error("it ended while a witness was silent")
		}
		s.show(own)
		wait(ctx, calmLeast+time.Second)
		if _, ended := s.noted(); ended != 1 || s.Conflicts() != 0 {
			t.Errorf("in the calm: %d ends, %d stand", ended, s.Conflicts())
		}
		// One that is slower than the shortest calm is noted less and less often.
		for range 60 {
			s.show(own, other)
			wait(ctx, time.Minute)
			s.show(own)
			wait(ctx, time.Minute)
		}
		if begun, _ := s.noted(); begun < 3 || begun > 10 {
			t.Errorf("two hours of a slow one: %d begins", begun)
		}
	})
}

// What lasts for less than contestWithin is a sandbox that is plugged anew, and
// no conflict. A stranger on every address of a pool is found everywhere and
// noted a bounded number of times.
func TestF27NotesAreBounded(t *testing.T) {
	realtest.Long(t)
	synctest.Test(t, func(t *testing.T) {
		s := &shift{}
		s = runShift(t, func(r *shift) { s = r })
		defer s.stop()
		var owners, strangers []line
		for i := range 253 {
			sandbox, id := fmt.Sprint("A", i), fmt.Sprint("c", i)
			l := s.hold(sandbox, id)
			owners = append(owners, container(id, owner(sandbox), ip(l.Addr.String()), runs))
			strangers = append(strangers, container(fmt.Sprint("x", i), owner("B"), ip(l.Addr.String()), runs))
		}
		s.show(owners...)
		wait(ctx, time.Minute)
		s.show(slices.Concat(owners, strangers)...)
		wait(ctx, contestWithin/2)
		s.show(owners...)
		wait(ctx, time.Minute)
		if begun, _ := s.noted(); begun != 0 {
			t.Errorf("a moment of another port: %d begins", begun)
		}
		for range 5 {
			s.show(slices.Concat(owners, strangers)...)
			wait(ctx, time.Minute)
			if s.Conflicts() != 253 {
				t.Errorf("%d conflicts stand", s.Conflicts())
			}
			s.show(owners...)
			wait(ctx, 10*time.Minute)
		}
		if begun, ended := s.noted(); begun < notesMost || begun > notesMost+int(time.Hour/noteEvery) || ended != begun {
			t.Errorf("%d begins, %d ends", begun, ended)
		}
	})
}

// What a label alone claims of a reserved lease is found and not noted; what lives with
// the address is noted, and so is a label beside it.
func TestF27ALabelNotesNothingOnAReservedLease(t *testing.T) {
	const a2 = "10.8.64.2"
	reservation := lease(a2, reserved, "A", age(time.Minute))
	for name, tt := range map[string]struct {
		more  []line
		noted bool
	}{
		"a record":                       {[]line{container("c2", owner("B"), ip(a2))}, false},
		"a task in another namespace":    {[]line{container("c2", owner("B"), ip(a2), runs, home("veth9"))}, false},
		"a record that names no owner":   {[]line{container("c1", owner("A"), ip(a2)), container("c2", ip(a2))}, false},
		"a task that lives with it":      {[]line{lives("c2", "B", a2)}, true},
		"one of two namespaces is its":   {[]line{lives("c1", "A", a2), lives("c2", "B", a2)}, true},
		"a record, and the host has it":  {[]line{container("c2", owner("B"), ip(a2)), seen(host, a2)}, true},
		"a record, and another lives so": {[]line{container("c2", owner("B"), ip(a2)), lives("c3", "C", a2)}, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := worldOf(append(tt.more, reservation)...)
			w.known.contests = map[string]contest{"lease of " + a2: {seen: true, since: after(-time.Second)}}
			d := w.decide()
			noted := slices.ContainsFunc(d.steps, func(s step) bool { return s.Kind == ConflictSeen })
			if noted != tt.noted || len(d.findings) == 0 || (d.standing > 0) != tt.noted {
				t.Errorf("noted %v, %d stand, found %v", noted, d.standing, d.findings)
			}
		})
	}
}

// G3, G6: what another claims by labels and frames alone is noted on a bound or paused
// lease, and holds up none of its own changes.
func TestG3G6ClaimsHoldUpNoPause(t *testing.T) {
	const a2 = "10.8.64.2"
	noted := func(l *ipam.Lease) { l.Conflict = []byte(`[{"witness":"probe"}]`) }
	for name, tt := range map[string]struct {
		more []line
		held bool
	}{
		"a record":                      {[]line{container("c2", owner("B"), ip(a2))}, false},
		"a task in another namespace":   {[]line{container("c2", owner("B"), ip(a2), runs, home("veth9"))}, false},
		"frames":                        {[]line{seen(neighbour, a2, port("veth9")), seen(census.Probe, a2, port("veth9"))}, false},
		"a record and frames":           {[]line{container("c2", owner("B"), ip(a2)), seen(census.Probe, a2, port("veth9"))}, false},
		"a task that lives with it":     {[]line{lives("c2", "B", a2)}, true},
		"another namespace has it":      {[]line{seen(netns, a2, port("veth9"))}, true},
		"a record, and the host has it": {[]line{container("c2", owner("B"), ip(a2)), seen(host, a2)}, true},
	} {
		for _, own := range []struct {
			state ipam.State
			task  string
			kind  string
		}{{bound, taskPaused, Pause}, {paused, taskRunning, Resume}} {
			t.Run(name+", "+own.kind, func(t *testing.T) {
				w := worldOf(append(tt.more, container("c1", owner("A"), ip(a2), task(own.task)),
					lease(a2, own.state, "A", age(time.Hour), containers("c1"), on("veth1"), noted))...)
				d := w.decide()
				held := !slices.ContainsFunc(d.steps, func(s step) bool { return s.Kind == own.kind })
				if held != tt.held || d.standing != 1 || len(d.findings) == 0 {
					t.Errorf("held %v, %d stand, found %v, does %q", held, d.standing, d.findings, d.list())
				}
			})
		}
	}
}
