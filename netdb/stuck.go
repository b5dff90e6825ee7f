package netdb

import "time"

// releaseWithin is how long a release may wait for its confirmation before a
// person is told: one whose containers end is confirmed in seconds.
const releaseWithin = 30 * time.Second

// Stuck reports that a lease ought to have moved on: it is being released for
// longer than half a minute, or reserved and past its deadline.
func (l *Lease) Stuck(now Stamp) bool {
	switch l.State {
	case Releasing:
		return now.Since(l.Since) > releaseWithin
	case Reserved:
		return now.Since(l.Since) > l.BindWithin
	}
	return false
}
