// Package devnet gives a program a network namespace of its own, under a name that
// keeps it when the program ends, so that what is plugged in there survives a restart.
package devnet

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"

	"golang.org/x/sys/unix"
)

// Enter starts this program over in the network namespace at path, as the same
// process: a namespace is a thread's, and exec leaves no other. A namespace that is not
// there is made, which needs root. The program is started with args, and with again
// behind them where the namespace was there. Enter returns only with an error.
func Enter(path string, args []string, again string) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find the program itself: %w", err)
	}
	runtime.LockOSThread() // to the end: this thread is no place for others
	args = append([]string{os.Args[0]}, args...)
	if err := enter(path); err == nil {
		args = append(args, again)
	} else if err := create(path); err != nil {
		return err
	}
	if err := unix.Exec(self, args, os.Environ()); err != nil {
		return fmt.Errorf("start over in the network namespace: %w", err)
	}
	return nil
}

// enter moves the thread into a network namespace that has a name.
func enter(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return unix.Setns(int(f.Fd()), unix.CLONE_NEWNET)
}

// create moves the thread into a new network namespace and gives it a name.
func create(path string) error {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("make a network namespace, which needs root: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		return err
	}
	if err := unix.Mount("/proc/thread-self/ns/net", path, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("name the network namespace %s: %w", path, err)
	}
	return nil
}

// InUse returns the name of a link that is up in this network namespace; "" where none
// is, not even lo, as in a new one.
func InUse() (link string, err error) {
	links, err := net.Interfaces()
	if err != nil {
		return "", fmt.Errorf("list the interfaces: %w", err)
	}
	for _, l := range links {
		if l.Flags&net.FlagUp != 0 {
			return l.Name, nil
		}
	}
	return "", nil
}
