package netdb

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
)

// ClearAt lets a quarantined address cool, if its row is still at rev.
func (b *Book) ClearAt(ctx context.Context, who Who, id string, rev int64) (*Lease, error) {
	return b.moveAt(ctx, who, id, rev, Cooling, nil)
}

// Quarantine sets an address aside that nobody holds: it was seen on the wire
// and no lease explains it, or an operator says so. evidence is a JSON array
// and may not be empty. An address that is quarantined already stays as it
// is. Beyond the pool's quarantine share, and unless an operator asks, the
// answer is [ErrQuarantineFull].
func (b *Book) Quarantine(ctx context.Context, who Who, a netip.Addr, evidence json.RawMessage) (*Lease, error) {
	if len(evidence) == 0 || !json.Valid(evidence) {
		return nil, invalid("evidence", "is empty or no JSON")
	}
	var out *Lease
	err := b.update(ctx, func(t *tx) error {
		pi := t.idx.poolOf(a)
		if pi == nil {
			return fmt.Errorf("quarantine %s: %w: no pool contains it", a, ErrNotInPool)
		}
		if usable, note := pi.pool.usable(a); !usable {
			return fmt.Errorf("quarantine %s: %w %s: it is %s", a, ErrNotInPool, pi.pool.Name, note)
		}
		old := t.at(a)
		if old != nil && old.State == Quarantined {
			out = old
			return nil
		}
		most := max(1, int(float64(pi.size)*b.opts.QuarantineShare))
		if who.Actor != ByOperator && t.countOf(pi.pool.UID, Quarantined) >= most {
			return fmt.Errorf("quarantine %s: %w: %d of pool %s", a, ErrQuarantineFull, most, pi.pool.Name)
		}
		var err error
		out, err = t.move(who, old, Lease{Addr: a, ID: newID(), PoolUID: pi.pool.UID, Pool: pi.pool.Name,
			State: Quarantined}, evidence)
		return err
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// Clear lets a quarantined address cool by hand. It becomes free after the
// cooldown, like any other, and only while no witness sees it.
func (b *Book) Clear(ctx context.Context, who Who, a netip.Addr) (*Lease, error) {
	l, ok := b.At(a)
	if !ok || l.State != Quarantined {
		return nil, fmt.Errorf("clear %s: %w: it is not quarantined", a, ErrState)
	}
	return b.ClearAt(ctx, who, l.ID, l.Rev)
}
