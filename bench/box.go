package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/vishvananda/netns"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/internal/ctrdtest"
)

// The labels by default.
const (
	ownerLabel   = "runtime.computer/entity-id"
	addressLabel = "runtime.computer/ip"
)

// patience is how long anything is waited for that is no measurement.
const patience = time.Minute

// A runner is an ipamd with a containerd, and sandboxes in both.
type runner struct {
	*daemon
	ctrd  *ctrd
	dir   string // of the namespaces' paths
	space netns.NsHandle
	calls *caller
	wired *ports
}

func (b *bench) startRunner(ctx context.Context, name string) (r *runner, err error) {
	r = &runner{wired: new(ports), space: netns.None(), dir: filepath.Join(b.dir, name+"-netns")}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.stop())
		}
	}()
	if r.ctrd, err = startRuntime(ctx); err != nil {
		return r, err
	}
	if r.daemon, err = b.startDaemonWith(ctx, name, 0, "containerd", r.ctrd.Address); err != nil {
		return r, err
	}
	r.calls = r.caller()
	if r.space, err = r.daemon.space(); err != nil {
		return r, err
	}
	return r, os.Mkdir(r.dir, 0o700)
}

func (r *runner) stop() error {
	var errs []error
	if r.daemon != nil {
		errs = append(errs, r.daemon.stop())
	}
	if r.ctrd != nil {
		errs = append(errs, r.ctrd.close())
	}
	if r.space.IsOpen() {
		errs = append(errs, r.space.Close())
	}
	paths, err := filepath.Glob(filepath.Join(r.dir, "*"))
	for _, p := range paths {
		errs = append(errs, unmount(p))
	}
	r.wired.close()
	return errors.Join(append(errs, err)...)
}

// A box is one sandbox: a lease, a port with its address, and a container.
type box struct {
	lease api.Lease
	id    string // of the container
	netns string // the path of its network namespace; "" is not recorded
	near  string // the host's interface
}

// boxes makes n sandboxes whose containers are records without a task, or run
// in their network namespaces.
func (r *runner) boxes(ctx context.Context, n int, run bool) (all []*box, err error) {
	var addrs []netip.Addr
	for range n {
		if err := r.calls.allocate(ctx); err != nil {
			return nil, err
		}
		b := &box{lease: *r.calls.held, id: r.calls.held.Sandbox}
		r.calls.held = nil
		all = append(all, b)
		addr, err := netip.ParseAddr(b.lease.Address)
		if err != nil {
			return nil, err
		}
		addrs = append(addrs, addr)
	}
	if run {
		err = r.runIn(ctx, all, addrs)
	} else {
		err = r.record(all, addrs)
	}
	if err == nil {
		err = r.bind(ctx, all)
	}
	return all, err
}

// runIn plugs sandboxes and runs their containers behind the ports.
func (r *runner) runIn(ctx context.Context, all []*box, addrs []netip.Addr) error {
	first := len(r.wired.spaces)
	if err := r.plug(all, addrs); err != nil {
		return err
	}
	var some errgroup.Group // waited for below
	some.SetLimit(4)
	client := r.ctrd.Client()
	for i, b := range all {
		b.netns = filepath.Join(r.dir, b.near)
		if err := mount(r.wired.spaces[first+i], b.netns); err != nil {
			return errors.Join(err, some.Wait())
		}
		some.Go(func() error { return r.ctrd.TryRun(ctx, client, b.spec()) })
	}
	return some.Wait()
}

// record plugs sandboxes and writes down their containers meanwhile.
func (r *runner) record(all []*box, addrs []netip.Addr) error {
	var both errgroup.Group // waited for below
	both.Go(func() error {
		return r.ctrd.do(func() {
			for _, b := range all {
				r.ctrd.Create(r.ctrd, b.spec())
			}
		})
	})
	return errors.Join(r.plug(all, addrs), both.Wait())
}

func (r *runner) plug(all []*box, addrs []netip.Addr) error {
	names, err := r.wired.plug(r.space, addrs...)
	if err != nil {
		return err
	}
	for i, b := range all {
		b.near = names[i]
	}
	return nil
}

func (b *box) spec() ctrdtest.Spec {
	return ctrdtest.Spec{ID: b.id, Netns: b.netns, Labels: map[string]string{ownerLabel: b.lease.Sandbox, addressLabel: b.lease.Address}}
}

func (r *runner) bind(ctx context.Context, all []*box) error {
	for _, b := range all {
		if _, err := r.client.Bind(ctx, b.lease.ID, api.BindRequest{Containers: []api.Container{{Namespace: "default", ID: b.id}},
			Netns: b.netns, HostInterface: b.near}); err != nil {
			return err
		}
	}
	return nil
}

// strip removes all of the sandboxes but the containers' records, as a runtime
// does before it deletes those, and waits until ipamd knows.
func (r *runner) strip(ctx context.Context, all []*box) ([]containerd.Container, error) {
	records := make([]containerd.Container, len(all))
	var some errgroup.Group // waited for below
	some.SetLimit(4)
	client := r.ctrd.Client()
	for i, b := range all {
		some.Go(func() error {
			c, err := client.LoadContainer(inDefault(ctx), b.id)
			if err != nil {
				return err
			}
			records[i] = c
			task, err := c.Task(inDefault(ctx), nil)
			if err == nil {
				_, err = task.Delete(inDefault(ctx), containerd.WithProcessKill)
			}
			return err
		})
	}
	if err := some.Wait(); err != nil {
		return nil, err
	}
	for _, b := range all {
		if err := unmount(b.netns); err != nil {
			return nil, err
		}
	}
	r.wired.close()
	for _, b := range all {
		if err := until("only the runtime sees "+b.lease.Address, patience, func() (bool, error) {
			who, err := r.client.Whois(ctx, b.lease.Address)
			if err != nil {
				return false, err
			}
			for _, w := range who.Witnesses {
				if (w.Answer == "seen") != (w.Witness == "runtime") {
					return false, nil
				}
			}
			return true, nil
		}); err != nil {
			return nil, err
		}
	}
	return records, until("the bridge has no port left", patience, func() (bool, error) {
		st, err := r.client.Status(ctx)
		return err == nil && st.Bridge.Ports == 0, err
	})
}

// mount makes a path of a network namespace, as `ip netns` and CNI do.
func mount(space netns.NsHandle, path string) error {
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		return err
	}
	if err := unix.Mount("/proc/self/fd/"+strconv.Itoa(int(space)), path, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mount %s: %w", path, err)
	}
	return nil
}

func unmount(path string) error {
	if err := unix.Unmount(path, unix.MNT_DETACH); err != nil {
		return fmt.Errorf("unmount %s: %w", path, err)
	}
	return os.Remove(path)
}
