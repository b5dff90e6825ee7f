package watchdog

import (
	"context"
	"net/netip"
)

// An inventory is what is read once for many leases. Its containers are those
// that may belong to them, and perhaps others.
type inventory struct {
	newsErr error // the kernel's news of some addresses could not be read: see census.ErrorAbout
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
	in.newsErr = w.cfg.Settle(ctx, about...)
	in.there = newIndex(nil)
	if w.cfg.Runtime == nil {
		return in
	}
	var all []Record
	all, in.listErr = w.cfg.Runtime.Tied(ctx, of)
	in.listed, in.there = in.listErr == nil, newIndex(all)
	return in
}

// sharedSurvey is a survey that began after the call, shared with calls at the same
// time. A call whose time is over before it ends goes on without: a release is recorded then, to be
// confirmed later, and a reservation that expires stays as it is. The survey goes on while any call waits.
func (w *Watchdog) sharedSurvey(ctx context.Context, of Tie) inventory {
	in, err := w.surveys.Do(ctx, of)
	if err != nil {
		return inventory{newsErr: err, listErr: err, there: newIndex(nil)}
	}
	return in
}
