package ctrdtest

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// clean ends everything that runs under the daemon and removes every trace.
// It asks the daemon for nothing, which may be dead or frozen by now.
func (d *Daemon) clean() {
	if d.cmd != nil {
		d.Thaw()
		d.Stop()
	}
	if d.t.Failed() {
		d.tellLog()
	}
	sockets := d.shimSockets()
	d.endShims()
	d.endContainers()
	for _, s := range sockets {
		_ = os.Remove(s)
	}
	d.unmount()
	if err := os.RemoveAll(d.dir); err != nil {
		d.t.Errorf("remove containerd's folder: %v", err)
	}
}

// tellLog shows the end of the daemon's log beside the failure.
func (d *Daemon) tellLog() {
	const enough = 4 << 10
	log, _ := os.ReadFile(d.logFile())
	if len(log) > enough {
		log = log[len(log)-enough:]
	}
	d.t.Logf("the end of containerd's log (%s):\n%s", d.Version, log)
}

// shimSockets returns the sockets of the shims. They live outside of the
// daemon's folders, in /run/containerd/s, and a killed shim leaves its own
// behind. The bundle says where: 1.6 in a file address, 2.x in bootstrap.json.
func (d *Daemon) shimSockets() (paths []string) {
	for _, name := range []string{"address", "bootstrap.json"} {
		files, _ := filepath.Glob(filepath.Join(d.dir, "state", "*", "*", "*", name))
		for _, f := range files {
			text, _ := os.ReadFile(f)
			if strings.HasSuffix(f, ".json") {
				var b struct{ Address string }
				_ = json.Unmarshal(text, &b)
				text = []byte(b.Address)
			}
			paths = append(paths, strings.TrimPrefix(string(bytes.TrimSpace(text)), "unix://"))
		}
	}
	return paths
}

// endShims kills the shims of this daemon, frozen ones too.
func (d *Daemon) endShims() {
	for pid := range d.processes() {
		d.kill(pid)
	}
}

// endContainers kills what is left in the containers' cgroups, and removes
// those.
func (d *Daemon) endContainers() {
	// One hierarchy with cgroup v2, one per controller with v1, both on a
	// hybrid host.
	roots, _ := filepath.Glob("/sys/fs/cgroup/*/" + d.cgroup)
	roots = append(roots, "/sys/fs/cgroup/"+d.cgroup)
	var dirs []string
	for _, root := range roots {
		_ = filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
			if err == nil && e.IsDir() {
				dirs = append(dirs, path)
			}
			return nil
		})
	}
	for _, dir := range dirs {
		thaw(dir) // a frozen process dies only when it is thawed, in whichever hierarchy that is
	}
	for _, dir := range slices.Backward(dirs) { // children first
		d.endCgroup(dir)
	}
}

func thaw(dir string) {
	for file, thawed := range map[string]string{"freezer.state": "THAWED", "cgroup.freeze": "0"} {
		if f, err := os.OpenFile(filepath.Join(dir, file), os.O_WRONLY, 0); err == nil {
			_, _ = f.WriteString(thawed)
			f.Close()
		}
	}
}

func (d *Daemon) endCgroup(dir string) {
	for end := time.Now().Add(patience / 3); ; {
		pids, _ := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
		for field := range strings.FieldsSeq(string(pids)) {
			pid, _ := strconv.Atoi(field)
			d.kill(pid)
		}
		err := os.Remove(dir)
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			return
		}
		if time.Now().After(end) {
			d.t.Errorf("remove cgroup: %v", err)
			return
		}
		time.Sleep(time.Millisecond) // nothing reports when a cgroup of v1 has become empty
	}
}

func (d *Daemon) kill(pid int) {
	if pid <= 1 {
		return
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		d.t.Errorf("kill process %d: %v", pid, err)
	}
}

// unmount releases mounts below the daemon's folder: a test may have added
// a snapshotter's.
func (d *Daemon) unmount() {
	text, _ := os.ReadFile("/proc/self/mountinfo")
	for _, line := range slices.Backward(strings.Split(string(text), "\n")) {
		if f := strings.Fields(line); len(f) > 4 && strings.HasPrefix(f[4], d.dir+"/") {
			if err := unix.Unmount(f[4], unix.MNT_DETACH); err != nil {
				d.t.Errorf("unmount %s: %v", f[4], err)
			}
		}
	}
}
