package netdb

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"strconv"

	"github.com/google/uuid"
)

// An Adoption gives an address that is not held to the one workload that
// lives with it: the repair of a book that lost the lease.
type Adoption struct {
	Addr netip.Addr
	// PrefixLen is as of a [Lease]. 0 takes what the address's row is of, or what this book
	// last knew of the lease ID.
	PrefixLen int
	// Rev is that of the address's row (cooling or quarantined) on which it
	// was decided; 0 when there was none.
	Rev int64
	// ID is the lease id that the workload carries. It stays when it is a
	// UUID, this book never ended that lease, and knows it as no other's;
	// else the lease gets a new one. It may be empty.
	ID      string
	Sandbox string
	// UID, when empty, is what this book last knew of the lease ID, else the
	// sandbox's name.
	UID string
	// Interface, when empty, is what this book last knew of the lease ID, else
	// the first of eth0, eth1, … on which the sandbox holds no lease here.
	Interface string
	Binding
	Evidence json.RawMessage // what the witnesses report; a JSON array, may be empty

	// What another book says of the lease; the zero of each where none does. A late cancel
	// of an attempt below Attempt releases nothing.
	Attempt int64
	Labels  map[string]string
	Created Stamp
	PoolUID string // the pool that it was a row of, inside or outside; see [Book.QuarantineFormer]
	Sleep   *Sleep // how its sandbox is paused and woken, checked; what wakes it just now, too
}

// Adopt writes a bound lease for an address that is free, cools or is
// quarantined. If its row is not the one that the decision was made on, the
// answer is [ErrStale]; when the sandbox holds a lease on the interface that
// was named, [OwnedError]; [ErrNotInPool] for an address that no pool could
// give, [ErrState] for one that is held, and [ErrTaken] for one that an
// unreadable row names.
//
// A lease that the history knows comes back as it was: id, incarnation and
// interface. So a client that still names it is understood.
func (b *Book) Adopt(ctx context.Context, who Who, a Adoption) (*Lease, error) {
	past, err := b.prepareAdoption(ctx, &a)
	if err != nil {
		return nil, fmt.Errorf("adopt %s: %w", a.Addr, err)
	}
	l, err := change(ctx, b.writer, func(t *tx) (*Lease, error) { return t.adopt(who, a, past) })
	if err != nil {
		return nil, fmt.Errorf("adopt %s: %w", a.Addr, err)
	}
	return l, nil
}

// prepareAdoption checks an adoption and completes it from the last change of
// its lease id, which comes back when it is about the same workload.
func (b *Book) prepareAdoption(ctx context.Context, a *Adoption) (*Change, error) {
	if err := cmp.Or(checkName("sandbox", a.Sandbox), a.Binding.Check(), checkSeen(a.Evidence)); err != nil {
		return nil, err
	}
	if a.Interface != "" {
		if err := checkInterface(a.Interface); err != nil {
			return nil, err
		}
	}
	if id, err := uuid.Parse(a.ID); err != nil || id.String() != a.ID {
		a.ID = ""
	}
	past, newest, err := b.lastOf(ctx, a.ID)
	switch {
	case err != nil:
		return nil, err
	case past != nil && !a.continues(past):
		a.ID, past = "", nil
	case past != nil:
		a.UID = past.UID
		a.PrefixLen = cmp.Or(a.PrefixLen, past.PrefixLen)
		if !newest {
			a.ID = "" // another lease has had the address since
		}
	}
	if a.UID == "" {
		a.UID = a.Sandbox
	}
	return past, checkName("uid", a.UID)
}

// continues reports whether the workload is the one that the change was about.
func (a *Adoption) continues(past *Change) bool {
	return past.Addr == a.Addr && past.Sandbox == a.Sandbox && past.UID != "" &&
		(a.UID == "" || a.UID == past.UID) && (a.Interface == "" || a.Interface == past.Interface)
}

func (t *tx) adopt(who Who, a Adoption, past *Change) (*Lease, error) {
	pool, err := t.poolOfFormer(&Lease{Addr: a.Addr, PrefixLen: a.PrefixLen, PoolUID: a.PoolUID})
	if err != nil {
		return nil, err
	}
	old := t.at(a.Addr)
	if rev := revOf(old); rev != a.Rev {
		return nil, fmt.Errorf("%w: its row is at %d, not %d", ErrStale, rev, a.Rev)
	}
	if old != nil && old.State != Cooling && old.State != Quarantined {
		return nil, fmt.Errorf("%w: it is %s by sandbox %q", ErrState, old.State, old.Sandbox)
	}
	if err := t.adoptsPrefix(pool, &a, old); err != nil {
		return nil, err
	}
	now := Lease{
		Addr: a.Addr, PrefixLen: a.PrefixLen, ID: a.ID, PoolUID: pool.UID, Pool: pool.Name, State: Bound,
		Sandbox: a.Sandbox, UID: a.UID, Interface: a.Interface, Attempt: max(a.Attempt, 1), Labels: a.Labels, Created: a.Created,
		Containers: a.Containers, Netns: a.Netns, HostInterface: a.HostInterface, MAC: a.MAC, Plug: a.Plug,
	}
	if now.Interface == "" && past != nil {
		now.Interface = past.Interface
		if t.open(now.Owner()) != nil {
			now.ID, now.Interface = "", "" // that interface has a lease since: this is another one
		}
	}
	for n := 0; now.Interface == ""; n++ {
		eth := now
		eth.Interface = "eth" + strconv.Itoa(n)
		if t.open(eth.Owner()) == nil {
			now = eth
		}
	}
	if held := t.open(now.Owner()); held != nil {
		return nil, &OwnedError{held}
	}
	if now.ID != "" {
		if err := t.keepID(&now, old); err != nil {
			return nil, err
		}
	}
	if now.ID == "" {
		now.ID = newID()
	}
	l, err := t.move(who, old, now, a.Evidence)
	if err == nil && a.Sleep != nil {
		how := *a.Sleep
		how.LeaseID = l.ID
		t.setSleep(how)
	}
	return l, err
}

// adoptsPrefix completes an adoption by the delegated prefix that it is of. What an address
// in one shows is not that its workload has the prefix, unless it is the row's own.
func (t *tx) adoptsPrefix(p *Pool, a *Adoption, old *Lease) error {
	if old != nil && old.PrefixLen != 0 {
		if old.ID != a.ID && (old.UID != a.UID || a.Addr != old.Addr) {
			return fmt.Errorf("%w: it is in the delegated prefix %s, which is %s", ErrState, old.Text(), old.State)
		}
		a.Addr, a.PrefixLen = old.Addr, old.PrefixLen
		return nil
	}
	if a.PrefixLen == 0 {
		return nil
	}
	return t.checkFormer(p, &Lease{Addr: a.Addr, PrefixLen: a.PrefixLen, PoolUID: a.PoolUID})
}

// keepID takes an adopted lease's id away when it is another row's, or when
// the lease has ended: an id is never used again. The row of a lease that was
// quarantined is that lease's own. The file is read in the transaction, because
// the lease may have ended since the history was read.
func (t *tx) keepID(now, old *Lease) error {
	if row := t.lease(now.ID); row != nil {
		if row != old || old.State != Quarantined || old.Owner() != now.Owner() {
			now.ID = ""
			return nil
		}
		now.Created, now.Attempt, now.Labels = old.Created, old.Attempt, old.Labels
		return nil
	}
	ended := t.removed(now.ID)
	if !ended {
		err := t.store.Conn.QueryRowContext(context.Background(), `SELECT EXISTS (SELECT 1 FROM changes
			WHERE lease_id = ?1 AND to_state IN ('cooling', 'free'))`, now.ID).Scan(&ended)
		if err != nil {
			return t.store.Classify("look up lease "+now.ID, err)
		}
	}
	if ended {
		now.ID = ""
	}
	return nil
}
