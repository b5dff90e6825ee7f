package netdb

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/tidwall/btree"
)

// Rested returns up to n cooling rows of a pool whose cooldown is over, the one
// released longest ago first, also those outside. The pool's own cooldown goes before
// the daemon's. after is the last row that the caller has looked at, nil at first. The cost
// does not depend on how many leases there are.
func (m *memory) Rested(poolUID string, cooldown time.Duration, after *Lease, n int) []*Lease {
	now := m.clock.Now()
	m.mu.RLock()
	defer m.mu.RUnlock()
	pi := m.idx.pools[poolUID]
	if pi == nil {
		return nil
	}
	cooldown = pi.pool.Policy(Policy{Cooldown: cooldown}).Cooldown
	next := int64(0)
	if after != nil {
		next = after.CooledAt() + 1
	}
	var out []*Lease
	for _, queue := range []*btree.Map[int64, *Lease]{pi.cooling, pi.spent} {
		most := len(out) + n
		queue.Ascend(next, func(_ int64, l *Lease) bool {
			if len(out) == most || now.Since(l.Since) < cooldown {
				return false
			}
			out = append(out, l)
			return true
		})
	}
	slices.SortFunc(out, func(x, y *Lease) int { return cmp.Compare(x.CooledAt(), y.CooledAt()) })
	return out[:min(n, len(out))]
}

// Free ends the rest of cooling rows, in one commit: their addresses are free
// and keep their place in the order of reuse. A row that changed since it was
// read stays, one whose address is being offered to a caller, and one of which
// unseen returns an error; unseen is called in the transaction, about each
// row, and must not wait. Free returns how many rows went.
//
// That the cooldown is over is the caller's to know: see [Book.Rested].
func (b *Book) Free(ctx context.Context, who Who, rested []*Lease, unseen func(*Lease) error) (int, error) {
	return change(ctx, b.writer, func(t *tx) (freed int, err error) {
		for _, l := range rested {
			if t.at(l.Addr) != l || t.memory.offered(l) || unseen(l) != nil {
				continue
			}
			if _, err := t.setState(who, l, Free, nil); err != nil {
				return 0, err
			}
			freed++
		}
		return freed, nil
	})
}

// offered reports whether a caller is offered the address of a row.
func (m *memory) offered(l *Lease) bool {
	m.mu.RLock()
	defer m.mu.RUnlock()
	pi := m.idx.pools[l.PoolUID]
	return pi != nil && pi.offeredRange(l.Range())
}
