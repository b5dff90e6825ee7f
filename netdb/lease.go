package netdb

import (
	"context"
	"fmt"
	"time"

	"github.com/ipamd/ipamd/ipam"
)

// leases are the verbs of a lease's owner: from its reservation to the pauses of its sandbox.
type leases struct{ w *writer }

// Name leases a host interface name beside an open lease that has none. Where it has one
// that fits, nothing is written. Errors: [ipam.ErrState] (it has another one, or was released),
// [ipam.ErrNameTaken], [ipam.FieldError].
func (b leases) Name(ctx context.Context, who ipam.Who, id string, n Naming) (*ipam.Lease, error) {
	if err := ipam.CheckHostName(n.Want); err != nil {
		return nil, err
	}
	return b.w.changeLease(ctx, id, func(t *tx, l *ipam.Lease) (*ipam.Lease, error) {
		if !l.State.Open() {
			return nil, fmt.Errorf("name a link of %s: %w: it is %s", l.Addr, ipam.ErrState, l.State)
		}
		given, err := nameLink(&t.View, l, n)
		if given == nil || err != nil {
			return l, err
		}
		now, err := t.move(who, l, *l, nil)
		if err == nil {
			t.SetHostNames(given, nil)
		}
		return now, err
	})
}

// Renew notes that a sandbox asks for its lease again, and will bind it within
// a time. A reserved one has at least half of that left afterwards: the answer
// would be worth nothing if it ended a moment later. A higher attempt is noted,
// so that a late cancel of a lower one leaves the lease alone. Where there is
// nothing to note nothing is written, and the lease comes back as every change
// before has left it. One that was released is [ipam.ErrState].
func (b leases) Renew(ctx context.Context, who ipam.Who, id string, attempt int64, within time.Duration) (*ipam.Lease, error) {
	return b.w.changeLease(ctx, id, func(t *tx, l *ipam.Lease) (*ipam.Lease, error) {
		if t.cancelled(l.UID, attempt) {
			return nil, fmt.Errorf("sandbox %q, attempt %d: %w", l.Sandbox, attempt, ipam.ErrCancelled)
		}
		if !l.State.Open() {
			return nil, fmt.Errorf("renew %s: %w: it is %s", l.Addr, ipam.ErrState, l.State)
		}
		now := *l
		now.Attempt = max(attempt, l.Attempt)
		if past := t.now.Since(l.Since); l.State == ipam.Reserved && l.BindWithin-past < within/2 {
			now.BindWithin = past + within
		}
		if now.Attempt == l.Attempt && now.BindWithin == l.BindWithin {
			return l, nil
		}
		return t.move(who, l, now, nil)
	})
}

// Pause marks a bound lease as paused: its address stays its own without
// limit. A paused one stays so. ifRev is as of [Book.Bind].
//
// How a caller paused it before does not count any more, nor does a flight that is under way: a
// mode that is not this pause's may say that a sandbox stood still in memory, and so is gone with
// its boot. A reconciler that finds it paused leaves what is recorded.
func (b leases) Pause(ctx context.Context, who ipam.Who, id string, ifRev int64) (*ipam.Lease, error) {
	return b.pause(ctx, who, id, ifRev, ipam.Paused)
}

// Resume marks a paused lease as bound again. ifRev is as of [Book.Bind].
func (b leases) Resume(ctx context.Context, who ipam.Who, id string, ifRev int64) (*ipam.Lease, error) {
	return b.pause(ctx, who, id, ifRev, ipam.Bound)
}

func (b leases) pause(ctx context.Context, who ipam.Who, id string, ifRev int64, want ipam.State) (*ipam.Lease, error) {
	return b.w.changeLease(ctx, id, func(t *tx, l *ipam.Lease) (*ipam.Lease, error) {
		if l.State != ipam.Bound && l.State != ipam.Paused {
			return nil, fmt.Errorf("move %s to %s: %w: it is %s", l.Addr, want, ipam.ErrState, l.State)
		}
		now := *l
		now.State = want
		note := t.note
		if l.State == ipam.Paused && want == ipam.Paused && who.Actor != ipam.ByReconciler && t.Sleep(id) != nil {
			note = t.noteAnew
		}
		next, err := note(who, l, now, ifRev)
		switch {
		case err != nil || next == l || want != ipam.Paused:
		case who.Reason == ipam.Rebuilt: // what was recorded of the tasks is as it was
		case who.Actor == ipam.ByReconciler: // it has seen the tasks stand still
			t.setStill(l.ID)
		default:
			t.EndSleep(l.ID)
		}
		return next, err
	})
}

// note changes how a lease is used, as the caller saw it at ifRev.
func (t *tx) note(who ipam.Who, l *ipam.Lease, now ipam.Lease, ifRev int64) (*ipam.Lease, error) {
	if sameUse(l, &now) {
		return l, nil
	}
	return t.noteAnew(who, l, now, ifRev)
}

// noteAnew is note of what changes something beside the row as well.
func (t *tx) noteAnew(who ipam.Who, l *ipam.Lease, now ipam.Lease, ifRev int64) (*ipam.Lease, error) {
	if err := asSeen(l, ifRev); err != nil {
		return nil, err
	}
	return t.move(who, l, now, nil)
}

// asSeen returns an [ipam.StaleError] when a lease is at another revision than the
// caller saw it at; 0 is any.
func asSeen(l *ipam.Lease, ifRev int64) error {
	switch {
	case ifRev < 0:
		return ipam.Invalid("if_revision", "%d is below 0", ifRev)
	case ifRev != 0 && ifRev != l.Rev:
		return &ipam.StaleError{Lease: l, Seen: ifRev}
	}
	return nil
}
