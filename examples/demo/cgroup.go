package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// removeCgroups removes a cgroup with all below it from every hierarchy: there
// is one with cgroup v2, one a controller with v1, and both on a hybrid host.
// Their processes have ended.
func removeCgroups(name string) error {
	roots, err := filepath.Glob("/sys/fs/cgroup/*/" + name)
	if err != nil {
		return err
	}
	var left []error
	for _, root := range append(roots, "/sys/fs/cgroup/"+name) {
		left = append(left, removeCgroup(root))
	}
	return errors.Join(left...)
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
// process, and nothing tells when that is over.
func removeDir(dir string) error {
	for end := time.Now().Add(5 * time.Second); ; time.Sleep(time.Millisecond) {
		err := os.Remove(dir)
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("remove a container's cgroup: %w", err)
		}
	}
}
