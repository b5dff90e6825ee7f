package ctrdtest_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	tasksapi "github.com/containerd/containerd/api/services/tasks/v1"
	tasktypes "github.com/containerd/containerd/api/types/task"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/errdefs"

	"github.com/ipamd/ipamd/internal/ctrdtest"
	"github.com/ipamd/ipamd/internal/realtest"
)

func TestContainersLiveAndGo(t *testing.T) {
	ctrdtest.Each(t, func(t *testing.T, d *ctrdtest.Daemon) {
		begin := time.Now()
		const n = 5
		for i := range n {
			d.Run(t, ctrdtest.Spec{Namespace: "a", ID: fmt.Sprint("c", i), Labels: map[string]string{"k": "v"}})
		}
		t.Logf("%v a container", time.Since(begin)/n)
		d.Create(t, ctrdtest.Spec{ID: "record"})
		d.Pause(t, "a", "c0")
		d.StopTask(t, "a", "c1")
		d.Delete(t, "a", "c2")
		if got, want := statuses(t, d, "a"), "c0:paused c1:stopped c3:running c4:running"; got != want {
			t.Errorf("tasks %s, want %s", got, want)
		}
		d.Resume(t, "a", "c0")

		was := d.PID
		d.Kill9()
		d.Restart()
		if d.PID == was {
			t.Error("the same pid after a restart")
		}
		stopped := "stopped"
		if d.Version == ctrdtest.V2 {
			stopped = "none" // 2.x clears dead tasks away when it starts
		}
		if got, want := statuses(t, d, "a"), "c0:running c1:"+stopped+" c3:running c4:running"; got != want {
			t.Errorf("after a restart tasks are %s, want %s", got, want)
		}
	})
}

func statuses(t *testing.T, d *ctrdtest.Daemon, ns string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(namespaces.WithNamespace(t.Context(), ns), time.Minute)
	defer cancel()
	list, err := d.Client().Containers(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, c := range list {
		task, err := c.Task(ctx, nil)
		if errdefs.IsNotFound(err) {
			all = append(all, c.ID()+":none")
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		s, err := task.Status(ctx)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, c.ID()+":"+string(s.Status))
	}
	return strings.Join(all, " ")
}

// TestNothingStays ends a daemon in the worst state there is: killed, with a
// paused container and a running one.
func TestNothingStays(t *testing.T) {
	for _, v := range []ctrdtest.Version{ctrdtest.Debian, ctrdtest.V2} {
		t.Run(string(v), func(t *testing.T) {
			var dir string
			var pids []int
			t.Run("daemon", func(t *testing.T) {
				d := ctrdtest.Start(t, v)
				dir = filepath.Dir(d.Address)
				pids = append(pids, d.PID,
					d.Run(t, ctrdtest.Spec{ID: "paused"}),
					d.Run(t, ctrdtest.Spec{ID: "running"}))
				d.Pause(t, "default", "paused")
				if traces(t, dir) == "" {
					t.Error("no traces of a running daemon: nothing would be found later either")
				}
				d.Kill9()
			})
			if t.Failed() || dir == "" {
				return
			}
			for _, pid := range pids {
				realtest.Eventually(t, time.Minute, fmt.Sprintf("process %d is gone", pid), func() bool {
					state, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
					return err != nil || strings.Contains(string(state), ") Z ") || syscall.Kill(pid, 0) != nil
				})
			}
			if got := traces(t, dir); got != "" {
				t.Errorf("left behind:\n%s", got)
			}
			if _, err := os.Stat(dir); err == nil {
				t.Errorf("%s is still there", dir)
			}
		})
	}
}

// traces lists the cgroups and mounts that the daemon with this folder made.
// Other packages' tests have daemons of their own at the same time.
func traces(t *testing.T, dir string) string {
	t.Helper()
	var all []string
	name := filepath.Base(dir)
	for _, pattern := range []string{"/sys/fs/cgroup/" + name, "/sys/fs/cgroup/*/" + name} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, found...)
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, name) {
			all = append(all, line)
		}
	}
	return strings.Join(all, "\n")
}

// A frozen shim hides its own task and no other; thawed, it answers again. A
// killed one is gone.
func TestShims(t *testing.T) {
	ctrdtest.Each(t, func(t *testing.T, d *ctrdtest.Daemon) {
		d.Run(t, ctrdtest.Spec{Namespace: "a", ID: "stuck"})
		d.Run(t, ctrdtest.Spec{Namespace: "a", ID: "well"})
		state := func(id string, patience time.Duration) (tasktypes.Status, error) {
			ctx, cancel := context.WithTimeout(namespaces.WithNamespace(t.Context(), "a"), patience)
			defer cancel()
			got, err := d.Client().TaskService().Get(ctx, &tasksapi.GetRequest{ContainerID: id})
			return got.GetProcess().GetStatus(), err
		}
		d.FreezeShim(t, "a", "stuck")
		if s, err := state("stuck", 100*time.Millisecond); err == nil && s == tasktypes.Status_RUNNING {
			t.Error("a frozen shim answered its task's state")
		}
		if s, err := state("well", time.Minute); err != nil || s != tasktypes.Status_RUNNING {
			t.Errorf("the other task is %v, %v", s, err)
		}
		d.ThawShim(t, "a", "stuck")
		if s, err := state("stuck", time.Minute); err != nil || s != tasktypes.Status_RUNNING {
			t.Errorf("after the thaw the task is %v, %v", s, err)
		}
		d.KillShim(t, "a", "well")
		d.FreezeShim(t, "a", "stuck") // and the end of the test copes with it
	})
}
