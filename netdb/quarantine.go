package netdb

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
)

// ClearAt lets a quarantined address cool, if its row is still at rev; else the
// answer is [ErrStale]. It becomes free after the cooldown, like any other.
// unseen is called in the transaction; an error ends the call and nothing
// changes. It may be nil where the address cannot be in use meanwhile.
func (b *Book) ClearAt(ctx context.Context, who Who, id string, rev int64, unseen func() error) (*Lease, error) {
	return b.moveAt(ctx, who, id, rev, Cooling, nil, unseen, Quarantined)
}

// SeenOnWire is the reason of a quarantine that a conflict made: a witness saw
// a stranger on the address, or two workloads claimed it. An operator's and a
// rebuild's have reasons of their own.
const SeenOnWire = "seen_on_wire"

// Quarantine keeps an address that is not held from being given, and all of a delegated
// prefix that cools with it: it was seen on the
// wire and no lease explains it. evidence is a JSON array and may not be empty. An
// address that is quarantined already stays as it is. Beyond the pool's quarantine
// share, and unless it is an operator's, the answer is [ErrQuarantineFull].
func (b *Book) Quarantine(ctx context.Context, who Who, a netip.Addr, evidence json.RawMessage) (*Lease, error) {
	if err := checkEvidence(evidence); err != nil {
		return nil, err
	}
	return b.quarantine(ctx, who, Lease{Addr: a}, "", evidence, anyRev)
}

// Hold quarantines an address without a lease, until an operator
// clears it; who.Note says why and may not be empty. One that is quarantined
// already is held from now on. evidence is what the witnesses see, a JSON array;
// nil where they see none.
func (b *Book) Hold(ctx context.Context, who Who, a netip.Addr, evidence json.RawMessage) (*Lease, error) {
	if err := cmp.Or(checkNote(who.Note), checkSeen(evidence)); err != nil {
		return nil, err
	}
	return b.quarantine(ctx, who, Lease{Addr: a}, who.Note, evidence, anyRev)
}

// QuarantineAt is [Book.Quarantine] of an address as the caller saw it: if its
// row changed since rev, the answer is [ErrStale]; 0 is that of no row. What an
// operator did in between is worth more than what was planned before.
func (b *Book) QuarantineAt(ctx context.Context, who Who, a netip.Addr, rev int64, evidence json.RawMessage) (*Lease, error) {
	if err := checkEvidence(evidence); err != nil {
		return nil, err
	}
	return b.quarantine(ctx, who, Lease{Addr: a}, "", evidence, rev)
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
	return b.changeLease(ctx, id, func(t *tx, l *Lease) (*Lease, error) {
		if err := atRev(l, rev, l.State, Reserved, Bound, Paused, Releasing); err != nil {
			return nil, err
		}
		now := *l
		now.Conflict = stands
		return t.record(who, l, now, evidence)
	})
}

// Rebuilt is the reason of a quarantine in which a rebuild keeps a lease that was
// open in the old book: [Former] says whose it was.
const Rebuilt = "rebuilt"

// Former reports that a quarantined row is of a lease that was open in the book
// before a rebuild. Its id, owner and plumbing are what that book said, and its
// owner may have it back: see [Book.Adopt].
func (l *Lease) Former() bool {
	return l.State == Quarantined && l.Reason == Rebuilt && l.Sandbox != ""
}

const anyRev = -1

func (b *Book) quarantine(ctx context.Context, who Who, former Lease, hold string, evidence json.RawMessage, rev int64) (*Lease, error) {
	return change(ctx, b.writer, func(t *tx) (*Lease, error) {
		a := former.Addr
		pool, err := t.poolOfFormer(&former)
		if err != nil {
			return nil, fmt.Errorf("quarantine %s: %w", a, err)
		}
		old := t.at(a)
		if old != nil && old.PrefixLen != 0 { // all of it, with the evidence about one address
			former.Addr, former.PrefixLen = old.Addr, old.PrefixLen
		} else if former.PrefixLen != 0 {
			if err := t.checkFormer(pool, &former); err != nil {
				return nil, fmt.Errorf("quarantine %s: %w", former.Text(), err)
			}
		}
		if is := revOf(old); rev != anyRev && is != rev {
			return nil, fmt.Errorf("quarantine %s: %w: its row is at %d, not %d", a, ErrStale, is, rev)
		}
		if old != nil && old.State == Quarantined {
			if hold == "" || hold == old.Hold {
				return old, nil
			}
			now := *old
			now.Hold = hold
			return t.move(who, old, now, evidence)
		}
		most := t.opts.mostQuarantined(t.sizeOf(pool))
		if who.Actor != ByOperator && t.countOf(pool.UID, Quarantined) >= most {
			return nil, fmt.Errorf("quarantine %s: %w: %d of pool %s", a, ErrQuarantineFull, most, pool.Name)
		}
		now := former
		now.PoolUID, now.Pool, now.State, now.Hold = pool.UID, pool.Name, Quarantined, hold
		if now.ID == "" || t.lease(now.ID) != nil || t.removed(now.ID) {
			now.ID = newID()
		}
		return t.move(who, old, now, evidence)
	})
}

// quarantineMost is how many addresses of a pool are quarantined without an
// operator, however large it is: one guest that answers for all of a /64 must
// not fill the disk.
const quarantineMost = 1 << 16

// mostQuarantined is how many addresses of a pool may be quarantined without
// an operator.
func (o *Options) mostQuarantined(size uint64) int {
	return int(max(1, min(float64(size)*o.QuarantineShare, quarantineMost)))
}
