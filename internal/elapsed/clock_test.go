package elapsed

import (
	"fmt"
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
	c := NewClock(func() Stamp { return s })
	for i := range 10_000 {
		s.Boottime += 10 * time.Millisecond
		s.Mono = s.Boottime + time.Duration(i%3)*2*time.Millisecond
		c.Now()
	}
	if lost := (s.Boottime - c.Now().Boottime).Abs(); lost > clockJitter {
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
		c := NewClock(func() Stamp { return l.Stamp })
		type mark struct {
			stamp Stamp
			truth time.Duration
		}
		var marks []mark
		var last Last
		note := func() {
			s := c.Now()
			marks, last = append(marks, mark{s, l.truth}), Last{s, c.Uptime()}
		}
		note()
		started, lied := l.truth, ""
		// Since a change was recorded one of the two clocks may be wrong; with
		// both wrong nothing could show it.
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
				c.Now()
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
				c = NewClock(func() Stamp { return l.Stamp })
				c.Resume(last)
				started = l.truth
			}
			now := c.Now()
			for _, m := range marks {
				if got := now.Since(m.stamp); got > l.truth-m.truth {
					t.Fatalf("credited with %v, of %v", got, l.truth-m.truth)
				}
			}
		}
		l.pass(3 * time.Hour)
		now := c.Now()
		for _, m := range marks {
			if got := now.Since(m.stamp); got < 3*time.Hour && m.truth <= started {
				t.Fatalf("three hours later, with clocks that are well, credited with %v", got)
			}
		}
	})
}

// F20: what cannot be is reported, and is treated as a reboot; what can be is not.
func TestF20ClocksThatCannotBe(t *testing.T) {
	was := Last{Stamp{Wall: time.Unix(1_750_000_000, 0), Boottime: 2 * time.Hour, BootID: "one"}, 5 * time.Hour}
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
		s := Stamp{Wall: was.At.Wall.Add(tt.wall), Boottime: tt.uptime, Mono: tt.uptime, BootID: tt.boot}
		c := NewClock(func() Stamp { return s })
		c.Resume(was)
		since, odd := c.Oddity()
		if got := c.Now().Since(was.At); got != tt.credit || (odd != nil) != tt.odd || odd != nil && !since.Equal(s.Wall) {
			t.Errorf("%s: credited with %v, want %v; odd %v", name, got, tt.credit, odd)
		}
	}
}

// A boot is compared by the kernel's id, which each era of it begins with.
func TestSameBoot(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		a, b string
		same bool
	}{
		{"one", "one", true},
		{"one", "one+1234abcd", true},
		{"one+1234abcd", "one", true},
		{"one+1234abcd", "one+5678abcd", true},
		{"one", "two", false},
		{"one+1234abcd", "two+1234abcd", false},
		{"one", "", false},
		{"", "", false}, // what was never recorded is of no boot
	} {
		if got := SameBoot(tt.a, tt.b); got != tt.same {
			t.Errorf("%q and %q: %v", tt.a, tt.b, got)
		}
		if got := !(Stamp{BootID: tt.a}).Rebooted(Stamp{BootID: tt.b}); got != tt.same {
			t.Errorf("stamps of %q and %q: %v", tt.a, tt.b, got)
		}
	}
}
