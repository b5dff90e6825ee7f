package watchdog

import (
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/ipamd/ipamd/netdb"
)

// errAsked keeps a lease whose owner has asked for it again.
var errAsked = errors.New("its owner asked for it again")

// asked is who asked for a lease that is not released. A sandbox that begins
// anew is answered the address that it has, and plugs it; the removal of its
// first life, confirmed a moment after that answer, took it away: the runtime
// met "it is cooling" when it bound. So to ask is the owner's word, until the
// lease is bound to something else.
//
// It is kept in memory, as what it holds against is: which containers a lease
// had and lost.
type asked struct {
	mu    sync.Mutex
	words map[string]word // by lease
	room  int             // how many are remembered before those that are over are dropped
}

// A word is that a lease, as it was, was asked for.
type word struct {
	lease  *netdb.Lease
	at     netdb.Stamp
	within time.Duration
}

// leastRoom is how many words are never looked through.
const leastRoom = 64

func (w word) counts(now netdb.Stamp) bool { return now.Since(w.at) < w.within }

func (a *asked) note(w word) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.words == nil {
		a.words = make(map[string]word)
	}
	if len(a.words) >= max(leastRoom, a.room) {
		maps.DeleteFunc(a.words, func(_ string, old word) bool { return !old.counts(w.at) })
		a.room = 2 * len(a.words)
	}
	a.words[w.lease.ID] = w
}

func (a *asked) lately(l *netdb.Lease, now netdb.Stamp) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	w, ok := a.words[l.ID]
	return ok && w.counts(now) && slices.Equal(l.Containers, w.lease.Containers) &&
		l.Netns == w.lease.Netns && l.HostInterface == w.lease.HostInterface
}

// Asked notes that the owner of an open lease asks for it, and will bind it
// within a time: until then it does not end because its workload is gone. It
// has to be called before the lease is read from the book for the answer. What
// the owner releases ends as ever.
func (w *Watchdog) Asked(l *netdb.Lease, within time.Duration) {
	w.asked.note(word{l, w.cfg.Now(), within})
}

// unasked is unseen for a lease that nobody released.
func (w *Watchdog) unasked(l *netdb.Lease, unseen func() error) func() error {
	return func() error {
		if w.asked.lately(l, w.cfg.Now()) {
			return errAsked
		}
		return unseen()
	}
}

// ofAsked blocks by the owner's word.
func ofAsked() obstacle { return obstruct(KindOwner, "%v, and has not bound it yet", errAsked) }
