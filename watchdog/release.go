package watchdog

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/netdb"
)

// Book is what the watchdog needs of the lease book.
type Book interface {
	Lease(id string) (*netdb.Lease, error)
	Release(ctx context.Context, who netdb.Who, id, uid string) (*netdb.Lease, error)
	Expire(ctx context.Context, who netdb.Who, id string, rev int64, unseen func() error) (*netdb.Lease, error)
}

// Witnesses is what the watchdog needs of the census board.
type Witnesses interface {
	About(addr netip.Addr) census.Answer
}

// A Watchdog lets leases go. It is safe for concurrent use.
type Watchdog struct {
	Book      Book
	Witnesses Witnesses
	// Settle reads what the kernel has told by now.
	Settle func(context.Context) error
}

// A Blocker is one reason why a released address is not reusable yet.
type Blocker struct {
	Kind   string // container, port, netns, sighting, silent, unconfirmed
	Detail string
}

// errNotDark keeps a lease from ending at once.
var errNotDark = errors.New("not dark")

// Release records that the owner lets the lease go. A lease that was never
// bound, and that every witness answers not to see, ends at once and comes
// back free; the probe is asked again before anybody gets the address. Every
// other lease is releasing, with what stands in the way.
//
// Errors are those of [netdb.Book.Release].
func (w *Watchdog) Release(ctx context.Context, who netdb.Who, id, uid string) (*netdb.Lease, []Blocker, error) {
	l, err := w.Book.Lease(id)
	if err == nil && l.State == netdb.Reserved && (uid == "" || uid == l.UID) && w.Settle(ctx) == nil {
		by := who
		by.Actor = netdb.ByWatchdog
		freed, err := w.Book.Expire(ctx, by, l.ID, l.Rev, func() error {
			if !w.Witnesses.About(l.Addr).Dark() {
				return errNotDark
			}
			return nil
		})
		switch {
		case err == nil:
			return freed, nil, nil
		case !errors.Is(err, errNotDark) && !errors.Is(err, netdb.ErrStale) && !errors.Is(err, netdb.ErrState) && !errors.Is(err, netdb.ErrGone):
			return nil, nil, err
		}
	}
	if l, err = w.Book.Release(ctx, who, id, uid); err != nil {
		return nil, nil, err
	}
	return l, w.Blockers(l), nil
}

// Blockers tells what keeps a lease's address from being reusable; nothing
// for one that cools or is free.
func (w *Watchdog) Blockers(l *netdb.Lease) []Blocker {
	if l.State == netdb.Cooling || l.State == netdb.Free {
		return nil
	}
	var out []Blocker
	add := func(kind, format string, args ...any) {
		out = append(out, Blocker{kind, fmt.Sprintf(format, args...)})
	}
	for _, c := range l.Containers {
		add("container", "%s/%s: its removal is not confirmed", c.Namespace, c.ID)
	}
	if l.HostInterface != "" {
		add("port", "%s: its removal is not confirmed", l.HostInterface)
	}
	if l.Netns != "" {
		add("netns", "%s: its removal is not confirmed", l.Netns)
	}
	answer := w.Witnesses.About(l.Addr)
	for _, s := range answer.Seen {
		add("sighting", "the %s witness sees %s%s", s.Witness, s.Addr, s.Where())
	}
	for _, s := range answer.Silent {
		add("silent", "the %s witness cannot answer: %s", s.Witness, s.Reason)
	}
	if len(out) == 0 {
		add("unconfirmed", "no witness sees it; the confirmation is still to come")
	}
	return out
}
