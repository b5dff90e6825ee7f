package warm

import (
	"crypto/rand"
	"slices"
	"strings"
	"time"

	"github.com/ipamd/ipamd/netdb"
)

// After a slot could not be made the pool rests, longer each time.
const (
	firstRest = time.Second
	lastRest  = time.Minute
)

// A rest is of a pool whose last slots could not be made.
type rest struct {
	until time.Time
	span  time.Duration
	why   string
	spec  int64 // generation of the pool: another one is tried at once
	tried bool  // one slot is being made since, and shows whether others can be
}

// forgive ends the rests of pools that are described otherwise by now, or keep no slots.
func (k *Keeper) forgive(pools []netdb.Usage) {
	for uid, r := range k.rests {
		i := slices.IndexFunc(pools, func(u netdb.Usage) bool { return u.Pool.UID == uid })
		switch {
		case i < 0 || pools[i].Pool.Warm == nil:
			delete(k.rests, uid)
		case pools[i].Pool.Generation != r.spec:
			r.until, r.span, r.spec = time.Time{}, 0, pools[i].Pool.Generation
		}
	}
}

// untry notes the end of a try.
func (k *Keeper) untry(pool string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if r := k.rests[pool]; r != nil {
		r.tried = false
	}
}

// failed has a pool rest. Of pieces of work that failed beside each other the first is reported:
// once a step, and not once a slot.
func (k *Keeper) failed(p *netdb.Pool, err error) {
	if k.cfg.OnFailed != nil {
		k.cfg.OnFailed(p.Name)
	}
	now := time.Now()
	k.mu.Lock()
	r := k.rests[p.UID]
	if r == nil {
		r = &rest{}
		k.rests[p.UID] = r
	}
	fresh := !r.until.After(now)
	if fresh {
		r.span = min(max(2*r.span, firstRest), lastRest)
		r.until, r.why, r.spec = now.Add(r.span), err.Error(), p.Generation
	}
	span := r.span
	k.mu.Unlock()
	if fresh {
		k.cfg.Log.Warn("a warm slot could not be made", "pool", p.Name, "err", err, "again_in", span)
	}
}

// made ends a pool's rest.
func (k *Keeper) made(p *netdb.Pool, took time.Duration) {
	if k.cfg.OnMade != nil {
		k.cfg.OnMade(took)
	}
	k.mu.Lock()
	r := k.rests[p.UID]
	// One that was under way as others failed says nothing of what comes.
	over := r != nil && !r.until.After(time.Now())
	if over {
		delete(k.rests, p.UID)
	}
	k.mu.Unlock()
	if over {
		k.cfg.Log.Info("warm slots are made again", "pool", p.Name)
	}
}

// newSlot is an id that no other slot has.
func newSlot() string { return strings.ToLower(rand.Text()[:12]) }
