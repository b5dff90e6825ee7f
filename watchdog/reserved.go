package watchdog

import (
	"context"
	"errors"
	"time"

	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/workload"
)

// errWasSeen means that an address was on the wire since it was handed out, or
// may have been: it has to cool before it is given again.
var errWasSeen = errors.New("a witness saw the address since it was handed out")

// freeUnbound ends a lease that was handed out and never bound. Its address is free at once if nothing can
// know it: every witness has answered and none sees it, none has since it was handed out, and the
// runtime lists no container that may be about to use it. found is what stands in the way of that.
//
// Two errors are not the book's: errWasSeen and errStillSeen. errWasSeen and
// ipam.ErrCools say that nothing is in the way now, but that the address has to cool.
func (w *Watchdog) freeUnbound(ctx context.Context, who ipam.Who, l *ipam.Lease) (freed *ipam.Lease, found []obstacle, err error) {
	in := w.sharedSurvey(ctx, workload.TieOf(l))
	f := facts{runtime: w.cfg.Runtime != nil}
	wire := workload.About(w.cfg.Board, l)
	f.listed, f.listErr, f.newsErr, f.wire = in.listed, in.listErr, census.ErrorAbout(l.Addr, in.newsErr), &wire
	f.list = w.aboutToUse(l)(in.there)
	if found = append(ofList(f), ofWire(f)...); len(found) == 0 {
		found = besideOf(ctx, w.cfg.Kernel, l)
	}
	if len(found) > 0 {
		return nil, found, nil
	}
	if w.cfg.Kernel.SeenWithin(l.Prefix(), w.cfg.Now().Since(l.Created)) {
		return nil, nil, errWasSeen
	}
	if l.Cut != "" { // it was given before its cooldown was over, and has to cool anew
		return nil, nil, ipam.ErrCools
	}
	// Others on the bridge may have asked for it.
	if err := w.cfg.Kernel.Forget(ctx, l.Prefix()); err != nil {
		return nil, []obstacle{obstruct(KindUnconfirmed, "the kernel's entries of the address could not be deleted: %v", err)}, nil
	}
	freed, err = w.cfg.Book.Expire(ctx, who, l.ID, l.Rev, w.unseen(l, w.aboutToUse(l)))
	return freed, nil, err
}

// aboutToUse returns a function that says which containers may be about to use a lease that is not bound
// yet.
func (w *Watchdog) aboutToUse(l *ipam.Lease) func(*containerIndex) []Container {
	return func(r *containerIndex) []Container {
		// Other leases can only take containers away from this one: without any there is
		// nothing to read them for.
		if len(r.of(l, new(workload.Leases), false)) == 0 {
			return nil
		}
		rows, _ := w.cfg.Book.Leases()
		return r.aboutToUse(l, workload.NewLeases(rows))
	}
}

// releaseAsk bounds how long a release waits for the runtime's list and the
// kernel's entries before it is recorded as releasing.
const releaseAsk = 2 * time.Second

// ownContext returns the watchdog's own context for what a client's call begins. A
// client that hangs up does not end it. Its deadline leaves the client half of the
// time that it has, to get its answer.
func (w *Watchdog) ownContext(ctx context.Context) (context.Context, context.CancelFunc) {
	most := min(releaseAsk, w.cfg.Timeout)
	if end, ok := ctx.Deadline(); ok {
		most = min(most, time.Until(end)/2)
	}
	return context.WithTimeout(context.WithoutCancel(ctx), most)
}
