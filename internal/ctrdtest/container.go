package ctrdtest

import (
	"context"
	"strings"
	"syscall"
	"testing"

	runcopts "github.com/containerd/containerd/api/types/runc/options"
	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/cio"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/errdefs"
	specs "github.com/opencontainers/runtime-spec/specs-go"
)

// A Spec describes a container.
type Spec struct {
	Namespace string            // containerd namespace; "" is "default"
	ID        string            // unique in its namespace
	Labels    map[string]string // of the container record
	Netns     string            // path of the network namespace; "" is a new and empty one
	Args      []string          // nil sleeps until killed
}

func (s Spec) namespace() string {
	if s.Namespace == "" {
		return namespaces.Default
	}
	return s.Namespace
}

// ask returns a context for calls in a containerd namespace, with an end.
func ask(namespace string) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	return namespaces.WithNamespace(ctx, namespace), cancel
}

// Create makes a container record without a task.
func (d *Daemon) Create(t testing.TB, s Spec) {
	t.Helper()
	ctx, cancel := ask(s.namespace())
	defer cancel()
	d.create(ctx, t, s)
}

func (d *Daemon) create(ctx context.Context, t testing.TB, s Spec) containerd.Container {
	t.Helper()
	c, err := d.newContainer(ctx, d.Client(), s)
	if err != nil {
		t.Fatalf("create container %s/%s: %v", s.namespace(), s.ID, err)
	}
	return c
}

func (d *Daemon) newContainer(ctx context.Context, c *containerd.Client, s Spec) (containerd.Container, error) {
	return c.NewContainer(ctx, s.ID,
		containerd.WithContainerLabels(s.Labels),
		// runc's own state too: by default it is /run/containerd/runc/<namespace>,
		// where two daemons with a container of one name would meet.
		containerd.WithRuntime("io.containerd.runc.v2", &runcopts.Options{Root: d.dir + "/runc"}),
		containerd.WithSpec(d.ociSpec(s)),
	)
}

// Run makes a container and starts its task. It returns the pid of the task's
// first process.
func (d *Daemon) Run(t testing.TB, s Spec) (pid int) {
	t.Helper()
	ctx, cancel := ask(s.namespace())
	defer cancel()
	task, err := d.create(ctx, t, s).NewTask(ctx, cio.NullIO)
	if err == nil {
		err = task.Start(ctx)
	}
	if err != nil {
		t.Fatalf("start task %s/%s: %v", s.namespace(), s.ID, err)
	}
	return int(task.Pid())
}

// StopTask kills the task and waits for its end. The stopped task stays, and
// so does the container's record.
func (d *Daemon) StopTask(t testing.TB, namespace, id string) {
	t.Helper()
	ctx, cancel := ask(namespace)
	defer cancel()
	task := d.task(ctx, t, id)
	exit, err := task.Wait(ctx)
	if err == nil {
		err = task.Kill(ctx, syscall.SIGKILL)
	}
	if err == nil {
		err = (<-exit).Error()
	}
	if err != nil {
		t.Fatalf("stop task %s/%s: %v", namespace, id, err)
	}
}

// Pause freezes the task's processes.
func (d *Daemon) Pause(t testing.TB, namespace, id string) {
	t.Helper()
	ctx, cancel := ask(namespace)
	defer cancel()
	task := d.task(ctx, t, id)
	err := task.Pause(ctx)
	for tries := 1; err != nil && tries < 5 && strings.Contains(err.Error(), "unable to freeze"); tries++ { // runc gives up soon on a busy machine
		err = task.Pause(ctx)
	}
	if err != nil {
		t.Fatalf("pause task %s/%s: %v", namespace, id, err)
	}
}

// Status is the state of a container's task, such as "paused" or "running".
func (d *Daemon) Status(t testing.TB, namespace, id string) string {
	t.Helper()
	ctx, cancel := ask(namespace)
	defer cancel()
	st, err := d.task(ctx, t, id).Status(ctx)
	if err != nil {
		t.Fatalf("ask for the task %s/%s: %v", namespace, id, err)
	}
	return string(st.Status)
}

// Resume undoes Pause.
func (d *Daemon) Resume(t testing.TB, namespace, id string) {
	t.Helper()
	ctx, cancel := ask(namespace)
	defer cancel()
	if err := d.task(ctx, t, id).Resume(ctx); err != nil {
		t.Fatalf("resume task %s/%s: %v", namespace, id, err)
	}
}

// SetLabels adds and overwrites labels of a container.
func (d *Daemon) SetLabels(t testing.TB, namespace, id string, labels map[string]string) {
	t.Helper()
	ctx, cancel := ask(namespace)
	defer cancel()
	if _, err := d.load(ctx, t, id).SetLabels(ctx, labels); err != nil {
		t.Fatalf("label container %s/%s: %v", namespace, id, err)
	}
}

// Delete kills the task if there is one, and deletes it and the record.
func (d *Daemon) Delete(t testing.TB, namespace, id string) {
	t.Helper()
	ctx, cancel := ask(namespace)
	defer cancel()
	c := d.load(ctx, t, id)
	task, err := c.Task(ctx, nil)
	if err == nil {
		_, err = task.Delete(ctx, containerd.WithProcessKill)
	}
	if err == nil || errdefs.IsNotFound(err) {
		err = c.Delete(ctx)
	}
	if err != nil {
		t.Fatalf("delete container %s/%s: %v", namespace, id, err)
	}
}

// DeleteRecord deletes the record alone, and leaves a running task without
// one. containerd lets any client do that.
func (d *Daemon) DeleteRecord(t testing.TB, namespace, id string) {
	t.Helper()
	ctx, cancel := ask(namespace)
	defer cancel()
	if err := d.Client().ContainerService().Delete(ctx, id); err != nil {
		t.Fatalf("delete the record of container %s/%s: %v", namespace, id, err)
	}
}

func (d *Daemon) load(ctx context.Context, t testing.TB, id string) containerd.Container {
	t.Helper()
	c, err := d.Client().LoadContainer(ctx, id)
	if err != nil {
		t.Fatalf("load container %s: %v", id, err)
	}
	return c
}

func (d *Daemon) task(ctx context.Context, t testing.TB, id string) containerd.Task {
	t.Helper()
	task, err := d.load(ctx, t, id).Task(ctx, nil)
	if err != nil {
		t.Fatalf("load task %s: %v", id, err)
	}
	return task
}

func (d *Daemon) ociSpec(s Spec) *specs.Spec {
	args := s.Args
	if args == nil {
		args = []string{"/bin/sleep", "2147483647"}
	}
	return &specs.Spec{
		Version: "1.0.2", // what Debian's runc knows
		Process: &specs.Process{
			Args: args,
			Cwd:  "/",
			Env:  []string{"PATH=/bin"},
		},
		Root: &specs.Root{Path: d.rootfs(), Readonly: true},
		Mounts: []specs.Mount{
			{Destination: "/proc", Type: "proc", Source: "proc"},
			{Destination: "/dev", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "mode=755", "size=64k"}},
		},
		Linux: &specs.Linux{
			CgroupsPath: "/" + d.cgroup + "/" + s.namespace() + "-" + s.ID,
			Namespaces: []specs.LinuxNamespace{
				{Type: specs.PIDNamespace},
				{Type: specs.MountNamespace},
				{Type: specs.IPCNamespace},
				{Type: specs.UTSNamespace},
				{Type: specs.NetworkNamespace, Path: s.Netns},
			},
		},
	}
}
