package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// cgroupOf names the parent of all cgroups of the demo with that pid.
func cgroupOf(pid int) string { return cgroupPrefix + strconv.Itoa(pid) }

const cgroupPrefix = "ipamd-demo-"

// findCgroups finds a cgroup in every hierarchy: there is one with cgroup v2,
// one a controller with v1, and both on a hybrid host.
func findCgroups(pattern string) (found []string, err error) {
	for _, root := range []string{"/sys/fs/cgroup/", "/sys/fs/cgroup/*/"} {
		in, bad := filepath.Glob(root + pattern)
		found, err = append(found, in...), errors.Join(err, bad)
	}
	return found, err
}

// thaw has what is frozen in a cgroup, and below it, run: with cgroup v1 a frozen process
// does not end by a signal before that, and its namespaces with it.
func thaw(name string) {
	roots, _ := findCgroups(name)
	for _, root := range roots {
		_ = filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
			if err == nil && !e.IsDir() {
				switch e.Name() {
				case "freezer.state":
					_ = os.WriteFile(path, []byte("THAWED"), 0) // the topmost refuses
				case "cgroup.freeze":
					_ = os.WriteFile(path, []byte("0"), 0)
				}
			}
			return nil
		})
	}
}

// removeCgroups removes a cgroup with all below it. Its processes have ended.
func removeCgroups(name string) error {
	roots, err := findCgroups(name)
	for _, root := range roots {
		err = errors.Join(err, removeCgroup(root))
	}
	return err
}

// sweepCgroups removes what demos left that were killed before they could
// clear up.
func sweepCgroups() error {
	all, err := findCgroups(cgroupPrefix + "*")
	for _, root := range all {
		pid := strings.TrimPrefix(filepath.Base(root), cgroupPrefix)
		if _, gone := os.Stat("/proc/" + pid); errors.Is(gone, fs.ErrNotExist) {
			thaw(filepath.Base(root))
			err = errors.Join(err, removeCgroup(root))
		}
	}
	return err
}

func removeCgroup(root string) error {
	var dirs []string
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.IsDir() {
			dirs = append(dirs, path)
		}
		return nil
	})
	for _, dir := range slices.Backward(dirs) { // children first
		err = errors.Join(err, removeDir(dir))
	}
	return err
}

// removeDir tries for a while: a cgroup is busy for a moment after its last
// process, and the kernel does not report when that is over.
func removeDir(dir string) error {
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		err := os.Remove(dir)
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("remove a container's cgroup: %w", err)
		}
	}
}
