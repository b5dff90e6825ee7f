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

	"github.com/ipamd/ipamd/api"
)

// failedRemoval is the other half of the incident: a release before a removal that then
// fails.
func (s *story) failedRemoval() {
	s.step("A removal that fails")
	s.say("beta's shim is stopped (SIGSTOP), so containerd cannot end the container. A careless")
	s.say("runtime releases the lease all the same, before the removal:")
	s.must(signalShim("beta", syscall.SIGSTOP))
	id := s.whois(kept).Lease.ID
	s.show("ipamctl", "release", id)
	s.fails("timeout", "2", "sandbox", "rm", "beta")
	s.show("ipamctl", "show", id)
	now := got[*api.LeaseReply](s)(s.client.Lease(context.Background(), id))
	blocked := slices.ContainsFunc(now.Blockers, func(b api.Blocker) bool { return b.Kind == "container" && strings.Contains(b.Detail, "beta") })
	s.check(now.Lease.State == api.Releasing && blocked, "%s is releasing, and blocked by the container beta", kept)
}

// keptBack asks for all that is left, and for one more.
func (s *story) keptBack() {
	s.step("Its address is not handed out")
	s.show("sandbox", "run", "echo")
	s.owns("echo", "10.8.64.6")
	s.say("That was the last of the five. The pool is exhausted, and does not give beta's:")
	s.fails("sandbox", "run", "foxtrot")
}

// confirmed has the removal succeed.
func (s *story) confirmed() {
	s.step("The shim continues, and the removal is confirmed")
	s.must(signalShim("beta", syscall.SIGCONT))
	s.show("sandbox", "rm", "beta")
	s.eventually(func() bool { return s.whois(kept).State == api.Cooling },
		"%s cools, now that containerd and the kernel both confirm that beta is gone", kept)
	s.show("ipamctl", "history", kept)
}

// withoutContainerd kills containerd under live sandboxes.
func (s *story) withoutContainerd() {
	s.step("containerd is killed under live sandboxes")
	before := s.leases()
	unchanged := func(claim string) {
		s.check(slices.EqualFunc(before, s.leases(), func(a, b api.Lease) bool {
			return a.ID == b.ID && a.State == b.State && a.Revision == b.Revision
		}), "%s", claim)
	}
	s.must(s.containerd.kill())
	s.eventually(func() bool { return len(s.status().Silent) == 1 }, "the runtime witness is silent")
	s.say("A pass that cannot ask every witness reports that by its exit code too:")
	s.fails("ipamctl", "reconcile")
	unchanged("a pass without containerd frees nothing: no answer is not \"not there\"")
	who := s.whois(lost)
	s.check(who.Owner == "alpha" && seenBy(who, "netns", ""), "the kernel still sees alpha with %s", lost)
	s.say("containerd is started again.")
	s.startContainerd()
	s.eventually(func() bool { return len(s.status().Silent) == 0 }, "the runtime witness answers again")
	s.show("ipamctl", "reconcile")
	unchanged("nor does the first pass after its return")
}

// signalShim signals the process that stands between containerd and a container.
func signalShim(container string, signal syscall.Signal) error {
	all, err := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, path := range all {
		line, _ := os.ReadFile(path) // the process may have ended
		args := strings.Split(string(line), "\x00")
		i := slices.Index(args, "-id")
		if strings.Contains(args[0], "containerd-shim") && i > 0 && i+1 < len(args) && args[i+1] == container {
			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			if err != nil {
				return err
			}
			return syscall.Kill(pid, signal)
		}
	}
	return fmt.Errorf("the shim of %s is not there: %w", container, err)
}
