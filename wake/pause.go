package wake

import (
	"context"
	"fmt"

	"github.com/ipamd/ipamd/netdb"
)

// A Catcher begins flights by the traffic to paused sandboxes; *catch.Catcher is one.
type Catcher interface {
	// Watches is an error when the traffic to a lease cannot be watched.
	Watches(l *netdb.Lease) error
	// Sync watches for all that the book has paused by now.
	Sync(ctx context.Context) error
}

// CatchBy has the traffic to paused sandboxes watched. It is called before anything else is,
// or not at all: then a policy of traffic is refused because of why.
func (f *Flights) CatchBy(c Catcher, why error) { f.catcher, f.blind = c, why }

// Pause records that a sandbox is paused, how, and what wakes it. What this daemon cannot do
// is refused with what is missing for it, and nothing is recorded. Once it is answered, traffic
// that the policy names begins a flight: what comes before the sandbox stands still is answered
// by itself, and what comes later wakes it.
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
	if how.Wake == nil {
		return f.cfg.Book.PauseAs(ctx, who, id, ifRev, how)
	}
	if f.catcher == nil {
		return nil, &netdb.FieldError{Field: "wake", Reason: fmt.Sprintf("this daemon cannot watch the ports' traffic (%v): leave wake out, and wake by POST /v1/leases/{id}/wake", f.blind)}
	}
	if err := f.catcher.Watches(l); err != nil {
		return nil, err
	}
	was := l.State
	if l, err = f.cfg.Book.PauseAs(ctx, who, id, ifRev, how); err != nil {
		return nil, err
	}
	if err := f.catcher.Sync(ctx); err != nil {
		if was == netdb.Bound {
			if _, back := f.cfg.Book.Resume(context.WithoutCancel(ctx), itself("not_watched"), id, l.Rev); back != nil {
				f.cfg.Log.Warn("a pause could not be taken back", "lease", id, "addr", l.Addr, "err", back)
			}
		}
		return nil, &netdb.FieldError{Field: "wake", Reason: fmt.Sprintf("the kernel does not take the rules that watch for traffic: %v", err)}
	}
	return l, nil
}
