package netdb

import (
	"context"
	"sync"
)

// conflicts remembers up to which revision the history was searched for a
// conflict, and which was the newest. An index would be paid for by every
// commit and read by a person's status only; so the first one who asks searches
// all that is kept, and the next ones what came since.
type conflicts struct {
	mu         sync.Mutex
	upTo, last int64 // revisions; 0: none
}

// LastConflict returns the newest change that set an address aside because of
// [SeenOnWire], whatever became of it since; nil when the kept history has none.
// It reads the file, not memory, on a connection of its own.
func (b *Book) LastConflict(ctx context.Context) (*Change, error) {
	m := &b.conflicts
	m.mu.Lock()
	defer m.mu.Unlock()
	upTo := b.Rev()
	var last *Change
	err := each(ctx, b.readers, `SELECT `+changeColumns+` FROM changes WHERE rev = coalesce((SELECT rev FROM changes
		WHERE rev > ?1 AND to_state = 'quarantined' AND reason = ?2 ORDER BY rev DESC LIMIT 1), ?3)`, func(s scanner) error {
		c, err := scanChange(s)
		last = &c
		return err
	}, m.upTo, SeenOnWire, m.last)
	if err != nil {
		return nil, b.classify("read the last conflict", err)
	}
	m.upTo, m.last = upTo, 0
	if last != nil {
		m.last = last.Rev
	}
	return last, nil
}
