package netdb

import (
	"context"
	"fmt"
)

// MaxTombstones bounds the tombstones that the book keeps in its file and in memory,
// with their uids and what finds them some tens of MiB at most: each stands for
// [Options.Tombstone], and a caller that cancels without end makes thousands a
// second.
const MaxTombstones = 1 << 16

// Cancel leaves a tombstone: attempts of the sandbox uid up to this one are
// refused while it stands, also those whose Allocate arrives later. Open
// leases of such attempts are released; they come back. Where the tombstone
// stands already and no lease is open, nothing is written. One more than
// [MaxTombstones] is [ErrTombstones]: a tombstone that was acknowledged stands for its
// time. The open leases are released all the same and come back beside that error, so
// that a caller that ends what it has by cancelling never keeps it.
func (b *Book) Cancel(ctx context.Context, who Who, uid string, attempt int64) ([]*Lease, error) {
	if err := checkName("uid", uid); err != nil {
		return nil, err
	}
	if attempt < 1 {
		return nil, invalid("attempt", "%d is below 1", attempt)
	}
	var out []*Lease
	var full error
	err := b.update(ctx, func(t *tx) error {
		out, full = nil, nil
		if old := t.tomb(uid); old.attempt < attempt || t.now.Since(old.at) >= b.opts.Tombstone {
			if old.attempt == 0 && b.tombsFull(t) {
				full = fmt.Errorf("cancel sandbox %q: %w: %d", uid, ErrTombstones, b.idx.mostTombs)
			} else {
				rev := t.staged.rev + 1
				t.staged.stage(step{tomb: uid, stone: tombstone{attempt, rev, t.now}, change: &Change{
					Rev: rev, At: t.now, Subject: OfAttempt, UID: uid, Attempt: attempt, From: Free, To: Cancelled, Who: who}})
			}
		}
		for _, l := range t.openOf(uid) {
			if l.Attempt > attempt {
				continue
			}
			now := *l
			now.State = Releasing
			freed, err := t.move(who, l, now, nil)
			if err != nil {
				return err
			}
			out = append(out, freed)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return out, full
}

// tombsFull reports that one more tombstone is too many. One that stands no
// longer is pruned behind the changes to come, and keeps no room meanwhile.
func (b *Book) tombsFull(t *tx) bool {
	if len(t.idx.tombs)+len(t.staged.tombs) < t.idx.mostTombs {
		return false
	}
	_, oldest, ok := t.idx.stones.Min()
	return !ok || t.now.Since(t.idx.tombs[oldest].at) < b.opts.Tombstone
}

// Cancelled reports whether a tombstone of a sandbox's attempt stands.
func (b *Book) Cancelled(uid string, attempt int64) bool {
	now := b.clock.now()
	b.mu.RLock()
	defer b.mu.RUnlock()
	stone := b.idx.tombs[uid]
	return stone.attempt >= attempt && now.Since(stone.at) < b.opts.Tombstone
}
