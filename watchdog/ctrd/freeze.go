package ctrd

import (
	"context"
	"errors"
	"fmt"

	tasksapi "github.com/containerd/containerd/api/services/tasks/v1"
	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"

	"github.com/ipamd/ipamd/watchdog"
)

// Thaw resumes a container's task. One that runs already is no error. The error wraps
// [watchdog.ErrNoTask] or [watchdog.ErrNotAllowed] where another attempt would not help.
func (k *calls) Thaw(ctx context.Context, of watchdog.Container) error {
	return k.changeTask(ctx, of, "running", "resume", func(ctx context.Context, c *containerd.Client) error {
		_, err := c.TaskService().Resume(ctx, &tasksapi.ResumeTaskRequest{ContainerID: of.ID})
		return err
	})
}

// Freeze pauses a container's task. One that is paused already is no error. Errors are
// those of [Witness.Thaw].
func (k *calls) Freeze(ctx context.Context, of watchdog.Container) error {
	return k.changeTask(ctx, of, "paused", "pause", func(ctx context.Context, c *containerd.Client) error {
		_, err := c.TaskService().Pause(ctx, &tasksapi.PauseTaskRequest{ContainerID: of.ID})
		return err
	})
}

var errStarting = errors.New("its task is not started yet")

// changeTask pauses or resumes a task. What a refusal says is not asked: containerd names a task
// that is being paused, one that ended and one that is as wanted by texts, without a class.
// The state that it has then is asked for.
func (k *calls) changeTask(ctx context.Context, of watchdog.Container, want, verb string, do func(context.Context, *containerd.Client) error) error {
	return k.asked(ctx, func(ctx context.Context, c *containerd.Client) error {
		call, cancel := k.ask(ctx, of.Namespace)
		defer cancel()
		err := errgrpc.ToNative(do(call, c))
		if err == nil {
			return nil
		}
		if errdefs.IsPermissionDenied(err) || errdefs.IsUnauthorized(err) {
			return fmt.Errorf("%s the task of %s: %w: %w", verb, of, watchdog.ErrNotAllowed, err)
		}
		if !errdefs.IsUnavailable(err) && call.Err() == nil {
			switch is, known := k.stateOf(ctx, c, of); {
			case known != nil:
				err = errors.Join(err, known)
			case is == want:
				return nil
			case is == "" || is == "stopped":
				err = watchdog.ErrNoTask
			case is == "created":
				err = errStarting
			}
		}
		return fmt.Errorf("%s the task of %s: %w", verb, of, err)
	})
}

// stateOf is a task's state, "" for none; an error where that is not known.
func (k *calls) stateOf(ctx context.Context, c *containerd.Client, of watchdog.Container) (string, error) {
	call, cancel := k.ask(ctx, of.Namespace)
	defer cancel()
	got, err := c.TaskService().Get(call, &tasksapi.GetRequest{ContainerID: of.ID})
	if err = errgrpc.ToNative(err); err == nil {
		t := knownTask(got.Process)
		if t.state == "" {
			return "", errors.New(t.note)
		}
		return t.state, nil
	}
	if !errdefs.IsNotFound(err) {
		return "", err
	}
	if err := k.missing(ctx, c, of, err); err != nil && !errdefs.IsNotFound(err) {
		return "", err
	}
	return "", k.believed(ctx, c)
}

// State is the state of a container's task, "" for none, as its shim says it now.
func (k *calls) State(ctx context.Context, of watchdog.Container) (state string, err error) {
	err = k.asked(ctx, func(ctx context.Context, c *containerd.Client) error {
		state, err = k.stateOf(ctx, c, of)
		return err
	})
	return state, err
}
