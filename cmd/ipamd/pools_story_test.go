package main

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/client"
	"github.com/ipamd/ipamd/config"
	"github.com/ipamd/ipamd/internal/realtest"
	"github.com/ipamd/ipamd/netdb"
)

// poolNamed is one pool as the daemon lists it.
func (w *world) poolNamed(name string) api.Pool {
	w.t.Helper()
	list, err := w.client.Pool(ctx, name)
	if err != nil {
		w.t.Fatal(err)
	}
	return list.Pools[0]
}

// cool gives a sandbox an address, binds it to a port that is not there, and waits until
// its release is confirmed.
func (w *world) cool(sandbox string, pool ...string) api.Lease {
	w.t.Helper()
	ask := api.AllocateRequest{Sandbox: sandbox}
	if len(pool) > 0 {
		ask.Pool = pool[0]
	}
	r, err := w.client.Allocate(ctx, ask)
	if err != nil {
		w.t.Fatal(err)
	}
	l := r.Leases[0]
	if _, err := w.client.Bind(ctx, l.ID, api.BindRequest{HostInterface: "veth-" + sandbox}); err != nil {
		w.t.Fatal(err)
	}
	done, err := w.client.Release(ctx, l.ID, api.ReleaseRequest{Wait: api.Duration(wait.String())})
	if err != nil || done.Lease.State != api.Cooling {
		w.t.Fatalf("release of %s: %+v, %v", l.Address, done, err)
	}
	return l
}

// refusedWith wants a code, and a book that stays at its revision.
func (w *world) refusedWith(want error, do func() error) *api.Error {
	w.t.Helper()
	rev := w.program.book.Rev()
	err := do()
	if !errors.Is(err, want) {
		w.t.Errorf("%v, want %v", err, want)
	}
	if now := w.program.book.Rev(); now != rev {
		w.t.Errorf("it was refused, and the book went from revision %d to %d", rev, now)
	}
	var output *api.Error
	errors.As(err, &output)
	return output
}

// Scenario P2, scenario P4 and scenario P6 on a daemon, over its socket: a pool with an open lease is not
// removed and says which; without one all of its rows go in one step, which no listing
// sees half of, and the history stays. What was below its generation stays stale, also
// after a restart. The same prefix, made again, has another uid, and .2 works at once.
func TestAPoolIsRemovedAndMadeAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, slow)
	two := w.give("two", "10.8.64.2").Leases[0]
	var cooled []api.Lease
	for _, name := range []string{"b", "c", "d", "e", "f"} {
		cooled = append(cooled, w.cool(name))
	}
	old := w.poolNamed("default")
	remove := func() error {
		_, err := w.client.RemovePool(ctx, "default", client.Removal{UID: old.UID})
		return err
	}
	output := w.refusedWith(client.ErrPoolNotEmpty, remove)
	if leases, _ := output.Details["leases"].([]any); len(leases) != 1 || leases[0].(map[string]any)["lease_id"] != two.ID {
		t.Errorf("the refusal lists %v", output.Details)
	}
	if _, err := w.client.Release(ctx, two.ID, api.ReleaseRequest{}); err != nil {
		t.Fatal(err)
	}
	w.becomes("10.8.64.2", api.Free)

	var done atomic.Bool
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for !done.Load() {
				list, err := w.client.Leases(ctx, client.LeaseFilter{})
				if err != nil || len(list.Leases) != len(cooled) && len(list.Leases) != 0 {
					t.Errorf("a listing beside the removal has %d rows of %d, %v", len(list.Leases), len(cooled), err)
					return
				}
			}
		})
	}
	if err := remove(); err != nil {
		t.Fatal(err)
	}
	done.Store(true)
	group.Wait()
	if list, err := w.client.Leases(ctx, client.LeaseFilter{}); err != nil || len(list.Leases) != 0 {
		t.Errorf("rows are left: %+v, %v", list, err)
	}
	for _, l := range cooled {
		who := w.whois(l.Address)
		if len(who.History) == 0 || who.History[len(who.History)-1].LeaseID == "" && who.History[0].LeaseID == "" {
			t.Errorf("the history of %s is %+v", l.Address, who.History)
		}
		if _, err := w.client.Lease(ctx, l.ID); !errors.Is(err, client.ErrLeaseGone) && !errors.Is(err, client.ErrNotFound) {
			t.Errorf("%s: %v", l.Address, err)
		}
	}

	w.stopDaemon()
	w.start() // the unchanged configuration does not make it again
	seventh := api.PoolRequest{Prefix: "10.8.64.0/24", MTU: 1300, Generation: 7}
	made, err := w.client.ApplyPool(ctx, "default", seventh)
	if err != nil || made.Pool.UID == old.UID || made.Pool.Generation != 7 || made.Pool.ByState["cooling"] != len(cooled) {
		t.Fatalf("made again: %+v, %v", made, err)
	}
	if l := w.give("first", "10.8.64.2").Leases[0]; l.PoolUID != "" && l.PoolUID != made.Pool.UID {
		t.Errorf("first is of pool %s", l.PoolUID)
	}
	next := w.give("next", "10.8.64.8").Leases[0] // what cools goes on cooling
	stale := func() {
		t.Helper()
		output := w.refusedWith(client.ErrStaleGeneration, func() error {
			_, err := w.client.ApplyPool(ctx, "default", api.PoolRequest{Prefix: "10.8.64.0/24", MTU: 1400, Generation: 6})
			return err
		})
		if output.Details["generation"] != 7.0 {
			t.Errorf("the refusal says %v", output.Details)
		}
	}
	stale()
	w.stopDaemon()
	w.start()
	stale()
	if now := w.poolNamed("default"); now.MTU != 1300 || now.Generation != 7 || now.UID != made.Pool.UID {
		t.Errorf("it is %+v", now)
	}

	// By force: the addresses are withheld, and no pool of the prefix gives them.
	if _, err := w.client.RemovePool(ctx, "default", client.Removal{UID: made.Pool.UID, Mode: api.RemoveForce, Reason: "it moves"}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.client.ApplyPool(ctx, "default", api.PoolRequest{Prefix: "10.8.64.0/28", Exclude: []string{"10.8.64.9-10.8.64.14"}}); err != nil {
		t.Fatal(err)
	}
	for _, a := range []string{"10.8.64.2", next.Address} {
		if s := w.state(a); s != api.Quarantined {
			t.Errorf("%s, held when its pool was removed by force, is %s", a, s)
		}
	}
	if r, err := w.client.Allocate(ctx, api.AllocateRequest{Sandbox: "late"}); err == nil {
		t.Errorf("%s was given", r.Leases[0].Address)
	}
}

// Scenario P3 on a daemon, over its socket: the row of a pool that is gone keeps a pool
// from its address, by its uid and the new one; nothing of it is taken in, and the address
// is given by no pool. A range beside it works.
func TestARowOfAPoolThatIsGone(t *testing.T) {
	t.Parallel()
	w := newWorld(t, slow)
	w.ns.Exec("ip", "addr", "add", "10.9.0.1/24", "dev", "rt0")
	w.ns.Exec("ip", "addr", "add", "10.9.1.1/24", "dev", "rt0")
	made, err := w.client.ApplyPool(ctx, "second", api.PoolRequest{Prefix: "10.9.0.0/24"})
	if err != nil {
		t.Fatal(err)
	}
	r, err := w.client.Allocate(ctx, api.AllocateRequest{Sandbox: "a", Pool: "second"})
	if err != nil {
		t.Fatal(err)
	}
	l := r.Leases[0]
	w.stopDaemon()
	w.edit(`PRAGMA foreign_keys = 0; DELETE FROM pools WHERE name = 'second'`)
	w.edited = append(w.edited, netdb.RowsAreReadable, netdb.FileIsWhole, netdb.RowsHaveTheirLast, netdb.HistoryIsAChain)
	w.start()
	for _, prefix := range []string{"10.9.0.0/24", "10.9.0.0/16", l.Address + "/32"} {
		output := w.refusedWith(client.ErrPoolOverlap, func() error {
			ask := api.PoolRequest{Prefix: prefix, Drain: true}
			if strings.HasSuffix(prefix, "/32") {
				ask.Gateway = "none"
			}
			_, err := w.client.ApplyPool(ctx, "second", ask)
			return err
		})
		if output == nil || output.Details["address"] != l.Address || output.Details["old_uid"] != made.Pool.UID || output.Details["new_uid"] == "" || output.Details["new_uid"] == made.Pool.UID {
			t.Errorf("%s: the refusal is %+v", prefix, output)
		}
	}
	if got := w.findings(); !slices.ContainsFunc(got, func(f string) bool { return strings.HasPrefix(f, "unreadable_row") }) {
		t.Errorf("doctor says %v", got)
	}
	if _, err := w.client.ApplyPool(ctx, "second", api.PoolRequest{Prefix: "10.9.1.0/24"}); err != nil {
		t.Fatal(err)
	}
	if r, err := w.client.Allocate(ctx, api.AllocateRequest{Sandbox: "b", Pool: "second"}); err != nil || r.Leases[0].Address != "10.9.1.2" {
		t.Errorf("beside it: %+v, %v", r, err)
	}
	if _, err := w.client.Allocate(ctx, api.AllocateRequest{Sandbox: "c", Pool: "second", Address: l.Address}); err == nil {
		t.Error("its address was given")
	}
}

// Scenario P5 on a daemon: what a pass ends in bulk it ends by the pool's uid. A pool that
// was removed and made again with a long cooldown keeps what cools, through the passes
// that end what cools by the daemon's own short one, of other pools and of the old one.
func TestAPassEndsRestsByThePoolsUID(t *testing.T) {
	t.Parallel()
	w := newWorld(t, quick, func(c *config.Config) { c.Reconcile.Every = config.Duration(20 * time.Millisecond) })
	w.ns.Exec("ip", "addr", "add", "10.9.0.1/24", "dev", "rt0")
	goOn := w.holdPasses() // until the old pool is gone
	former := w.cool("a")
	old := w.poolNamed("default")
	if _, err := w.client.RemovePool(ctx, "default", client.Removal{UID: old.UID}); err != nil {
		t.Fatal(err)
	}
	again, err := w.client.ApplyPool(ctx, "default", api.PoolRequest{Prefix: "10.8.64.0/24", Cooldown: "1h", CooldownMin: "1h"})
	if err != nil || again.Pool.UID == old.UID {
		t.Fatalf("%+v, %v", again, err)
	}
	if _, err := w.client.ApplyPool(ctx, "second", api.PoolRequest{Prefix: "10.9.0.0/24"}); err != nil {
		t.Fatal(err)
	}
	other := w.cool("b", "second")
	before := w.whois(former.Address)
	goOn()
	w.becomes(other.Address, api.Free) // by the daemon's cooldown
	for range 3 {
		if _, err := w.client.Reconcile(ctx, api.ReconcileRequest{Confirm: true}); err != nil {
			t.Fatal(err)
		}
	}
	if now := w.whois(former.Address); now.State != api.Cooling || now.Revision < before.Revision || now.Lease == nil && before.Lease != nil {
		t.Errorf("%s is %s, want cooling by its own pool's hour", former.Address, now.State)
	}
}

// Scenario P9 on a daemon, over its socket: a sandbox that is made, bound and released again
// and again has the same address each time, and no other was ever in use.
func TestACrashLoopOverTheSocket(t *testing.T) {
	t.Parallel()
	w := newWorld(t, slow)
	for n := range 50 {
		l := w.give("loops", "10.8.64.2").Leases[0]
		if _, err := w.client.Bind(ctx, l.ID, api.BindRequest{HostInterface: "veth-loops"}); err != nil {
			t.Fatal(n, err)
		}
		if _, err := w.client.Release(ctx, l.ID, api.ReleaseRequest{Wait: api.Duration(wait.String())}); err != nil {
			t.Fatal(n, err)
		}
	}
	list, err := w.client.Leases(ctx, client.LeaseFilter{})
	if err != nil || len(list.Leases) != 1 || list.Leases[0].Address != "10.8.64.2" {
		t.Errorf("%+v, %v", list, err)
	}
	pool := w.poolNamed("default")
	if pool.Free != pool.Size-1 {
		t.Errorf("%d of %d addresses are free", pool.Free, pool.Size)
	}
	realtest.Eventually(t, wait, "nothing else in the history", func() bool {
		return w.state("10.8.64.3") == api.Free && len(w.whois("10.8.64.3").History) == 0
	})
}
