package wake

import (
	"context"

	"github.com/ipamd/ipamd/ipam"
)

// hold has the tasks of a lease's sandbox to itself, which all of its leases share: what freezes
// them and what resumes them come one after the other, each with the change of the book that says
// so.
func (f *Flights) hold(ctx context.Context, l *ipam.Lease) (release func(), err error) {
	return f.held.Hold(ctx, l.UID)
}

// holdLease returns a lease as it is once the tasks of its sandbox are held.
func (f *Flights) holdLease(ctx context.Context, id string) (l *ipam.Lease, release func(), err error) {
	if l, err = f.cfg.Book.Lease(id); err != nil {
		return nil, nil, err
	}
	if release, err = f.hold(ctx, l); err != nil {
		return nil, nil, err
	}
	if l, err = f.cfg.Book.Lease(id); err != nil {
		release()
		return nil, nil, err
	}
	return l, release, nil
}
