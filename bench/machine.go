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

// describe prints what the figures were taken on.
func describe(w io.Writer, dir string) error {
	var kernel unix.Utsname
	if err := unix.Uname(&kernel); err != nil {
		return fmt.Errorf("ask for the kernel's name: %w", err)
	}
	var disk unix.Statfs_t
	if err := unix.Statfs(dir, &disk); err != nil {
		return fmt.Errorf("ask for the file system of %s: %w", dir, err)
	}
	_, err := fmt.Fprintf(w, "%s\n%d x %s, Linux %s, %s on %s, %s\n\n", time.Now().Format(time.RFC1123),
		runtime.NumCPU(), processor(), unix.ByteSliceToString(kernel.Release[:]), dir, fileSystem(int64(disk.Type)), runtime.Version())
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
