package ctrdtest

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ipamd/ipamd/internal/realtest"
)

// FreezeShim stops a container's shim in its tracks (SIGSTOP): containerd
// gets no answer about its task, and nothing of it can be removed. The
// container's own processes go on. The end of the test thaws it.
func (d *Daemon) FreezeShim(t testing.TB, namespace, id string) {
	t.Helper()
	d.signalShim(t, namespace, id, syscall.SIGSTOP)
	// Each thread stops by itself; one that has not can still answer.
	realtest.Eventually(t, time.Minute, "every thread of the shim to stop", func() bool {
		return !slices.ContainsFunc(d.shims(namespace, id), running)
	})
	t.Cleanup(func() {
		for _, pid := range d.shims(namespace, id) {
			_ = syscall.Kill(pid, syscall.SIGCONT)
		}
	})
}

// running reports that a thread of a process is not stopped.
func running(pid int) bool {
	threads, _ := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/task/*/stat")
	return slices.ContainsFunc(threads, func(path string) bool {
		stat, err := os.ReadFile(path)
		_, state, _ := strings.Cut(string(stat), ") ")
		return err == nil && !strings.HasPrefix(state, "T")
	})
}

// ThawShim undoes FreezeShim.
func (d *Daemon) ThawShim(t testing.TB, namespace, id string) {
	t.Helper()
	d.signalShim(t, namespace, id, syscall.SIGCONT)
}

// KillShim kills a container's shim and waits for its end. The container's
// own processes go on without it, unless containerd, when it runs, ends them
// for that.
func (d *Daemon) KillShim(t testing.TB, namespace, id string) {
	t.Helper()
	d.signalShim(t, namespace, id, syscall.SIGKILL)
	realtest.Eventually(t, patience, "the shim of "+namespace+"/"+id+" is gone", func() bool {
		return len(d.shims(namespace, id)) == 0
	})
}

func (d *Daemon) signalShim(t testing.TB, namespace, id string, sig syscall.Signal) {
	t.Helper()
	pids := d.shims(namespace, id)
	if len(pids) == 0 {
		t.Fatalf("container %s/%s has no shim", namespace, id)
	}
	for _, pid := range pids {
		if err := syscall.Kill(pid, sig); err != nil {
			t.Fatalf("send %v to the shim of %s/%s: %v", sig, namespace, id, err)
		}
	}
}

// shims returns the pids of a container's shim. It is known by its arguments,
// so it is found also while containerd is down; what containerd runs beside
// it to start one, or to clean up after one, ends in a verb.
func (d *Daemon) shims(namespace, id string) (pids []int) {
	for pid, args := range d.processes() {
		verb := args[len(args)-1]
		if verb != "start" && verb != "delete" && follows(args, "-namespace", namespace) && follows(args, "-id", id) {
			pids = append(pids, pid)
		}
	}
	return pids
}

func follows(args []string, flag, value string) bool {
	i := slices.Index(args, flag)
	return i >= 0 && i+1 < len(args) && args[i+1] == value
}

// processes returns those that have this daemon's socket in their arguments,
// which are its shims and no other.
func (d *Daemon) processes() map[int][]string {
	found := make(map[int][]string)
	procs, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, p := range procs {
		text, _ := os.ReadFile(p)
		args := strings.Split(strings.TrimSuffix(string(text), "\x00"), "\x00")
		if slices.Contains(args, d.Address) {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(p)))
			found[pid] = args
		}
	}
	return found
}
