package watchdog

import (
	"context"
	"net/netip"
)

// An inventory is what is read once for many leases. Its containers are those
// that may belong to them, and perhaps others.
type inventory struct {
	unread  map[netip.Addr]error // the addresses of which the kernel's news could not be read
	listed  bool
	listErr error
	there   *containerIndex
}

// survey takes in the kernel's news and reads which containers may belong to
// the leases of these ties.
func (w *Watchdog) survey(ctx context.Context, of []Tie) (in inventory) {
	about := make([]netip.Addr, len(of))
	for i, t := range of {
		about[i] = t.Addr
	}
	in.unread = settle(ctx, w.cfg.Settle, about)
	in.there = newIndex(nil)
	if w.cfg.Runtime == nil {
		return in
	}
	var all []Record
	all, in.listErr = w.cfg.Runtime.Tied(ctx, of)
	in.listed, in.there = in.listErr == nil, newIndex(all)
	return in
}

// settle takes in the kernel's news of addresses, and returns those of which it could not be read. After
// an error each is asked about alone: they may be on several bridges, and one that cannot be read holds
// up no release on another.
func settle(ctx context.Context, read func(context.Context, ...netip.Addr) error, about []netip.Addr) map[netip.Addr]error {
	err := read(ctx, about...)
	if err == nil {
		return nil
	}
	unread := make(map[netip.Addr]error)
	for _, a := range about {
		if len(about) > 1 {
			err = read(ctx, a)
		}
		if err != nil {
			unread[a] = err
		}
	}
	return unread
}

// sharedSurvey is a survey that began after the call, shared with calls at the same
// time.
func (w *Watchdog) sharedSurvey(ctx context.Context, of Tie) inventory {
	in, err := w.surveys.Do(ctx, of)
	if err != nil {
		return inventory{unread: map[netip.Addr]error{of.Addr: err}, listErr: err, there: newIndex(nil)}
	}
	return in
}
