package netdb

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/netip"

	"github.com/ipamd/ipamd/ipam"
)

// ClearAt lets a quarantined address cool, if its row is still at rev; else the
// answer is [ipam.ErrStale]. It becomes free after the cooldown, like any other.
// unseen is called in the transaction; an error ends the call and nothing
// changes. It may be nil where the address cannot be in use meanwhile.
func (b *Book) ClearAt(ctx context.Context, who ipam.Who, id string, rev int64, unseen func() error) (*ipam.Lease, error) {
	return b.moveAt(ctx, who, id, rev, ipam.Cooling, nil, unseen, ipam.Quarantined)
}

// Quarantine keeps an address that is not held from being given, and all of a delegated
// prefix that cools with it: it was seen on the
// wire and no lease explains it. evidence is a JSON array and may not be empty. An
// address that is quarantined already stays as it is. Beyond the pool's quarantine
// share, and unless it is an operator's, the answer is [ipam.ErrQuarantineFull].
func (b *Book) Quarantine(ctx context.Context, who ipam.Who, a netip.Addr, evidence json.RawMessage) (*ipam.Lease, error) {
	if err := ipam.CheckEvidence(evidence); err != nil {
		return nil, err
	}
	return b.quarantine(ctx, who, ipam.Lease{Addr: a}, "", evidence, anyRev)
}

// Hold quarantines an address without a lease, until an operator
// clears it; who.Note says why and may not be empty. One that is quarantined
// already is held from now on. evidence is what the witnesses see, a JSON array;
// nil where they see none.
func (b *Book) Hold(ctx context.Context, who ipam.Who, a netip.Addr, evidence json.RawMessage) (*ipam.Lease, error) {
	if err := cmp.Or(ipam.CheckNote(who.Note), ipam.CheckSeen(evidence)); err != nil {
		return nil, err
	}
	return b.quarantine(ctx, who, ipam.Lease{Addr: a}, who.Note, evidence, anyRev)
}

// QuarantineAt is [Book.Quarantine] of an address as the caller saw it: if its
// row changed since rev, the answer is [ipam.ErrStale]; 0 is that of no row. What an
// operator did in between is worth more than what was planned before.
func (b *Book) QuarantineAt(ctx context.Context, who ipam.Who, a netip.Addr, rev int64, evidence json.RawMessage) (*ipam.Lease, error) {
	if err := ipam.CheckEvidence(evidence); err != nil {
		return nil, err
	}
	return b.quarantine(ctx, who, ipam.Lease{Addr: a}, "", evidence, rev)
}

// ConflictAt notes that an address which is held, or being released, is seen
// under another than its owner. evidence is a JSON array, may not be empty, and
// stands in the lease until [Book.ConflictOverAt] or the lease's end. If the
// row changed since rev, the answer is [ipam.ErrStale].
func (b *Book) ConflictAt(ctx context.Context, who ipam.Who, id string, rev int64, evidence json.RawMessage) (*ipam.Lease, error) {
	if err := ipam.CheckEvidence(evidence); err != nil {
		return nil, err
	}
	who.Reason = ipam.ConflictSeen
	return b.noteConflict(ctx, who, id, rev, evidence, evidence)
}

// ConflictOverAt notes that the conflict which stood on an address is over.
// evidence is what is seen of it yet, a JSON array; nil when nothing is.
func (b *Book) ConflictOverAt(ctx context.Context, who ipam.Who, id string, rev int64, evidence json.RawMessage) (*ipam.Lease, error) {
	who.Reason = ipam.ConflictOver
	return b.noteConflict(ctx, who, id, rev, nil, evidence)
}

func (b *Book) noteConflict(ctx context.Context, who ipam.Who, id string, rev int64, stands, evidence json.RawMessage) (*ipam.Lease, error) {
	return b.changeLease(ctx, id, func(t *tx, l *ipam.Lease) (*ipam.Lease, error) {
		if err := atRev(l, rev, l.State, ipam.Reserved, ipam.Bound, ipam.Paused, ipam.Releasing); err != nil {
			return nil, err
		}
		now := *l
		now.Conflict = stands
		return t.record(who, l, now, evidence)
	})
}

const anyRev = -1

func (b *Book) quarantine(ctx context.Context, who ipam.Who, former ipam.Lease, hold string, evidence json.RawMessage, rev int64) (*ipam.Lease, error) {
	return change(ctx, b.writer, func(t *tx) (*ipam.Lease, error) {
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
			return nil, fmt.Errorf("quarantine %s: %w: its row is at %d, not %d", a, ipam.ErrStale, is, rev)
		}
		if old != nil && old.State == ipam.Quarantined {
			if hold == "" || hold == old.Hold {
				return old, nil
			}
			now := *old
			now.Hold = hold
			return t.move(who, old, now, evidence)
		}
		most := t.opts.mostQuarantined(t.sizeOf(pool))
		if who.Actor != ipam.ByOperator && t.countOf(pool.UID, ipam.Quarantined) >= most {
			return nil, fmt.Errorf("quarantine %s: %w: %d of pool %s", a, ipam.ErrQuarantineFull, most, pool.Name)
		}
		now := former
		now.PoolUID, now.Pool, now.State, now.Hold = pool.UID, pool.Name, ipam.Quarantined, hold
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
