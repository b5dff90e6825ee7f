package netdb

import (
	"context"
	"fmt"
	"net/netip"
	"path/filepath"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// A life is a machine with its clocks, and what has truly passed.
type life struct {
	truth time.Duration
	Stamp // as the machine's clocks show it
	boots int
}

func (l *life) pass(d time.Duration) {
	l.truth += d
	l.Wall, l.Boottime, l.Mono = l.Wall.Add(d), l.Boottime+d, l.Mono+d
}

// F20: two clocks are read at two moments, and that adds up to nothing: stamps
// stay beside what has passed, however many there are.
func TestF20ReadingTwoClocksLosesNoTime(t *testing.T) {
	s := Stamp{Wall: time.Unix(1_750_000_000, 0), Boottime: time.Hour, Mono: time.Hour, BootID: "one"}
	c := &clock{read: func() Stamp { return s }}
	c.begin()
	for i := range 10_000 {
		s.Boottime += 10 * time.Millisecond
		s.Mono = s.Boottime + time.Duration(i%3)*2*time.Millisecond
		c.now()
	}
	if lost := (s.Boottime - c.now().Boottime).Abs(); lost > clockJitter {
		t.Errorf("%v away from what has passed", lost)
	}
}

// F20: whatever one of the machine's clocks does, and in whatever order daemons
// start and stop, no stamp is credited with more than has truly passed. A wait
// ends, too: no later than its full length after the last start.
func TestF20NoMoreThanHasPassed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := &life{Stamp: Stamp{Wall: time.Unix(1_750_000_000, 0), Boottime: time.Hour, Mono: time.Hour, BootID: "boot 0"}}
		span := func(name string) time.Duration {
			return rapid.SampledFrom([]time.Duration{0, time.Second, time.Minute, time.Hour, 50 * time.Hour}).Draw(t, name)
		}
		either := func(name string) time.Duration {
			return span(name) * time.Duration(rapid.SampledFrom([]int{-1, 1}).Draw(t, name+" sign"))
		}
		c := &clock{read: func() Stamp { return l.Stamp }}
		c.begin()
		type mark struct {
			stamp Stamp
			truth time.Duration
		}
		var marks []mark
		var last lastChange
		note := func() {
			s := c.now()
			marks, last = append(marks, mark{s, l.truth}), lastChange{s, c.uptime()}
		}
		note()
		started, lied := l.truth, ""
		// Since a change was recorded one of the two clocks may be wrong; with
		// both wrong nothing could tell.
		lie := func(clock string) bool {
			if lied != "" && lied != clock {
				return false
			}
			lied = clock
			return true
		}
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			switch step := rapid.IntRange(0, 8).Draw(t, "step"); step {
			case 0, 1:
				l.pass(span("passes"))
			case 2:
				note()
				lied = ""
			case 3: // suspended: CLOCK_MONOTONIC stands still
				d := span("suspended")
				l.truth += d
				l.Wall, l.Boottime = l.Wall.Add(d), l.Boottime+d
			case 4: // a time service, or a person
				if lie("wall") {
					l.Wall = l.Wall.Add(either("wall"))
				}
			case 5: // a restored machine
				if lie("boottime") {
					l.Boottime = max(0, l.Boottime+either("boottime"))
				}
			default: // the daemon is started again, perhaps by another boot
				c.now()
				l.pass(span("down"))
				switch step {
				case 7:
					up := min(span("up"), l.truth-marks[len(marks)-1].truth)
					l.boots++
					l.BootID, l.Boottime, l.Mono = fmt.Sprint("boot ", l.boots), up, up
				case 8:
					if lie("boottime") { // another boot's id, and no reboot
						l.boots++
						l.BootID = fmt.Sprint("boot ", l.boots)
					}
				}
				c = &clock{read: func() Stamp { return l.Stamp }}
				c.begin()
				c.resume(last, c.read())
				started = l.truth
			}
			now := c.now()
			for _, m := range marks {
				if got := now.Since(m.stamp); got > l.truth-m.truth {
					t.Fatalf("credited with %v, of %v", got, l.truth-m.truth)
				}
			}
		}
		l.pass(3 * time.Hour)
		now := c.now()
		for _, m := range marks {
			if got := now.Since(m.stamp); got < 3*time.Hour && m.truth <= started {
				t.Fatalf("three hours later, with clocks that are well, credited with %v", got)
			}
		}
	})
}

// F20: a cooldown of a real book, while CLOCK_BOOTTIME jumps under the daemon and
// between two of them, and the boot's id is exchanged: it ends when it has passed,
// or later, and at the latest its full length after the last start.
func TestF20ACooldownUnderClocksThatJump(t *testing.T) {
	s := Stamp{Wall: time.Unix(1_750_000_000, 0), Boottime: time.Hour, Mono: time.Hour, BootID: "one"}
	pass := func(d time.Duration) { s.Wall, s.Boottime, s.Mono = s.Wall.Add(d), s.Boottime+d, s.Mono+d }
	opts := Options{Synchronous: "full", QuarantineShare: 0.25, Tombstone: time.Hour, KeepChanges: 1000, KeepFor: time.Hour,
		Now: func() Stamp { return s }}
	path := filepath.Join(t.TempDir(), "book.db")
	var b *Book
	open := func() {
		t.Helper()
		var err error
		if b != nil {
			if err = b.Close(); err != nil {
				t.Fatal(err)
			}
		}
		if b, err = Open(path, opts); err != nil {
			t.Fatal(err)
		}
	}
	open()
	t.Cleanup(func() { b.Close() })
	ctx, op := context.Background(), Who{Actor: ByOperator, Reason: "test"}
	pool, err := b.EnsurePool(ctx, op, PoolSpec{Name: "p", Prefix: netip.MustParsePrefix("10.8.64.0/30"), Gateway: netip.MustParseAddr("10.8.64.1"), Bridge: "rt0"})
	if err != nil {
		t.Fatal(err)
	}
	q, err := b.Quarantine(ctx, op, netip.MustParseAddr("10.8.64.2"), []byte(`[{}]`))
	if err == nil {
		_, err = b.ClearAt(ctx, op, q.ID, q.Rev, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	policy := Policy{Cooldown: 30 * time.Minute, CooldownMin: time.Minute, Strict: true}
	rests := func(want bool, when string) {
		t.Helper()
		c, err := b.Pick(pool.UID, policy)
		if err == nil {
			b.Drop(c)
		}
		if (err != nil) != want {
			t.Errorf("%s: it rests %v (%v)", when, !want, err)
		}
	}
	s.Boottime += 48 * time.Hour
	rests(true, "a jump forward under the daemon")
	pass(20 * time.Minute)
	s.Boottime += 48 * time.Hour
	open()
	rests(true, "a jump forward between two daemons")
	pass(9 * time.Minute)
	rests(true, "29 minutes")
	pass(time.Minute)
	rests(false, "30 minutes")
	s.BootID = "two"
	open()
	rests(true, "another boot's id, while the uptime goes on")
	if why := b.Info().Clock; why == nil {
		t.Error("what cannot be is not reported")
	}
	s.Boottime = time.Minute
	rests(true, "a jump backward")
	pass(30 * time.Minute)
	rests(false, "its full length after the start")
}

// F20: what cannot be is reported, and is treated as a reboot; what can be is not.
func TestF20ClocksThatCannotBe(t *testing.T) {
	was := lastChange{Stamp{Wall: time.Unix(1_750_000_000, 0), Boottime: 2 * time.Hour, BootID: "one"}, 5 * time.Hour}
	for name, tt := range map[string]struct {
		boot         string
		uptime, wall time.Duration // the wall's since the last change
		credit       time.Duration
		odd          bool
	}{
		"a restart":                              {"one", 6 * time.Hour, time.Hour, time.Hour, false},
		"a restart, the wall clock stepped":      {"one", 6 * time.Hour, -24 * time.Hour, 0, false},
		"a restart, the uptime jumped":           {"one", 90 * time.Hour, time.Hour, time.Hour, false},
		"the uptime went back in one boot":       {"one", 4 * time.Hour, time.Hour, 0, true},
		"a reboot":                               {"two", 10 * time.Minute, time.Hour, 10 * time.Minute, false},
		"a reboot, a clock without a battery":    {"two", 10 * time.Minute, -50 * 365 * 24 * time.Hour, 0, false},
		"another boot's id, and the uptime goes": {"two", 6 * time.Hour, time.Hour, 0, true},
	} {
		s := Stamp{Wall: was.at.Wall.Add(tt.wall), Boottime: tt.uptime, Mono: tt.uptime, BootID: tt.boot}
		c := &clock{read: func() Stamp { return s }}
		c.begin()
		c.resume(was, s)
		since, odd := c.oddity()
		if got := c.now().Since(was.at); got != tt.credit || (odd != nil) != tt.odd || odd != nil && !since.Equal(s.Wall) {
			t.Errorf("%s: credited with %v, want %v; told %v", name, got, tt.credit, odd)
		}
	}
}
