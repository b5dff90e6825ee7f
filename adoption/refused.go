package adoption

import (
	"context"
	"errors"
	"fmt"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb"
)

// refused finds the rows that an adoption would not take over: what cannot be read, which
// stays as it is, and what stands in the way of the configuration's pools: then the book is
// not adopted at all. blocked is why, nil where nothing is.
func (a *Adoption) refused(ctx context.Context) (rows []api.BookRefusal, blocked error) {
	for _, u := range a.Book.Info().Unreadable {
		rows = append(rows, api.BookRefusal{Address: u.Row, PoolUID: u.Pool, Reason: "its row cannot be read, and stays as it is: " + u.Reason})
	}
	if err := a.Pools(ctx); err == nil || errors.Is(err, netdb.ErrIdentity) {
		return rows, nil
	} else {
		blocked = err
	}
	named := make(map[string]bool)
	add := func(r api.BookRefusal) {
		if !named[r.Address] {
			named[r.Address], rows = true, append(rows, r)
		}
	}
	for _, err := range parts(blocked) {
		switch err := err.(type) {
		case *ipam.OverlapError:
			for _, l := range a.rows() {
				if l.PoolUID == err.Other.UID && l.Prefix().Overlaps(err.Spec.Prefix) {
					add(refusal(l, err.UID, "it is of the book's pool %s, %s, and the configuration's pool %s, %s, would have it: have the configuration name that pool as the book does",
						err.Other.Name, err.Other.Prefix, err.Spec.Name, err.Spec.Prefix))
				}
			}
		case *ipam.OtherPoolsRowError:
			if l, ok := a.Book.At(err.Addr); ok {
				add(refusal(l, err.NewUID, "%s", err.Why))
			} else {
				add(api.BookRefusal{Address: err.Addr.String(), PoolUID: err.OldUID, NewPoolUID: err.NewUID, Reason: err.Why})
			}
		case *ipam.PoolNotEmptyError:
			for _, e := range err.Effects {
				add(refusal(e.Lease, err.Pool.UID, "its pool would be as the configuration has it: %s", e.Note))
			}
		}
	}
	return rows, blocked
}

func refusal(l *ipam.Lease, newUID, format string, args ...any) api.BookRefusal {
	return api.BookRefusal{Address: l.Text(), State: api.State(l.State), Sandbox: l.Sandbox, LeaseID: l.ID, PoolUID: l.PoolUID, NewPoolUID: newUID,
		Reason: fmt.Sprintf(format, args...)}
}

// parts are an error and all that it wraps.
func parts(err error) []error {
	all := []error{err}
	switch err := err.(type) {
	case interface{ Unwrap() error }:
		if below := err.Unwrap(); below != nil {
			all = append(all, parts(below)...)
		}
	case interface{ Unwrap() []error }:
		for _, below := range err.Unwrap() {
			all = append(all, parts(below)...)
		}
	}
	return all
}

// inTheWay names the first row for which the adoption is refused, the pool that it is of, and the one that
// would have it.
func inTheWay(rows []api.BookRefusal, err error) error {
	for _, r := range rows {
		if r.NewPoolUID != "" {
			return fmt.Errorf("%w; address %s is of pool uid %s, and uid %s would have it: %s; ipamctl book adopt lists all such rows",
				err, r.Address, r.PoolUID, r.NewPoolUID, r.Reason)
		}
	}
	return fmt.Errorf("%w; have the configuration name its pools as the book does", err)
}
