package doctor

import (
	"testing"
	"time"

	"github.com/ipamd/ipamd/ipam"
)

// A wall clock that was moved since the start is reported by how far and which way;
// time that passes is no step.
func TestClockStep(t *testing.T) {
	for _, tt := range []struct {
		name string
		was  func(*ipam.Stamp) // of the start, as seen from now
		want time.Duration
	}{
		{"started just now", func(*ipam.Stamp) {}, 0},
		{"an hour has passed", func(s *ipam.Stamp) { s.Wall, s.Boottime = s.Wall.Add(-time.Hour), s.Boottime-time.Hour }, 0},
		{"moved forward by an hour", func(s *ipam.Stamp) { s.Wall = s.Wall.Add(-time.Hour) }, time.Hour},
		{"moved back by an hour", func(s *ipam.Stamp) { s.Wall = s.Wall.Add(time.Hour) }, -time.Hour},
		{"moved back by two hours in the course of one", func(s *ipam.Stamp) {
			s.Wall, s.Boottime = s.Wall.Add(time.Hour), s.Boottime-time.Hour
		}, -2 * time.Hour},
	} {
		t.Run(tt.name, func(t *testing.T) {
			start := ipam.Now()
			tt.was(&start)
			now := ipam.Now()
			got, since := NewWallClock(start).Look(now, noRows)
			if got < tt.want-time.Second || got > tt.want+time.Second || since.IsZero() != (tt.want == 0) {
				t.Errorf("stepped by %v, since %v; want %v", got, since, tt.want)
			}
		})
	}
}

func noRows() ([]*ipam.Lease, int64) { return nil, 0 }

// A step is dated by the first row behind it, or by the first look, and keeps
// its date until the next one.
func TestClockStepped(t *testing.T) {
	start := ipam.Stamp{Wall: time.Unix(1_000_000, 0), Boottime: time.Hour, BootID: "one"}
	at := func(after, moved time.Duration) ipam.Stamp {
		return ipam.Stamp{Wall: start.Wall.Add(after + moved), Boottime: start.Boottime + after, BootID: "one"}
	}
	of := func(all ...ipam.Stamp) func() ([]*ipam.Lease, int64) {
		return func() (out []*ipam.Lease, rev int64) {
			for _, s := range all {
				out = append(out, &ipam.Lease{Since: s})
			}
			return out, 0
		}
	}
	const minute, hour = time.Minute, time.Hour
	another := at(2*minute, hour)
	another.BootID = "two"
	for name, rows := range map[string]struct {
		all  []ipam.Stamp
		want time.Time
	}{
		"no row shows it":                  {nil, at(10*minute, hour).Wall},
		"rows before it":                   {[]ipam.Stamp{at(6*minute, 0)}, at(10*minute, hour).Wall},
		"the first behind it":              {[]ipam.Stamp{at(9*minute, hour), at(7*minute, hour), at(8*minute, hour), at(6*minute, 0)}, at(7*minute, hour).Wall},
		"of another boot":                  {[]ipam.Stamp{another}, at(10*minute, hour).Wall},
		"from before a look that saw none": {[]ipam.Stamp{at(4*minute, hour)}, at(10*minute, hour).Wall},
	} {
		t.Run(name, func(t *testing.T) {
			c := NewWallClock(start)
			if step, since := c.Look(at(5*minute, time.Second), of(rows.all...)); step != time.Second || !since.IsZero() {
				t.Errorf("trimmed by %v, since %v", step, since)
			}
			for _, after := range []time.Duration{10 * minute, 20 * minute} {
				if step, since := c.Look(at(after, hour), of(rows.all...)); step != hour || !since.Equal(rows.want) {
					t.Errorf("after %v: stepped by %v, since %v, want %v", after, step, since, rows.want)
				}
			}
			if step, since := c.Look(at(30*minute, -hour), noRows); step != -hour || !since.Equal(at(30*minute, -hour).Wall) {
				t.Errorf("stepped again by %v, since %v", step, since)
			}
		})
	}
}
