package allocator

import (
	"context"
	"time"

	"github.com/ipamd/ipamd/internal/broadcast"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/workload"
)

const (
	// freeEvery is the longest time between two looks for addresses whose
	// cooldown is over; with a short cooldown it is an eighth of that.
	freeEvery = time.Second
	// freeBatch bounds the rows that one commit frees: requests wait for it.
	freeBatch = 16
)

// FreeCooled frees addresses that have cooled, until ctx ends: those whose cooldown
// is over and that no witness sees. Without it every address that was ever given
// would keep its row, and the book of a large pool would grow for as long as the
// daemon runs.
func (a *Allocator) FreeCooled(ctx context.Context) error {
	for broadcast.Pause(ctx, max(min(freeEvery, a.Policy.Cooldown/8), time.Millisecond)) {
		for _, p := range a.Book.Pools() {
			if err := a.freeCooled(ctx, p); err != nil && ctx.Err() == nil {
				a.Log.Debug("cooled addresses are not freed yet", "pool", p.Name, "err", err)
			}
		}
	}
	return nil
}

// freeCooled frees all of a pool that may be freed now. A row that stays is not
// looked at again before the next time.
func (a *Allocator) freeCooled(ctx context.Context, p *ipam.Pool) error {
	who := ipam.Who{Actor: ipam.ByAllocator, Reason: ipam.Rested}
	for after := (*ipam.Lease)(nil); ; {
		cooled := a.Book.Cooled(p.UID, a.Policy.Cooldown, after, freeBatch)
		if len(cooled) == 0 {
			return nil
		}
		after = cooled[len(cooled)-1]
		if err := a.Gate(p); err != nil {
			return err
		}
		if err := a.Settle(ctx); err != nil {
			return a.refused(ctx, err, p)
		}
		if silent := a.Board.About(p.Prefix.Addr()).Silent; len(silent) > 0 {
			return &EvidenceError{silent}
		}
		if _, err := a.Book.Free(ctx, who, cooled, a.unseen); err != nil {
			return err
		}
	}
}

// unseen says whether nothing is on an address, or on any of a prefix, for certain: each witness
// answered, the runtime too, and none sees it.
func (a *Allocator) unseen(l *ipam.Lease) error {
	answer := workload.About(a.Board, l)
	switch {
	case len(answer.Silent) > 0:
		return &EvidenceError{answer.Silent}
	case len(answer.Seen) > 0:
		return &seenError{Skipped{answer.Seen[0].Addr, answer.Seen}}
	}
	return nil
}
