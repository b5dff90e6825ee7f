package watchdog

import (
	"context"
	"errors"
	"fmt"

	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/workload"
)

// errNoRuntime means that a lease records containers, and that there is no
// runtime to ask about them.
var errNoRuntime = errors.New("no runtime is configured")

// Gone reports that the workload of a lease has ended. Of a lease with containers, none of them has
// a record or a task in the runtime. Of a lease that the kernel alone shows, the link and the namespace that it
// recorded in this boot do not exist any more. Of any other lease it is false.
// x are all leases. An error means that a container or the kernel could not be asked.
func (w *Watchdog) Gone(ctx context.Context, l *ipam.Lease, x *workload.Leases) (bool, error) {
	if len(l.Containers) == 0 {
		if !workload.ByKernelAlone(l) || !l.Plug.OfBoot(w.cfg.Now().BootID) {
			return false, nil
		}
		left, err := trace(ctx, &w.cfg, l, x)
		return err == nil && left.Ended(), err
	}
	if w.cfg.Runtime == nil {
		return false, fmt.Errorf("look up the containers of %s: %w", l.Addr, errNoRuntime)
	}
	ctx, cancel := context.WithTimeout(ctx, w.cfg.Timeout)
	defer cancel()
	for _, c := range l.Containers {
		a := w.lookAt(ctx, c)
		if a.err != nil {
			return false, fmt.Errorf("look up container %s of %s: %w", c, l.Addr, a.err)
		}
		if a.Found || a.Task != "" {
			return false, nil
		}
	}
	return true, nil
}

// Left says in a sentence why the quarantine of a row may not end although no witness sees its address,
// "" where nothing keeps it. Either a namespace that no witness reads has the address, of any sandbox; or the
// link or namespace of the row's own sandbox exists, and its end was not recorded: by an earlier book, or
// because the release was forced. What cannot be looked at is an error.
func (w *Watchdog) Left(ctx context.Context, l *ipam.Lease) (string, error) {
	rows, _ := w.cfg.Book.Leases()
	left, err := trace(ctx, &w.cfg, l, workload.NewLeases(rows))
	if err != nil {
		return "", err
	}
	if says := left.Left(); says != "" {
		return says, nil
	}
	for _, found := range besideOf(ctx, w.cfg.Kernel, l) {
		return found.Detail, nil
	}
	return "", nil
}

// Reap releases a lease whose workload is absent, on behalf of the reconciler.
// Everything is asked anew, however sure the caller is: containers, ports, the
// owner if there is one, and wire. If anything is there, or cannot be asked, or
// the lease is not at l.Rev any more, released is false and why says what it is. Run
// confirms the release then.
//
// The runtime's list is read after the owner oracle has answered, which takes time: a container
// that was made in the meantime may have no address label yet, so that only its name or
// its lease label shows it.
//
// The error is the book's, when it could not record the release.
func (w *Watchdog) Reap(ctx context.Context, l *ipam.Lease, reason string) (released bool, why string, err error) {
	ctx, cancel := context.WithTimeout(ctx, w.cfg.Timeout)
	defer cancel()
	rows, _ := w.cfg.Book.Leases()
	x := workload.NewLeases(rows)
	reassigned := newIndex(onBoard(w.cfg.Board.By(census.Runtime))).reassigned(l, x)
	f := w.look(ctx, l, nil, reassigned, x)
	found := obstacles(l, f, false)
	if len(found) == 0 {
		found = neverSeen(l, f.trace, w.cfg.Now().BootID)
	}
	if len(found) == 0 && w.cfg.Owner == nil {
		found = w.unplugged(ctx, l, f.trace)
	}
	if len(found) == 0 {
		found = w.askOwner(ctx, l.Sandbox)
	}
	if len(found) == 0 {
		in := w.survey(ctx, []Tie{workload.TieOf(l)})
		f.add(l, x, in, workload.About(w.cfg.Board, l))
		found = obstacles(l, f, true)
	}
	if len(found) == 0 {
		found = besideOf(ctx, w.cfg.Kernel, l)
	}
	if len(found) > 0 {
		return false, found[0].Detail, nil
	}
	who := ipam.Who{Actor: ipam.ByReconciler, Reason: reason} // a pass found it absent; a reserved lease only the watchdog may free, see ipam/moves.go
	belong := belonging(l, x)
	_, err = w.cfg.Book.ReleaseAt(ctx, who, l.ID, l.Rev, w.unawaited(l, w.unseen(l, belong)))
	return w.outcome(l, belong, err)
}

// neverSeen keeps a lease of which nothing was ever seen on its bridge, unless the kernel says that
// it has ended.
func neverSeen(l *ipam.Lease, left workload.Trace, boot string) []obstacle {
	if !workload.NeverSeen(l, boot) || workload.EndsByKernel(l, boot) && left.Ended() {
		return nil
	}
	return []obstacle{obstruct(KindPort, "nothing of it was ever seen on its bridge, so that nothing is seen there does not show that it is gone")}
}

// unplugged keeps a lease without containers whose link exists, but is a port of no bridge or was moved to
// another namespace. A bridge that was deleted and made again has no ports until each owner plugs its own in, and
// until then the link is all that shows such a sandbox. The link of a sandbox that has ended is gone with it. A tap
// may outlive its virtual machine: that only the owner oracle knows, and where there is one this is not asked.
func (w *Watchdog) unplugged(ctx context.Context, l *ipam.Lease, left workload.Trace) []obstacle {
	if len(l.Containers) > 0 || !l.Plug.OfBoot(w.cfg.Now().BootID) {
		return nil
	}
	var err error
	says := left.Unplugged()
	if says == "" && left.At.Link != 0 && (left.Remains.Link == nil || left.Remains.Link.Name != l.HostInterface) {
		says, err = w.cfg.Kernel.Moved(ctx, left.At.Link, l.HostInterface)
	}
	switch {
	case err != nil:
		return []obstacle{obstruct(KindPort, "the ports could not be read: %v", err)}
	case says != "":
		return []obstacle{obstruct(KindPort, "%s", says)}
	}
	return nil
}

// Expire ends a lease that was handed out and never bound, once its deadline
// is over, on behalf of the reconciler. The owner is asked, if there is one, and
// after that wire and runtime, anew; a container that may be about to use the
// address keeps it. An address that was on the wire since it was handed out is
// releasing then, for [Watchdog.Run] to confirm; any other is free. released, why and
// err are as of [Watchdog.Reap].
func (w *Watchdog) Expire(ctx context.Context, l *ipam.Lease, reason string) (released bool, why string, err error) {
	ctx, cancel := context.WithTimeout(ctx, w.cfg.Timeout)
	defer cancel()
	found := w.askOwner(ctx, l.Sandbox)
	if len(found) == 0 {
		if _, found, err = w.freeUnbound(ctx, w.who(reason), l); errors.Is(err, errWasSeen) || errors.Is(err, ipam.ErrCools) {
			_, err = w.cfg.Book.ReleaseAt(ctx, w.who(reason), l.ID, l.Rev, w.unseen(l, w.aboutToUse(l)))
		}
	}
	if len(found) > 0 {
		return false, found[0].Detail, nil
	}
	return w.outcome(l, w.aboutToUse(l), err)
}

// outcome words the book's answer.
func (w *Watchdog) outcome(l *ipam.Lease, belong func(*containerIndex) []Container, err error) (bool, string, error) {
	switch {
	case err == nil:
		return true, "", nil
	case errors.Is(err, errStillSeen):
		return false, w.seenAgain(l, belong)[0].Detail, nil
	case errors.Is(err, ErrAwaited):
		return false, ofAnswer().Detail, nil
	case moved(err):
		return false, "it has changed meanwhile", nil
	}
	return false, "", err
}
