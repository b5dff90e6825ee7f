package bridge

import (
	"net/netip"
	"sync"
	"time"
)

// recentlyMost is how many addresses are remembered before the older half is
// dropped, and with it the time in which those were seen.
const recentlyMost = 1 << 15

// recentlySeen remembers when the witnesses last saw each address, or had news of it. What
// was on the wire for a moment leaves tracks in other sandboxes' neighbour tables,
// which the board, that holds only what is, does not show; and when it came and
// went between two looks, the board never had it.
type recentlySeen struct {
	mu          sync.Mutex
	since       time.Time // from then on nothing was missed
	now, before map[netip.Addr]time.Time
	turned      time.Time // when now was begun
}

// miss notes that something may have been missed until now.
func (l *recentlySeen) miss() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.since = time.Now()
}

func (l *recentlySeen) note(addr netip.Addr) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := time.Now()
	if len(l.now) >= recentlyMost/2 {
		if l.before != nil && l.turned.After(l.since) {
			l.since = l.turned // what was seen before that is dropped
		}
		l.before, l.now, l.turned = l.now, nil, at
	}
	if l.now == nil {
		l.now = make(map[netip.Addr]time.Time)
	}
	l.now[addr.Unmap().WithZone("")] = at
}

// after reports whether an address of a prefix was noted since from, or may have been.
func (l *recentlySeen) after(of netip.Prefix, from time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if from.Before(l.since) {
		return true
	}
	for _, seen := range []map[netip.Addr]time.Time{l.now, l.before} {
		if of.IsSingleIP() {
			if at, is := seen[of.Addr().Unmap().WithZone("")]; is && !at.Before(from) {
				return true
			}
			continue
		}
		for addr, at := range seen {
			if !at.Before(from) && of.Contains(addr) {
				return true
			}
		}
	}
	return false
}

// SeenWithin reports whether the bridge's witnesses saw an address of a prefix within the
// time d before now, or may have: true also when they did not watch all that
// time, as before they were opened, or while some of the kernel's news waits unread
// or was lost. What the news was about is seen, though it was gone before it was
// looked up. It says nothing of what they see now; that
// is on the board. It reads memory, and is safe for concurrent use.
func (b *Bridge) SeenWithin(of netip.Prefix, d time.Duration) bool {
	return b.neighbour.more.Load() || b.recent.after(of, time.Now().Add(-d))
}
