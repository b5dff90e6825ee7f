package main

import (
	"context"
	"errors"
	"fmt"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/errdefs"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/client"
)

// errUnknown means that neither containerd nor ipamd know the name.
var errUnknown = errors.New("there is no such sandbox")

// Remove removes a sandbox, and when every part of it is gone, and not
// before, releases its leases. It returns those as they are then. Run it
// again when it failed: it goes on where it stopped.
func (r *Runtime) Remove(ctx context.Context, name string) ([]api.Lease, error) {
	ctx, cancel := r.within(ctx)
	defer cancel()
	// First what is to be released, then the removal: a sandbox that comes
	// meanwhile under this name is not in the list.
	held, err := r.held(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("remove %s: %w", name, err)
	}
	was, err := r.removeContainer(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("remove %s, whose address stays its own: %w", name, err)
	}
	if !was && len(held) == 0 {
		return nil, fmt.Errorf("remove %s: %w", name, errUnknown)
	}
	for i, lease := range held {
		if err := unplug(ctx, name, lease.ID); err != nil {
			return nil, fmt.Errorf("remove %s, whose address stays its own: %w", name, err)
		}
		held[i], err = r.release(ctx, lease)
		if err != nil && !errors.Is(err, client.ErrLeaseGone) {
			return held[:i], fmt.Errorf("remove %s: it is gone, but: %w", name, err)
		}
	}
	return held, nil
}

// held lists the leases of a sandbox whose removal is not confirmed yet. One
// that was released already is among them: its network may still be there.
func (r *Runtime) held(ctx context.Context, name string) ([]api.Lease, error) {
	all, err := r.ipamd.Leases(ctx, client.LeaseFilter{Sandbox: name})
	if err != nil {
		return nil, err
	}
	var held []api.Lease
	for _, l := range all.Leases {
		switch l.State {
		case api.Reserved, api.Bound, api.Paused, api.Releasing:
			held = append(held, l)
		}
	}
	return held, nil
}

// removeContainer kills and deletes the task and deletes the record. It
// reports whether there was one.
func (r *Runtime) removeContainer(ctx context.Context, name string) (was bool, err error) {
	container, err := r.ctrd.LoadContainer(ctx, name)
	if errdefs.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look for the container: %w", err)
	}
	task, err := container.Task(ctx, nil)
	if err == nil {
		_, err = task.Delete(ctx, containerd.WithProcessKill)
	}
	if err != nil && !errdefs.IsNotFound(err) {
		return true, fmt.Errorf("kill the task: %w", err)
	}
	if err := container.Delete(ctx); err != nil && !errdefs.IsNotFound(err) {
		return true, fmt.Errorf("delete the container: %w", err)
	}
	return true, nil
}
