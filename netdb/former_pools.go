package netdb

import (
	"context"
	"fmt"

	"github.com/google/uuid"
)

// A PoolName is what is remembered of a pool's name beyond the pool itself.
type PoolName struct {
	Name       string
	Family     int    // 4 or 6
	Generation int64  // the last one of a pool of the name that was removed, 0 before
	Configured string // what the configuration said of it last, as the book keeps that; "" for nothing
}

// KeepPools makes the pools of another book in one that has none, as they were: uid, spec,
// state and generation, and has it remember their names. So what was sent to them before
// stays old, a removed pool's too, and a configuration that has not changed changes
// nothing. It returns why a pool is left out: it overlaps one before it, or is none.
func (b *Book) KeepPools(ctx context.Context, who Who, pools []*Pool, names []PoolName) (leftOut []error, err error) {
	who.Reason = PoolCreated
	err = b.writer.update(ctx, func(t *tx) error {
		leftOut = nil
		known := make(map[nameKey]*namedPool)
		for _, n := range names {
			if n.Generation >= 0 && (n.Family == 4 || n.Family == 6) {
				key := nameKey{n.Name, n.Family}
				known[key] = &namedPool{key, nameMemory{n.Generation, n.Configured}}
			}
		}
		for _, p := range pools {
			n := known[p.key()]
			if err := t.canKeep(p); err != nil {
				leftOut = append(leftOut, fmt.Errorf("pool %s (%s, uid %s): %w", p.Name, p.Prefix, p.UID, err))
				if n == nil && p.Check() == nil && t.poolNamed(&p.PoolSpec) == nil {
					n = &namedPool{key: p.key()}
					known[n.key] = n
				}
				if n != nil { // what was sent to it stays old, and the configuration may make it
					n.generation, n.configured = max(n.generation, p.Generation), ""
				}
				continue
			}
			delete(known, p.key())
			t.staged.stage(step{pool: p, name: n, change: t.poolChange(who, p)})
		}
		for _, n := range known {
			t.stageName(who, n)
		}
		return nil
	})
	return leftOut, err
}

func (t *tx) canKeep(p *Pool) error {
	id, err := uuid.Parse(p.UID)
	switch {
	case err != nil || id.String() != p.UID || t.pool(p.UID) != nil:
		return invalid("pool.uid", "%.80q is no id of its own", p.UID)
	case p.State != PoolActive && p.State != PoolDraining:
		return invalid("pool.state", "%.40q is neither active nor draining", p.State)
	case p.Generation < 1:
		return invalid("generation", "%d is below 1", p.Generation)
	case t.poolNamed(&p.PoolSpec) != nil:
		return invalid("pool.name", "another one has it")
	}
	if err := p.Check(); err != nil {
		return err
	}
	for _, other := range t.pools() {
		if other.Prefix.Overlaps(p.Prefix) {
			return &OverlapError{Spec: p.PoolSpec, Other: other}
		}
	}
	return nil
}
