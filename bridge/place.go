package bridge

import (
	"fmt"
	"os"
	"runtime"
	"strings"

	"github.com/vishvananda/netns"
)

// A place is the network namespace that everything here opens in. Holding it
// keeps the namespace, so a socket opened again lands in the same one.
type place struct{ ns netns.NsHandle }

// openPlace finds a namespace by its path; "" is the process's own.
func openPlace(path string) (place, error) {
	if path == "" {
		return place{netns.None()}, nil
	}
	ns, err := netns.GetFromPath(path)
	if err != nil {
		return place{netns.None()}, fmt.Errorf("open network namespace %s: %w", path, err)
	}
	return place{ns}, nil
}

// do calls f on a thread inside the namespace.
func (p place) do(f func() error) error {
	if !p.ns.IsOpen() {
		return f()
	}
	runtime.LockOSThread()
	home, err := netns.Get()
	if err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("find the thread's network namespace: %w", err)
	}
	defer home.Close()
	if err := netns.Set(p.ns); err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("enter network namespace: %w", err)
	}
	err = f()
	if back := netns.Set(home); back != nil {
		// The thread stays locked, so nobody else ever runs in the wrong
		// namespace.
		return fmt.Errorf("leave network namespace: %w", back)
	}
	runtime.UnlockOSThread()
	return err
}

// setSysctl writes a value under /proc/sys, whose net part belongs to the
// namespace of the calling thread, unless it is there already.
func setSysctl(name, value string) error {
	file := "/proc/sys/" + name
	now, err := os.ReadFile(file)
	if err == nil && strings.TrimSpace(string(now)) != value {
		err = os.WriteFile(file, []byte(value), 0)
	}
	if err != nil {
		return fmt.Errorf("set sysctl %s to %s: %w", name, value, err)
	}
	return nil
}

func (p place) close() {
	if p.ns.IsOpen() {
		_ = p.ns.Close()
	}
}
