package netdb

import (
	"context"
	"net/netip"
	"sync"
	"sync/atomic"

	"github.com/google/uuid"
)

// A memory knows the revision of the last change of every lease id, and of
// every address, in the history. The table has no index over all its lease ids, which every commit
// would pay for and only a repair, or a wrong id, would read; so the first one who asks
// scans, and the next ones read on from there.
//
// Readers wait for each other, and no commit waits for one of them.
type memory struct {
	mu    sync.Mutex  // readers' only
	stale atomic.Bool // give it all back
	upTo  int64
	ids   map[uuid.UUID]int64
	at    map[string]int64
}

// forget has the next reader give the memory back, and with it what was pruned
// from the history. It waits for nobody.
func (m *memory) forget() { m.stale.Store(true) }

// lastOf returns the last change of a lease id, nil when the history has none,
// and whether it is the last one of its address, too.
func (b *Book) lastOf(ctx context.Context, id string) (past *Change, newest bool, err error) {
	of, err := uuid.Parse(id)
	if err != nil || of.String() != id {
		return nil, false, nil
	}
	m := &b.memory
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.readOn(ctx, b.reader()); err != nil {
		return nil, false, b.classify("read the history", err)
	}
	err = each(ctx, b.reader(), `SELECT `+changeColumns+` FROM changes WHERE rev = ?1`, func(s scanner) error {
		c, err := scanChange(s)
		past, newest = &c, m.at[c.Addr.String()] == c.Rev
		return err
	}, m.ids[of])
	return past, newest, b.classify("read the history", err)
}

// readOn reads what came since the last time.
func (m *memory) readOn(ctx context.Context, q querier) error {
	if m.stale.Swap(false) || m.ids == nil {
		m.upTo = 0
		m.ids, m.at = make(map[uuid.UUID]int64), make(map[string]int64)
	}
	return each(ctx, q, `SELECT rev, lease_id, address FROM changes WHERE rev > ?1 AND subject = 'lease' ORDER BY rev`,
		func(s scanner) error {
			var rev int64
			var text, addr string
			if err := s.Scan(&rev, &text, &addr); err != nil {
				return err
			}
			if id, err := uuid.Parse(text); err == nil {
				m.ids[id] = rev
			}
			m.at[addr], m.upTo = rev, rev
			return nil
		}, m.upTo)
}

// Given reports whether the history knows a lease id as the last that an address
// was given under, to this sandbox, and as one that has not ended: a lease whose row
// was lost, or set aside. An empty uid is any incarnation. The history that was
// pruned is not known.
func (b *Book) Given(ctx context.Context, id string, a netip.Addr, sandbox, uid string) (bool, error) {
	past, newest, err := b.lastOf(ctx, id)
	if err != nil || past == nil {
		return false, err
	}
	claim := Adoption{Addr: a, Sandbox: sandbox, UID: uid}
	return newest && past.To != Cooling && past.To != Free && claim.continues(past), nil
}
