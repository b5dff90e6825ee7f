package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/vishvananda/netlink"
)

// insideVerb is how the program tells itself that it is inside by now.
const insideVerb = "inside-its-namespaces"

// demoDir is where the demo's own files are. Everything else has the place
// that it has by default: /run and /var/lib are ours alone.
const demoDir = "/run/demo"

// inside is the first process of the new namespaces: it tells the story and
// exits, and everything else ends with it.
func inside(bin, cgroup string) {
	t := newTeller(os.Stdout)
	err := furnish(bin, cgroup)
	if err == nil {
		s := newStory(t)
		if err = s.tell(context.Background()); err != nil {
			s.tellLogs()
		}
	}
	if err != nil {
		t.wrong(err)
		os.Exit(1)
	}
}

// furnish makes the place: folders in memory over the host's, an own /proc, a
// loopback that is up, and a PATH that finds the programs of this checkout.
func furnish(bin, cgroup string) error {
	// Opened before /run and /var/lib are covered: the checkout may be there.
	programs, err := os.Open(bin)
	if err != nil {
		return err
	}
	defer programs.Close()
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("part from the host's mounts: %w", err)
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
		"IPAMD_SOCKET":   "", // whoever set it meant the host's
	} {
		if err := os.Setenv(name, value); err != nil {
			return err
		}
	}
	return nil
}
