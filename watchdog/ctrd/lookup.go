package ctrd

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"time"

	tasksapi "github.com/containerd/containerd/api/services/tasks/v1"
	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"

	"github.com/ipamd/ipamd/watchdog"
)

var _ watchdog.Runtime = (*Witness)(nil)

// A line is the one connection that look-ups share, beside the one that is
// followed. One that failed is thrown away: gRPC would refuse calls on it for
// a back-off of its own, while containerd may be back already.
type line struct {
	mu     sync.Mutex
	client *containerd.Client
}

// asked calls fn with the shared client.
func (w *Witness) asked(ctx context.Context, fn func(context.Context, *containerd.Client) error) error {
	ctx, cancel := w.until(ctx)
	defer cancel()
	w.line.mu.Lock()
	if w.line.client == nil {
		c, err := w.open()
		if err != nil {
			w.line.mu.Unlock()
			return err
		}
		w.line.client = c
	}
	c := w.line.client
	w.line.mu.Unlock()
	err := fn(ctx, c)
	if errdefs.IsUnavailable(errgrpc.ToNative(err)) {
		w.hangUp(c)
	}
	return err
}

// hangUp closes a client, unless somebody else has done so.
func (w *Witness) hangUp(c *containerd.Client) {
	w.line.mu.Lock()
	defer w.line.mu.Unlock()
	if c != nil && w.line.client == c {
		w.line.client = nil
		_ = c.Close() // whoever still asks on it hears an error, and asks again
	}
}

// List reads the record of every container. No shim is asked.
func (w *Witness) List(ctx context.Context) (all []watchdog.Workload, err error) {
	err = w.asked(ctx, func(ctx context.Context, c *containerd.Client) error {
		names, err := w.namespaces(ctx, c)
		if err != nil {
			return err
		}
		for _, ns := range names {
			list, err := w.containers(ctx, c, ns)
			if err != nil {
				return err
			}
			for _, one := range list {
				all = append(all, watchdog.Workload{
					Container: watchdog.Container{Namespace: ns, ID: one.ID},
					Sandbox:   one.Labels[w.cfg.OwnerLabel], LeaseID: one.Labels[w.cfg.LeaseLabel], Created: one.CreatedAt,
				})
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return all, nil
}

// Look asks for one container by its id, and for its task when the record is
// gone: containerd deletes a record under a running task when it is told to.
// A task whose shim does not answer is an error, not an absence.
func (w *Witness) Look(ctx context.Context, of watchdog.Container) (l watchdog.Look, err error) {
	err = w.asked(ctx, func(ctx context.Context, c *containerd.Client) error {
		call, cancel := w.ask(ctx, of.Namespace)
		defer cancel()
		_, err := c.ContainerService().Get(call, of.ID)
		if err == nil {
			l.Found = true
			return nil
		}
		if !errdefs.IsNotFound(err) {
			return fmt.Errorf("look at container %s: %w", of, err)
		}
		got, err := c.TaskService().Get(call, &tasksapi.GetRequest{ContainerID: of.ID})
		switch native := errgrpc.ToNative(err); {
		case err == nil:
			if l.Task = knownTask(got.Process.GetStatus()).state; l.Task == "" {
				l.Task = "unknown"
			}
			return nil
		case errdefs.IsNotFound(native):
			return nil
		default:
			return fmt.Errorf("look at the task of %s: %w", of, native)
		}
	})
	return l, err
}

// Signal sends a signal to every process of a container's task.
func (w *Witness) Signal(ctx context.Context, to watchdog.Container, s syscall.Signal) error {
	return w.asked(ctx, func(ctx context.Context, c *containerd.Client) error {
		call, cancel := w.ask(ctx, to.Namespace)
		defer cancel()
		_, err := c.TaskService().Kill(call, &tasksapi.KillRequest{ContainerID: to.ID, Signal: uint32(s), All: true})
		if err = errgrpc.ToNative(err); err != nil && !errdefs.IsNotFound(err) && !errdefs.IsFailedPrecondition(err) {
			return fmt.Errorf("send %v to %s: %w", s, to, err)
		}
		return nil
	})
}

// taskPause is the time between two attempts to delete a task that has not
// ended yet.
const taskPause = 20 * time.Millisecond

// DeleteTask deletes a task once it has ended, and waits for that as long as
// one call may take.
func (w *Witness) DeleteTask(ctx context.Context, of watchdog.Container) error {
	return w.asked(ctx, func(ctx context.Context, c *containerd.Client) error {
		call, cancel := w.ask(ctx, of.Namespace)
		defer cancel()
		for {
			_, err := c.TaskService().Delete(call, &tasksapi.DeleteTaskRequest{ContainerID: of.ID})
			if err = errgrpc.ToNative(err); err == nil || errdefs.IsNotFound(err) {
				return nil
			}
			why := fmt.Errorf("delete the task of %s: %w", of, err)
			if !errdefs.IsFailedPrecondition(err) {
				return why
			}
			select {
			case <-call.Done():
				return errors.Join(why, call.Err())
			case <-time.After(taskPause):
			}
		}
	})
}

// Delete deletes a container's record and the snapshot it names.
func (w *Witness) Delete(ctx context.Context, of watchdog.Container) error {
	return w.asked(ctx, func(ctx context.Context, c *containerd.Client) error {
		call, cancel := w.ask(ctx, of.Namespace)
		defer cancel()
		record, err := c.ContainerService().Get(call, of.ID)
		if errdefs.IsNotFound(err) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("delete container %s: %w", of, err)
		}
		if record.SnapshotKey != "" {
			if err := c.SnapshotService(record.Snapshotter).Remove(call, record.SnapshotKey); err != nil && !errdefs.IsNotFound(err) {
				return fmt.Errorf("delete the snapshot of %s: %w", of, err)
			}
		}
		if err := c.ContainerService().Delete(call, of.ID); err != nil && !errdefs.IsNotFound(err) {
			return fmt.Errorf("delete container %s: %w", of, err)
		}
		return nil
	})
}
