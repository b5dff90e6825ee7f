package ctrdtest

import (
	"context"
	"fmt"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/cio"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/errdefs"
)

// What follows is for those who expect the daemon to die under them: errors
// come back, and the client is the caller's own, which lives through a
// restart. Both are safe for concurrent use.

// TryRun makes a container and starts its task. After an error anything of it
// may exist; [Daemon.TryDelete] removes that.
func (d *Daemon) TryRun(ctx context.Context, c *containerd.Client, s Spec) error {
	ctx = namespaces.WithNamespace(ctx, s.namespace())
	made, err := d.newContainer(ctx, c, s)
	if err != nil {
		return fmt.Errorf("create container %s/%s: %w", s.namespace(), s.ID, err)
	}
	task, err := made.NewTask(ctx, cio.NullIO)
	if err == nil {
		err = task.Start(ctx)
	}
	if err != nil {
		return fmt.Errorf("start task %s/%s: %w", s.namespace(), s.ID, err)
	}
	return nil
}

// TryDelete kills the task if there is one, and deletes it and the record.
// What is not there is no error.
func (d *Daemon) TryDelete(ctx context.Context, c *containerd.Client, namespace, id string) error {
	ctx = namespaces.WithNamespace(ctx, Spec{Namespace: namespace}.namespace())
	found, err := c.LoadContainer(ctx, id)
	if errdefs.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("load container %s: %w", id, err)
	}
	task, err := found.Task(ctx, nil)
	if err == nil {
		_, err = task.Delete(ctx, containerd.WithProcessKill)
	}
	if err == nil || errdefs.IsNotFound(err) {
		err = found.Delete(ctx)
	}
	if err != nil && !errdefs.IsNotFound(err) {
		return fmt.Errorf("delete container %s: %w", id, err)
	}
	return nil
}
