package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/client"
	"github.com/ipamd/ipamd/internal/nstest"
	"github.com/ipamd/ipamd/internal/realtest"
)

// stopTime is what a stop may take under load: then systemd kills the daemon
// (TimeoutStopSec).
const stopTime = 20 * time.Second

// An answer is the last one that a client had about one sandbox.
type answer struct {
	sandbox string
	lease   api.Lease
	open    error // of the last call, when no answer came
	verb    string
}

// A stop under load: 64 clients allocate, bind and release while SIGTERM
// comes. The daemon ends in time, every answer is in the book, and what
// got none was not done: no call is cut in the middle. A stopped daemon leaves
// one file, without a log to recover from, and the next one can start at once.
func TestStopUnderLoad(t *testing.T) {
	realtest.Need(t, "ip")
	realtest.Root(t)
	ns := nstest.New(t)
	ns.Bridge("rt0", "10.8.0.1/16")
	dir, err := os.MkdirTemp("", "stop-") // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	book, socket := filepath.Join(dir, "book.db"), filepath.Join(dir, "s")
	config := confFile(t, fmt.Sprintf("[book]\npath = '%s'\n[socket]\npath = '%s'\ngroup = ''\ndeadline = '1m'\n[runtime]\nkind = 'none'\n"+
		"[[pool]]\nname = 'default'\nprefix = '10.8.0.0/16'\n", book, socket))
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	run := func() *process {
		return start(t, dir, []string{"ip", "netns", "exec", ns.Name(), self, "run", "--config", config})
	}
	ready := func(p *process) {
		t.Helper()
		c := &client.Client{Socket: socket}
		defer c.CloseIdleConnections()
		realtest.Eventually(t, within, "the daemon to be ready", func() bool {
			select {
			case <-p.done:
				t.Fatalf("it ended: %s", p.err.String())
			default:
			}
			_, err := c.Ready(ctx)
			return err == nil
		})
	}
	leases := make(map[string]answer)
	for round := range 3 {
		p := run()
		ready(p)
		var answered atomic.Int64
		var clients sync.WaitGroup
		results := make([][]answer, 64)
		for i := range results {
			clients.Go(func() { results[i] = mutate(socket, fmt.Sprintf("r%d-c%d", round, i), &answered) })
		}
		realtest.Eventually(t, 3*within, "the load to run", func() bool { return answered.Load() > 10*int64(len(results)) })
		began := time.Now()
		p.signal(syscall.SIGTERM)
		realtest.Eventually(t, stopTime, "the daemon to end", func() bool {
			select {
			case <-p.done:
				return true
			default:
				return false
			}
		})
		t.Logf("stopped after %v, with %d answers", time.Since(began).Round(time.Millisecond), answered.Load())
		code := p.code()
		clients.Wait()
		if code != exitOK {
			t.Errorf("exit code %d: %s", code, p.err.String())
		}
		for _, left := range []string{book + "-wal", book + "-shm", socket} {
			if _, err := os.Lstat(left); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("%s is left: %v", left, err)
			}
		}
		if code, out, stderr := ipamd(t, "check", book); code != exitOK {
			t.Errorf("check: exit code %d, %s%s", code, out, stderr)
		}
		for _, all := range results {
			for _, one := range all {
				leases[one.sandbox] = one
			}
		}
		// The next one finds what was answered.
		next := run()
		ready(next)
		compare(t, socket, leases)
		next.signal(syscall.SIGTERM)
		if code := next.code(); code != exitOK {
			t.Errorf("the next one's exit code is %d: %s", code, next.err.String())
		}
	}
}

// mutate allocates, binds and releases for one sandbox after another until the
// daemon does not answer any more.
func mutate(socket, name string, answered *atomic.Int64) (all []answer) {
	c := &client.Client{Socket: socket}
	defer c.CloseIdleConnections()
	for n := 0; ; n++ {
		one := answer{sandbox: fmt.Sprint(name, "-", n)}
		for _, one.verb = range []string{"allocate", "bind", "release"} {
			var reply *api.LeaseReply
			switch one.verb {
			case "allocate":
				var r *api.AllocateReply
				if r, one.open = c.Allocate(ctx, api.AllocateRequest{Sandbox: one.sandbox}); one.open == nil {
					one.lease = r.Leases[0]
				}
			case "bind":
				reply, one.open = c.Bind(ctx, one.lease.ID, api.BindRequest{MAC: "02:00:00:00:00:01"})
			case "release":
				if n%2 == 0 {
					continue // every second one keeps its lease
				}
				reply, one.open = c.Release(ctx, one.lease.ID, api.ReleaseRequest{})
			}
			if one.open != nil {
				return append(all, one)
			}
			if reply != nil {
				one.lease = reply.Lease
			}
			answered.Add(1)
		}
		all = append(all, one)
	}
}

// compare holds what clients were answered against what the daemon knows.
func compare(t *testing.T, socket string, all map[string]answer) {
	t.Helper()
	c := &client.Client{Socket: socket}
	defer c.CloseIdleConnections()
	list, err := c.Leases(ctx, client.LeaseFilter{})
	if err != nil {
		t.Fatal(err)
	}
	now := make(map[string]api.Lease)
	for _, l := range list.Leases {
		now[l.Sandbox] = l
	}
	wrong := 0
	for name, one := range all {
		l, there := now[name]
		was := one.lease.State // as it was last answered; what a call without an answer would have made of it counts as done
		ended := was == api.Releasing || was == api.Cooling
		switch {
		case ended && (!there || l.State == api.Releasing || l.State == api.Cooling):
		case !ended && there == (was != "") && (!there || l.ID == one.lease.ID && l.State == was && l.Revision == one.lease.Revision):
		default:
			if wrong++; wrong <= 5 {
				t.Errorf("%s was answered %q (revision %d), then %s: %v; the book says %+v", name, was, one.lease.Revision, one.verb, one.open, l)
			}
		}
	}
	if wrong > 0 {
		t.Errorf("%d of %d sandboxes were answered otherwise", wrong, len(all))
	}
}
