package storm_test

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/internal/ctrdtest"
)

// removing bounds how long an actor tries to remove a container while its
// containerd dies and comes back.
const removing = 2 * time.Minute

// run makes the sandbox's container, with all labels. A containerd that dies
// meanwhile leaves some part of one, which goes before the next try. That has
// an id of its own: what runc has begun without containerd's knowledge keeps
// the old one for good.
func (a *actor) run(s *sandbox) bool {
	spec := ctrdtest.Spec{Netns: s.port.path, Labels: map[string]string{
		"runtime.computer/entity-id": s.uid, "runtime.computer/ip": s.addr.String(), "ipamd.dev/lease-id": s.lease.ID}}
	for a.ctx.Err() == nil {
		a.made++
		s.container = fmt.Sprintf("%s-%d", a.name, a.made)
		spec.ID = s.container
		ctx, cancel := context.WithTimeout(a.ctx, callTime)
		err := a.runtime.TryRun(ctx, a.ctrd, spec)
		cancel()
		if err == nil {
			a.rec.counted("container run")
			return true
		}
		a.rec.counted("container run: failed")
		a.rec.last("container run", err)
		s.gone = append(s.gone, api.Container{Namespace: "default", ID: s.container})
		a.remove(s)
		a.mu.Lock()
		a.begun = append(a.begun, s.container)
		a.mu.Unlock()
	}
	return false
}

// sweep deletes what containerd made of a request after its caller had given up
// and seen that there is nothing. What cannot be deleted yet can be later.
func (w *world) sweep() {
	w.mu.Lock()
	ids := slices.Clone(w.begun)
	w.mu.Unlock()
	for _, id := range ids {
		ctx, cancel := context.WithTimeout(w.ctx, callTime)
		err := w.runtime.TryDelete(ctx, w.ctrd, "", id)
		cancel()
		if err != nil {
			w.rec.last("container sweep", err)
		}
	}
}

// remove deletes the container until it is gone.
func (a *actor) remove(s *sandbox) {
	var err error
	for end := time.Now().Add(removing); a.ctx.Err() == nil && time.Now().Before(end); {
		ctx, cancel := context.WithTimeout(a.ctx, callTime)
		err = a.runtime.TryDelete(ctx, a.ctrd, "", s.container)
		cancel()
		if err == nil {
			a.rec.counted("container remove")
			return
		}
		a.rec.counted("container remove: failed")
		a.rec.last("container remove", err)
		a.rest(a.r, 50*time.Millisecond, 200*time.Millisecond)
	}
	if a.ctx.Err() == nil {
		a.rec.strange("remove container %s: %v", s.container, err)
	}
}

// replace makes the container anew in its namespace: the lease stays. The bind
// adds the new one, so it names the old one as gone.
func (a *actor) replace(s *sandbox) bool {
	s.gone = append(s.gone, api.Container{Namespace: "default", ID: s.container})
	a.remove(s)
	if !a.run(s) {
		return false
	}
	a.rec.counted("container replaced")
	return a.bind(s)
}
