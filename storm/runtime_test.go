package storm_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/client"
)

// lease is a lease of a sandbox that a hostile runtime invents.
func (h *hostile) lease(sandbox, uid string) (grant, error) {
	var g grant
	err := h.persist(h.r, "allocate: hostile", func(ctx context.Context) error {
		asked := h.rec.now()
		reply, err := h.client.Allocate(ctx, api.AllocateRequest{Sandbox: sandbox, UID: uid})
		if err == nil {
			l := reply.Leases[0]
			g = grant{asked: asked, answered: h.rec.now(), addr: netip.MustParseAddr(l.Address), lease: l.ID, uid: uid,
				existing: reply.Existing, early: reply.EarlyReuse}
		}
		return err
	})
	if err == nil && !g.existing {
		h.rec.add(func(all *history) { all.grants = append(all.grants, g) })
	}
	return g, err
}

// bindTo binds a lease, or says why not: it may have ended since, and what is named
// may be nothing that a lease can be bound to.
func (h *hostile) bindTo(g grant, where api.BindRequest) error {
	return h.persist(h.r, "bind: hostile", func(ctx context.Context) error {
		_, err := h.client.Bind(ctx, g.lease, where)
		return err
	})
}

// release releases a lease.
func (h *hostile) release(g grant) error {
	err := h.persist(h.r, "release: hostile", func(ctx context.Context) error {
		_, err := h.client.Release(ctx, g.lease, api.ReleaseRequest{})
		return err
	})
	if errors.Is(err, client.ErrLeaseGone) || h.ctx.Err() != nil {
		return nil
	}
	return err
}

// sameTap binds the leases of two incarnations of a sandbox to one tap, and releases the
// first: its address is that of a machine that lives until the tap goes.
func (h *hostile) sameTap(ctx context.Context) (err error) {
	tap := fmt.Sprintf("tap%x", h.r.Uint32())
	ip := func(args ...string) error {
		out, err := exec.Command("nsenter", append([]string{"--net=" + h.ns.Path(), "ip"}, args...)...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("ip %v: %w: %s", args, err, out)
		}
		return nil
	}
	if err := errors.Join(ip("tuntap", "add", "dev", tap, "mode", "tap"), ip("link", "set", tap, "master", "rt0", "up")); err != nil {
		return err
	}
	var there []*life
	var leases []grant
	defer func() {
		to := h.rec.now()
		h.rec.add(func(all *history) {
			for _, l := range there {
				l.to = to
				all.lives = append(all.lives, l)
			}
		})
		err = errors.Join(err, ip("link", "del", tap))
		for _, g := range leases {
			err = errors.Join(err, h.release(g))
		}
	}()
	for i := range 2 {
		g, err := h.lease(recordsOf+tap, fmt.Sprint(recordsOf, tap, "-", i))
		if err != nil {
			return gone(ctx, err)
		}
		leases = append(leases, g)
		if err := h.bindTo(g, api.BindRequest{HostInterface: tap}); err != nil {
			return gone(ctx, err)
		}
		there = append(there, &life{from: h.rec.now(), netns: tap, addr: g.addr, lease: g.lease, uid: g.uid, bound: true})
	}
	if err := h.release(leases[0]); err != nil {
		return err
	}
	h.rec.counted("two incarnations at one tap")
	for ctx.Err() == nil {
		asking, cancel := context.WithTimeout(ctx, callTime)
		now, err := h.client.Lease(asking, leases[0].lease)
		cancel()
		if errors.Is(err, client.ErrLeaseGone) || err == nil && now.Lease.State == api.Cooling {
			h.rec.strange("%s cools while %s is plugged: %v", leases[0].addr, tap, err)
			return nil
		}
		h.rest(h.r, 50*time.Millisecond, 100*time.Millisecond)
	}
	return nil
}

// gone excuses the end of a lease that was not bound in time.
func gone(ctx context.Context, err error) error {
	if ctx.Err() != nil || errors.Is(err, client.ErrLeaseGone) || errors.Is(err, client.ErrStateNotAllowed) {
		return nil
	}
	return err
}

// anothersContainer binds the lease of a sandbox that its owner calls gone to a
// container of one that lives.
func (h *hostile) anothersContainer(ctx context.Context) error {
	asking, cancel := context.WithTimeout(h.ctx, callTime)
	list, err := h.client.Leases(asking, client.LeaseFilter{State: string(api.Bound)})
	cancel()
	if err != nil {
		return nil // it is being started
	}
	var theirs []api.Container
	for _, l := range list.Leases {
		if !strings.HasPrefix(l.Sandbox, recordsOf) {
			theirs = append(theirs, l.Containers...)
		}
	}
	if len(theirs) == 0 {
		return nil
	}
	one := theirs[h.r.IntN(len(theirs)):][:1]
	name := fmt.Sprint(recordsOf, h.r.Uint64())
	g, err := h.lease(name, name)
	if err != nil {
		return gone(ctx, err)
	}
	if err = h.bindTo(g, api.BindRequest{Containers: one}); err == nil {
		h.rec.counted("another's container in a lease")
		<-ctx.Done()
		err = h.bindTo(g, api.BindRequest{Gone: one})
	}
	return errors.Join(gone(ctx, err), h.release(g))
}

// oddNetns binds a lease to what is no namespace, or hangs, or is one by a detour.
func (h *hostile) oddNetns(ctx context.Context) (err error) {
	name := fmt.Sprint(recordsOf, h.r.Uint64())
	path := filepath.Join(string(h.spaces), name)
	link := func(to string) func() error { return func() error { return os.Symlink(to, path) } }
	var inside *port // docker-style: a link to the namespace of a process
	ways := []func() error{
		func() error { return unix.Mkfifo(path, 0o600) },
		func() error { return unix.Mknod(path, unix.S_IFCHR|0o600, int(unix.Mkdev(1, 5))) }, // zero
		func() error { return os.WriteFile(path, nil, 0o600) },
		func() error { return os.Mkdir(path, 0o700) },
		link("/dev/zero"), link(path), link(h.path("stuck", name)), link("/proc/self/ns/net"),
		func() error { path = h.path("stuck", name); return nil },
		func() error { return h.docker(ctx, path, &inside) },
	}
	if err := ways[h.r.IntN(len(ways))](); err != nil {
		return err
	}
	defer func() {
		if inside != nil {
			err = errors.Join(err, inside.dropLink(), inside.dropSpace())
		}
		if !strings.HasPrefix(path, h.path("stuck")) {
			err = errors.Join(err, os.Remove(path))
		}
	}()
	g, err := h.lease(name, name)
	if err != nil {
		return gone(ctx, err)
	}
	var refused *api.Error
	err = h.bindTo(g, api.BindRequest{Netns: path})
	switch {
	case err == nil:
		h.rec.counted("odd namespace bound")
		<-ctx.Done()
		err = h.bindTo(g, api.BindRequest{Netns: filepath.Join(string(h.spaces), name+"-none")})
	case errors.As(err, &refused) && refused.Code == api.InvalidArgument:
		h.rec.counted("odd namespace refused")
		err = nil
	}
	return errors.Join(gone(ctx, err), h.release(g))
}

// docker makes a link to the namespace of a thread that lives until ctx ends, behind a
// port.
func (h *hostile) docker(ctx context.Context, path string, inside **port) (err error) {
	p, err := h.plug(netip.AddrFrom4([4]byte{10, 9, 0, 1}))
	if err != nil {
		return err
	}
	*inside = p
	tid := make(chan int)
	go func() {
		runtime.LockOSThread() // and never back: the thread ends with this
		space, err := netns.GetFromPath(p.path)
		if err == nil {
			err = errors.Join(netns.Set(space), space.Close())
		}
		if err != nil {
			close(tid)
			return
		}
		tid <- unix.Gettid()
		<-ctx.Done()
	}()
	id, ok := <-tid
	if !ok {
		return errors.New("no thread in " + p.path)
	}
	return os.Symlink(fmt.Sprintf("/proc/%d/ns/net", id), path)
}
