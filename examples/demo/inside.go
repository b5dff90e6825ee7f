package main

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/vishvananda/netlink"

	"github.com/ipamd/ipamd/client"
)

// insideVerb starts the program inside its namespaces.
const insideVerb = "inside-its-namespaces"

// demoDir has the demo's own files. Everything else is where it is by
// default: /run and /var/lib are the demo's alone.
const demoDir = "/run/demo"

// inside is the first process of the new namespaces: it plays the story and
// exits, and everything else ends with it.
func inside(bin, cgroup string) {
	s := &story{output: newOutput(), client: new(client.Client)}
	s.must(furnish(bin, cgroup))
	s.play()
	thaw(cgroup)
}

// furnish mounts folders in memory over the host's and an own /proc, sets the
// loopback up, and sets a PATH that finds the programs of this checkout.
func furnish(bin, cgroup string) error {
	// Opened before /run and /var/lib are covered: the checkout may be there.
	programs, err := os.Open(bin)
	if err != nil {
		return err
	}
	defer programs.Close()
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("leave the host's mounts: %w", err)
	}
	if err := syscall.Mount("proc", "/proc", "proc", syscall.MS_NOSUID|syscall.MS_NODEV|syscall.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	for _, dir := range []string{"/run", "/var/lib"} {
		if err := syscall.Mount("tmpfs", dir, "tmpfs", syscall.MS_NOSUID|syscall.MS_NODEV, "mode=755"); err != nil {
			return fmt.Errorf("mount %s: %w", dir, err)
		}
	}
	here := filepath.Join(demoDir, "bin")
	if err := os.MkdirAll(here, 0o755); err != nil {
		return err
	}
	if err := syscall.Mount(fmt.Sprintf("/proc/self/fd/%d", programs.Fd()), here, "", syscall.MS_BIND, ""); err != nil {
		return fmt.Errorf("mount %s: %w", here, err)
	}
	lo, err := netlink.LinkByName("lo")
	if err == nil {
		err = netlink.LinkSetUp(lo)
	}
	if err != nil {
		return fmt.Errorf("set lo up: %w", err)
	}
	for name, value := range map[string]string{
		"PATH":           here + ":" + os.Getenv("PATH") + ":/usr/local/sbin:/usr/sbin:/sbin",
		"SANDBOX_CGROUP": "/" + cgroup,
		"IPAMD_SOCKET":   "", // what is set is the host's
	} {
		if err := os.Setenv(name, value); err != nil {
			return err
		}
	}
	return nil
}
