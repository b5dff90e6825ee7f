package warm

import (
	"crypto/rand"
	"slices"
	"strings"
	"time"

	"github.com/ipamd/ipamd/ipam"
)

// After a slot could not be made the pool gets no further one for this long; each failure doubles
// it.
const (
	firstBackoff = time.Second
	lastBackoff  = time.Minute
)

// A backoff is of a pool whose last slots could not be made.
type backoff struct {
	until time.Time
	span  time.Duration // of the current one
	why   string        // the last failure
	spec  int64         // generation of the pool: another one is tried at once
	tried bool          // one slot is being made since, and shows whether others can be
}

// resetBackoffs ends those of pools whose description has changed, or which keep no slots.
func (k *Keeper) resetBackoffs(pools []ipam.Usage) {
	for uid, r := range k.backoffs {
		i := slices.IndexFunc(pools, func(u ipam.Usage) bool { return u.Pool.UID == uid })
		switch {
		case i < 0 || pools[i].Pool.Warm == nil:
			delete(k.backoffs, uid)
		case pools[i].Pool.Generation != r.spec:
			r.until, r.span, r.spec = time.Time{}, 0, pools[i].Pool.Generation
		}
	}
}

// triedOne notes that the one slot which is tried after a failure was made, or was not.
func (k *Keeper) triedOne(pool string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if r := k.backoffs[pool]; r != nil {
		r.tried = false
	}
}

// failed begins a pool's backoff. Of slots that failed at the same time the first is logged: a
// line a backoff, and not a line a slot.
func (k *Keeper) failed(p *ipam.Pool, err error) {
	if k.cfg.OnFailed != nil {
		k.cfg.OnFailed(p.Name)
	}
	now := time.Now()
	k.mu.Lock()
	r := k.backoffs[p.UID]
	if r == nil {
		r = &backoff{}
		k.backoffs[p.UID] = r
	}
	fresh := !r.until.After(now)
	if fresh {
		r.span = min(max(2*r.span, firstBackoff), lastBackoff)
		r.until, r.why, r.spec = now.Add(r.span), err.Error(), p.Generation
	}
	span := r.span
	k.mu.Unlock()
	if fresh {
		k.cfg.Log.Warn("a warm slot could not be made", "pool", p.Name, "err", err, "again_in", span)
	}
}

// made ends a pool's backoff.
func (k *Keeper) made(p *ipam.Pool, took time.Duration) {
	if k.cfg.OnMade != nil {
		k.cfg.OnMade(took)
	}
	k.mu.Lock()
	r := k.backoffs[p.UID]
	// A slot that was under way while others failed says nothing about the next.
	over := r != nil && !r.until.After(time.Now())
	if over {
		delete(k.backoffs, p.UID)
	}
	k.mu.Unlock()
	if over {
		k.cfg.Log.Info("warm slots are made again", "pool", p.Name)
	}
}

// newSlot is an id that no other slot has.
func newSlot() string { return strings.ToLower(rand.Text()[:12]) }
