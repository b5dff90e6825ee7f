// Package elapsed says how much time has certainly passed, over restarts, reboots and steps
// of any one clock of the machine. It reads clocks, and knows nothing of what is dated by
// them.
package elapsed

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// A Stamp is a moment that survives restarts, reboots and clock steps: the
// wall clock for people, and the time since boot with the boot's id for
// arithmetic. In those of a [Clock] that is the time which has certainly passed. By the
// wall clock alone one NTP step frees every cooling address.
type Stamp struct {
	Wall     time.Time
	Boottime time.Duration // CLOCK_BOOTTIME: counts suspend, ignores clock steps
	BootID   string        // /proc/sys/kernel/random/boot_id
	Mono     time.Duration // CLOCK_MONOTONIC since some moment; of the machine's clocks only, and not recorded
}

// IsZero reports that the stamp was never set.
func (s Stamp) IsZero() bool { return s.BootID == "" }

// Same reports that two stamps are of one moment. A stamp that was recorded has
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
func (s Stamp) Rebooted(then Stamp) bool { return !SameBoot(s.BootID, then.BootID) }

// SameBoot reports whether two ids are of one boot of the machine: the kernel's, or those of
// the eras in which a book's stamps count. "" is of none. Every comparison of boots is this one:
// what lives in a boot lives on in its next era, where only what has passed is not known.
func SameBoot(a, b string) bool {
	a, _, _ = strings.Cut(a, "+")
	b, _, _ = strings.Cut(b, "+")
	return a == b && a != ""
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
