package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// describe prints what the figures were taken on, and of which program: the
// version that Go gave it has the commit it was built of.
func describe(w io.Writer, dir, program string) error {
	version, err := moduleVersion(program, "github.com/ipamd/ipamd")
	if err != nil {
		return err
	}
	var kernel unix.Utsname
	if err := unix.Uname(&kernel); err != nil {
		return fmt.Errorf("ask for the kernel's name: %w", err)
	}
	var disk unix.Statfs_t
	if err := unix.Statfs(dir, &disk); err != nil {
		return fmt.Errorf("ask for the file system of %s: %w", dir, err)
	}
	if _, err := fmt.Fprintf(w, "%s\nipamd %s\n%d x %s, Linux %s, %s on %s, %s\n", time.Now().Format(time.RFC1123), version,
		runtime.NumCPU(), processor(), unix.ByteSliceToString(kernel.Release[:]), dir, fileSystem(int64(disk.Type)), runtime.Version()); err != nil {
		return err
	}
	return load(w, "before")
}

// load prints how many wanted a processor, on average: a machine that had more
// to do than the run is no place for figures.
func load(w io.Writer, when string) error {
	average, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return fmt.Errorf("read the load: %w", err)
	}
	of := strings.Fields(string(average))
	if len(of) < 3 {
		return fmt.Errorf("read the load: %q", average)
	}
	_, err = fmt.Fprintf(w, "load %s the run: %s of 1, 5 and 15 minutes\n", when, strings.Join(of[:3], ", "))
	return err
}

// processor is what the kernel calls it.
func processor() string {
	f, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return runtime.GOARCH
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if name, ok := strings.CutPrefix(lines.Text(), "model name"); ok {
			return strings.TrimLeft(name, "\t :")
		}
	}
	return runtime.GOARCH
}

func fileSystem(magic int64) string {
	switch magic {
	case unix.EXT4_SUPER_MAGIC:
		return "ext4"
	case unix.XFS_SUPER_MAGIC:
		return "xfs"
	case unix.BTRFS_SUPER_MAGIC:
		return "btrfs"
	case unix.OVERLAYFS_SUPER_MAGIC:
		return "overlayfs"
	case unix.TMPFS_MAGIC:
		return "tmpfs (nothing is durable here)"
	}
	return fmt.Sprintf("file system %#x", magic)
}
