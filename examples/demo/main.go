// Command demo runs ipamd as a sandbox runner would have it, with a real
// containerd and real containers, and replays the incident that ipamd is made
// against. It checks every claim that it prints, and ends with an error at the
// first that does not hold.
//
// Nothing on the host is touched: all of it lives in network, mount and
// process namespaces of its own, and every file in memory, so all of it ends
// with the first process inside. The cgroups of the containers are the one
// thing that does not; they are removed here, and by the next demo should this
// one be killed.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"
	"time"
)

// limit is how long the whole demo may take, on a machine that has as much else
// to do.
const limit = 5 * time.Minute

func main() {
	if len(os.Args) == 4 && os.Args[1] == insideVerb {
		inside(os.Args[2], os.Args[3])
		return
	}
	os.Exit(outside())
}

// outside starts the first process of the new namespaces, waits for its end,
// and clears up. It returns the exit code.
func outside() int {
	if os.Geteuid() != 0 {
		fmt.Fprintln(os.Stderr, "demo: run this as root: it makes namespaces and containers")
		return 1
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), limit, fmt.Errorf("not done within %v", limit))
	defer cancel()
	ctx, interrupt := context.WithCancelCause(ctx)
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	go func() {
		if s, ok := (<-stop).(syscall.Signal); ok {
			interrupt(interrupted(s))
		}
	}()

	if err := sweepCgroups(); err != nil {
		fmt.Fprintf(os.Stderr, "demo: an earlier one was killed and left: %v\n", err)
	}
	cgroup := cgroupOf(os.Getpid())
	err := runInside(ctx, cgroup)
	if cut := context.Cause(ctx); cut != nil {
		err = cut
	}
	if err = errors.Join(err, removeCgroups(cgroup)); err == nil {
		return 0
	}
	fmt.Fprintf(os.Stderr, "demo: %v\n", err)
	if by := interrupted(0); errors.As(err, &by) {
		return 128 + int(by)
	}
	return 1
}

// interrupted is the end by a signal.
type interrupted syscall.Signal

func (s interrupted) Error() string { return "interrupted: " + syscall.Signal(s).String() }

// runInside runs this program again as the first process of its namespaces.
// Once that has ended no process of theirs is left: the kernel kills them all
// and waits for each.
func runInside(ctx context.Context, cgroup string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	// Should this process be killed before it can clear up, the kernel kills
	// the other; it watches the thread that started it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd := exec.CommandContext(ctx, self, insideVerb, filepath.Dir(self), cgroup)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.Cancel = func() error {
		defer thaw(cgroup)
		return cmd.Process.Kill()
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWNET,
		Pdeathsig:  syscall.SIGKILL,
		Setpgid:    true, // Ctrl-C at the terminal is for us alone
	}
	err = cmd.Run()
	if ended := new(exec.ExitError); errors.As(err, &ended) && ended.Exited() {
		return errors.New("a check failed; see above")
	}
	return err
}
