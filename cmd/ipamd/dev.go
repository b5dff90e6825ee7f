package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"

	"github.com/ipamd/ipamd/config"
	"github.com/ipamd/ipamd/internal/logging"
	"golang.org/x/sys/unix"
)

// devDir holds a development daemon's book and socket, below the working
// directory.
const devDir = "run"

// devNetns names a development daemon's network namespace.
var devNetns = filepath.Join(devDir, "netns")

// devConfig is the defaults with a state of its own and a bridge of its own.
// Without a containerd only the kernel is asked.
func devConfig(dir string) (config.Config, error) {
	cfg := config.Default()
	cfg.Book.Path = filepath.Join(dir, "book.db")
	cfg.Socket.Path = filepath.Join(dir, "ipamd.sock")
	cfg.Socket.Group = ""
	cfg.Bridge.Manage = true
	if _, err := os.Stat(cfg.Runtime.Address); err != nil {
		cfg.Runtime.Kind = "none"
	}
	return cfg, cfg.Check()
}

// runDev runs a development daemon in the network namespace that was made for
// it.
func (c *command) runDev(ctx context.Context) error {
	if err := untouched(); err != nil && !c.again {
		return err
	}
	wd, err := os.Getwd()
	if err != nil {
		return fmt.Errorf("find the working directory: %w", err)
	}
	cfg, err := devConfig(filepath.Join(wd, devDir))
	if err != nil {
		return err
	}
	fmt.Fprintf(c.err, `a development daemon, in a network namespace of its own
  ask it:         ipamctl --socket %s status
  its network:    nsenter --net=%s ip address
  its book:       %s
  its runtime:    %s
  stop it:        Ctrl-C; its network and its book stay
  end them, too:  umount %[2]s; rm -r %[5]s
`, cfg.Socket.Path, filepath.Join(wd, devNetns), cfg.Book.Path, cfg.Runtime.Kind, filepath.Join(wd, devDir))
	queue, log := logging.NewQueue(logging.New(cfg.Log.Format, logging.Level(cfg.Log.Level), c.err, os.Getenv))
	defer queue.Close()
	return serve(ctx, newProgram(cfg, log, thisBuild()))
}

// untouched reports when this is not a new network namespace, where nothing is
// up yet, not even lo: a bridge is made and forwarding switched on here.
func untouched() error {
	links, err := net.Interfaces()
	if err != nil {
		return fmt.Errorf("list the interfaces: %w", err)
	}
	for _, l := range links {
		if l.Flags&net.FlagUp != 0 {
			return usageError{fmt.Errorf("this network namespace is in use: %s is up; --dev makes its own", l.Name)}
		}
	}
	return nil
}

// enterOwnNamespace starts this program over in the development daemon's network
// namespace, as the same process: a namespace is a thread's, and exec leaves no
// other. The first one makes it, under a name that keeps it when the daemon ends, so
// that ports survive a restart. It returns only with an error.
func enterOwnNamespace() error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find the program itself: %w", err)
	}
	runtime.LockOSThread() // to the end: this thread is no place for others
	args := []string{os.Args[0], "run", "--dev", "--inside"}
	if err := enter(devNetns); err == nil {
		args = append(args, "--again")
	} else if err := makeNetns(devNetns); err != nil {
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

// makeNetns moves the thread into a new network namespace and gives it a name.
func makeNetns(path string) error {
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
