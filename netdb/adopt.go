package netdb

import (
	"cmp"
	"context"
	"fmt"
	"strconv"

	"github.com/google/uuid"

	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb/index"
)

// formers are the verbs about what the book does not know of by itself: workloads that have no
// lease in it, and what another book had.
type formers struct{ w *writer }

// Adopt writes a bound lease for an address that is free, cools or is
// quarantined. If its row is not the one that the decision was made on, the
// answer is [ipam.ErrStale]; when the sandbox holds a lease on the interface that
// was named, [ipam.OwnedError]; [ipam.ErrNotInPool] for an address that no pool could
// give, [ipam.ErrState] for one that is held, and [ipam.ErrTaken] for one that an
// unreadable row names.
//
// A lease that the history knows comes back as it was: id, incarnation and
// interface. So a client that still names it is understood.
func (b formers) Adopt(ctx context.Context, who ipam.Who, a ipam.Adoption) (*ipam.Lease, error) {
	past, err := b.prepareAdoption(ctx, &a)
	if err != nil {
		return nil, fmt.Errorf("adopt %s: %w", a.Addr, err)
	}
	l, err := change(ctx, b.w, func(t *tx) (*ipam.Lease, error) { return t.adopt(who, a, past) })
	if err != nil {
		return nil, fmt.Errorf("adopt %s: %w", a.Addr, err)
	}
	return l, nil
}

// prepareAdoption checks an adoption and completes it from the last change of
// its lease id, which comes back when it is about the same workload.
func (b formers) prepareAdoption(ctx context.Context, a *ipam.Adoption) (*ipam.Change, error) {
	if err := cmp.Or(ipam.CheckName("sandbox", a.Sandbox), a.Binding.Check(), ipam.CheckSeen(a.Evidence)); err != nil {
		return nil, err
	}
	if a.Interface != "" {
		if err := ipam.CheckInterface(a.Interface); err != nil {
			return nil, err
		}
	}
	if id, err := uuid.Parse(a.ID); err != nil || id.String() != a.ID {
		a.ID = ""
	}
	past, newest, err := b.w.history.lastOf(ctx, a.ID)
	switch {
	case err != nil:
		return nil, err
	case past != nil && !continues(a, past):
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
	return past, ipam.CheckName("uid", a.UID)
}

// continues reports whether the workload is the one that the change was about.
func continues(a *ipam.Adoption, past *ipam.Change) bool {
	return past.Addr == a.Addr && past.Sandbox == a.Sandbox && past.UID != "" &&
		(a.UID == "" || a.UID == past.UID) && (a.Interface == "" || a.Interface == past.Interface)
}

func (t *tx) adopt(who ipam.Who, a ipam.Adoption, past *ipam.Change) (*ipam.Lease, error) {
	pool, err := poolOfFormer(&t.View, &ipam.Lease{Addr: a.Addr, PrefixLen: a.PrefixLen, PoolUID: a.PoolUID})
	if err != nil {
		return nil, err
	}
	old := t.At(a.Addr)
	if rev := index.RevOf(old); rev != a.Rev {
		return nil, fmt.Errorf("%w: its row is at %d, not %d", ipam.ErrStale, rev, a.Rev)
	}
	if old != nil && old.State != ipam.Cooling && old.State != ipam.Quarantined {
		return nil, fmt.Errorf("%w: it is %s by sandbox %q", ipam.ErrState, old.State, old.Sandbox)
	}
	if err := adoptsPrefix(&t.View, pool, &a, old); err != nil {
		return nil, err
	}
	now := ipam.Lease{
		Addr: a.Addr, PrefixLen: a.PrefixLen, ID: a.ID, PoolUID: pool.UID, Pool: pool.Name, State: ipam.Bound,
		Sandbox: a.Sandbox, UID: a.UID, Interface: a.Interface, Attempt: max(a.Attempt, 1), Labels: a.Labels, Created: a.Created,
		Containers: a.Containers, Netns: a.Netns, HostInterface: a.HostInterface, MAC: a.MAC, Plug: a.Plug,
	}
	if now.Interface == "" && past != nil {
		now.Interface = past.Interface
		if t.Open(now.Owner()) != nil {
			now.ID, now.Interface = "", "" // that interface has a lease since: this is another one
		}
	}
	for n := 0; now.Interface == ""; n++ {
		eth := now
		eth.Interface = "eth" + strconv.Itoa(n)
		if t.Open(eth.Owner()) == nil {
			now = eth
		}
	}
	if held := t.Open(now.Owner()); held != nil {
		return nil, &ipam.OwnedError{Lease: held}
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
		t.SetSleep(how)
	}
	return l, err
}

// adoptsPrefix completes an adoption by the delegated prefix that it is of. What an address
// in one shows is not that its workload has the prefix, unless it is the row's own.
func adoptsPrefix(v *index.View, p *ipam.Pool, a *ipam.Adoption, old *ipam.Lease) error {
	if old != nil && old.PrefixLen != 0 {
		if old.ID != a.ID && (old.UID != a.UID || a.Addr != old.Addr) {
			return fmt.Errorf("%w: it is in the delegated prefix %s, which is %s", ipam.ErrState, old.Text(), old.State)
		}
		a.Addr, a.PrefixLen = old.Addr, old.PrefixLen
		return nil
	}
	if a.PrefixLen == 0 {
		return nil
	}
	return checkFormer(v, p, &ipam.Lease{Addr: a.Addr, PrefixLen: a.PrefixLen, PoolUID: a.PoolUID})
}

// keepID takes an adopted lease's id away when it is another row's, or when
// the lease has ended: an id is never used again. The row of a lease that was
// quarantined is that lease's own. The file is read in the transaction, because
// the lease may have ended since the history was read.
func (t *tx) keepID(now, old *ipam.Lease) error {
	if row := t.Lease(now.ID); row != nil {
		if row != old || old.State != ipam.Quarantined || old.Owner() != now.Owner() {
			now.ID = ""
			return nil
		}
		now.Created, now.Attempt, now.Labels = old.Created, old.Attempt, old.Labels
		return nil
	}
	ended := t.Removed(now.ID)
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
