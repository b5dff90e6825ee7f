package watchdog

import (
	"errors"
	"maps"
	"sync"
	"time"

	"github.com/ipamd/ipamd/ipam"
)

// ErrAwaited keeps a lease that its owner has not bound yet.
var ErrAwaited = errors.New("its owner was given it, and has not bound it yet")

// awaiting has the leases that were answered to their owners and not bound since.
// Such a lease does not end because its workload is gone, until its time to bind is
// over. Without this rule a sandbox that is made anew is answered the address that it
// has, and the removal of its former containers, confirmed a moment later, takes that
// address away: the bind is refused, as the lease is cooling. The same happens where
// the first container of a sandbox fails to start and a second one is made.
//
// It is kept in memory, as is what it stands against: which containers a lease had
// and lost.
type awaiting struct {
	mu   sync.Mutex
	of   map[string]answered // by lease
	room int                 // how many are remembered before those that are over are dropped
}

// An answered is when a lease was answered, and how long its owner has to bind it.
type answered struct {
	at     ipam.Stamp
	within time.Duration
}

// leastRoom is how many entries are kept before the map is searched for those that are over.
const leastRoom = 64

func (w answered) counts(now ipam.Stamp) bool { return now.Since(w.at) < w.within }

func (a *awaiting) note(lease string, w answered) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.of == nil {
		a.of = make(map[string]answered)
	}
	if len(a.of) >= max(leastRoom, a.room) {
		maps.DeleteFunc(a.of, func(_ string, old answered) bool { return !old.counts(w.at) })
		a.room = 2 * len(a.of)
	}
	a.of[lease] = w
}

func (a *awaiting) end(lease string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.of, lease)
}

func (a *awaiting) stands(lease string, now ipam.Stamp) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	w, ok := a.of[lease]
	return ok && w.counts(now)
}

// Answered notes that a lease is answered to its owner, who will bind it within a
// time: until then it does not end because its workload is gone. A release by the owner
// ends it all the same. The lease has to be read again after the call, for the answer:
// else a removal that was confirmed in between would be answered as open.
func (w *Watchdog) Answered(l *ipam.Lease, within time.Duration) {
	w.awaiting.note(l.ID, answered{w.cfg.Now(), within})
}

// Bound ends what [Watchdog.Answered] noted: the owner has bound the lease, which
// from now on ends when its workload is gone. It also notes from when on the lease
// records its host interface: before is the lease as it was when the call that
// bound it began, nil when it could not be read.
func (w *Watchdog) Bound(before, l *ipam.Lease, began time.Time) {
	w.awaiting.end(l.ID)
	w.plumbed.note(before, l, began)
}

// Ended ends what [Watchdog.Answered] noted: the owner has given the lease up.
func (w *Watchdog) Ended(lease string) { w.awaiting.end(lease) }

// Awaited reports that a lease was answered to its owner, who has not bound it
// since and still has the time to.
func (w *Watchdog) Awaited(lease string) bool { return w.awaiting.stands(lease, w.cfg.Now()) }

// unawaited is the check in the transaction that ends a lease which its owner has not released:
// [ErrAwaited] while the lease is awaited, else what unseen says.
func (w *Watchdog) unawaited(l *ipam.Lease, unseen func() error) func() error {
	return func() error {
		if w.Awaited(l.ID) {
			return ErrAwaited
		}
		return unseen()
	}
}

// ofAnswer is the obstacle that the owner has not bound the lease yet.
func ofAnswer() obstacle { return obstruct(KindOwner, "%v", ErrAwaited) }
