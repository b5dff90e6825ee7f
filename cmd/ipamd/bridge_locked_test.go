package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/client"
	"github.com/ipamd/ipamd/config"
	"github.com/ipamd/ipamd/internal/nstest"
	"github.com/ipamd/ipamd/internal/realtest"
)

// anotherDaemon starts a second ipamd, a process of its own, with a bridge and a pool on it, and returns
// it once it is ready.
func anotherDaemon(t *testing.T, ns *nstest.NS, bridge, pool string) *process {
	t.Helper()
	dir, err := os.MkdirTemp("", "second-") // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket := filepath.Join(dir, "s")
	conf := confFile(t, fmt.Sprintf("[book]\npath = '%s'\n[socket]\npath = '%s'\ngroup = ''\n[bridge]\nname = '%s'\n[runtime]\nkind = 'none'\n"+
		"[[pool]]\nname = 'default'\nprefix = '%s'\n", filepath.Join(dir, "book.db"), socket, bridge, pool))
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := start(t, dir, []string{"ip", "netns", "exec", ns.Name(), self, "run", "--config", conf})
	c := &client.Client{Socket: socket}
	defer c.CloseIdleConnections()
	realtest.Eventually(t, within, "the second daemon to be ready", func() bool {
		select {
		case <-p.done:
			t.Fatalf("it ended: %s", p.err.String())
		default:
		}
		_, err := c.Ready(ctx)
		return err == nil
	})
	return p
}

// Another ipamd has the lock of one pool's bridge when the daemon starts. The daemon starts: the pool
// on its own bridge gives and confirms its releases, however many releases wait on the other bridge.
// The pool on that one gives nothing, names the process in each answer, and no lease of it is
// confirmed to be gone. Once that process has ended, the pool gives by itself.
func TestABridgeThatAnotherProcessHas(t *testing.T) {
	t.Parallel()
	w := prepare(t, quick, func(c *config.Config) {
		c.Bridge.Refresh = config.Duration(200 * time.Millisecond)
		c.Pools = append(c.Pools, config.Pool{Name: "other", Prefix: "10.9.0.0/24", Bridge: "br9"})
	})
	w.ns.Bridge("rt0", "10.8.64.1/24")
	w.ns.Bridge("br9", "10.9.0.1/24")
	w.start()
	bound := func(sandbox, pool string) api.Lease {
		t.Helper()
		r, err := w.client.Allocate(ctx, api.AllocateRequest{Sandbox: sandbox, Pool: pool})
		if err != nil {
			t.Fatal(err)
		}
		b, err := w.client.Bind(ctx, r.Leases[0].ID, api.BindRequest{MAC: "02:00:00:00:00:01"})
		if err != nil {
			t.Fatal(err)
		}
		return b.Lease
	}
	ours := bound("a", "default")
	var theirs []api.Lease
	for i := range 20 {
		theirs = append(theirs, bound(fmt.Sprint("b", i), "other"))
	}
	w.stopDaemon()

	second := anotherDaemon(t, w.ns, "br9", "10.9.0.0/24")
	pid := fmt.Sprintf("pid %d", second.cmd.Process.Pid)
	w.start()

	_, err := w.client.Allocate(ctx, api.AllocateRequest{Sandbox: "c", Pool: "other"})
	var refused *api.Error
	if !errors.Is(err, client.ErrBridgeNotReady) || !errors.As(err, &refused) || refused.Details["bridge"] != "br9" || !strings.Contains(refused.Message, pid) {
		t.Errorf("the pool on the bridge of another process: %v, want %s", err, pid)
	}
	if _, err := w.client.Allocate(ctx, api.AllocateRequest{Sandbox: "c"}); err != nil {
		t.Errorf("the pool on the daemon's own bridge: %v", err)
	}
	if _, err := w.client.Ready(ctx); err != nil {
		t.Error(err)
	}
	if p, err := w.client.Pool(ctx, "other"); err != nil || !strings.Contains(p.Pools[0].NotReady, pid) {
		t.Errorf("the pool: %+v, %v", p, err)
	}
	s, err := w.client.Status(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Bridges) != 2 || !s.Bridges[0].Ready || s.Bridges[1].Name != "br9" || s.Bridges[1].Ready || !strings.Contains(s.Bridges[1].Reason, pid) {
		t.Errorf("status: %+v", s.Bridges)
	}
	d, err := w.client.Doctor(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{"bridge_not_ready", "pool_not_ready"} {
		if !slices.ContainsFunc(d.Findings, func(f api.Finding) bool {
			return f.Kind == kind && strings.Contains(f.Detail, pid) && !f.Since.IsZero()
		}) {
			t.Errorf("doctor has no %s that names %s: %+v", kind, pid, d.Findings)
		}
	}
	if got := w.metric(`bridge_ready{bridge="br9"}`) + w.metric(`bridge_ready{bridge="rt0"}`); got != "01" {
		t.Errorf("the metrics of both bridges are %s", got)
	}

	for _, l := range append(slices.Clone(theirs), ours) {
		if _, err := w.client.Release(ctx, l.ID, api.ReleaseRequest{}); err != nil {
			t.Fatal(err)
		}
	}
	realtest.Eventually(t, wait, "the release on rt0 to be confirmed", func() bool { s := w.state(ours.Address); return s == api.Cooling || s == api.Free })
	for _, l := range theirs {
		if s := w.state(l.Address); s != api.Releasing {
			t.Errorf("%s, on the bridge of another process, is %s", l.Address, s)
		}
	}

	second.signal(os.Interrupt)
	second.code()
	realtest.Eventually(t, wait, "the pool on br9 to give", func() bool {
		_, err := w.client.Allocate(ctx, api.AllocateRequest{Sandbox: "c", Pool: "other"})
		return err == nil
	})
	realtest.Eventually(t, wait, "the releases on br9 to be confirmed", func() bool {
		return !slices.ContainsFunc(theirs, func(l api.Lease) bool { return w.state(l.Address) == api.Releasing })
	})
	if s, err := w.client.Status(ctx); err != nil || len(s.Silent) != 0 {
		t.Errorf("%+v, %v", s, err)
	}

	// A pool comes, and changes, whose bridge another process has. The answer says so, and does not wait
	// for that process.
	w.ns.Bridge("br7", "10.7.0.1/24")
	second = anotherDaemon(t, w.ns, "br7", "10.7.0.0/24")
	pid = fmt.Sprintf("pid %d", second.cmd.Process.Pid)
	bits := 24
	realtest.InTime(t, 900*time.Millisecond, "a change of a pool whose bridge another process has", func() time.Duration {
		began := time.Now()
		applied, err := w.client.ApplyPool(ctx, "third", api.PoolRequest{Prefix: fmt.Sprintf("10.7.0.0/%d", bits), Bridge: "br7"})
		if err != nil || !strings.Contains(applied.Pool.NotReady, pid) {
			t.Errorf("a pool on the bridge of another process: %+v, %v", applied, err)
		}
		bits = 49 - bits
		return time.Since(began)
	})
	second.signal(os.Interrupt)
	second.code()
	realtest.Eventually(t, wait, "the pool on br7 to give", func() bool {
		_, err := w.client.Allocate(ctx, api.AllocateRequest{Sandbox: "d", Pool: "third"})
		return err == nil
	})
}
