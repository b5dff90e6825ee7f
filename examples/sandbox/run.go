package main

import (
	"context"
	"errors"
	"fmt"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/cio"
	"github.com/containerd/containerd/v2/pkg/identifiers"
	"github.com/containerd/errdefs"
	"github.com/google/uuid"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/client"
	"github.com/ipamd/ipamd/plumb"
)

// Run starts a sandbox: an address, a network namespace with that address,
// a container in it, and a bind, which records where the address is. When a step
// fails, the earlier ones are undone.
func (r *Runtime) Run(ctx context.Context, name string, args []string) (given *api.AllocateReply, err error) {
	ctx, cancel := r.within(ctx)
	defer cancel()
	if err := r.vacant(ctx, name); err != nil {
		return nil, fmt.Errorf("run %s: %w", name, err)
	}
	if err := makeRootfs(r.cfg.Rootfs); err != nil {
		return nil, fmt.Errorf("run %s: make %s: %w", name, r.cfg.Rootfs, err)
	}
	var undo undo
	defer func() {
		if err != nil {
			err = fmt.Errorf("run %s: %w", name, errors.Join(err, undo.run(ctx)))
		}
	}()

	given, err = r.allocate(ctx, name)
	if err != nil {
		return nil, err
	}
	lease := given.Leases[0]
	undo.add(func(ctx context.Context) error {
		_, err := r.release(ctx, lease)
		return err
	})

	spec, port, err := plug(ctx, name, given)
	if err != nil {
		return nil, err
	}
	undo.add(func(ctx context.Context) error { return unplug(ctx, name, lease.ID) })

	container, err := r.create(ctx, name, lease, args)
	if err != nil {
		return nil, err
	}
	undo.add(func(ctx context.Context) error { return container.Delete(ctx) })

	task, err := container.NewTask(ctx, cio.NullIO)
	if err != nil {
		return nil, fmt.Errorf("make the task: %w", err)
	}
	undo.add(func(ctx context.Context) error {
		_, err := task.Delete(ctx, containerd.WithProcessKill)
		return err
	})
	// Before the start: from then on ipamd sees the container by itself, and
	// the lease may be at another revision than the one that was given.
	bind := func(ctx context.Context) error {
		_, err := r.ipamd.Bind(ctx, lease.ID, api.BindRequest{
			Containers:    []api.Container{{Namespace: r.cfg.Namespace, ID: name}},
			Netns:         port.Netns,
			HostInterface: port.Host,
			MAC:           port.MAC.String(),
			IfRevision:    lease.Revision,
		})
		return err
	}
	err = bind(ctx)
	if refused := new(api.Error); errors.As(err, &refused) && refused.Retryable { // a busy kernel may want a moment
		err = client.Retry(ctx, bind)
	}
	if err != nil {
		return nil, err
	}
	// The owner before may still be in a neighbour's table.
	if err := plumb.Announce(ctx, spec); err != nil {
		return nil, err
	}
	if err := task.Start(ctx); err != nil {
		return nil, fmt.Errorf("start the task: %w", err)
	}
	return given, nil
}

// errExists means that the name is in use.
var errExists = errors.New("there is a sandbox of this name")

// vacant refuses a name that is not free before anything was done for it. Two
// runs of one name at once are separated by containerd and the kernel, later.
func (r *Runtime) vacant(ctx context.Context, name string) error {
	if err := identifiers.Validate(name); err != nil {
		return fmt.Errorf("check the name: %w", err)
	}
	_, err := r.ctrd.LoadContainer(ctx, name)
	switch {
	case err == nil:
		return errExists
	case errdefs.IsNotFound(err):
		return nil
	}
	return fmt.Errorf("look for the container: %w", err)
}

// allocate asks for an address for a new incarnation: a uid of its own keeps
// this run's lease apart from that of any other sandbox that has, had or will
// have the same name.
func (r *Runtime) allocate(ctx context.Context, name string) (*api.AllocateReply, error) {
	ask := api.AllocateRequest{Sandbox: name, UID: uuid.NewString(), Attempt: 1}
	given, err := r.ipamd.Allocate(ctx, ask)
	if err == nil {
		return given, nil
	}
	if refused := new(api.Error); errors.As(err, &refused) {
		return nil, err
	}
	// The reply never came: there may be a lease of an unknown id, or
	// the request is still on its way. This ends both.
	clean, cancel := cleaning(ctx)
	defer cancel()
	_, lost := r.ipamd.Cancel(clean, api.CancelRequest{UID: ask.UID, Attempt: ask.Attempt})
	return nil, errors.Join(err, lost)
}

// release releases a lease whose sandbox is gone. Naming the uid too costs
// nothing and catches a mix-up.
func (r *Runtime) release(ctx context.Context, l api.Lease) (api.Lease, error) {
	reply, err := r.ipamd.Release(ctx, l.ID, api.ReleaseRequest{UID: l.UID})
	if err != nil {
		return l, err
	}
	return reply.Lease, nil
}
