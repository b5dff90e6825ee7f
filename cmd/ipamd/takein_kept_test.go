package main

import (
	"errors"
	"reflect"
	"slices"
	"testing"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/client"
	"github.com/ipamd/ipamd/config"
	"github.com/ipamd/ipamd/internal/realtest"
	"github.com/ipamd/ipamd/rebuild"
)

// anew gives a stopped world a new book in each way in which an old one goes into it.
var anew = map[string]func(w *world, backup string) error{
	"restore": func(w *world, backup string) error { _, err := w.takeIn(backup, true); return err },
	"rebuild": func(w *world, _ string) error { _, err := w.rebuild(force); return err },
}

// A live lease is in the new book with its attempt, labels and age: a cancel of an attempt
// long ago that arrives behind a restore or a rebuild releases nothing.
func TestANewBookKeepsTheAttempt(t *testing.T) {
	t.Parallel()
	for name, make := range anew {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, slow, runnerOne)
			r, err := w.client.Allocate(ctx, api.AllocateRequest{Sandbox: "live", Attempt: 7, Labels: map[string]string{"team": "x"}})
			must(t, err)
			live := w.wiredOn("rt0", r.Leases[0])
			file := w.backup()
			w.stopDaemon()
			must(t, make(w, file))
			w.start()
			now, err := w.client.Lease(ctx, live.held.ID)
			must(t, err)
			if l := now.Lease; l.Attempt != 7 || l.Labels["team"] != "x" || !l.Created.Equal(live.held.Created) {
				t.Errorf("it was %+v, and is %+v", live.held, l)
			}
			late, err := w.client.Cancel(ctx, api.CancelRequest{UID: "live", Attempt: 3})
			must(t, err)
			if len(late.Released) > 0 || w.state(live.held.Address) != api.Bound {
				t.Errorf("a cancel of attempt 3 released %+v", late.Released)
			}
		})
	}
}

// The file says /28, an operator grew the pool by PUT of generation 7, and another one is
// drained, another removed: a restore, and a rebuild, have the pools as they are now, and
// news of before stays old. The leases in the grown part are what they were.
func TestANewBookKeepsThePools(t *testing.T) {
	t.Parallel()
	for name, make := range anew {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := prepare(t, slow, runnerOne, pool("10.8.64.0/28"), func(c *config.Config) { c.Bridge.Manage = true })
			w.start()
			grown, err := w.client.ApplyPool(ctx, "default", api.PoolRequest{Prefix: "10.8.64.0/24", Exclude: []string{"10.8.64.50"}, Generation: 7})
			must(t, err)
			live := w.wiredAt("rt0", "live", "10.8.64.100", "default")
			asleep := w.wiredAt("rt0", "asleep", "10.8.64.101", "default")
			_, err = w.client.Pause(ctx, asleep.held.ID, api.PauseRequest{})
			must(t, err)
			w.ns.Bridge("br9", "10.9.0.1/24")
			w.ns.Bridge("br8", "10.7.0.1/24")
			old := map[string]api.Pool{}
			for pool, bridge := range map[string]string{"lab": "br9", "old": "br8"} {
				r, err := w.client.ApplyPool(ctx, pool, api.PoolRequest{Prefix: map[string]string{"lab": "10.9.0.0/24", "old": "10.7.0.0/24"}[pool], Bridge: bridge, Generation: 9})
				must(t, err)
				old[pool] = r.Pool
			}
			_, err = w.client.RemovePool(ctx, "old", client.Removal{UID: old["old"].UID})
			must(t, err)
			file := w.backup()
			_, err = w.client.RemovePool(ctx, "lab", client.Removal{UID: old["lab"].UID})
			must(t, err)
			w.stopDaemon()
			asleep.port.Close()
			must(t, make(w, file))
			w.start()
			all, err := w.client.Pools(ctx)
			must(t, err)
			if p := all.Pools[0]; len(all.Pools) != 1 || p.UID != grown.Pool.UID || p.Generation != 7 || p.Prefix != "10.8.64.0/24" || len(p.Exclude) != 1 {
				t.Errorf("the pools are %+v", all.Pools)
			}
			for pool, c := range map[string]api.PoolRequest{"default": {Prefix: "10.8.64.0/26", Generation: 3}, "lab": {Prefix: "10.9.0.0/24", Bridge: "br9", Generation: 9}, "old": {Prefix: "10.7.0.0/24", Bridge: "br8", Generation: 9}} {
				if r, err := w.client.ApplyPool(ctx, pool, c); !errors.Is(err, client.ErrStaleGeneration) {
					t.Errorf("what was sent to pool %s before: %+v, %v", pool, r, err)
				}
			}
			for b, state := range map[*box]api.State{live: api.Bound, asleep: api.Quarantined} {
				if now := w.whois(b.held.Address); now.Lease == nil || now.Lease.ID != b.held.ID || now.State != state {
					t.Errorf("%s had %s, and it is %s, %+v", b.name, b.held.ID, now.State, now.Lease)
				}
			}
		})
	}
}

// Leases outside of their pool, which shrank, are what they were behind a restore and a
// rebuild, and once it has grown again no other gets their addresses. Nor does any other
// get what a pool left withheld that was removed by force, and made again.
func TestANewBookKeepsWhatIsOutside(t *testing.T) {
	t.Parallel()
	for name, make := range anew {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, slow, runnerOne)
			before := w.backup() // of nothing
			w.ns.Bridge("br9", "10.9.0.1/24")
			w.ns.Bridge("br8", "10.7.0.1/24")
			lab := api.PoolRequest{Prefix: "10.9.0.0/24", Bridge: "br9"}
			forced := api.PoolRequest{Prefix: "10.7.0.0/24", Bridge: "br8"}
			_, err := w.client.ApplyPool(ctx, "lab", lab)
			must(t, err)
			gone, err := w.client.ApplyPool(ctx, "forced", forced)
			must(t, err)
			live := w.wiredAt("br9", "live", "10.9.0.200", "lab")
			asleep := w.wiredAt("br9", "asleep", "10.9.0.201", "lab")
			taken := w.wiredAt("br8", "taken", "10.7.0.201", "forced")
			for _, b := range []*box{asleep, taken} {
				_, err := w.client.Pause(ctx, b.held.ID, api.PauseRequest{})
				must(t, err)
				b.port.Close()
			}
			_, err = w.client.ApplyPool(ctx, "lab", api.PoolRequest{Prefix: "10.9.0.0/25", Bridge: "br9", Drain: true})
			must(t, err)
			_, err = w.client.RemovePool(ctx, "forced", client.Removal{UID: gone.Pool.UID, Mode: api.RemoveForce, Reason: "x"})
			must(t, err)
			w.stopDaemon()
			must(t, make(w, before))
			w.start()
			for b, state := range map[*box]api.State{live: api.Bound, asleep: api.Quarantined} {
				if now := w.whois(b.held.Address); now.Lease == nil || now.Lease.ID != b.held.ID || now.State != state || now.Lease.Outside == "" {
					t.Errorf("%s had %s, and it is %s, %+v", b.name, b.held.ID, now.State, now.Lease)
				}
			}
			if now := w.whois(taken.held.Address); now.Withheld == nil || now.Withheld.Hold == "" {
				t.Errorf("what its pool left withheld: %+v", now)
			}
			_, err = w.client.ApplyPool(ctx, "lab", lab)
			must(t, err)
			_, err = w.client.ApplyPool(ctx, "forced", forced)
			must(t, err)
			for _, b := range []*box{live, asleep, taken} {
				if r, err := w.client.Allocate(ctx, api.AllocateRequest{Sandbox: "second", Pool: b.held.Pool, Address: b.held.Address}); err == nil {
					t.Errorf("%s of %s was given: %+v", b.held.Address, b.name, r)
				}
			}
		})
	}
}

// wiredAt gives a sandbox an address of a pool, and a port.
func (w *world) wiredAt(bridge, sandbox, address, pool string) *box {
	w.t.Helper()
	var r *api.AllocateReply
	realtest.Eventually(w.t, wait, "an address of pool "+pool, func() (ok bool) {
		var err error
		r, err = w.client.Allocate(ctx, api.AllocateRequest{Sandbox: sandbox, Pool: pool, Address: address})
		return err == nil
	})
	return w.wiredOn(bridge, r.Leases[0])
}

// Who hibernates has no port and no task, and is not seen: behind a restore and a rebuild
// the lease is paused as it was, with what wakes it, and a sandbox that was woken has its
// policy yet. Where its address is seen it is an operator's to clear.
func TestANewBookKeepsWhoHibernates(t *testing.T) {
	t.Parallel()
	for name, make := range anew {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, slow, runnerOne)
			policy := &api.WakePolicy{Ports: []string{"8080"}, Protocols: []string{"tcp"}}
			asleep, woken, seen := w.wired("asleep"), w.wired("woken"), w.wired("seen")
			for _, b := range []*box{asleep, woken, seen} {
				_, err := w.client.Pause(ctx, b.held.ID, api.PauseRequest{Mode: "hibernate", Wake: policy})
				must(t, err)
			}
			_, err := w.client.Resume(ctx, woken.held.ID, api.PauseRequest{})
			must(t, err)
			file := w.backup()
			w.stopDaemon()
			asleep.port.Close()
			seen.port.Close()
			w.ns.Port("rt0", seen.held.Address+"/24") // a stranger
			must(t, make(w, file))
			w.start()
			for b, state := range map[*box]api.State{asleep: api.Paused, woken: api.Bound} {
				now, err := w.client.Lease(ctx, b.held.ID)
				if err != nil || now.Lease.State != state || now.Lease.Sleep == nil || now.Lease.Sleep.Mode != "hibernate" || !reflect.DeepEqual(now.Lease.Sleep.Wake, policy) {
					t.Errorf("%s: %+v, %v", b.name, now, err)
				}
			}
			if now := w.whois(seen.held.Address); now.State != api.Quarantined || now.Lease.Hold == "" {
				t.Errorf("whose address another has is %s, %+v", now.State, now.Lease)
			}
		})
	}
}

// A bind that named no MAC: the very link and namespace that it named, of this boot, show that
// the sandbox lives, and its lease stays as it is, behind a restore and a rebuild. A later link
// of the same name shows nothing: the address is quarantined, and the look says what is seen.
func TestANewBookKeepsWhoNamedNoMAC(t *testing.T) {
	t.Parallel()
	for name, make := range anew {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, slow, runnerOne)
			lives, again := w.withoutMAC("lives"), w.withoutMAC("again")
			file := w.backup()
			w.stopDaemon()
			w.later(again)
			if name == "restore" {
				would, err := w.takeIn(file, false)
				must(t, err)
				i := slices.IndexFunc(would.Became, func(o rebuild.Outcome) bool { return o.Sandbox == "again" })
				wants(t, "why it is quarantined", would.Became[i].Why, "seen", "behind port "+again.port.HostName, "nothing shows")
			}
			must(t, make(w, file))
			w.start()
			for b, state := range map[*box]api.State{lives: api.Bound, again: api.Quarantined} {
				if now := w.whois(b.held.Address); now.Lease == nil || now.Lease.ID != b.held.ID || now.State != state {
					t.Errorf("%s had %s, and it is %s, %+v", b.name, b.held.ID, now.State, now.Lease)
				}
			}
			if l, _ := w.client.Lease(ctx, lives.held.ID); l == nil || l.Lease.HostIndex == 0 || l.Lease.NetnsInode == 0 {
				t.Errorf("where it lives: %+v", l)
			}
		})
	}
}

// withoutMAC is wired, with a bind that names no MAC.
func (w *world) withoutMAC(name string) *box {
	w.t.Helper()
	b := &box{name: name, held: w.allocate(name).Leases[0]}
	b.port = w.ns.Port("rt0", b.held.Address+"/24")
	_, err := w.client.Bind(ctx, b.held.ID, api.BindRequest{Netns: b.port.NS.Path(), HostInterface: b.port.HostName})
	must(w.t, err)
	return b
}

// later has another port be under the name of a box's, with its address.
func (w *world) later(b *box) {
	w.t.Helper()
	b.port.Close()
	p := w.ns.Port("rt0", b.held.Address+"/24")
	nl := w.ns.Netlink()
	link, err := nl.LinkByName(p.HostName)
	must(w.t, err)
	must(w.t, nl.LinkSetDown(link))
	must(w.t, nl.LinkSetName(link, b.port.HostName))
	must(w.t, nl.LinkSetUp(link))
}
