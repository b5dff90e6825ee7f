package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/client"
)

// kept is the address that a removal which fails has to keep: beta's.
const kept = "10.8.64.3"

// failedRemoval is the other half of the incident: the predecessor released
// the address before the removal, and kept it released when that failed.
func (s *story) failedRemoval(ctx context.Context) error {
	s.title("A removal that fails")
	s.say("beta's shim is stopped (SIGSTOP), so containerd cannot end the container. A careless")
	s.say("runtime lets the lease go all the same, before the removal:")
	shim, err := shimOf("beta")
	if err != nil {
		return err
	}
	if err := syscall.Kill(shim, syscall.SIGSTOP); err != nil {
		return fmt.Errorf("stop the shim of beta: %w", err)
	}
	who, err := s.ask.Whois(ctx, kept)
	if err != nil {
		return err
	}
	if err := s.show(ctx, "ipamctl", "release", who.Lease.ID); err != nil {
		return err
	}
	if err := s.refused(ctx, "timeout", "2", "sandbox", "rm", "beta"); err != nil {
		return err
	}
	if err := s.show(ctx, "ipamctl", "show", who.Lease.ID); err != nil {
		return err
	}
	now, err := s.ask.Lease(ctx, who.Lease.ID)
	if err != nil {
		return err
	}
	blocked := slices.ContainsFunc(now.Blockers, func(b api.Blocker) bool { return b.Kind == "container" && strings.Contains(b.Detail, "beta") })
	return s.holds(now.Lease.State == api.Releasing && blocked, "%s is releasing, and what keeps it is the container beta", kept)
}

// refused shows a command that is to fail.
func (s *story) refused(ctx context.Context, command ...string) error {
	if _, err := s.run(ctx, command...); err == nil {
		return fmt.Errorf("this does not hold: %s fails", spell(command))
	}
	return s.holds(true, "that failed, as it had to")
}

// keptBack asks for all that is left, and for one more.
func (s *story) keptBack(ctx context.Context) error {
	s.title("Its address is not handed out")
	if _, err := s.run(ctx, "sandbox", "run", "echo"); err != nil {
		return err
	}
	if err := s.owns(ctx, "echo", "10.8.64.6"); err != nil {
		return err
	}
	s.say("That was the last of the five. The pool says so, and does not fall back on beta's:")
	return s.refused(ctx, "sandbox", "run", "foxtrot")
}

// confirmed lets the removal succeed.
func (s *story) confirmed(ctx context.Context) error {
	s.title("The shim goes on, and the removal is confirmed")
	shim, err := shimOf("beta")
	if err != nil {
		return err
	}
	if err := syscall.Kill(shim, syscall.SIGCONT); err != nil {
		return fmt.Errorf("let the shim of beta go on: %w", err)
	}
	if _, err := s.run(ctx, "sandbox", "rm", "beta"); err != nil {
		return err
	}
	var who *api.WhoisReply
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if who, err = s.ask.Whois(ctx, kept); err != nil {
			return err
		}
		if who.State == api.Cooling {
			break
		}
	}
	if err := s.holds(who.State == api.Cooling, "%s cools, now that containerd and the kernel both confirm that beta is gone", kept); err != nil {
		return err
	}
	return s.show(ctx, "ipamctl", "history", kept)
}

// withoutContainerd kills containerd under live sandboxes.
func (s *story) withoutContainerd(ctx context.Context) error {
	s.title("containerd is killed under live sandboxes")
	before, err := s.ask.Leases(ctx, client.LeaseFilter{})
	if err != nil {
		return err
	}
	if err := s.containerd.kill(); err != nil {
		return err
	}
	if err := s.until(ctx, "the runtime witness is silent", func(st *api.Status) bool { return len(st.Silent) == 1 }); err != nil {
		return err
	}
	s.say("A pass that cannot ask everybody says so by its exit code too:")
	if err := s.refused(ctx, "ipamctl", "reconcile"); err != nil {
		return err
	}
	if err := s.same(ctx, before, "a pass without containerd frees nothing: it could not ask, and that is not \"not there\""); err != nil {
		return err
	}
	who, err := s.ask.Whois(ctx, lost)
	if err != nil {
		return err
	}
	if err := s.holds(who.Owner == "alpha" && seenIn(who, "netns", ""), "the kernel still sees alpha with %s", lost); err != nil {
		return err
	}
	s.say("containerd is started again.")
	if err := s.startContainerd(ctx); err != nil {
		return err
	}
	if err := s.until(ctx, "the runtime witness answers again", func(st *api.Status) bool { return len(st.Silent) == 0 }); err != nil {
		return err
	}
	if _, err := s.run(ctx, "ipamctl", "reconcile"); err != nil {
		return err
	}
	return s.same(ctx, before, "nor does the first pass after its return")
}

// same checks that no lease changed.
func (s *story) same(ctx context.Context, before *api.LeaseList, claim string) error {
	after, err := s.ask.Leases(ctx, client.LeaseFilter{})
	if err != nil {
		return err
	}
	equal := slices.EqualFunc(before.Leases, after.Leases, func(a, b api.Lease) bool {
		return a.ID == b.ID && a.State == b.State && a.Revision == b.Revision
	})
	return s.holds(equal, "%s", claim)
}

// until waits for what the daemon says of itself.
func (s *story) until(ctx context.Context, claim string, ok func(*api.Status) bool) error {
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		status, err := s.ask.Status(ctx)
		if err != nil {
			return err
		}
		if ok(status) {
			return s.holds(true, "%s", claim)
		}
	}
	return s.holds(false, "%s", claim)
}

// kill ends a daemon as a crash would.
func (d *daemon) kill() error {
	if err := d.cmd.Process.Kill(); err != nil {
		return fmt.Errorf("kill %s: %w", d.name, err)
	}
	<-d.ended
	return nil
}

// shimOf finds the process that stands between containerd and a container.
func shimOf(container string) (pid int, err error) {
	all, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return 0, err
	}
	for _, path := range all {
		line, err := os.ReadFile(path)
		if err != nil {
			continue // it ended meanwhile
		}
		args := strings.Split(string(line), "\x00")
		at := slices.Index(args, "-id")
		if strings.Contains(args[0], "containerd-shim") && at > 0 && at+1 < len(args) && args[at+1] == container {
			return strconv.Atoi(filepath.Base(filepath.Dir(path)))
		}
	}
	return 0, fmt.Errorf("find the shim of %s: no such process", container)
}
