package netdb

import (
	"context"
	"encoding/json"
	"sync"
)

// Reasons of the two changes that frame a conflict on an address that is held.
// Both are moves of its state to itself.
const (
	ConflictSeen = "conflict_seen"
	ConflictOver = "conflict_over"
)

// ConflictAt notes that an address which is held, or being released, is seen
// under another than its owner. evidence is a JSON array, may not be empty, and
// stands in the lease until [Book.ConflictOverAt] or the lease's end. If the
// row changed since rev, the answer is [ErrStale].
func (b *Book) ConflictAt(ctx context.Context, who Who, id string, rev int64, evidence json.RawMessage) (*Lease, error) {
	if err := checkEvidence(evidence); err != nil {
		return nil, err
	}
	who.Reason = ConflictSeen
	return b.noteConflict(ctx, who, id, rev, evidence, evidence)
}

// ConflictOverAt notes that the conflict which stood on an address is over.
// evidence is what is seen of it yet, a JSON array; nil when nothing is.
func (b *Book) ConflictOverAt(ctx context.Context, who Who, id string, rev int64, evidence json.RawMessage) (*Lease, error) {
	who.Reason = ConflictOver
	return b.noteConflict(ctx, who, id, rev, nil, evidence)
}

func (b *Book) noteConflict(ctx context.Context, who Who, id string, rev int64, stands, evidence json.RawMessage) (*Lease, error) {
	return b.updateLease(ctx, id, func(t *tx, l *Lease) (*Lease, error) {
		if err := atRev(l, rev, l.State, Reserved, Bound, Paused, Releasing); err != nil {
			return nil, err
		}
		now := *l
		now.Conflict = stands
		return t.record(who, l, now, evidence)
	})
}

// conflicts remembers up to which revision the history was searched for a
// conflict, and which was the newest. An index would be paid for by every
// commit and read by a person's status only; so the first one who asks searches
// all that is kept, and the next ones what came since.
type conflicts struct {
	mu         sync.Mutex
	upTo, last int64 // revisions; 0: none
}

// LastConflict returns the newest change that quarantined an address because of
// [SeenOnWire], or noted a conflict on a held one, whatever became of it since;
// nil when the kept history has none.
// It reads the file, not memory, on a connection of its own.
func (b *Book) LastConflict(ctx context.Context) (*Change, error) {
	m := &b.conflicts
	m.mu.Lock()
	defer m.mu.Unlock()
	upTo := b.Rev()
	var last *Change
	err := each(ctx, b.reader(), `SELECT `+changeColumns+` FROM changes WHERE rev = coalesce((SELECT rev FROM changes
		WHERE rev > ?1 AND (to_state = 'quarantined' AND reason = ?2 OR reason = ?4) ORDER BY rev DESC LIMIT 1), ?3)`, func(s scanner) error {
		c, err := scanChange(s)
		last = &c
		return err
	}, m.upTo, SeenOnWire, m.last, ConflictSeen)
	if err != nil {
		return nil, b.classify("read the last conflict", err)
	}
	m.upTo, m.last = upTo, 0
	if last != nil {
		m.last = last.Rev
	}
	return last, nil
}
