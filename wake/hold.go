package wake

import (
	"context"

	"github.com/ipamd/ipamd/netdb"
)

// hold has the tasks of a lease's sandbox to itself, which all of its leases share: what freezes
// them and what resumes them come one after the other, each with the change of the book that says
// so.
func (f *Flights) hold(ctx context.Context, l *netdb.Lease) (release func(), err error) {
	for {
		f.mu.Lock()
		held, is := f.held[l.UID]
		if !is {
			held = make(chan struct{})
			f.held[l.UID] = held
			f.mu.Unlock()
			return func() {
				f.mu.Lock()
				delete(f.held, l.UID)
				f.mu.Unlock()
				close(held)
			}, nil
		}
		f.mu.Unlock()
		select {
		case <-held:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}
