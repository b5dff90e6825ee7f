package netdb

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
)

// errEnded is internal: no row has the id; the history has the rest.
var errEnded = errors.New("no row has this id")

// Lease returns the row with an id: [ErrGone] when it has ended, [ErrNotFound]
// when the book never knew it, or has forgotten it.
func (b *Book) Lease(id string) (*Lease, error) {
	b.mu.RLock()
	l := b.idx.byID[id]
	b.mu.RUnlock()
	if l != nil {
		return l, nil
	}
	_, err := b.ended(context.Background(), id)
	return nil, err
}

// ended returns the last change of a lease that has no row any more, with
// [ErrGone]; or [ErrNotFound]. A lease that was quarantined, and whose address a
// workload of another lease was then found on, ended without saying so.
func (b *Book) ended(ctx context.Context, id string) (Change, error) {
	c, err := scanChange(b.reader().QueryRowContext(ctx, `SELECT `+changeColumns+` FROM changes
		WHERE lease_id = ?1 AND to_state IN ('cooling', 'free') ORDER BY rev DESC LIMIT 1`, id))
	switch {
	case errors.Is(err, sql.ErrNoRows):
		past, newest, err := b.lastOf(ctx, id)
		if err != nil {
			return c, err
		}
		if past == nil || newest {
			return c, fmt.Errorf("lease %s: %w", id, ErrNotFound)
		}
		c = *past
	case err != nil:
		return c, b.classify("look up lease "+id, err)
	}
	return c, fmt.Errorf("lease %s of %s (%s): %w", id, c.Sandbox, c.Addr, ErrGone)
}

// Release records that the owner released the lease, or is known to be gone.
// It names the lease, never the address. uid, when given, must be the
// lease's own; ifRev is as of [Book.Bind].
//
// A lease that is being released, was quarantined, cools or has ended stays as
// it is: success, and the cooldown is not restarted; a lease that left no row comes back with
// state [Free]. When another lease has the address by now, the answer is
// [ErrGone].
func (b *Book) Release(ctx context.Context, who Who, id, uid string, ifRev int64) (*Lease, error) {
	var out *Lease
	err := b.update(ctx, func(t *tx) error {
		l := t.lease(id)
		if l == nil {
			return errEnded
		}
		out = l
		if uid != "" && uid != l.UID {
			return invalid("uid", "lease %s belongs to incarnation %q, not %q", id, l.UID, uid)
		}
		if !l.State.Open() {
			return nil
		}
		if err := asSeen(l, ifRev); err != nil {
			return err
		}
		now := *l
		now.State = Releasing
		var err error
		out, err = t.move(who, l, now, nil)
		return err
	})
	if !errors.Is(err, errEnded) {
		return out, err
	}
	last, err := b.ended(ctx, id)
	if !errors.Is(err, ErrGone) {
		return nil, err
	}
	if _, taken := b.At(last.Addr); taken {
		return nil, err
	}
	return &Lease{Addr: last.Addr, ID: id, PoolUID: last.PoolUID, Pool: last.Pool, State: Free,
		Sandbox: last.Sandbox, UID: last.UID, Interface: last.Interface, Rev: last.Rev,
		Since: last.At, Reason: last.Who.Reason}, nil
}

// ReleaseAt is [Book.Release] of an open lease as the caller saw it, for those
// who are not its owner: if it changed since rev, the answer is [ErrStale].
// unseen is asked in the transaction; an error ends the call and nothing
// changes. It may be nil.
func (b *Book) ReleaseAt(ctx context.Context, who Who, id string, rev int64, unseen func() error) (*Lease, error) {
	return b.moveAt(ctx, who, id, rev, Releasing, unseen, Reserved, Bound, Paused)
}

// Confirm makes a releasing lease cool: its removal was confirmed by the
// runtime and by the kernel. The cooldown starts now. rev is the revision at
// which the lease was confirmed; if it changed since, the answer is
// [ErrStale]. unseen is asked in the transaction, once more; an error ends the
// call and nothing changes.
func (b *Book) Confirm(ctx context.Context, who Who, id string, rev int64, unseen func() error) (*Lease, error) {
	return b.moveAt(ctx, who, id, rev, Cooling, unseen, Releasing)
}

// SetAside quarantines the address of a releasing lease, if its row is still
// at rev: the runtime has removed the workload, and yet the address stays on
// the wire. evidence is a JSON array and may not be empty. The quarantine's
// share does not apply: this address could not be given anyway.
func (b *Book) SetAside(ctx context.Context, who Who, id string, rev int64, evidence json.RawMessage) (*Lease, error) {
	if err := checkEvidence(evidence); err != nil {
		return nil, err
	}
	return b.updateLease(ctx, id, func(t *tx, l *Lease) (*Lease, error) {
		if err := atRev(l, rev, Quarantined, Releasing); err != nil {
			return nil, err
		}
		now := *l
		now.State = Quarantined
		return t.move(who, l, now, evidence)
	})
}

// ForceRelease quarantines the address of a releasing lease whose removal
// cannot be confirmed, on the word of an operator, which is who.Note: its
// containers are in a runtime that is lost, or were never there. It is no
// shortcut to free: the address rests once every witness answers, and none has
// seen it for long enough. ifRev is as of [Book.Bind]. evidence is what was in the
// way, a JSON array, and may not be empty.
func (b *Book) ForceRelease(ctx context.Context, who Who, id string, ifRev int64, evidence json.RawMessage) (*Lease, error) {
	if err := checkNote(who.Note); err != nil {
		return nil, err
	}
	if err := checkEvidence(evidence); err != nil {
		return nil, err
	}
	return b.updateLease(ctx, id, func(t *tx, l *Lease) (*Lease, error) {
		if l.State == Quarantined {
			return l, nil
		}
		if l.State != Releasing {
			return nil, fmt.Errorf("force the release of %s: %w: it is %s, not %s", l.Addr, ErrState, l.State, Releasing)
		}
		if err := asSeen(l, ifRev); err != nil {
			return nil, err
		}
		now := *l
		now.State = Quarantined
		return t.move(who, l, now, evidence)
	})
}

// Expire ends a lease that was never bound and that no witness sees: its
// address is free at once. unseen is asked in the transaction; an error ends
// the call and nothing changes. An address that was given while it cooled is
// [ErrCools]: what its former owner left behind is as old as it was, and a lease
// that was never used must not shorten its rest.
func (b *Book) Expire(ctx context.Context, who Who, id string, rev int64, unseen func() error) (*Lease, error) {
	if l, err := b.Lease(id); err == nil && l.Rev == rev && l.Cut != "" {
		return nil, fmt.Errorf("move %s to %s: %w", l.Addr, Free, ErrCools)
	}
	return b.moveAt(ctx, who, id, rev, Free, unseen, Reserved)
}

func (b *Book) moveAt(ctx context.Context, who Who, id string, rev int64, to State, unseen func() error, from ...State) (*Lease, error) {
	return b.updateLease(ctx, id, func(t *tx, l *Lease) (*Lease, error) {
		if err := atRev(l, rev, to, from...); err != nil {
			return nil, err
		}
		if unseen != nil {
			if err := unseen(); err != nil {
				return nil, err
			}
		}
		now := *l
		now.State = to
		return t.move(who, l, now, nil)
	})
}

// atRev refuses a lease that is not as the caller saw it, or not in a state
// that the caller's verb is about. The table of moves alone does not do: an
// operator may let a quarantined address cool, and the reconciler end a
// cooling one, but neither by the verb that confirms or expires a lease.
func atRev(l *Lease, rev int64, to State, from ...State) error {
	switch {
	case l.Rev != rev:
		return fmt.Errorf("move %s to %s: %w", l.Addr, to, &StaleError{Lease: l, Seen: rev})
	case !slices.Contains(from, l.State):
		return fmt.Errorf("move %s to %s: %w: it is %s", l.Addr, to, ErrState, l.State)
	}
	return nil
}
