package storm_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"time"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/client"
)

// An actor is a sandbox runtime with one sandbox at a time.
type actor struct {
	*world
	r         *rand.Rand
	name      string
	contained bool // its sandboxes have a container
	cycles    int
	made      int    // containers so far
	began     moment // before the sandbox was first asked for
}

// A sandbox is what an actor has at the moment.
type sandbox struct {
	uid       string
	lease     api.Lease
	addr      netip.Addr
	hold      *hold
	port      *port
	life      *life
	container string          // "" when there is none
	gone      []api.Container // its former ones
}

// act is an actor's whole time: one sandbox after another, until it is calm.
func (a *actor) act() {
	defer a.left.Add(1)
	a.rest(a.r, time.Millisecond, 2*time.Second) // not all at once
	for !closed(a.calm) && a.ctx.Err() == nil {
		a.cycles++
		a.began = a.rec.now()
		uid := fmt.Sprintf("%s-%d", a.name, a.cycles)
		a.owner.set(uid, true)
		a.round(uid, true)
		for a.r.IntN(8) == 0 && !closed(a.calm) {
			a.round(uid, false) // the same sandbox once more
		}
		a.owner.set(uid, false)
	}
}

// round is a sandbox's life, with the error that this one makes.
func (a *actor) round(uid string, first bool) {
	s, ok := a.allocate(uid, first)
	if !ok {
		return
	}
	errs := a.r.IntN(100)
	if errs < 5 {
		a.rec.counted("actor died before the plug")
		a.rec.lets(s.hold)
		return
	}
	if !a.plugIn(s) {
		return
	}
	if errs < 10 {
		a.rec.counted("actor died before the bind")
		a.rest(a.r, time.Millisecond, 3*time.Second)
		a.unplug(s)
		return
	}
	if !a.bind(s) {
		a.unplug(s)
		return
	}
	a.live(s)
	switch {
	case errs < 20 && !closed(a.end):
		a.rec.counted("actor never released")
		a.unplug(s)
	case errs < 40:
		a.release(s)
		a.rest(a.r, time.Millisecond, time.Second)
		a.unplug(s)
	case errs < 50:
		a.unplug(s)
		a.release(s)
		a.rest(a.r, time.Millisecond, 6*time.Second) // another may have the address by then
		a.rec.counted("actor released twice")
		a.release(s)
	default:
		a.unplug(s)
		a.release(s)
	}
}

// allocate asks for an address; one in seven goes away before the answer, and
// asks again. A lease that was there before may have been made by any request
// since the sandbox was first asked for, and its time to bind runs since then.
func (a *actor) allocate(uid string, first bool) (*sandbox, bool) {
	if a.r.IntN(7) == 0 {
		ctx, cancel := context.WithTimeout(a.ctx, between(a.r, time.Millisecond, 4*time.Millisecond))
		_, err := a.client.Allocate(ctx, api.AllocateRequest{Sandbox: uid})
		cancel()
		if err != nil {
			a.rec.counted("actor did not wait for the answer")
		}
	}
	s := &sandbox{uid: uid}
	err := a.persist(a.r, "allocate", func(ctx context.Context) error {
		if closed(a.calm) {
			return errCalm
		}
		asked := a.rec.now()
		reply, err := a.client.Allocate(ctx, api.AllocateRequest{Sandbox: uid})
		if err != nil {
			return err
		}
		s.lease = reply.Leases[0]
		s.addr = netip.MustParseAddr(s.lease.Address)
		if reply.Existing {
			asked = a.began
		}
		g := grant{asked: asked, answered: a.rec.now(), addr: s.addr, lease: s.lease.ID, uid: uid,
			existing: reply.Existing && !first,
			early:    reply.EarlyReuse}
		a.rec.add(func(h *history) { h.grants = append(h.grants, g) })
		s.hold = a.rec.holds(&hold{from: g.answered, to: never, asked: asked, bindBy: asked + bindWithin, addr: s.addr, lease: s.lease.ID, uid: uid})
		if reply.EarlyReuse {
			a.rec.counted("allocate: early reuse")
		}
		if reply.Existing {
			a.rec.counted("allocate: existing")
		}
		for range reply.Skipped {
			a.rec.counted("allocate: skipped a stranger's")
		}
		return nil
	})
	// A bound lease of an earlier turn is held, and its owner learns it, when a
	// stranger lives on it by now.
	disputed := !first && errors.Is(err, client.ErrAddressTaken)
	if err != nil && !disputed && !errors.Is(err, errCalm) && a.ctx.Err() == nil {
		a.rec.strange("%s: %v", uid, err)
	}
	return s, s.hold != nil
}

func (a *actor) plugIn(s *sandbox) bool {
	var err error
	if s.port, err = a.plug(s.addr); err != nil {
		a.rec.strange("%s: %v", s.uid, err)
		a.rec.lets(s.hold)
		return false
	}
	s.life = a.rec.lives(&life{from: a.rec.now(), to: never, addr: s.addr, netns: s.port.path, lease: s.lease.ID, uid: s.uid})
	if a.contained && !a.run(s) {
		a.unplug(s)
		return false
	}
	return true
}

// bind says where the lease is used. A lease may have ended meanwhile, if the
// actor took too long.
func (a *actor) bind(s *sandbox) bool {
	where := api.BindRequest{Netns: s.port.path, HostInterface: s.port.host, MAC: s.port.mac.String()}
	if s.container != "" {
		where.Containers = []api.Container{{Namespace: "default", ID: s.container}}
		where.Gone = s.gone
	}
	err := a.persist(a.r, "bind", func(ctx context.Context) error {
		_, err := a.client.Bind(ctx, s.lease.ID, where)
		return err
	})
	if err == nil {
		at := a.rec.now()
		a.rec.add(func(*history) { s.hold.bindBy, s.life.bound, s.life.since = never, true, at })
		if err := a.sends(a.r, s.life, nil); err != nil {
			a.rec.strange("frames of %s: %v", s.uid, err)
		}
		return true
	}
	late := errors.Is(err, client.ErrLeaseGone) || errors.Is(err, client.ErrStateNotAllowed)
	if a.ctx.Err() == nil && !(late && a.rec.overdue(s.hold)) {
		a.rec.strange("%s at %s: %v", s.uid, s.addr, err)
	}
	return false
}

// live lets the sandbox be. When it gets calm it stays to the end.
func (a *actor) live(s *sandbox) {
	t := time.NewTimer(between(a.r, time.Second, 10*time.Second))
	defer t.Stop()
	if s.container != "" && a.r.IntN(4) == 0 && !closed(a.calm) && !a.replace(s) {
		return
	}
	select {
	case <-t.C:
		return
	case <-a.ctx.Done():
		return
	case <-a.calm:
	}
	a.parked.Add(1)
	select {
	case <-a.end:
	case <-a.ctx.Done():
	}
}

// release names the lease, whatever has become of it.
func (a *actor) release(s *sandbox) {
	a.rec.lets(s.hold)
	err := a.persist(a.r, "release", func(ctx context.Context) error {
		_, err := a.client.Release(ctx, s.lease.ID, api.ReleaseRequest{})
		return err
	})
	if err != nil && !errors.Is(err, client.ErrLeaseGone) && a.ctx.Err() == nil {
		a.rec.strange("%s at %s: %v", s.uid, s.addr, err)
	}
}

// unplug takes away what there is of the sandbox, the container before or after its
// port, the port with its link or with its namespace.
func (a *actor) unplug(s *sandbox) {
	a.rec.lets(s.hold)
	a.rec.dies(s.life)
	byLink, first := a.r.IntN(4) == 0, a.r.IntN(2) == 0
	if s.container != "" && first {
		a.remove(s)
	}
	if byLink {
		if err := s.port.dropLink(); err != nil {
			a.rec.strange("take %s off the bridge: %v", s.port.host, err)
		}
	}
	if err := s.port.dropSpace(); err != nil {
		a.rec.strange("take namespace %s away: %v", s.port.path, err)
	} else {
		a.rec.counted("namespace deleted")
	}
	if s.container != "" && !first {
		a.remove(s)
	}
	if s.container != "" && !byLink {
		// A process that runc has begun for a containerd that died keeps the
		// namespace, and nothing leads to it any more.
		if err := s.port.dropLink(); err != nil {
			a.rec.strange("take %s off the bridge: %v", s.port.host, err)
		}
	}
	a.rec.counted("unplug")
}
