package netdb

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb/index"
	"github.com/ipamd/ipamd/netdb/sqlite"
)

// releases are the verbs that end a lease, or keep it from beginning.
type releases struct {
	w      *writer
	offers *index.Offers
}

// Release records that the owner released the lease, or is known to be gone.
// It names the lease, never the address. uid, when given, must be the
// lease's own; ifRev is as of [Book.Bind].
//
// A lease that is being released, was quarantined, cools or has ended stays as
// it is: success, and the cooldown is not restarted; a lease that left no row comes
// back with state [ipam.Free], or as [ipam.ErrGone] when another has the address by now.
func (b releases) Release(ctx context.Context, who ipam.Who, id, uid string, ifRev int64) (*ipam.Lease, error) {
	l, err := change(ctx, b.w, func(t *tx) (*ipam.Lease, error) {
		l := t.Lease(id)
		switch {
		case l == nil:
			return nil, errEnded
		case uid != "" && uid != l.UID:
			return nil, ipam.Invalid("uid", "lease %s belongs to incarnation %q, not %q", id, l.UID, uid)
		case !l.State.Open():
			return l, nil
		}
		if err := asSeen(l, ifRev); err != nil {
			return nil, err
		}
		return t.setState(who, l, ipam.Releasing, nil)
	})
	if err != errEnded {
		return l, err
	}
	last, err := b.w.history.ended(ctx, id)
	if !errors.Is(err, ipam.ErrGone) {
		return nil, err
	}
	if _, taken := b.w.index.At(last.Addr); taken {
		return nil, err
	}
	return &ipam.Lease{Addr: last.Addr, PrefixLen: last.PrefixLen, ID: id, PoolUID: last.PoolUID, Pool: last.Pool, State: ipam.Free,
		Sandbox: last.Sandbox, UID: last.UID, Interface: last.Interface, Rev: last.Rev,
		Since: last.At, Reason: last.Who.Reason}, nil
}

// ReleaseAt is [Book.Release] of an open lease as the caller saw it, for those
// who are not its owner: if it changed since rev, the answer is [ipam.ErrStale].
// unseen is called in the transaction; an error ends the call and nothing
// changes. It may be nil.
func (b releases) ReleaseAt(ctx context.Context, who ipam.Who, id string, rev int64, unseen func() error) (*ipam.Lease, error) {
	return b.w.moveAt(ctx, who, id, rev, ipam.Releasing, nil, unseen, ipam.Reserved, ipam.Bound, ipam.Paused)
}

// Confirm makes a releasing lease cool: its removal was confirmed by the
// runtime and by the kernel. The cooldown starts now. rev is the revision at
// which the lease was confirmed; if it changed since, the answer is
// [ipam.ErrStale]. unseen is called in the transaction, once more; an error ends the
// call and nothing changes. The address of a warm slot that no sandbox had is free at once.
func (b releases) Confirm(ctx context.Context, who ipam.Who, id string, rev int64, unseen func() error) (*ipam.Lease, error) {
	return b.w.changeLease(ctx, id, func(t *tx, l *ipam.Lease) (*ipam.Lease, error) {
		slot := t.Slot(id)
		cooled, err := t.moveAt(who, l, rev, ipam.Cooling, nil, unseen, ipam.Releasing)
		if err != nil || slot == nil || slot.Claimed || l.Cut != "" {
			return cooled, err
		}
		rests := who                                                  // the whole request may run once more
		rests.Actor, rests.Reason = ipam.ByAllocator, ipam.SlotUnused // no sandbox had it, and no packet went to it
		return t.setState(rests, cooled, ipam.Free, nil)
	})
}

// Expire ends a lease that was never bound and that no witness sees: its
// address is free at once. unseen is called in the transaction; an error ends
// the call and nothing changes. An address that was given while it cooled is
// [ipam.ErrCools]: what its former owner left behind is as old as it was, and a lease
// that was never used must not shorten its cooldown.
func (b releases) Expire(ctx context.Context, who ipam.Who, id string, rev int64, unseen func() error) (*ipam.Lease, error) {
	return b.w.moveAt(ctx, who, id, rev, ipam.Free, nil, unseen, ipam.Reserved)
}

// QuarantineReleasing quarantines the address of a releasing lease, if its row is still
// at rev: the runtime has removed the workload, and yet the address stays on
// the wire. evidence is a JSON array and may not be empty. The quarantine's
// share does not apply: this address could not be given anyway.
func (b releases) QuarantineReleasing(ctx context.Context, who ipam.Who, id string, rev int64, evidence json.RawMessage) (*ipam.Lease, error) {
	if err := ipam.CheckEvidence(evidence); err != nil {
		return nil, err
	}
	return b.w.moveAt(ctx, who, id, rev, ipam.Quarantined, evidence, nil, ipam.Releasing)
}

// ForceRelease quarantines the address of a releasing lease whose removal
// cannot be confirmed, on the word of an operator, which is who.Note: its
// containers are in a runtime that is lost, or were never there. It is no
// shortcut to free: the address cools once every witness answers, and none has
// seen it for long enough. ifRev is as of [Book.Bind]. evidence is what was in the
// way, a JSON array, and may not be empty.
func (b releases) ForceRelease(ctx context.Context, who ipam.Who, id string, ifRev int64, evidence json.RawMessage) (*ipam.Lease, error) {
	if err := cmp.Or(ipam.CheckNote(who.Note), ipam.CheckEvidence(evidence)); err != nil {
		return nil, err
	}
	return b.w.changeLease(ctx, id, func(t *tx, l *ipam.Lease) (*ipam.Lease, error) {
		switch l.State {
		case ipam.Quarantined:
			return l, nil
		case ipam.Releasing:
			if err := asSeen(l, ifRev); err != nil {
				return nil, err
			}
			return t.setState(who, l, ipam.Quarantined, evidence)
		}
		return nil, fmt.Errorf("force the release of %s: %w: it is %s, not %s", l.Addr, ipam.ErrState, l.State, ipam.Releasing)
	})
}

// moveAt moves a lease that is still at a revision, and in a state that the caller's
// verb is about. The table of moves alone does not do: an operator may let a
// quarantined address cool, and the reconciler end a cooling one, but neither by the
// verb that confirms or expires a lease.
func (w *writer) moveAt(ctx context.Context, who ipam.Who, id string, rev int64, to ipam.State, evidence json.RawMessage, unseen func() error, from ...ipam.State) (*ipam.Lease, error) {
	return w.changeLease(ctx, id, func(t *tx, l *ipam.Lease) (*ipam.Lease, error) {
		return t.moveAt(who, l, rev, to, evidence, unseen, from...)
	})
}

func (t *tx) moveAt(who ipam.Who, l *ipam.Lease, rev int64, to ipam.State, evidence json.RawMessage, unseen func() error, from ...ipam.State) (*ipam.Lease, error) {
	if err := atRev(l, rev, to, from...); err != nil {
		return nil, err
	}
	if to == ipam.Free && l.Cut != "" {
		return nil, fmt.Errorf("move %s to %s: %w", l.Addr, to, ipam.ErrCools)
	}
	if unseen != nil {
		if err := unseen(); err != nil {
			return nil, err
		}
	}
	return t.setState(who, l, to, evidence)
}

func atRev(l *ipam.Lease, rev int64, to ipam.State, from ...ipam.State) error {
	switch {
	case l.Rev != rev:
		return fmt.Errorf("move %s to %s: %w", l.Addr, to, &ipam.StaleError{Lease: l, Seen: rev})
	case !slices.Contains(from, l.State):
		return fmt.Errorf("move %s to %s: %w: it is %s", l.Addr, to, ipam.ErrState, l.State)
	}
	return nil
}

// Free ends the rest of cooling rows, in one commit: their addresses are free
// and keep their place in the order of reuse. A row that changed since it was
// read stays, one whose address is being offered to a caller, and one of which
// unseen returns an error; unseen is called in the transaction, about each
// row, and must not wait. Free returns how many rows went.
//
// That the cooldown is over is the caller's to know: see [Book.Cooled].
func (b releases) Free(ctx context.Context, who ipam.Who, rested []*ipam.Lease, unseen func(*ipam.Lease) error) (int, error) {
	return change(ctx, b.w, func(t *tx) (freed int, err error) {
		for _, l := range rested {
			if t.At(l.Addr) != l || b.offers.Offered(l) || unseen(l) != nil {
				continue
			}
			if _, err := t.setState(who, l, ipam.Free, nil); err != nil {
				return 0, err
			}
			freed++
		}
		return freed, nil
	})
}

// MaxTombstones bounds the tombstones that the book keeps, in its file and in memory: some tens of
// MiB at most, with the maps that find them. Each is kept for [Options.Tombstone], and a caller that
// cancels without end makes thousands a second.
const MaxTombstones = 1 << 16

// Cancel refuses all attempts of a sandbox uid up to this one for [Options.Tombstone], also those
// whose Allocate arrives later, and records that as a tombstone: see [index.Tombstone]. It releases
// the open leases of such attempts, and returns them. Where the uid has that tombstone already and
// no lease is open, nothing is written.
//
// If the book has [MaxTombstones], the error is [ipam.ErrTombstones]: none is dropped before its
// time for another one. The open leases are released all the same, and returned beside the error, so
// that a caller which gives its leases up by cancelling does not keep them.
func (b releases) Cancel(ctx context.Context, who ipam.Who, uid string, attempt int64) ([]*ipam.Lease, error) {
	if err := ipam.CheckName("uid", uid); err != nil {
		return nil, err
	}
	if attempt < 1 {
		return nil, ipam.Invalid("attempt", "%d is below 1", attempt)
	}
	var full error
	out, err := change(ctx, b.w, func(t *tx) (out []*ipam.Lease, err error) {
		full = nil
		if old := t.Tombstone(uid); old.Attempt < attempt || t.now.Since(old.At) >= t.opts.Tombstone {
			if old.Attempt == 0 && t.tombstonesFull() {
				full = fmt.Errorf("cancel sandbox %q: %w: %d", uid, ipam.ErrTombstones, t.opts.mostTombstones)
			} else {
				c := t.change(ipam.OfAttempt, who)
				c.UID, c.Attempt, c.From, c.To = uid, attempt, ipam.Free, ipam.Cancelled
				t.Stage(index.Step{TombstoneUID: uid, Tombstone: index.Tombstone{Attempt: attempt, Rev: c.Rev, At: t.now}, Change: c})
			}
		}
		for _, l := range t.OpenOf(uid) {
			if l.Attempt > attempt {
				continue
			}
			freed, err := t.setState(who, l, ipam.Releasing, nil)
			if err != nil {
				return nil, err
			}
			out = append(out, freed)
		}
		return out, nil
	})
	if err != nil {
		return nil, err
	}
	return out, full
}

// tombstonesFull reports that there is no room for one more tombstone. If the oldest is over its time
// there is room: it is pruned by a later commit.
func (t *tx) tombstonesFull() bool {
	n, oldest := t.Tombstones()
	return n >= t.opts.mostTombstones && (oldest.Attempt == 0 || t.now.Since(oldest.At) < t.opts.Tombstone)
}

// cancelled reports whether a tombstone refuses an attempt.
func (t *tx) cancelled(uid string, attempt int64) bool {
	stone := t.Tombstone(uid)
	return stone.Attempt >= attempt && t.now.Since(stone.At) < t.opts.Tombstone
}

const (
	readTombstones  = `SELECT uid, attempt, rev, wall, boottime, boot_id FROM tombstones`
	upsertTombstone = `INSERT INTO tombstones (uid, attempt, rev, wall, boottime, boot_id) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
		ON CONFLICT (uid) DO UPDATE SET (attempt, rev, wall, boottime, boot_id) = (?2, ?3, ?4, ?5, ?6)`
)

func tombstoneRow(uid string, t index.Tombstone) []any {
	return []any{uid, t.Attempt, t.Rev, t.At.Wall.UnixNano(), int64(t.At.Boottime), t.At.BootID}
}

func scanTombstone(s sqlite.Scanner) (uid string, t index.Tombstone, err error) {
	var wall, boot int64
	err = s.Scan(&uid, &t.Attempt, &t.Rev, &wall, &boot, &t.At.BootID)
	t.At.Wall, t.At.Boottime = time.Unix(0, wall), time.Duration(boot)
	return uid, t, err
}
