package netdb

import (
	"context"
	"net/netip"
	"time"
)

// Rested returns up to n cooling rows of a pool whose cooldown is over, the one
// released longest ago first. after is the revision of the last row that the
// caller has looked at, 0 at first. The cost does not depend on how many leases
// there are.
func (b *Book) Rested(poolUID string, cooldown time.Duration, after int64, n int) []*Lease {
	now := b.clock.now()
	b.mu.RLock()
	defer b.mu.RUnlock()
	pi := b.idx.pools[poolUID]
	if pi == nil {
		return nil
	}
	var out []*Lease
	pi.cooling.Ascend(after+1, func(_ int64, l *Lease) bool {
		if len(out) == n || now.Since(l.Since) < cooldown {
			return false
		}
		out = append(out, l)
		return true
	})
	return out
}

// Free ends the rest of cooling rows, in one commit: their addresses are free
// and keep their place in the order of reuse. A row that changed since it was
// read stays, one whose address is being offered to a caller, and one of which
// unseen returns an error; unseen is asked in the transaction, about each
// address, and must not wait. Free returns how many rows went.
//
// That the cooldown is over is the caller's to know: see [Book.Rested].
func (b *Book) Free(ctx context.Context, who Who, rested []*Lease, unseen func(netip.Addr) error) (freed int, err error) {
	err = b.update(ctx, func(t *tx) error {
		freed = 0
		for _, l := range rested {
			if t.at(l.Addr) != l || b.offered(l) || unseen(l.Addr) != nil {
				continue
			}
			now := *l
			now.State = Free
			if _, err := t.move(who, l, now, nil); err != nil {
				return err
			}
			freed++
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	return freed, nil
}

// offered reports whether a caller is offered the address of a row.
func (b *Book) offered(l *Lease) bool {
	b.mu.RLock()
	defer b.mu.RUnlock()
	_, held := b.idx.pools[l.PoolUID].held[l.Addr]
	return held
}
