package netdb_test

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"testing"

	"github.com/ipamd/ipamd/ipam"
	. "github.com/ipamd/ipamd/netdb/netdbtest"
)

// fill makes a book of many pages: leases, their history, and tombstones.
func (l *life) fill(t *testing.T) {
	t.Helper()
	const leases, stones = 150, 80
	var all sync.WaitGroup
	for i := range leases {
		all.Go(func() {
			a, err := TryReserve(l.book, l.book.Pools()[0], fmt.Sprint("more", i), eager)
			if err == nil {
				_, err = l.book.Bind(ctx, client, a.ID, 0, ipam.Binding{Containers: []ipam.Container{{Namespace: "n", ID: a.ID}}})
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	for i := range stones {
		uid := fmt.Sprint("stone", i)
		l.stones = append(l.stones, uid)
		all.Go(func() {
			if _, err := l.book.Cancel(ctx, client, uid, 1); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	l.note()
}

// ended are the ids of two leases that have no row any more: the address of one
// is free, and on that of the other another workload was found.
type ended struct{ expired, overrun string }

func (l *life) end(t *testing.T) (e ended) {
	t.Helper()
	a := Reserve(t, l.book, "expired")
	_, err := l.book.Expire(ctx, watchdog, a.ID, a.Rev, nil)
	l.done(t, err)
	b := Reserve(t, l.book, "overrun")
	r, err := l.book.Release(ctx, client, b.ID, "", 0)
	l.done(t, err)
	q, err := l.book.QuarantineReleasing(ctx, watchdog, r.ID, r.Rev, evidence)
	l.done(t, err)
	_, err = l.book.Adopt(ctx, Who(ipam.ByReconciler, "repaired"), ipam.Adoption{Addr: q.Addr, Rev: q.Rev, Sandbox: "there",
		Binding: ipam.Binding{MAC: "02:00:00:00:00:02"}})
	l.done(t, err)
	return ended{expired: a.ID, overrun: b.ID}
}

// wantGone is nil when a lease is gone, and the error when it is another.
func wantGone(err error) error {
	switch {
	case errors.Is(err, ipam.ErrGone):
		return nil
	case err == nil:
		return errors.New("a lease that has ended is there")
	}
	return err
}

// A step can be tried again. One of upkeep changes nothing and refuses nothing.
type step struct {
	name   string
	do     func() error
	upkeep bool
}

// cycle is a lease's life, and what happens beside it.
func (u *under) cycle(sandbox string) []step {
	var lease *ipam.Lease
	try := func(got *ipam.Lease, err error) error {
		if err == nil {
			lease = got
		}
		return err
	}
	var strange netip.Addr
	here := ipam.Binding{MAC: "02:00:00:00:00:01"}
	return []step{
		{name: "reserve", do: func() error { return try(TryReserve(u.book, u.book.Pools()[0], sandbox, eager)) }},
		{name: "bind", do: func() error { return try(u.book.Bind(ctx, client, lease.ID, 0, here)) }},
		{name: "history", do: u.remembered},
		{name: "cancel", do: func() error { return u.cancel("late " + sandbox) }},
		{name: "quarantine", do: func() error {
			free, err := u.book.Pick(u.book.Pools()[0].UID, eager)
			if err != nil {
				return err
			}
			defer u.book.Drop(free)
			_, err = u.book.Quarantine(ctx, Who(ipam.ByReconciler, "foreign"), free.Addr, evidence)
			strange = free.Addr
			return err
		}},
		{name: "fold", do: func() error { return u.book.Fold(ctx) }, upkeep: true},
		{name: "clear", do: func() error { _, err := Clear(u.book, strange); return err }},
		{name: "release", do: func() error { return try(u.book.Release(ctx, client, lease.ID, "", 0)) }},
		{name: "confirm", do: func() error { return try(u.book.Confirm(ctx, watchdog, lease.ID, lease.Rev, nil)) }},
		{name: "bind of an ended lease", do: func() error {
			_, err := u.book.Bind(ctx, client, u.ended.expired, 0, here)
			return wantGone(err)
		}},
		{name: "release of an ended lease", do: func() error {
			l, err := u.book.Release(ctx, client, u.ended.expired, "", 0)
			if err == nil && l.State != ipam.Free {
				err = fmt.Errorf("it is %s", l.State)
			}
			return err
		}},
		{name: "release of a lease whose address was taken", do: func() error {
			_, err := u.book.Release(ctx, client, u.ended.overrun, "", 0)
			return wantGone(err)
		}},
	}
}

// eager waits for no cooldown, so that a pool lasts for any number of lives.
var eager = ipam.Policy{}

// remembered wants the history to have all that was reported as it happened.
func (l *life) remembered() error {
	history, err := l.book.History(ctx, ipam.Query{Limit: 1 << 20})
	if err != nil {
		return err
	}
	slices.Reverse(history) // the newest is the first
	history = slices.DeleteFunc(history, func(c ipam.Change) bool { return c.Subject != ipam.OfLease })
	if !slices.EqualFunc(history, l.changes, func(a, b ipam.Change) bool {
		return a.Rev == b.Rev && a.Addr == b.Addr && a.LeaseID == b.LeaseID && a.From == b.From && a.To == b.To
	}) {
		return fmt.Errorf("the history has %d changes that are not the %d that were made", len(history), len(l.changes))
	}
	return nil
}
