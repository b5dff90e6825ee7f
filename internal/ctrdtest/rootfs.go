package ctrdtest

import (
	"os"
	"os/exec"
	"path/filepath"
)

func (d *Daemon) rootfs() string { return filepath.Join(d.dir, "rootfs") }

// makeRootfs makes the folder that all containers share: busybox under the
// names that tests call, and the mount points. It is static, so it needs no
// other file.
func (d *Daemon) makeRootfs() {
	d.t.Helper()
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		d.t.Fatal(err)
	}
	body, err := os.ReadFile(busybox)
	if err != nil {
		d.t.Fatal(err)
	}
	for _, dir := range []string{"bin", "dev", "proc"} {
		if err := os.MkdirAll(filepath.Join(d.rootfs(), dir), 0o755); err != nil {
			d.t.Fatal(err)
		}
	}
	bin := filepath.Join(d.rootfs(), "bin")
	if err := os.WriteFile(filepath.Join(bin, "busybox"), body, 0o755); err != nil {
		d.t.Fatal(err)
	}
	for _, name := range []string{"arping", "ip", "nc", "ping", "sh", "sleep", "true"} {
		if err := os.Symlink("busybox", filepath.Join(bin, name)); err != nil {
			d.t.Fatal(err)
		}
	}
}
