package elapsed

import (
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"
)

// A Clock dates what is recorded by the time that has certainly passed, so
// that a wait may last longer than it has to, but never ends early. No one clock
// of the machine is believed: CLOCK_BOOTTIME jumps when a virtual machine is
// restored or a time namespace changes, the wall clock is stepped, and a boot id
// may change while the machine goes on.
//
// While the process lives, what both CLOCK_BOOTTIME and CLOCK_MONOTONIC have seen
// pass counts. Since the last change of the process before, what both
// CLOCK_BOOTTIME and the wall clock say. Where the two cannot be of one machine's
// life, nothing earlier counts.
//
// The stamps that it makes count in an era: a boot, or a part of one. It is safe
// for concurrent use.
type Clock struct {
	read func() Stamp // the machine's

	mu   sync.Mutex
	last Stamp // as read
	era  string
	seen time.Duration // in the era
	odd  error         // why nothing earlier counts, when that is no reboot
	from time.Time     // since when
}

// A Last is when something was last recorded: as it was dated, and CLOCK_BOOTTIME at that
// moment.
type Last struct {
	At     Stamp
	Uptime time.Duration
}

// NewClock begins an era with the boot. read reads the machine's clocks, as the function
// [Now] does.
func NewClock(read func() Stamp) *Clock {
	s := read()
	return &Clock{read: read, last: s, era: s.BootID, seen: s.Boottime}
}

// clockSlack is how far the wall clock and the uptime may be apart, as a time
// service corrects one of them behind a boot.
const clockSlack = time.Minute

// clockJitter is how far apart two clocks may be that are read one after the
// other: the thread may lose its processor in between.
const clockJitter = 100 * time.Millisecond

// Now dates what happens now.
func (c *Clock) Now() Stamp {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.read()
	if s.BootID == c.last.BootID {
		c.seen += seenByBoth(s.Boottime-c.last.Boottime, s.Mono-c.last.Mono)
	} else {
		c.resume(Last{Stamp{Wall: c.last.Wall, Boottime: c.seen, BootID: c.era}, c.last.Boottime}, s)
	}
	c.last = s
	return Stamp{Wall: s.Wall, Boottime: c.seen, BootID: c.era}
}

// seenByBoth is what both clocks have seen pass. One is read after the other, so they
// differ a little each time; the least of the two would lose that with each stamp,
// seconds a day, where one clock alone loses nothing.
func seenByBoth(boottime, mono time.Duration) time.Duration {
	if (mono - boottime).Abs() <= clockJitter {
		return max(0, mono)
	}
	return max(0, min(boottime, mono))
}

// Uptime is CLOCK_BOOTTIME as it was last read.
func (c *Clock) Uptime() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last.Boottime
}

// Boot is the id of the boot in which the clock was last read.
func (c *Clock) Boot() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last.BootID
}

// Resume goes on from what a process before has recorded.
func (c *Clock) Resume(l Last) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.resume(l, c.read())
}

// resume is for the holder of mu.
func (c *Clock) resume(l Last, s Stamp) {
	same := SameBoot(l.At.BootID, s.BootID)
	passed := s.Wall.Round(0).Sub(l.At.Wall.Round(0)) // without the monotonic readings
	c.last = s
	switch {
	case same && s.Boottime >= l.Uptime:
		c.era, c.seen = l.At.BootID, l.At.Boottime+max(0, min(s.Boottime-l.Uptime, passed))
	case same:
		c.era, c.seen = s.BootID+"+"+uuid.NewString()[:8], 0
		c.odd, c.from = fmt.Errorf("the uptime is %v and was %v before, in the same boot", s.Boottime, l.Uptime), s.Wall
	case passed >= 0 && s.Boottime > passed+clockSlack:
		c.era, c.seen = s.BootID, 0
		c.odd, c.from = fmt.Errorf("the last change was %v ago in another boot, and this boot began %v ago", passed.Round(time.Second), s.Boottime.Round(time.Second)), s.Wall
	default:
		c.era, c.seen = s.BootID, max(0, min(s.Boottime, passed))
	}
}

// Oddity is what the clocks say that cannot be, and since when.
func (c *Clock) Oddity() (since time.Time, odd error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.from, c.odd
}
