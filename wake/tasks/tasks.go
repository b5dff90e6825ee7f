// Package tasks freezes and thaws the tasks of a lease's containers.
//
// It acts on containers that the lease records: a label that names the lease proves nothing,
// and any client of containerd that may write one could have a stranger's task frozen. Before it freezes, it
// also asks whether another lease has them by now. It writes nothing.
package tasks

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/wake"
	"github.com/ipamd/ipamd/watchdog"
	"github.com/ipamd/ipamd/workload"
)

// Runtime is what is asked of the container runtime; *ctrd.Witness is one. The errors of Freeze
// and Thaw wrap [watchdog.ErrNoTask] or [watchdog.ErrNotAllowed] where another attempt would
// not help.
type Runtime interface {
	// Tied reads the record of every container that a tie holds.
	Tied(ctx context.Context, ties []workload.Tie) ([]workload.Record, error)
	// Freeze pauses a task; one that is paused is no error.
	Freeze(ctx context.Context, c ipam.Container) error
	// Thaw resumes a task; one that runs is no error.
	Thaw(ctx context.Context, c ipam.Container) error
	// State is running, paused, stopped, created, or "" for a container without a task.
	State(ctx context.Context, c ipam.Container) (string, error)
}

// Tasks are those of all leases; it is a [wake.Resumer] and a [wake.Pauser], and safe for
// concurrent use.
type Tasks struct {
	Runtime Runtime
	Leases  func() ([]*ipam.Lease, int64) // of the book
}

var _ interface {
	wake.Resumer
	wake.Pauser
	wake.Teller
} = (*Tasks)(nil)

// Resume thaws the tasks of a lease. It does not ask whose containers they are by now: that
// costs more than the resume.
func (t *Tasks) Resume(ctx context.Context, l *ipam.Lease, s *ipam.Sleep) error {
	if s.Mode == ipam.Hibernate {
		return fmt.Errorf("%w: its tasks are gone, and containerd makes none anew", wake.ErrRefused)
	}
	return each(ctx, l.Containers, t.Runtime.Thaw)
}

// Pause freezes the tasks of a lease. After an error some may be frozen.
func (t *Tasks) Pause(ctx context.Context, l *ipam.Lease, _ *ipam.Sleep) error {
	own, err := t.own(ctx, l)
	if err != nil {
		return err
	}
	return each(ctx, own, t.Runtime.Freeze)
}

// Frozen reports that a lease's tasks stand still: one at least, and none runs.
func (t *Tasks) Frozen(ctx context.Context, l *ipam.Lease) (bool, error) {
	frozen := false
	for _, c := range l.Containers {
		state, err := t.Runtime.State(ctx, c)
		if err != nil || state == "running" {
			return false, err
		}
		frozen = frozen || state == "paused"
	}
	return frozen, nil
}

// own are the containers that a lease records, and that are its own still.
func (t *Tasks) own(ctx context.Context, l *ipam.Lease) ([]ipam.Container, error) {
	found, err := t.Runtime.Tied(ctx, []workload.Tie{workload.TieOf(l)})
	if err != nil {
		return nil, err
	}
	rows, _ := t.Leases()
	x := workload.NewLeases(rows)
	var own []ipam.Container
	for _, r := range found {
		if slices.Contains(l.Containers, r.Container) && !slices.Contains(own, r.Container) && x.Judge(l, r) == workload.Ours {
			own = append(own, r.Container)
		}
	}
	return own, nil
}

// mostAbreast bounds how many tasks of one lease are paused or resumed at once.
const mostAbreast = 8

// each does one step with each container. One without a task, a helper that has ended, is
// passed over, unless none has one.
func each(ctx context.Context, of []ipam.Container, do func(context.Context, ipam.Container) error) error {
	if len(of) == 0 {
		return fmt.Errorf("%w: the lease records no container of its own: bind it with containers", wake.ErrRefused)
	}
	var all errgroup.Group // waited for below
	all.SetLimit(mostAbreast)
	errs := make([]error, len(of))
	for i, c := range of {
		all.Go(func() error { errs[i] = do(ctx, c); return nil })
	}
	_ = all.Wait() // none of them returns one
	var bad []error
	final := true
	taskless := 0
	for _, err := range errs {
		switch {
		case err == nil:
		case errors.Is(err, watchdog.ErrNoTask) && taskless < len(of)-1:
			taskless++
		default:
			bad = append(bad, err)
			final = final && (errors.Is(err, watchdog.ErrNoTask) || errors.Is(err, watchdog.ErrNotAllowed))
		}
	}
	if len(bad) == 0 {
		return nil
	}
	if final {
		bad = append([]error{wake.ErrRefused}, bad...)
	}
	return errors.Join(bad...)
}
