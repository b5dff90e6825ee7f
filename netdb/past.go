package netdb

import (
	"context"
	"sync"

	"github.com/google/uuid"
)

// A memory knows the revision of the last change of every lease id in the
// history. The table has no index over all its lease ids, which every commit
// would pay for and a repair alone would read; so the first one who asks
// scans, and the next ones read on from there.
type memory struct {
	mu   sync.Mutex
	upTo int64
	last map[uuid.UUID]int64
}

// forget gives the memory back, and with it what was pruned from the history.
func (m *memory) forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.upTo, m.last = 0, nil
}

// lastOf returns the last change of a lease id, nil when the history has none.
func (b *Book) lastOf(ctx context.Context, id string) (*Change, error) {
	of, err := uuid.Parse(id)
	if err != nil {
		return nil, nil
	}
	rev, err := b.lastRev(ctx, of)
	if err != nil || rev == 0 {
		return nil, b.classify("read the history", err)
	}
	var out *Change
	err = each(ctx, b.readers, `SELECT `+changeColumns+` FROM changes WHERE rev = ?1`, func(s scanner) error {
		c, err := scanChange(s)
		out = &c
		return err
	}, rev)
	return out, b.classify("read the history", err)
}

func (b *Book) lastRev(ctx context.Context, id uuid.UUID) (int64, error) {
	m := &b.memory
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.last == nil {
		m.last = make(map[uuid.UUID]int64)
	}
	err := each(ctx, b.readers, `SELECT rev, lease_id FROM changes WHERE rev > ?1 ORDER BY rev`, func(s scanner) error {
		var rev int64
		var text string
		if err := s.Scan(&rev, &text); err != nil {
			return err
		}
		if of, err := uuid.Parse(text); err == nil { // a pool's change names no lease
			m.last[of] = rev
		}
		m.upTo = rev
		return nil
	}, m.upTo)
	return m.last[id], err
}
