package netdb

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"strconv"

	"github.com/google/uuid"
)

// An Adoption gives an address that nobody holds to the one workload that
// lives with it: the repair of a book that lost the lease.
type Adoption struct {
	Addr netip.Addr
	// Rev is that of the address's row (cooling or quarantined) on which it
	// was decided; 0 when there was none.
	Rev int64
	// ID is the lease id that the workload carries. It is kept when it is a
	// UUID and this book never ended that lease; else the lease gets a new
	// one. It may be empty.
	ID      string
	Sandbox string
	UID     string // "" is the sandbox's name
	// Interface, when empty, is what this book last knew of the lease ID, else
	// the first of eth0, eth1, … on which the sandbox holds no lease here.
	Interface string
	Binding
	Evidence json.RawMessage // what the witnesses said; a JSON array, may be empty
}

// Adopt writes a bound lease for an address that is free, cools or is
// quarantined. If its row is not the one that the decision was made on, the
// answer is [ErrStale]; when the owner holds a lease already, [OwnedError].
//
// A lease that the history knows comes back as it was: id, incarnation and
// interface. So a client that still names it is understood.
func (b *Book) Adopt(ctx context.Context, who Who, a Adoption) (*Lease, error) {
	if err := checkName("sandbox", a.Sandbox); err != nil {
		return nil, err
	}
	if err := a.Binding.Check(); err != nil {
		return nil, err
	}
	if err := b.recall(ctx, &a); err != nil {
		return nil, err
	}
	if a.UID == "" {
		a.UID = a.Sandbox
	}
	if err := checkName("uid", a.UID); err != nil {
		return nil, err
	}
	if a.Interface != "" {
		if err := checkInterface(a.Interface); err != nil {
			return nil, err
		}
	}
	var out *Lease
	err := b.update(ctx, func(t *tx) (err error) {
		out, err = t.adopt(who, a)
		return err
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// recall completes an adoption from the history, or takes its id away when it
// is none that may live.
func (b *Book) recall(ctx context.Context, a *Adoption) error {
	if id, err := uuid.Parse(a.ID); err != nil || id.String() != a.ID {
		a.ID = ""
		return nil
	}
	past, err := b.History(ctx, Query{LeaseID: a.ID, Limit: 1})
	switch {
	case err != nil:
		return err
	case len(past) == 0:
		return nil
	case past[0].Addr != a.Addr || past[0].To == Cooling || past[0].To == Free:
		a.ID = "" // another address's, or over: an id is never used again
	case past[0].Sandbox == a.Sandbox:
		a.UID, a.Interface = past[0].UID, past[0].Interface
	}
	return nil
}

func (t *tx) adopt(who Who, a Adoption) (*Lease, error) {
	pi := t.idx.poolOf(a.Addr)
	if pi == nil {
		return nil, fmt.Errorf("adopt %s: %w: no pool contains it", a.Addr, ErrNotInPool)
	}
	if usable, note := pi.pool.usable(a.Addr); !usable {
		return nil, fmt.Errorf("adopt %s: %w %s: it is %s", a.Addr, ErrNotInPool, pi.pool.Name, note)
	}
	old := t.at(a.Addr)
	rev := int64(0)
	if old != nil {
		rev = old.Rev
	}
	if rev != a.Rev {
		return nil, fmt.Errorf("adopt %s: %w: its row is at %d, not %d", a.Addr, ErrStale, rev, a.Rev)
	}
	now := Lease{
		Addr: a.Addr, ID: a.ID, PoolUID: pi.pool.UID, Pool: pi.pool.Name, State: Bound,
		Sandbox: a.Sandbox, UID: a.UID, Interface: a.Interface, Attempt: 1,
		Containers: a.Containers, Netns: a.Netns, HostInterface: a.HostInterface, MAC: a.MAC,
	}
	if now.ID == "" || t.lease(now.ID) != nil {
		now.ID = newID()
	}
	if now.Interface == "" {
		for n := 0; now.Interface == "" || t.open(now.Owner()) != nil; n++ {
			now.Interface = "eth" + strconv.Itoa(n)
		}
	}
	if held := t.open(now.Owner()); held != nil {
		return nil, &OwnedError{held}
	}
	return t.move(who, old, now, a.Evidence)
}
