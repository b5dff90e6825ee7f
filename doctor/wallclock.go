package doctor

import (
	"sync"
	"time"

	"github.com/ipamd/ipamd/ipam"
)

// A WallClock measures how far the wall clock was moved against the boot's clock since
// the start, and when it last was. It is safe for concurrent use.
type WallClock struct {
	start ipam.Stamp

	mu      sync.Mutex
	last    ipam.Stamp    // of the last look
	moved   time.Duration // forward, or back, by then
	stepped time.Time     // when that was first so
}

func NewWallClock(now ipam.Stamp) *WallClock { return &WallClock{start: now, last: now} }

// away is how far the wall clock was away at a moment from what it would show
// had it not been moved since the start.
func (c *WallClock) away(at ipam.Stamp) time.Duration {
	return at.Wall.Round(0).Sub(c.start.Wall.Round(0)) - at.Since(c.start) // without the monotonic reading
}

// Look measures how far the wall clock was moved, forward or back, and when it
// last was, by its new time: of what was done since the look before, the first
// row with that time says, or else it is now. What a time service does little
// by little counts, from when it was worth reporting.
func (c *WallClock) Look(now ipam.Stamp, rows func() ([]*ipam.Lease, int64)) (step time.Duration, since time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	away := c.away(now)
	same := func(d time.Duration) bool { return (d - away).Abs() <= leastClockStep }
	if !same(c.moved) {
		c.moved, c.stepped = away, now.Wall
		first := now.Boottime
		all, _ := rows()
		for _, l := range all {
			if at := l.Since; at.BootID == now.BootID && at.Boottime > c.last.Boottime && at.Boottime < first && same(c.away(at)) {
				first, c.stepped = at.Boottime, at.Wall
			}
		}
	}
	c.last = now
	return away, c.stepped
}
