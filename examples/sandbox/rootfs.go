package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// makeRootfs makes the folder that all sandboxes see as /: busybox under the
// name of each of its programs, and the mount points. A folder that is there
// is left as it is.
func makeRootfs(dir string) error {
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	program, err := exec.LookPath("busybox")
	if err != nil {
		return fmt.Errorf("%w: apt-get install busybox-static", err)
	}
	names, err := exec.Command(program, "--list").Output()
	if err != nil {
		return fmt.Errorf("ask %s what it can do: %w", program, err)
	}
	body, err := os.ReadFile(program)
	if err != nil {
		return err
	}
	// Two first runs at once: each makes its own, and one rename wins.
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	draft, err := os.MkdirTemp(filepath.Dir(dir), "rootfs-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(draft)
	if err := fill(draft, body, strings.Fields(string(names))); err != nil {
		return err
	}
	if err := os.Rename(draft, dir); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

func fill(dir string, busybox []byte, names []string) error {
	if err := os.Chmod(dir, 0o755); err != nil {
		return err
	}
	for _, sub := range []string{"bin", "dev", "etc", "proc", "run", "sys", "tmp"} {
		if err := os.Mkdir(filepath.Join(dir, sub), 0o755); err != nil {
			return err
		}
	}
	bin := filepath.Join(dir, "bin")
	if err := os.WriteFile(filepath.Join(bin, "busybox"), busybox, 0o755); err != nil {
		return err
	}
	for _, name := range names {
		if err := os.Symlink("busybox", filepath.Join(bin, name)); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return nil
}
