package ctrd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	tasksapi "github.com/containerd/containerd/api/services/tasks/v1"
	tasktypes "github.com/containerd/containerd/api/types/task"
	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"

	"github.com/ipamd/ipamd/census"
)

// read makes a whole reading and posts it; the caller holds posting. An error
// means that nothing was posted.
func (w *Witness) read(ctx context.Context, c *containerd.Client) error {
	id, err := w.identity(ctx, c)
	if err != nil {
		return err
	}
	if w.cfg.Has != nil {
		list := func(ctx context.Context) ([]string, error) { return w.allNamespaces(ctx, c) }
		if err := w.cfg.Has(ctx, id, list); err != nil {
			return err
		}
	}
	_ = w.cfg.Met(ctx, id) // what it shows is posted, whichever containerd it is
	names, err := w.namespaces(ctx, c)
	if err != nil {
		return err
	}
	if !w.following {
		clear(w.taskless)
	}
	none, left := make(taskless), askMost
	scopes := make(map[string][]census.Sighting)
	incomplete := make(map[string]bool)
	var unread, blocking []string
	for _, ns := range names {
		list, err := w.containers(ctx, c, ns)
		if err != nil {
			return err
		}
		tasks := w.leftOut(ctx, c, ns, list, w.tasks(ctx, c, ns), &left)
		for _, one := range list {
			seen, bad := w.cfg.sightings(ns, one, tasks(one.ID))
			scopes[scope(ns, one.ID)] = seen
			at := container{Namespace: ns, ID: one.ID}
			none.note(at, one.CreatedAt, tasks(one.ID))
			if w.isLarge(at) {
				bad = append(bad, fmt.Sprintf("container %s: its record is larger than containerd sends, 16 MiB", at.String()))
				seen[0].Unread = unreadable(bad).Error()
			}
			if len(bad) > 0 && w.mayUse(ctx, c, at, tasks(one.ID)) {
				incomplete[at.String()] = true
				blocking = append(blocking, bad...)
			}
			unread = append(unread, bad...)
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	w.cfg.Board.Replace(census.Runtime, scopes, unreadable(blocking))
	if w.cfg.Shown != nil {
		if err := w.cfg.Shown(ctx, id); err != nil {
			w.cfg.Log.Warn("what containerd shows is not noted", "err", err)
		}
	}
	w.logUnread(unread, len(incomplete))
	w.incomplete, w.taskless = incomplete, none
	w.news.Send()
	return nil
}

// lookAgain looks at single containers, of which events spoke; the caller has
// posting.
//
// Only a whole reading may fall silent, or end a silence: so a container by which
// that changes, or may have changed, costs one.
func (w *Witness) lookAgain(ctx context.Context, c *containerd.Client, at []container) error {
	for _, one := range at {
		seen, blocks, err := w.lookAt(ctx, c, one)
		if err != nil || blocks || w.incomplete[one.String()] {
			return w.read(ctx, c)
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		w.cfg.Board.ReplaceScope(census.Runtime, one.String(), seen)
	}
	w.news.Send()
	return nil
}

// mayUse reports whether a container, some of whose labels cannot be read, may use an
// address that no witness sees: its task lives, or may, and its network namespace cannot
// be told, or is the host's own, where no witness sees into a virtual machine. Without a task
// it uses none, and what is behind a port the kernel's witnesses see, while what is in
// another namespace is not on the bridge; so a record of any tenant is no reason to distrust
// the whole reading.
func (w *Witness) mayUse(ctx context.Context, c *containerd.Client, at container, t task) bool {
	if t.note != "" {
		t = w.task(ctx, c, at)
	}
	switch {
	case t == task{} || t.state == "stopped":
		return false
	case t.pid == 0 || w.cfg.Home == nil:
		return true
	}
	home, err := w.cfg.Home(ctx, t.pid)
	return err != nil || home.Host
}

// lookAt asks for one container by its id. One that is not there claims
// nothing, and that is no error. blocks says that it may use an address which no
// label says.
func (w *Witness) lookAt(ctx context.Context, c *containerd.Client, at container) (seen []census.Sighting, blocks bool, err error) {
	call, cancel := w.ask(ctx, at.Namespace)
	defer cancel()
	found, err := c.ContainerService().Get(call, at.ID)
	if errdefs.IsNotFound(err) {
		delete(w.taskless, at)
		return nil, false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("look at container %s: %w", at.String(), err)
	}
	t := w.task(ctx, c, at)
	w.taskless.note(at, found.CreatedAt, t)
	seen, unread := w.cfg.sightings(at.Namespace, found, t)
	return seen, len(unread) > 0 && w.mayUse(ctx, c, at, t), nil
}

func (w *Witness) namespaces(ctx context.Context, c *containerd.Client) ([]string, error) {
	if !w.cfg.all() {
		return w.cfg.Namespaces, nil
	}
	return w.allNamespaces(ctx, c)
}

func (w *Witness) allNamespaces(ctx context.Context, c *containerd.Client) ([]string, error) {
	call, cancel := w.ask(ctx, "")
	defer cancel()
	names, err := c.NamespaceService().List(call)
	if err != nil {
		return nil, fmt.Errorf("list namespaces: %w", err)
	}
	return names, nil
}

// tasks lists the tasks of a namespace and returns a look-up in that list, which may
// leave out whom containerd could not ask.
//
// That containerd cannot list them is no silence: a claim stands in labels
// and needs no task, and one frozen shim, which containerd waits for, must
// not hide all the other containers.
func (w *Witness) tasks(ctx context.Context, c *containerd.Client, ns string) func(id string) (task, bool) {
	call, cancel := w.ask(ctx, ns)
	defer cancel()
	list, err := c.TaskService().List(call, &tasksapi.ListTasksRequest{})
	if err != nil {
		unknown := unknownTask(err)
		return func(string) (task, bool) { return unknown, true }
	}
	byID := make(map[string]task, len(list.Tasks))
	for _, p := range list.Tasks {
		byID[p.ID] = knownTask(p)
	}
	return func(id string) (task, bool) { t, listed := byID[id]; return t, listed }
}

func (w *Witness) task(ctx context.Context, c *containerd.Client, at container) task {
	call, cancel := w.ask(ctx, at.Namespace)
	defer cancel()
	got, err := c.TaskService().Get(call, &tasksapi.GetRequest{ContainerID: at.ID})
	if err != nil {
		return unknownTask(err)
	}
	return knownTask(got.Process)
}

func unknownTask(err error) task {
	if err = errgrpc.ToNative(err); errdefs.IsNotFound(err) {
		return task{}
	}
	return task{note: "task state unknown: containerd could not say"}
}

func knownTask(p *tasktypes.Process) task {
	switch p.GetStatus() {
	case tasktypes.Status_CREATED:
		return alive("created", p.GetPid())
	case tasktypes.Status_RUNNING, tasktypes.Status_PAUSING: // not frozen yet
		return alive("running", p.GetPid())
	case tasktypes.Status_PAUSED:
		return alive("paused", p.GetPid())
	case tasktypes.Status_STOPPED:
		return task{state: "stopped"}
	}
	return task{note: "task state unknown: its shim does not answer"}
}

// alive is a task whose first process lives. Since when it does only the kernel knows: containerd
// does not say, and its events of a task that is made anew within milliseconds are read as one.
func alive(state string, pid uint32) task {
	t := task{state: state, pid: pid}
	p, err := procfs.NewProc(int(pid))
	if err != nil {
		return t
	}
	stat, err := p.Stat()
	var up unix.Timespec
	if err != nil || unix.ClockGettime(unix.CLOCK_BOOTTIME, &up) != nil {
		return t
	}
	const tick = time.Second / 100 // USER_HZ of proc_pid_stat(5), on all of Linux' machines
	t.began = time.Now().Add(time.Duration(stat.Starttime)*tick - time.Duration(up.Nano()))
	return t
}

// unreadable makes one error of what could not be read, short enough for a
// line of log; nil when there was nothing.
func unreadable(reasons []string) error {
	const enough = 3
	if len(reasons) == 0 {
		return nil
	}
	text := strings.Join(reasons[:min(len(reasons), enough)], "; ")
	if more := len(reasons) - enough; more > 0 {
		text += fmt.Sprintf("; and %d more", more)
	}
	return errors.New(text)
}
