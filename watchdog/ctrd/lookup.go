package ctrd

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	tasksapi "github.com/containerd/containerd/api/services/tasks/v1"
	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"

	"github.com/ipamd/ipamd/watchdog"
)

var _ watchdog.Runtime = (*Witness)(nil)

// Look asks for one container by its id, and for its task when the record is
// gone: containerd deletes a record under a running task on request.
// That such a task is there is all that can be learnt of it: "unknown". A task
// whose shim does not answer is an error, not an absence, and so is the word of
// a containerd that is not believed.
func (k *calls) Look(ctx context.Context, at watchdog.Container) (l watchdog.Look, err error) {
	err = k.asked(ctx, func(ctx context.Context, c *containerd.Client) error {
		_, err := k.record(ctx, c, at)
		if err == nil || errdefs.IsResourceExhausted(err) { // it is there, and larger than containerd sends
			l.Found = true
			return nil
		}
		if !errdefs.IsNotFound(err) {
			return err
		}
		there, err := k.taskAlone(ctx, c, at)
		if there {
			l.Task = "unknown"
			return nil
		}
		if err != nil {
			return err
		}
		return k.believed(ctx, c)
	})
	if err != nil {
		return watchdog.Look{}, fmt.Errorf("look at container %s: %w", at, err)
	}
	return l, nil
}

// Idle returns when a container was made that has no task.
func (k *calls) Idle(ctx context.Context, at watchdog.Container) (made time.Time, err error) {
	err = k.asked(ctx, func(ctx context.Context, c *containerd.Client) error {
		of, err := k.record(ctx, c, at)
		if errdefs.IsResourceExhausted(err) { // larger than containerd sends: it may be just made
			of.CreatedAt, err = time.Now(), nil
		}
		if err != nil {
			return err
		}
		call, cancel := k.ask(ctx, at.Namespace)
		defer cancel()
		_, err = c.TaskService().Get(call, &tasksapi.GetRequest{ContainerID: at.ID})
		if err = errgrpc.ToNative(err); errdefs.IsNotFound(err) {
			made, err = of.CreatedAt, nil
		}
		return err
	})
	if err != nil {
		return time.Time{}, fmt.Errorf("look for a task of container %s: %w", at, err)
	}
	return made, nil
}

func (k *calls) record(ctx context.Context, c *containerd.Client, at watchdog.Container) (containers.Container, error) {
	call, cancel := k.ask(ctx, at.Namespace)
	defer cancel()
	return c.ContainerService().Get(call, at.ID)
}

// taskAlone says whether containerd has a task under an id that has no
// record.
//
// Asking for such a task by its id does not help: containerd looks for the
// record first, and answers NotFound for a task that runs (1.6 and 2.x alike).
// Listing all tasks would ask every shim, each frozen one for two seconds, and
// 2.x leaves those out of its answer. The metrics can be asked of one task by
// its id, record or not. Only a task whose shim is alive and cannot give its
// metrics would be missed: the kernel's witnesses still see its address and
// its port.
//
// Whom containerd could not ask before the end of our deadline it leaves out
// too, and that answer may outrun our own clock: so containerd is not given
// the deadline, and is hung up on.
func (k *calls) taskAlone(ctx context.Context, c *containerd.Client, at watchdog.Container) (bool, error) {
	ctx = namespaces.WithNamespace(ctx, at.Namespace)
	call, hangUp := context.WithCancelCause(context.WithoutCancel(ctx))
	defer hangUp(nil)
	defer context.AfterFunc(ctx, func() { hangUp(ctx.Err()) })()
	defer time.AfterFunc(k.cfg.Timeout, func() { hangUp(context.DeadlineExceeded) }).Stop()
	got, err := c.TaskService().Metrics(call, &tasksapi.MetricsRequest{Filters: []string{fmt.Sprintf("id==%q", at.ID)}})
	if err = errgrpc.ToNative(err); call.Err() != nil {
		err = context.Cause(call)
	}
	if err != nil {
		return false, fmt.Errorf("ask for a task without a record: %w", err)
	}
	return len(got.Metrics) > 0, nil
}

var (
	errRecordless = errors.New("its record is gone, and containerd reaches a task by that only")
	errHasTask    = errors.New("its task is still there")
)

// missing turns the answer that there is no such task into nil, unless it only
// means that there is no such record.
func (k *calls) missing(ctx context.Context, c *containerd.Client, of watchdog.Container, err error) error {
	if !errdefs.IsNotFound(err) {
		return err
	}
	if _, err := k.record(ctx, c, of); err == nil || !errdefs.IsNotFound(err) {
		return err
	}
	there, err := k.taskAlone(ctx, c, of)
	if there {
		return errRecordless
	}
	return err
}

// Signal sends a signal to every process of a container's task. A task that is
// not there, or has ended, is no error; one that runs without a record is.
func (k *calls) Signal(ctx context.Context, to watchdog.Container, s syscall.Signal) error {
	return k.asked(ctx, func(ctx context.Context, c *containerd.Client) error {
		call, cancel := k.ask(ctx, to.Namespace)
		defer cancel()
		_, err := c.TaskService().Kill(call, &tasksapi.KillRequest{ContainerID: to.ID, Signal: uint32(s), All: true})
		err = k.missing(ctx, c, to, errgrpc.ToNative(err))
		if err != nil && !errdefs.IsFailedPrecondition(err) {
			return fmt.Errorf("send %v to %s: %w", s, to, err)
		}
		return nil
	})
}

// taskPause is the time between two attempts to delete a task that has not
// ended yet.
const taskPause = 20 * time.Millisecond

// DeleteTask deletes a task once it has ended, and waits for that as long as
// one call may take. One that is not there is no error; one that has no record
// is. What a refusal says is not asked: 2.x names a task that it killed while
// it was paused "a paused process" until its exit is known, without a class.
func (k *calls) DeleteTask(ctx context.Context, of watchdog.Container) error {
	return k.asked(ctx, func(ctx context.Context, c *containerd.Client) error {
		call, cancel := k.ask(ctx, of.Namespace)
		defer cancel()
		for {
			_, err := c.TaskService().Delete(call, &tasksapi.DeleteTaskRequest{ContainerID: of.ID})
			if err = k.missing(ctx, c, of, errgrpc.ToNative(err)); err == nil {
				return nil
			}
			why := fmt.Errorf("delete the task of %s: %w", of, err)
			if call.Err() != nil || errdefs.IsUnavailable(err) || errors.Is(err, errRecordless) {
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

// Delete deletes a container's record and the snapshot it names; one that is
// not there is no error. While it has a task, or containerd cannot say that it
// has none, the record stays: without it the task cannot be reached.
func (k *calls) Delete(ctx context.Context, one watchdog.Container) error {
	err := k.asked(ctx, func(ctx context.Context, c *containerd.Client) error {
		record, err := k.record(ctx, c, one)
		if errdefs.IsNotFound(err) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := k.hasNoTask(ctx, c, one); err != nil {
			return err
		}
		call, cancel := k.ask(ctx, one.Namespace)
		defer cancel()
		if err := containerd.WithSnapshotCleanup(call, c, record); err != nil {
			return fmt.Errorf("remove snapshot %s: %w", record.SnapshotKey, err)
		}
		if err := c.ContainerService().Delete(call, one.ID); err != nil && !errdefs.IsNotFound(err) {
			return err
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("delete container %s: %w", one, err)
	}
	return nil
}

func (k *calls) hasNoTask(ctx context.Context, c *containerd.Client, one watchdog.Container) error {
	call, cancel := k.ask(ctx, one.Namespace)
	defer cancel()
	_, err := c.TaskService().Get(call, &tasksapi.GetRequest{ContainerID: one.ID})
	if err == nil {
		return errHasTask
	}
	if err = errgrpc.ToNative(err); errdefs.IsNotFound(err) {
		return nil
	}
	return fmt.Errorf("ask for its task: %w", err)
}
