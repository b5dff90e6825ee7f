package wake

import (
	"context"

	"github.com/ipamd/ipamd/netdb"
)

// hold has the tasks of a lease's sandbox to itself, which all of its leases share: what freezes
// them and what resumes them come one after the other, each with the change of the book that says
// so.
func (f *Flights) hold(ctx context.Context, l *netdb.Lease) (release func(), err error) {
	return f.held.Hold(ctx, l.UID)
}
