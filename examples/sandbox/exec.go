package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/cio"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/errdefs"
	"github.com/google/uuid"
)

// Exec runs a command in a running sandbox, without stdin, and returns its
// exit code. It takes as long as the command does; the end of ctx kills it.
// out and errs are written to at the same time.
func (r *Runtime) Exec(ctx context.Context, name string, args []string, out, errs io.Writer) (code int, err error) {
	ctx = namespaces.WithNamespace(ctx, r.cfg.Namespace)
	defer func() {
		if err != nil {
			err = fmt.Errorf("run %s in %s: %w", args[0], name, err)
		}
	}()
	task, err := r.task(ctx, name)
	if err != nil {
		return 0, err
	}
	spec, err := task.Spec(ctx)
	if err != nil {
		return 0, fmt.Errorf("read the specification: %w", err)
	}
	how := *spec.Process
	how.Args = args
	process, err := task.Exec(ctx, "exec-"+uuid.NewString(), &how, cio.NewCreator(cio.WithStreams(nil, out, errs)))
	if err != nil {
		return 0, err
	}
	defer func() {
		clean, cancel := cleaning(ctx)
		defer cancel()
		_, late := process.Delete(clean, containerd.WithProcessKill)
		err = errors.Join(err, late)
	}()
	exit, err := process.Wait(ctx)
	if err != nil {
		return 0, err
	}
	if err := process.Start(ctx); err != nil {
		return 0, err
	}
	status := <-exit
	if err := status.Error(); err != nil {
		return 0, err
	}
	process.IO().Wait() // the last of its output
	return int(status.ExitCode()), nil
}

// task looks up the running task of a sandbox.
func (r *Runtime) task(ctx context.Context, name string) (containerd.Task, error) {
	container, err := r.ctrd.LoadContainer(ctx, name)
	if errdefs.IsNotFound(err) {
		return nil, errUnknown
	}
	if err != nil {
		return nil, err
	}
	return container.Task(ctx, nil)
}
