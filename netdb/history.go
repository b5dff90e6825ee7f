package netdb

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
)

// A Query selects changes; every field that is set must match.
type Query struct {
	Addr    netip.Addr
	Sandbox string // a sandbox's name or uid
	LeaseID string
	Reason  string
	Since   time.Time // wall clock
	Before  int64     // revisions below this one; 0: all
	Limit   int       // 0: 1 000
}

// History returns the changes of leases and of attempts that a query selects,
// newest first. It reads
// the file, not memory, on a connection of its own, and may take as long as a
// scan of the history.
func (b *Book) History(ctx context.Context, q Query) ([]Change, error) {
	where, args := []string{"subject IN ('lease', 'attempt')"}, []any{}
	add := func(clause string, values ...any) {
		where, args = append(where, clause), append(args, values...)
	}
	if q.Addr.IsValid() {
		add("address = ?", q.Addr.String())
	}
	if q.Sandbox != "" {
		add("(sandbox = ? OR uid = ?)", q.Sandbox, q.Sandbox)
	}
	if q.LeaseID != "" {
		add("lease_id = ?", q.LeaseID)
	}
	if q.Reason != "" {
		add("reason = ?", q.Reason)
	}
	if !q.Since.IsZero() {
		add("wall >= ?", q.Since.UnixNano())
	}
	if q.Before > 0 {
		add("rev < ?", q.Before)
	}
	if q.Limit <= 0 {
		q.Limit = 1000
	}
	var out []Change
	err := each(ctx, b.reader(), `SELECT `+changeColumns+` FROM changes WHERE `+strings.Join(where, " AND ")+
		` ORDER BY rev DESC LIMIT ?`, func(s scanner) error {
		c, err := scanChange(s)
		if err != nil {
			return err
		}
		out = append(out, c)
		return nil
	}, append(args, q.Limit)...)
	return out, b.classify("read the history", err)
}

// ErrPruned is wrapped by every [PrunedError].
var ErrPruned = errors.New("the history does not reach back so far")

// A PrunedError means that changes after a revision are not in the history any
// more. A subscriber has missed some, and goes on behind Upto.
type PrunedError struct {
	Since int64 // the revision that was asked for
	Upto  int64 // the last one that is gone
}

func (e *PrunedError) Error() string {
	return fmt.Sprintf("%v: revisions %d to %d are gone", ErrPruned, e.Since+1, e.Upto)
}

func (e *PrunedError) Unwrap() error { return ErrPruned }

// Changes returns up to limit durable changes behind a revision, in their order;
// none when there are none yet. It reads the file, on a connection of its own,
// and no commit waits for it: with [Book.Changed] it is how changes are followed.
//
//	for since := book.Rev(); ; {
//		changed := book.Changed()
//		// read Changes(ctx, since, n) until there are none
//		<-changed
//	}
//
// A gap that pruning left is a [PrunedError].
func (b *Book) Changes(ctx context.Context, since int64, limit int) ([]Change, error) {
	upTo := b.Rev()
	if since >= upTo {
		return nil, nil
	}
	var out []Change
	err := each(ctx, b.readers, `SELECT `+changeColumns+` FROM changes WHERE rev > ?1 ORDER BY rev LIMIT ?2`, func(s scanner) error {
		c, err := scanChange(s)
		out = append(out, c)
		return err
	}, since, limit)
	switch {
	case err != nil:
		return nil, b.classify("read the changes", err)
	case len(out) == 0:
		return nil, &PrunedError{since, upTo}
	case out[0].Rev != since+1:
		return nil, &PrunedError{since, out[0].Rev - 1}
	}
	return out, nil
}

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
// from the history. It does not wait.
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
// was lost, or quarantined. An empty uid is any incarnation. The history that was
// pruned is not known.
func (b *Book) Given(ctx context.Context, id string, a netip.Addr, sandbox, uid string) (bool, error) {
	past, newest, err := b.lastOf(ctx, id)
	if err != nil || past == nil {
		return false, err
	}
	claim := Adoption{Addr: a, Sandbox: sandbox, UID: uid}
	return newest && past.To != Cooling && past.To != Free && claim.continues(past), nil
}

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
// all of it, and the next ones what came since.
type conflicts struct {
	mu         sync.Mutex
	upTo, last int64 // revisions; 0: none
}

// LastConflict returns the newest change that quarantined an address because of
// [SeenOnWire], or noted a conflict on a held one, whatever became of it since;
// nil when the history has none.
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
