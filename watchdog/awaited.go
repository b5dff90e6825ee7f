package watchdog

import (
	"errors"
	"maps"
	"sync"
	"time"

	"github.com/ipamd/ipamd/netdb"
)

// ErrAwaited keeps a lease that its owner has not bound yet.
var ErrAwaited = errors.New("its owner was given it, and has not bound it yet")

// awaiting is who was answered a lease and has not bound it since. A sandbox that
// began anew was answered the address that it had, and plugged it; the removal
// of its first life, confirmed a moment after that answer, took it away: the
// runtime met "it is cooling" when it bound. A first container that failed to
// start did the same to the second, where a pass had bound the lease to the
// first. So an answer stands until its time to bind is over.
//
// It is kept in memory, as what it holds against is: which containers a lease
// had and lost.
type awaiting struct {
	mu    sync.Mutex
	words map[string]word // by lease
	room  int             // how many are remembered before those that are over are dropped
}

// A word is until when an answer stands.
type word struct {
	at     netdb.Stamp
	within time.Duration
}

// leastRoom is how many words are never looked through.
const leastRoom = 64

func (w word) counts(now netdb.Stamp) bool { return now.Since(w.at) < w.within }

func (a *awaiting) note(lease string, w word) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.words == nil {
		a.words = make(map[string]word)
	}
	if len(a.words) >= max(leastRoom, a.room) {
		maps.DeleteFunc(a.words, func(_ string, old word) bool { return !old.counts(w.at) })
		a.room = 2 * len(a.words)
	}
	a.words[lease] = w
}

func (a *awaiting) end(lease string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.words, lease)
}

func (a *awaiting) stands(lease string, now netdb.Stamp) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	w, ok := a.words[lease]
	return ok && w.counts(now)
}

// Answered notes that a lease is answered to its owner, who will bind it within a
// time: until then it does not end because its workload is gone. It has to be
// called before the lease is read from the book for the answer. What the owner
// releases ends as ever.
func (w *Watchdog) Answered(l *netdb.Lease, within time.Duration) {
	w.answers.note(l.ID, word{w.cfg.Now(), within})
}

// Bound ends what [Watchdog.Answered] noted: the owner has bound the lease, which
// from now on lives with its workload. It also notes from when on the lease
// records its host interface: before is the lease as it was when the call that
// bound it began, nil when it could not be read.
func (w *Watchdog) Bound(before, l *netdb.Lease, began time.Time) {
	w.answers.end(l.ID)
	w.plumbed.note(before, l, began)
}

// Ended ends what [Watchdog.Answered] noted: the owner has given the lease up.
func (w *Watchdog) Ended(lease string) { w.answers.end(lease) }

// Awaited reports that a lease was answered to its owner, who has not bound it
// since and still has the time to.
func (w *Watchdog) Awaited(lease string) bool { return w.answers.stands(lease, w.cfg.Now()) }

// unawaited is unseen for a lease that was not released.
func (w *Watchdog) unawaited(l *netdb.Lease, unseen func() error) func() error {
	return func() error {
		if w.Awaited(l.ID) {
			return ErrAwaited
		}
		return unseen()
	}
}

// ofAnswer blocks by the owner's word.
func ofAnswer() obstacle { return obstruct(KindOwner, "%v", ErrAwaited) }
