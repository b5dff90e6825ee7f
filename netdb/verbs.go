package netdb

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
)

// errEnded is internal: no row has the id; the history tells the rest.
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
// [ErrGone]; or [ErrNotFound].
func (b *Book) ended(ctx context.Context, id string) (Change, error) {
	c, err := scanChange(b.readers.QueryRowContext(ctx, `SELECT `+changeColumns+` FROM changes
		WHERE lease_id = ?1 AND to_state IN ('cooling', 'free') ORDER BY rev DESC LIMIT 1`, id))
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return c, fmt.Errorf("lease %s: %w", id, ErrNotFound)
	case err != nil:
		return c, b.classify("look up lease "+id, err)
	}
	return c, fmt.Errorf("lease %s of %s (%s): %w", id, c.Sandbox, c.Addr, ErrGone)
}

// Check returns a [FieldError] for the first part that cannot be stored, and
// spells the MAC as the kernel does.
func (n *Binding) Check() error {
	if len(n.Containers) == 0 && n.Netns == "" && n.HostInterface == "" && n.MAC == "" {
		return invalid("containers", "nothing to bind to: name a container, a netns, a host interface or a MAC")
	}
	if len(n.Containers) > 256 {
		return invalid("containers", "%d are more than 256", len(n.Containers))
	}
	for _, c := range n.Containers {
		if c.Namespace == "" || c.ID == "" || len(c.Namespace) > MaxName || len(c.ID) > MaxName {
			return invalid("containers", "namespace %.40q and id %.40q must each have 1 to %d bytes", c.Namespace, c.ID, MaxName)
		}
	}
	if n.Netns != "" && (!strings.HasPrefix(n.Netns, "/") || len(n.Netns) > 4095) {
		return invalid("netns", "%.80q is no absolute path", n.Netns)
	}
	if n.HostInterface != "" {
		if err := checkInterface(n.HostInterface); err != nil {
			return invalid("host_interface", "%.40q is no interface name", n.HostInterface)
		}
	}
	if n.MAC != "" {
		mac, err := net.ParseMAC(n.MAC)
		if err != nil || len(mac) != 6 {
			return invalid("mac", "%.40q is no Ethernet address", n.MAC)
		}
		n.MAC = mac.String()
	}
	return nil
}

// Bind records where an open lease is used. The same content again changes
// nothing; other content replaces it. A lease that was let go is [ErrState].
func (b *Book) Bind(ctx context.Context, who Who, id string, n Binding) (*Lease, error) {
	if err := n.Check(); err != nil {
		return nil, err
	}
	return b.updateLease(ctx, id, func(t *tx, l *Lease) (*Lease, error) {
		now := *l
		now.Containers, now.Netns, now.HostInterface, now.MAC = n.Containers, n.Netns, n.HostInterface, n.MAC
		if l.State == Reserved {
			now.State = Bound
		} else if l.State.Open() && slices.Equal(l.Containers, n.Containers) && l.Netns == n.Netns &&
			l.HostInterface == n.HostInterface && l.MAC == n.MAC {
			return l, nil
		}
		if !l.State.Open() {
			return nil, fmt.Errorf("bind %s: %w: it is %s", l.Addr, ErrState, l.State)
		}
		return t.move(who, l, now, nil)
	})
}

// Pause marks a bound lease as paused: its address stays its own without
// limit. A paused one stays as it is.
func (b *Book) Pause(ctx context.Context, who Who, id string) (*Lease, error) {
	return b.setState(ctx, who, id, Paused)
}

// Resume marks a paused lease as bound again.
func (b *Book) Resume(ctx context.Context, who Who, id string) (*Lease, error) {
	return b.setState(ctx, who, id, Bound)
}

func (b *Book) setState(ctx context.Context, who Who, id string, want State) (*Lease, error) {
	return b.updateLease(ctx, id, func(t *tx, l *Lease) (*Lease, error) {
		if l.State == want {
			return l, nil
		}
		if l.State != Bound && l.State != Paused {
			return nil, fmt.Errorf("move %s to %s: %w: it is %s", l.Addr, want, ErrState, l.State)
		}
		now := *l
		now.State = want
		return t.move(who, l, now, nil)
	})
}

// Release records that the owner let the lease go, or is known to be gone.
// It names the lease, never the address. uid, when given, must be the
// lease's own.
//
// A lease that is being released, cools or has ended stays as it is: success,
// and the cooldown is not restarted; a lease that left no row comes back with
// state [Free]. When another lease has the address by now, the answer is
// [ErrGone].
func (b *Book) Release(ctx context.Context, who Who, id, uid string) (*Lease, error) {
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

// Confirm makes a releasing lease cool: its removal was confirmed by the
// runtime and by the kernel. The cooldown starts now. rev is the revision at
// which the lease was confirmed; if it changed since, the answer is
// [ErrStale].
func (b *Book) Confirm(ctx context.Context, who Who, id string, rev int64) (*Lease, error) {
	return b.moveAt(ctx, who, id, rev, Cooling, nil)
}

// Expire ends a lease that was never bound and that no witness sees: its
// address is free at once. unseen is asked in the transaction; an error ends
// the call and nothing changes.
func (b *Book) Expire(ctx context.Context, who Who, id string, rev int64, unseen func() error) (*Lease, error) {
	return b.moveAt(ctx, who, id, rev, Free, unseen)
}

// ClearAt lets a quarantined address cool, if its row is still at rev.
func (b *Book) ClearAt(ctx context.Context, who Who, id string, rev int64) (*Lease, error) {
	return b.moveAt(ctx, who, id, rev, Cooling, nil)
}

func (b *Book) moveAt(ctx context.Context, who Who, id string, rev int64, to State, unseen func() error) (*Lease, error) {
	return b.updateLease(ctx, id, func(t *tx, l *Lease) (*Lease, error) {
		if l.Rev != rev {
			return nil, fmt.Errorf("move %s to %s: %w: it is at %d, not %d", l.Addr, to, ErrStale, l.Rev, rev)
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

// Quarantine sets an address aside that nobody holds: it was seen on the wire
// and no lease explains it, or an operator says so. evidence is a JSON array
// and may not be empty. An address that is quarantined already stays as it
// is. Beyond the pool's quarantine share, and unless an operator asks, the
// answer is [ErrQuarantineFull].
func (b *Book) Quarantine(ctx context.Context, who Who, a netip.Addr, evidence json.RawMessage) (*Lease, error) {
	if len(evidence) == 0 || !json.Valid(evidence) {
		return nil, invalid("evidence", "is empty or no JSON")
	}
	var out *Lease
	err := b.update(ctx, func(t *tx) error {
		pi := t.idx.poolOf(a)
		if pi == nil {
			return fmt.Errorf("quarantine %s: %w: no pool contains it", a, ErrNotInPool)
		}
		if usable, note := pi.pool.usable(a); !usable {
			return fmt.Errorf("quarantine %s: %w %s: it is %s", a, ErrNotInPool, pi.pool.Name, note)
		}
		old := t.at(a)
		if old != nil && old.State == Quarantined {
			out = old
			return nil
		}
		most := max(1, int(float64(pi.size)*b.opts.QuarantineShare))
		if who.Actor != ByOperator && t.countOf(pi.pool.UID, Quarantined) >= most {
			return fmt.Errorf("quarantine %s: %w: %d of pool %s", a, ErrQuarantineFull, most, pi.pool.Name)
		}
		var err error
		out, err = t.move(who, old, Lease{Addr: a, ID: newID(), PoolUID: pi.pool.UID, Pool: pi.pool.Name,
			State: Quarantined}, evidence)
		return err
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// Clear lets a quarantined address cool by hand. It becomes free after the
// cooldown, like any other, and only while no witness sees it.
func (b *Book) Clear(ctx context.Context, who Who, a netip.Addr) (*Lease, error) {
	l, ok := b.At(a)
	if !ok || l.State != Quarantined {
		return nil, fmt.Errorf("clear %s: %w: it is not quarantined", a, ErrState)
	}
	return b.ClearAt(ctx, who, l.ID, l.Rev)
}

// Cancel leaves a tombstone: attempts of the sandbox uid up to this one are
// refused while it stands, also those whose Allocate arrives later. Open
// leases of such attempts are released; they come back.
func (b *Book) Cancel(ctx context.Context, who Who, uid string, attempt int64) ([]*Lease, error) {
	if err := checkName("uid", uid); err != nil {
		return nil, err
	}
	if attempt < 1 {
		return nil, invalid("attempt", "%d is below 1", attempt)
	}
	var out []*Lease
	err := b.update(ctx, func(t *tx) error {
		out = nil
		if old := t.tomb(uid); old.attempt < attempt || t.now.Since(old.at) >= b.opts.Tombstone {
			t.own.stage(step{tomb: uid, stone: tombstone{attempt, t.now}})
		}
		for _, l := range t.openOf(uid) {
			if l.Attempt > attempt {
				continue
			}
			now := *l
			now.State = Releasing
			freed, err := t.move(who, l, now, nil)
			if err != nil {
				return err
			}
			out = append(out, freed)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}
