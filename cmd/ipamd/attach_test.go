package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/client"
	"github.com/ipamd/ipamd/internal/nstest"
	"github.com/ipamd/ipamd/internal/realtest"
)

// helper starts `ipamd plumb` in the bridge's namespace.
func (w *world) helper() (p *process) {
	w.t.Helper()
	w.ns.Do(func() { p = launch(w.t, w.t.TempDir(), "plumb", "--socket", w.cfg.Socket.Path) })
	realtest.Eventually(w.t, wait, "the helper to ask for work", func() bool {
		s, err := w.client.Status(ctx)
		return err == nil && s.Plumb.Ready
	})
	return p
}

// killAgain starts a helper, and kills it and each that it starts after it, until stop, which
// says how many there were. A helper lives up to four times as long as the first took to ask
// for work, so that on a slow machine too most of them are killed at their work.
func (w *world) killAgain(first func() *process, args ...string) (stop func() int) {
	began := time.Now()
	p := first()
	life := 4 * time.Since(began)
	dir := w.t.TempDir()
	end, killed := make(chan struct{}), make(chan int)
	go func() {
		n := 0
		defer func() { killed <- n }()
		for {
			select {
			case <-end:
				return
			case <-time.After(rand.N(life)):
			}
			_ = p.cmd.Process.Kill()
			<-p.done
			n++
			w.ns.Do(func() { p = launch(w.t, dir, append(args, "--socket", w.cfg.Socket.Path)...) })
		}
	}()
	stop = sync.OnceValue(func() int { close(end); return <-killed })
	w.t.Cleanup(func() { stop() })
	return stop
}

func (w *world) rt0() string {
	return strings.TrimSpace(w.ns.Exec("ip", "-br", "link", "show", "type", "veth"))
}

// A virtual machine has a tap: the lease is bound by it, with the MAC that the machine is to take, and
// keeps its address until the tap has gone.
func TestM1AttachMakesATap(t *testing.T) {
	t.Parallel()
	w := newWorld(t, quick)
	w.helper()
	ports := func() string { return strings.TrimSpace(w.ns.Exec("ip", "-br", "link", "show", "master", "rt0")) }
	before := ports()
	given, err := w.client.Allocate(ctx, api.AllocateRequest{Sandbox: "vm", Attach: &api.AttachRequest{Tap: true}})
	if err != nil {
		t.Fatal(err)
	}
	l := given.Leases[0]
	if l.State != api.Bound || l.HostInterface == "" || l.HostIndex == 0 || l.Netns != "" || l.MAC != "0a:58:0a:08:40:02" || !strings.Contains(ports(), l.HostInterface) {
		t.Errorf("attached: %+v, on %s", l, ports())
	}
	if again, err := w.client.Attach(ctx, l.ID, api.AttachRequest{Tap: true}); err != nil || again.Lease.Revision != l.Revision {
		t.Errorf("again: %+v, %v", again, err)
	}
	guest := nstest.New(t)
	for name, wrong := range map[string]api.AttachRequest{"both": {Tap: true, Netns: guest.Path()}, "a pair in its place": {Netns: guest.Path()}} {
		if _, err := w.client.Attach(ctx, l.ID, wrong); !errors.Is(err, client.ErrInvalidArgument) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := w.client.Release(ctx, l.ID, api.ReleaseRequest{}); err != nil {
		t.Fatal(err)
	}
	w.pass()
	if r, err := w.client.Lease(ctx, l.ID); err != nil || r.Lease.State != api.Releasing {
		t.Errorf("while the tap is there: %+v, %v", r, err)
	}
	if _, err := w.client.Detach(ctx, l.ID, api.DetachRequest{}); err != nil {
		t.Fatal(err)
	}
	realtest.Eventually(t, wait, "the lease to end", func() bool {
		r, err := w.client.Lease(ctx, l.ID)
		return err != nil || r.Lease.State == api.Cooling
	})
	if after := ports(); after != before {
		t.Errorf("left %s", after)
	}

	pair := w.allocate("pair").Leases[0]
	if _, err := w.client.Attach(ctx, pair.ID, api.AttachRequest{Netns: guest.Path()}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.client.Attach(ctx, pair.ID, api.AttachRequest{Tap: true}); !errors.Is(err, client.ErrInvalidArgument) {
		t.Errorf("a tap beside a namespace: %v", err)
	}
}

// M1: the bind is what was plumbed, again is the same, what is asked wrongly names its
// field and leaves nothing, and a detach leaves nothing.
func TestM1AttachBindsWhatWasPlumbed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.helper()
	other := w.ns.Port("rt0") // has an eth0 already
	before := w.rt0()
	given := w.allocate("a").Leases[0]
	for _, wrong := range []string{"", "netns", "/etc/passwd", "/run/netns/none-such", w.ns.Path(), other.NS.Path()} {
		_, err := w.client.Attach(ctx, given.ID, api.AttachRequest{Netns: wrong})
		refused := new(api.Error)
		if !errors.As(err, &refused) || refused.Code != api.InvalidArgument || !strings.HasPrefix(refused.Message, "netns: ") {
			t.Errorf("attach in %q: %v", wrong, err)
		}
		if after := w.rt0(); after != before {
			t.Errorf("attach in %q left %s", wrong, after)
		}
	}
	if l, err := w.client.Lease(ctx, given.ID); err != nil || l.Lease.State != api.Reserved || l.Lease.Netns != "" {
		t.Errorf("after what was refused: %+v %v", l, err)
	}

	guest := nstest.New(t)
	ask := api.AttachRequest{Netns: guest.Path(), MAC: "02:00:00:00:00:17"}
	reply, err := w.client.Attach(ctx, given.ID, ask)
	if err != nil {
		t.Fatal(err)
	}
	l := reply.Lease
	if l.State != api.Bound || l.Netns != guest.Path() || l.MAC != ask.MAC || l.NetnsInode == 0 || l.HostIndex == 0 ||
		!strings.Contains(w.rt0(), l.HostInterface) || l.Reason != "attached" {
		t.Errorf("attached: %+v", l)
	}
	w.ns.Do(func() {
		c, err := net.DialTimeout("tcp", net.JoinHostPort(l.Address, "9"), wait)
		if err == nil {
			c.Close()
		}
		if !errors.Is(err, unix.ECONNREFUSED) {
			t.Errorf("the sandbox does not answer: %v", err)
		}
	})
	again, err := w.client.Attach(ctx, given.ID, ask)
	if err != nil || again.Lease.Revision != l.Revision || again.Lease.HostIndex != l.HostIndex {
		t.Errorf("attached again: %+v %v", again, err)
	}
	// In use, it is not taken to another namespace, nor away because of that.
	if _, err := w.client.Attach(ctx, given.ID, api.AttachRequest{Netns: nstest.New(t).Path()}); !errors.Is(err, client.ErrInvalidArgument) {
		t.Errorf("attached elsewhere: %v", err)
	}
	if !strings.Contains(w.rt0(), l.HostInterface) {
		t.Error("the port is gone")
	}
	for range 2 {
		if _, err := w.client.Detach(ctx, given.ID, api.DetachRequest{}); err != nil {
			t.Error(err)
		}
	}
	if after := w.rt0(); after != before {
		t.Errorf("detach left %s", after)
	}
	released, err := w.client.Release(ctx, given.ID, api.ReleaseRequest{Wait: api.Lasting(wait)})
	if err != nil || len(released.Blockers) > 0 {
		t.Errorf("released: %+v %v", released, err)
	}

	// A port that a runtime made itself is not ours to take away.
	own := w.allocate("b").Leases[0]
	if _, err := w.client.Bind(ctx, own.ID, api.BindRequest{HostInterface: other.HostName, Netns: other.NS.Path()}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.client.Detach(ctx, own.ID, api.DetachRequest{}); !errors.Is(err, client.ErrStateNotAllowed) {
		t.Errorf("detached another's port: %v", err)
	}
	if after := w.rt0(); after != before {
		t.Errorf("links %s, before %s", after, before)
	}
}

// M1: one call from nothing to a sandbox that is plugged in, or nothing.
func TestM1AllocateAttaches(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	guest := nstest.New(t)
	ask := api.AllocateRequest{Sandbox: "a", Attach: &api.AttachRequest{Netns: guest.Path()}}
	nothing := func(why error, netns string) {
		t.Helper()
		wrong := ask
		wrong.Attach = &api.AttachRequest{Netns: netns}
		_, err := w.client.Allocate(ctx, wrong)
		if !errors.Is(err, why) || why == client.ErrInvalidArgument && !strings.Contains(err.Error(), "attach.netns: ") {
			t.Errorf("attached in %s: %v", netns, err)
		}
		if all, err := w.client.Leases(ctx, client.LeaseFilter{Sandbox: "a"}); err != nil || len(all.Leases) > 0 || w.rt0() != "" {
			t.Errorf("left: %+v %v %s", all, err, w.rt0())
		}
	}
	nothing(client.ErrNotReady, guest.Path()) // no helper makes ports
	w.helper()
	nothing(client.ErrInvalidArgument, "/etc/passwd")
	nothing(client.ErrInvalidArgument, "/run/netns/none-such")
	nothing(client.ErrInvalidArgument, w.ns.Path())
	given, err := w.client.Allocate(ctx, ask)
	if err != nil {
		t.Fatal(err)
	}
	l := given.Leases[0]
	if l.State != api.Bound || l.Netns != guest.Path() || !strings.Contains(w.rt0(), l.HostInterface) || given.Existing {
		t.Errorf("given: %+v", given)
	}
	again, err := w.client.Allocate(ctx, ask)
	if err != nil || !again.Existing || again.Leases[0].Revision != l.Revision {
		t.Errorf("again: %+v %v", again, err)
	}
}

// M1: helpers are killed -9 again and again while ports are made and taken away; callers
// that ask until they are answered get each what they asked for, and nothing is left.
func TestM1HelpersAreKilled(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	stop := w.killAgain(w.helper, "plumb")
	var callers sync.WaitGroup
	for i := range 4 {
		guest := nstest.New(t)
		callers.Go(func() {
			for n := range 8 {
				if err := w.inAndOut(fmt.Sprintf("s-%d-%d", i, n), guest); err != nil {
					t.Error(err)
				}
			}
		})
	}
	callers.Wait()
	t.Logf("%d helpers were killed", stop())
	if left := w.rt0(); left != "" {
		t.Errorf("left: %s", left)
	}
}

// inAndOut attaches and detaches a sandbox, asking until it is answered.
func (w *world) inAndOut(sandbox string, guest *nstest.NS) error {
	within, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	given, err := w.client.Allocate(within, api.AllocateRequest{Sandbox: sandbox})
	if err != nil {
		return err
	}
	id := given.Leases[0].ID
	until := func(verb string, ask func() (*api.LeaseReply, error)) (err error) {
		for within.Err() == nil {
			if _, err = ask(); !errors.Is(err, client.ErrNotReady) && !errors.Is(err, client.ErrDeadlineExceeded) {
				break
			}
			time.Sleep(time.Millisecond)
		}
		if err != nil {
			return fmt.Errorf("%s %s: %w", verb, sandbox, err)
		}
		return nil
	}
	err = until("attach", func() (*api.LeaseReply, error) {
		return w.client.Attach(within, id, api.AttachRequest{Netns: guest.Path()})
	})
	if err == nil {
		err = until("detach", func() (*api.LeaseReply, error) { return w.client.Detach(within, id, api.DetachRequest{}) })
	}
	if err == nil {
		_, err = w.client.Release(within, id, api.ReleaseRequest{})
	}
	return err
}

// M14: without the helper cold works as ever, and it is said what does not, and why.
func TestM14WithoutTheHelper(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	given := w.allocate("a").Leases[0]
	_, err := w.client.Attach(ctx, given.ID, api.AttachRequest{Netns: nstest.New(t).Path()})
	if !errors.Is(err, client.ErrNotReady) || !strings.Contains(err.Error(), "ipamd-plumb") {
		t.Errorf("attach: %v", err)
	}
	s, err := w.client.Status(ctx)
	if err != nil || !s.Ready || s.Plumb == nil || s.Plumb.Ready || !strings.Contains(s.Plumb.Why, "ipamd-plumb") {
		t.Errorf("status: %+v %v", s, err)
	}
	port := w.ns.Port("rt0", given.Address+"/24")
	if _, err := w.client.Bind(ctx, given.ID, api.BindRequest{HostInterface: port.HostName, Netns: port.NS.Path()}); err != nil {
		t.Errorf("bind: %v", err)
	}
}
