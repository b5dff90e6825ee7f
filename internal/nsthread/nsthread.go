// Package nsthread calls functions in other network namespaces, and says whether a file is one. A namespace is a property of a
// thread: the thread is kept from other goroutines meanwhile, and one that cannot go back ends
// with its goroutine.
package nsthread

import (
	"errors"
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

// In calls f on a thread in the network namespace that ns is an open file of. What f opens there
// stays there; goroutines that f starts do not run there. An error is f's or, where f may not have
// been called, that of entering or leaving.
func In(ns int, f func() error) error {
	return on(func() error { return unix.Setns(ns, unix.CLONE_NEWNET) }, f)
}

// InNew is [In] of a new network namespace, which ends with f unless f holds on to it.
func InNew(f func() error) error {
	return on(func() error { return unix.Unshare(unix.CLONE_NEWNET) }, f)
}

func on(enter, f func() error) error {
	runtime.LockOSThread()
	home, err := unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("find the thread's network namespace: %w", err)
	}
	defer unix.Close(home)
	if err := enter(); err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("enter network namespace: %w", err)
	}
	err = f()
	if back := unix.Setns(home, unix.CLONE_NEWNET); back != nil {
		// The thread stays locked, so that no goroutine ever runs in the wrong namespace.
		return errors.Join(err, fmt.Errorf("leave network namespace: %w", back))
	}
	runtime.UnlockOSThread()
	return err
}
