package netdb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sys/unix"
)

// A Stamp is a moment that survives restarts, reboots and clock steps: the
// wall clock for people, and the time since boot with the boot's id for
// arithmetic. In a book's own stamps that is the time which has certainly passed;
// see [Book.Now]. By the wall clock alone one NTP step frees every cooling address.
type Stamp struct {
	Wall     time.Time
	Boottime time.Duration // CLOCK_BOOTTIME: counts suspend, ignores clock steps
	BootID   string        // /proc/sys/kernel/random/boot_id
	Mono     time.Duration // CLOCK_MONOTONIC since some moment; of the machine's clocks only, and not recorded
}

// IsZero reports that the stamp was never set.
func (s Stamp) IsZero() bool { return s.BootID == "" }

// Same reports that two stamps are of one moment. A stamp that was read from the book has
// lost what == compares too: the monotonic part of its wall time, and Mono.
func (s Stamp) Same(o Stamp) bool { return s.BootID == o.BootID && s.Boottime == o.Boottime }

// Since returns how long ago then was, never more than what is certain.
// Across a reboot only the time since this boot counts: a wait may grow by what
// had passed before the reboot, but it can neither end early nor last longer
// than its full length after the boot.
func (s Stamp) Since(then Stamp) time.Duration {
	if s.BootID != then.BootID {
		return max(s.Boottime, 0)
	}
	return max(s.Boottime-then.Boottime, 0)
}

// atOnce is how far apart the two clocks of a stamp may be read. A machine that
// stood still for longer in between would look like one whose clock was moved.
const atOnce = 100 * time.Millisecond

// Rebooted reports that the machine has booted since then.
func (s Stamp) Rebooted(then Stamp) bool {
	now, _, _ := strings.Cut(s.BootID, "+") // without what tells the eras of one boot apart
	before, _, _ := strings.Cut(then.BootID, "+")
	return now != before
}

// Now reads the machine's clocks. It panics when /proc is not mounted: no
// lease can be dated without the boot's id.
func Now() Stamp {
	for {
		s := Stamp{Boottime: uptime(), Wall: time.Now(), BootID: bootID()}
		if uptime()-s.Boottime < atOnce {
			s.Mono = s.Wall.Sub(started)
			return s
		}
	}
}

// started is when the process began: what time.Now has besides the wall clock is
// CLOCK_MONOTONIC, and costs no system call.
var started = time.Now()

func uptime() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		panic(fmt.Sprintf("read CLOCK_BOOTTIME: %v", err))
	}
	return time.Duration(ts.Nano())
}

var bootID = sync.OnceValue(func() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		panic("read the boot id: " + err.Error())
	}
	return strings.TrimSpace(string(b))
})

// A clock dates what a book records by the time that has certainly passed, so
// that a wait may last longer than it has to, but never ends early. No one clock
// of the machine is believed: CLOCK_BOOTTIME jumps when a virtual machine is
// restored or a time namespace changes, the wall clock is stepped, and a boot id
// may change while the machine goes on.
//
// While the process lives, what both CLOCK_BOOTTIME and CLOCK_MONOTONIC have seen
// pass counts. Since the last change of the process before, what both
// CLOCK_BOOTTIME and the wall clock say. Where the two cannot be of one machine's
// life, nothing of before counts.
//
// The stamps that it makes count in an era: a boot, or a part of one. It is safe
// for concurrent use.
type clock struct {
	read func() Stamp // the machine's

	mu   sync.Mutex
	last Stamp // as read
	era  string
	seen time.Duration // in the era
	odd  error         // why nothing of before counts, when that is no reboot
	from time.Time     // since when
}

// A lastChange is when the book last recorded something: as it was dated, and
// CLOCK_BOOTTIME at that moment.
type lastChange struct {
	at     Stamp
	uptime time.Duration
}

// clockSlack is how far the wall clock and the uptime may be apart, as a time
// service corrects one of them behind a boot.
const clockSlack = time.Minute

// clockJitter is how far apart two clocks may be that are read one after the
// other: the thread may lose its processor in between.
const clockJitter = 100 * time.Millisecond

// now dates what happens now.
func (c *clock) now() Stamp {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.read()
	if s.BootID == c.last.BootID {
		c.seen += elapsed(s.Boottime-c.last.Boottime, s.Mono-c.last.Mono)
	} else {
		c.resume(lastChange{Stamp{Wall: c.last.Wall, Boottime: c.seen, BootID: c.era}, c.last.Boottime}, s)
	}
	c.last = s
	return Stamp{Wall: s.Wall, Boottime: c.seen, BootID: c.era}
}

// elapsed is what both clocks have seen pass. One is read after the other, so they
// differ a little each time; the least of the two would lose that with each stamp,
// seconds a day, where one clock alone loses nothing.
func elapsed(boottime, mono time.Duration) time.Duration {
	if (mono - boottime).Abs() <= clockJitter {
		return max(0, mono)
	}
	return max(0, min(boottime, mono))
}

// uptime is CLOCK_BOOTTIME as it was last read.
func (c *clock) uptime() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last.Boottime
}

// resume goes on from what a process before has recorded. Who calls holds mu.
func (c *clock) resume(l lastChange, s Stamp) {
	boot, _, _ := strings.Cut(l.at.BootID, "+")
	passed := s.Wall.Round(0).Sub(l.at.Wall.Round(0)) // without the monotonic readings
	c.last = s
	switch {
	case boot == s.BootID && s.Boottime >= l.uptime:
		c.era, c.seen = l.at.BootID, l.at.Boottime+max(0, min(s.Boottime-l.uptime, passed))
	case boot == s.BootID:
		c.era, c.seen = s.BootID+"+"+uuid.NewString()[:8], 0
		c.odd, c.from = fmt.Errorf("the uptime is %v and was %v before, in the same boot", s.Boottime, l.uptime), s.Wall
	case passed >= 0 && s.Boottime > passed+clockSlack:
		c.era, c.seen = s.BootID, 0
		c.odd, c.from = fmt.Errorf("the boot is another than %v ago, and the uptime is %v", passed, s.Boottime), s.Wall
	default:
		c.era, c.seen = s.BootID, max(0, min(s.Boottime, passed))
	}
}

// oddity is what the clocks say that cannot be, and since when.
func (c *clock) oddity() (since time.Time, odd error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.from, c.odd
}

// begin starts an era with the boot.
func (c *clock) begin() {
	c.last = c.read()
	c.era, c.seen = c.last.BootID, c.last.Boottime
}

// resumeClock reads when the book last recorded something. A book that has
// nothing yet begins with the boot.
func (o *opening) resumeClock(ctx context.Context) error {
	var l lastChange
	var wall, uptime, seen int64
	err := o.conn.QueryRowContext(ctx, `SELECT wall, uptime, boottime, boot_id FROM changes ORDER BY rev DESC LIMIT 1`).
		Scan(&wall, &uptime, &seen, &l.at.BootID)
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	if err != nil {
		return o.classify("read when the book was last changed", err)
	}
	l.at.Wall, l.at.Boottime, l.uptime = time.Unix(0, wall), time.Duration(seen), time.Duration(uptime)
	o.clock.mu.Lock()
	defer o.clock.mu.Unlock()
	o.clock.resume(l, o.clock.read())
	return nil
}
