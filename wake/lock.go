package wake

import (
	"context"

	"github.com/ipamd/ipamd/ipam"
)

// lock locks the tasks of a lease's sandbox, which all of its leases share: what freezes them and
// what resumes them come one after the other, each with the change of the book that says so.
func (f *Flights) lock(ctx context.Context, l *ipam.Lease) (unlock func(), err error) {
	return f.tasks.Lock(ctx, l.UID)
}

// lockLease locks the tasks of a lease's sandbox, and returns the lease as it is then.
func (f *Flights) lockLease(ctx context.Context, id string) (l *ipam.Lease, unlock func(), err error) {
	if l, err = f.cfg.Book.Lease(id); err != nil {
		return nil, nil, err
	}
	if unlock, err = f.lock(ctx, l); err != nil {
		return nil, nil, err
	}
	if l, err = f.cfg.Book.Lease(id); err != nil {
		unlock()
		return nil, nil, err
	}
	return l, unlock, nil
}
