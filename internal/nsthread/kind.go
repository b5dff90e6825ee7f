package nsthread

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// IsNetns reports whether an open file is a network namespace. A file that is no namespace at all is
// an error. No file system is asked, only the kernel.
func IsNetns(fd int) (bool, error) {
	kind, err := unix.IoctlRetInt(fd, unix.NS_GET_NSTYPE)
	return err == nil && kind == unix.CLONE_NEWNET, err
}

// IsOwn reports whether an open file is the network namespace of the thread that asks.
func IsOwn(fd int) (bool, error) {
	var own, its unix.Stat_t
	if err := unix.Stat("/proc/thread-self/ns/net", &own); err != nil {
		return false, fmt.Errorf("look up the own network namespace: %w", err)
	}
	if err := unix.Fstat(fd, &its); err != nil {
		return false, fmt.Errorf("look at a network namespace: %w", err)
	}
	return own.Dev == its.Dev && own.Ino == its.Ino, nil
}
