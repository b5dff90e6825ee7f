package orphans

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"time"

	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/internal/broadcast"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/watchdog"
)

var errChanged = errors.New("it changed while it was judged")

// remove ends and deletes the containers of an orphan, and only then releases its
// leases: SIGQUIT, a wait, SIGKILL, another, tasks, records, a last look. A sandbox that
// begins anew under the same name while its old containers end keeps what is left of
// them: before each step it is asked whether one of the leases was given to it, and once
// anything was signalled, which takes time, its owner is looked up again. The first step
// that fails ends it, and the next sweep begins anew: every step may be taken twice.
func (s *Sweeper) remove(ctx context.Context, of suspect) error {
	if of.dispute != "" {
		return errors.New(of.dispute)
	}
	// Others were removed before it. A sandbox that was made anew in between has a
	// container or a lease more.
	switch now, err := s.find(ctx, of.sandbox); {
	case err != nil:
		return err
	case now == nil || !now.same(of.group):
		return errChanged
	}
	signalled := false
	for _, sig := range []syscall.Signal{syscall.SIGQUIT, syscall.SIGKILL} {
		if s.ended(of.group) {
			break
		}
		if err := s.stillGone(ctx, of, signalled); err != nil {
			return err
		}
		err := s.each(ctx, of, func(ctx context.Context, c watchdog.Container) error { return s.cfg.Runtime.Signal(ctx, c, sig) })
		signalled = true
		if err != nil {
			return err
		}
		if err := s.waitEnded(ctx, of.group); err != nil {
			return err
		}
	}
	for _, step := range []func(context.Context, watchdog.Container) error{s.cfg.Runtime.DeleteTask, s.cfg.Runtime.Delete} {
		if err := s.stillGone(ctx, of, signalled); err != nil {
			return err
		}
		if err := s.each(ctx, of, step); err != nil {
			return err
		}
	}
	switch left, err := s.find(ctx, of.sandbox); {
	case err != nil:
		return err
	case left != nil:
		return fmt.Errorf("container %s is there, after all were deleted", left.containers[0].Container)
	}
	return s.release(ctx, of, signalled)
}

// stillGone refuses the next step on an orphan that is none any more. Whether a lease was
// given is asked last: the owner may come for it a moment after it said "gone".
func (s *Sweeper) stillGone(ctx context.Context, of suspect, look bool) error {
	if look {
		v, err := s.ownerAsk.Look(ctx, s.cfg.Owner, of.sandbox)
		if why := watchdog.KeptByOwner(of.sandbox, v, err); why != "" {
			return errors.New(why)
		}
	}
	for _, l := range of.leases {
		if err := s.awaited(l)(); err != nil {
			return err
		}
	}
	return nil
}

// awaited refuses to release a lease while the owner has yet to bind it.
func (s *Sweeper) awaited(l *ipam.Lease) func() error {
	return func() error {
		if s.cfg.Awaited(l.ID) {
			return fmt.Errorf("lease %s (%s): %w", l.ID, l.Addr, watchdog.ErrAwaited)
		}
		return nil
	}
}

// each takes one step for each container.
func (s *Sweeper) each(ctx context.Context, of suspect, step func(context.Context, watchdog.Container) error) error {
	for _, w := range of.containers {
		ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
		err := step(ctx, w.Container)
		cancel()
		if err != nil {
			return err
		}
	}
	return ctx.Err()
}

// find reads one group anew; nil when nothing of it is there.
func (s *Sweeper) find(ctx context.Context, sandbox string) (*group, error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	all, err := s.look(ctx)
	if err != nil {
		return nil, err
	}
	for _, h := range all {
		if h.sandbox == sandbox {
			return h, nil
		}
	}
	return nil, nil
}

// boardPause is the least time between two looks at the whole board.
const boardPause = 20 * time.Millisecond

// waitEnded waits for the end of all tasks, KillWait at most: that they have
// not ended by then is no error.
func (s *Sweeper) waitEnded(ctx context.Context, of *group) error {
	limit := time.NewTimer(s.cfg.KillWait)
	defer limit.Stop()
	for {
		news := s.cfg.Board.Changed()
		if s.ended(of) {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-limit.C:
			return nil
		case <-news:
		}
		if !broadcast.Pause(ctx, boardPause) {
			return ctx.Err()
		}
	}
}

// ended reports that no container has a task that runs, as far as the board
// knows. It only spares signals and waiting: a task that runs cannot be
// deleted.
func (s *Sweeper) ended(of *group) bool {
	over := make(map[watchdog.Container]bool)
	for _, seen := range s.cfg.Board.Census().Seen {
		for _, one := range seen {
			if one.Witness == census.Runtime {
				over[watchdog.Container{Namespace: one.Namespace, ID: one.Container}] = one.Task == "stopped" || one.Task == "" && one.Note == ""
			}
		}
	}
	return !slices.ContainsFunc(of.containers, func(w watchdog.Record) bool { return !over[w.Container] })
}

// release releases leases at the revisions at which they were judged. All their
// containers are deleted by now, so it is done even if ctx has ended, unless
// their owner wants them again. One that another call released meanwhile is fine.
func (s *Sweeper) release(ctx context.Context, of suspect, look bool) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.cfg.Timeout)
	defer cancel()
	if err := s.stillGone(ctx, of, look); err != nil {
		return err
	}
	var errs []error
	for _, l := range of.leases {
		if !l.State.Open() {
			continue
		}
		_, err := s.cfg.Book.ReleaseAt(ctx, ipam.Who{Actor: ipam.ByWatchdog, Reason: reasonOrphaned}, l.ID, l.Rev, s.awaited(l))
		if err == nil {
			continue
		}
		if now, gone := s.cfg.Book.Lease(l.ID); errors.Is(gone, ipam.ErrGone) || gone == nil && !now.State.Open() {
			continue
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
