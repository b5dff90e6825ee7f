package wake

import (
	"context"

	"github.com/ipamd/ipamd/netdb"
)

// Pause records that a sandbox is paused, how, and what wakes it. What this daemon cannot do
// is refused with what is missing for it, and nothing is recorded.
func (f *Flights) Pause(ctx context.Context, who netdb.Who, id string, ifRev int64, how netdb.Sleep) (*netdb.Lease, error) {
	l, err := f.cfg.Book.Lease(id)
	if err != nil {
		return nil, err
	}
	if err := how.Check(l.Addr); err != nil {
		return nil, err
	}
	if how.Do {
		return nil, &netdb.FieldError{Field: "do", Reason: "this daemon has no runtime to pause by: pause the tasks, and leave do out"}
	}
	if how.Wake != nil {
		return nil, &netdb.FieldError{Field: "wake", Reason: "this daemon does not watch the ports' traffic: leave wake out, and wake by POST /v1/leases/{id}/wake"}
	}
	return f.cfg.Book.PauseAs(ctx, who, id, ifRev, how)
}
