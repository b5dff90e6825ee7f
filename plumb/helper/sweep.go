package helper

import (
	"cmp"
	"context"
	"time"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/plumb"
)

// Leases lists every lease of the book.
type Leases func(ctx context.Context) ([]api.Lease, error)

// late is how long after its deadline a lease that was never bound may still be about to be.
const late = time.Minute

// listing bounds a question for all leases.
const listing = 10 * time.Second

// sweep takes away the ports that a helper made and that were not reported, as it was killed or
// the daemon was, where no call asks for them any more. A port may be reported meanwhile: what is
// found is looked at again while no other piece of work is on its owner. An error is the daemon's.
//
// Such a port has the name and the MAC that plumb makes of an owner, and its owner's leases
// record no port. A port whose owner has no lease is not known to be one of these, and stays,
// as does every other link.
func (h *hand) sweep(ctx context.Context, leases Leases) error {
	ports, err := plumb.Named(ctx)
	if err != nil || len(ports) == 0 {
		if err != nil {
			h.log.Warn("ports that were left are not looked for", "err", err)
		}
		return nil
	}
	left := func() (map[string]bool, error) {
		ctx, cancel := context.WithTimeout(ctx, listing)
		defer cancel()
		all, err := leases(ctx)
		return unreported(all, ports, time.Now()), err
	}
	found, err := left()
	for owner := range found {
		if err = h.takeAway(ctx, owner, left); err != nil {
			break
		}
	}
	return err
}

func (h *hand) takeAway(ctx context.Context, owner string, left func() (map[string]bool, error)) error {
	unlock, err := h.owners.Lock(ctx, owner)
	if err != nil {
		return err
	}
	defer unlock()
	now, err := left()
	if err != nil || !now[owner] {
		return err
	}
	host := plumb.HostName(owner)
	if err := plumb.Remove(ctx, host, owner); err != nil { // another's, by its MAC
		h.log.Warn("a port that was left stays", "port", host, "owner", owner, "err", err)
		return nil
	}
	h.log.Info("a port that was never reported is taken away", "port", host, "owner", owner)
	return nil
}

// unreported are the owners of ports that no lease of theirs records or waits for.
func unreported(all []api.Lease, ports map[string]bool, now time.Time) map[string]bool {
	out := make(map[string]bool)
	for _, l := range all {
		owner := cmp.Or(l.UID, l.ID) + "/" + l.Interface
		if !ports[plumb.HostName(owner)] {
			continue
		}
		idle, known := out[owner]
		out[owner] = (idle || !known) && wantsNone(l, now)
	}
	for owner, idle := range out {
		if !idle {
			delete(out, owner)
		}
	}
	return out
}

// wantsNone reports whether a lease has no port, and will have none.
func wantsNone(l api.Lease, now time.Time) bool {
	switch {
	case l.HostInterface != "" || l.Netns != "":
		return false
	case l.State == api.Reserved:
		return l.BindBy != nil && now.Sub(*l.BindBy) > late
	}
	return l.State == api.Releasing || l.State == api.Cooling // one that is half made has no address that is seen
}
