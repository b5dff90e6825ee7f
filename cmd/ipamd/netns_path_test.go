package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/config"
	"github.com/ipamd/ipamd/internal/nstest"
	"github.com/ipamd/ipamd/internal/realtest"
)

// G13: a bind names network namespaces where those are, and nothing else that root
// might open; and leases whose namespaces lie on a file system that hangs keep
// no other's release from being confirmed. Theirs waits, with the reason.
func TestG13NetnsPathsOfBinds(t *testing.T) {
	t.Parallel()
	stuck := filepath.Join(t.TempDir(), "stuck")
	answer := nstest.Hang(t, stuck)
	w := newWorld(t, quick, func(c *config.Config) {
		c.Bridge.Netns = []string{stuck}
		c.Watchdog.Parallel, c.Watchdog.Timeout = 4, config.Duration(300*time.Millisecond)
	})
	t.Cleanup(answer) // before the daemon stops
	bind := func(sandbox string, where api.BindRequest) (api.Lease, error) {
		l := w.allocate(sandbox).Leases[0]
		_, err := w.client.Bind(ctx, l.ID, where)
		return l, err
	}
	for _, path := range []string{"/dev/watchdog", "/proc/1/root/dev/null", filepath.Join(t.TempDir(), "x"), "/run/netns/../../dev/null"} {
		var refused *api.Error
		if l, err := bind("wrong", api.BindRequest{Netns: path}); !errors.As(err, &refused) || refused.Code != api.InvalidArgument || refused.Details["field"] != "netns" ||
			!strings.Contains(err.Error(), "/run/netns") {
			t.Errorf("%s: %v", path, err)
		} else if now, err := w.client.Lease(ctx, l.ID); err != nil || now.Lease.State != api.Reserved {
			t.Errorf("%s is recorded: %+v, %v", path, now, err)
		}
	}
	var waiting []api.Lease
	for i := range 12 {
		l, err := bind(fmt.Sprint("hangs", i), api.BindRequest{Netns: filepath.Join(stuck, fmt.Sprint(i))})
		if err != nil {
			t.Fatal(err)
		}
		waiting = append(waiting, l)
		if _, err := w.client.Release(ctx, l.ID, api.ReleaseRequest{}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 3 {
		port := w.ns.Port("rt0")
		l, err := bind(fmt.Sprint("other", i), api.BindRequest{Netns: port.NS.Path(), HostInterface: port.HostName, MAC: port.MAC.String()})
		if err != nil {
			t.Fatal(err)
		}
		w.ns.Exec("ip", "link", "del", port.HostName)
		if r, err := w.client.Release(ctx, l.ID, api.ReleaseRequest{Wait: "60s"}); err != nil || !cools(r.Lease) {
			t.Fatalf("beside looks that hang: %+v, %v", r, err)
		}
	}
	for _, l := range waiting {
		if now, err := w.client.Lease(ctx, l.ID); err != nil || now.Lease.State != api.Releasing || len(now.Blockers) == 0 {
			t.Errorf("a lease whose namespace cannot be looked at: %+v, %v", now, err)
		}
	}
	answer()
	realtest.Eventually(t, wait, "the error of a file system that answers is reported", func() bool {
		now, err := w.client.Lease(ctx, waiting[0].ID)
		return err == nil && len(now.Blockers) > 0 && !strings.Contains(now.Blockers[0].Detail, "has not come back")
	})
}

// G13, F21: every bind that is accepted can be confirmed to be gone. A symbolic link to
// a namespace leads nowhere once that is gone, one to elsewhere is refused, and a path
// whose folder is configured no longer is confirmed when it is configured again, as its
// blocker says.
func TestG13EveryNamespaceOfABindCanBeConfirmed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	w := newWorld(t, quick, func(c *config.Config) { c.Bridge.Netns = []string{dir} })
	port := w.ns.Port("rt0")
	inside := exec.Command("ip", "netns", "exec", port.NS.Name(), "sleep", "600")
	inside.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := inside.Start(); err != nil {
		t.Fatal(err)
	}
	end := sync.OnceFunc(func() { _ = inside.Process.Kill(); _ = inside.Wait() })
	t.Cleanup(end)
	process := fmt.Sprintf("/proc/%d/ns/net", inside.Process.Pid)
	realtest.Eventually(t, wait, "the process to be inside", func() bool {
		got, err := w.program.bridge.Plugged(ctx, "", time.Time{}, process, 0)
		return err == nil && len(got) == 1
	})
	bind := func(name, target string) (api.Lease, error) {
		t.Helper()
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
		l := w.allocate(name).Leases[0]
		_, err := w.client.Bind(ctx, l.ID, api.BindRequest{Netns: filepath.Join(dir, name)})
		return l, err
	}
	docker, err := bind("docker", process)
	if err != nil {
		t.Fatal(err)
	}
	var refused *api.Error
	if l, err := bind("elsewhere", "/dev/watchdog"); !errors.As(err, &refused) || refused.Code != api.InvalidArgument || refused.Details["field"] != "netns" ||
		!strings.Contains(err.Error(), "symbolic link") {
		t.Errorf("a link to elsewhere: %v", err)
	} else if _, err := w.client.Quarantine(ctx, "10.8.64.99", "to adopt"); err != nil {
		t.Error(err)
	} else if _, err := w.client.Adopt(ctx, "10.8.64.99", api.AdoptRequest{Sandbox: "adopted", Reason: "it is ours", Netns: filepath.Join(dir, "elsewhere")}); !errors.As(err, &refused) ||
		refused.Details["field"] != "netns" {
		t.Errorf("adopted with a link to elsewhere: %v", err)
	} else if now, err := w.client.Lease(ctx, l.ID); err != nil || now.Lease.State != api.Reserved || now.Lease.Netns != "" {
		t.Errorf("it is recorded: %+v, %v", now, err)
	}
	if _, err := w.client.Release(ctx, docker.ID, api.ReleaseRequest{}); err != nil {
		t.Fatal(err)
	}
	blocked := func(words string) {
		t.Helper()
		realtest.Eventually(t, wait, "a blocker with "+words, func() bool {
			now, err := w.client.Lease(ctx, docker.ID)
			return err == nil && slices.ContainsFunc(now.Blockers, func(b api.Blocker) bool { return b.Kind == "port" && strings.Contains(b.Detail, words) })
		})
	}
	blocked(port.HostName + " is a port of rt0 and leads into " + filepath.Join(dir, "docker"))

	w.stopDaemon()
	w.cfg.Bridge.Netns = nil
	w.start()
	end()
	port.Close()
	blocked("another folder is added to bridge.netns")
	w.stopDaemon()
	w.cfg.Bridge.Netns = []string{dir}
	w.start()
	w.gone(docker) // the link dangles
}
