package enforce

import (
	"context"
	"time"

	"github.com/ipamd/ipamd/internal/broadcast"
	"github.com/ipamd/ipamd/nft"
)

// retryAfter is how long Run waits after an error at least.
const retryAfter = time.Second

// mostBetween is the longest pause before the next news of ports or of other programs is handled, while nothing fails.
const mostBetween = 200 * time.Millisecond

// Run follows book and ports, and repairs what others changed, until ctx ends. It begins
// after Start.
func (k *Keeper) Run(ctx context.Context) error {
	select {
	case <-k.started:
	case <-ctx.Done():
		return nil
	}
	due := time.Now().Add(k.cfg.Every) // the next reading of the whole table
	for {
		if !time.Now().Before(due) {
			due = time.Now().Add(k.cfg.Every)
			k.unverified.Store(true)
			if _, err := k.Refusals(); err != nil {
				k.cfg.Log.Warn("the counters of refused packets cannot be read", "err", err)
			}
		}
		book, ports := k.cfg.Book.Changed(), k.cfg.Kernel.Changed()
		began := time.Now()
		err := k.follow(ctx)
		if ctx.Err() != nil {
			return nil
		}
		// A comparison reads every lease: nine tenths of the time are others'.
		pause := 9 * time.Since(began)
		if err != nil {
			pause = max(pause, retryAfter)
			k.Again()
		}
		if !k.rest(ctx, pause, ports, err != nil) {
			return nil
		}
		select {
		case <-book:
		case <-ports:
		case <-k.kick:
		case <-time.After(time.Until(due)):
		case <-ctx.Done():
			return nil
		}
	}
}

// rest waits. A port that came and what another program changed do not wait as long: until
// they are taken in a frame may pass that should not. Nor does the next try of what failed, as
// far as it does not need the book.
func (k *Keeper) rest(ctx context.Context, pause time.Duration, ports <-chan struct{}, failed bool) bool {
	over := time.NewTimer(pause)
	defer over.Stop()
	var retry <-chan time.Time // nil: nothing failed
	if failed {
		retry = time.After(retryAfter)
	}
	for {
		select {
		case <-over.C:
			return true
		case <-ctx.Done():
			return false
		case <-k.bound:
			began := time.Now()
			k.mu.Lock()
			k.refused.readPending()
			k.mu.Unlock()
			if !broadcast.Pause(ctx, min(9*time.Since(began), mostBetween)) {
				return false
			}
			continue
		case <-retry:
		case <-k.news:
		case <-ports:
			ports = k.cfg.Kernel.Changed()
			k.Again() // a lease may be there
		}
		began := time.Now()
		err := k.followPorts(ctx)
		took, most := time.Since(began), mostBetween
		if retry = nil; err != nil {
			retry, most = time.After(max(9*took, retryAfter)), retryAfter
			k.Again() // if the pause is over before that
		}
		if !broadcast.Pause(ctx, min(9*took, most)) {
			return false
		}
	}
}

// Listen takes in the kernel's news of our table until ctx ends: what another program does
// to it is counted, each time, and has Run repair it.
func (k *Keeper) Listen(ctx context.Context) error {
	ours := ID()
	return k.watch.Run(ctx, func(n nft.News) {
		switch {
		case n.Lost:
			k.changed()
		case n.Tables[ours] && !k.conn.Ours(n.Port):
			k.status.count(1, 0)
			if k.cfg.OnForeign != nil {
				k.cfg.OnForeign()
			}
			k.cfg.Log.Warn("another program changed the rules", "table", ours, "program", n.Program, "thread", n.Process, "gone", n.Gone)
			k.changed()
		}
	})
}

// changed has Run read the table.
func (k *Keeper) changed() {
	k.unverified.Store(true)
	k.Again()
	broadcast.Wake(k.news)
}

// repaired notes that the table was not as it should be.
func (k *Keeper) repaired(have *nft.Table) {
	k.status.count(0, 1)
	if k.cfg.OnRepair != nil {
		k.cfg.OnRepair()
	}
	k.cfg.Log.Warn("the rules were not as the book has them: they are again", "table", ID(), "gone", have == nil)
}
