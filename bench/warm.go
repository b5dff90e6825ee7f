package main

import (
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/internal/nstest"
	"github.com/ipamd/ipamd/internal/realtest"
	"github.com/ipamd/ipamd/plumb"
	"github.com/ipamd/ipamd/plumb/helper"
)

// refilled is how many slots a pool of goal 20 has.
const refilled = 100

// warmSlots is goal 20: a sandbox that is given a slot, beside one whose namespace is made, whose
// address is asked for and whose port is plugged in; and a pool that is filled, beside the same
// ports made by the same package as quickly as the machine makes them.
func warmSlots(r *run) func() []ratio {
	d := r.start(setup{})
	d.helper()
	d.slotHelper()
	d.keep(refilled)
	d.filled(refilled)
	n := 0
	name := func(kind string) string { n++; return kind + "-" + strconv.Itoa(n) }
	id := ""
	release := func() error {
		_, err := d.client.Release(d.ctx, id, api.ReleaseRequest{})
		return err
	}
	claim := call{func() error {
		reply, err := d.client.Allocate(d.ctx, api.AllocateRequest{Sandbox: name("warm"), Warm: &api.WarmRequest{Policy: api.WarmRequire}})
		if err == nil {
			id = reply.Leases[0].ID
		}
		return err
	}, release}
	guest := nstest.New(r)
	cold := d.attached(guest.Path())
	byTurns(turn, claim, cold) // warm
	return func() []ratio {
		d.filled(refilled)
		t := byTurns(2*turn, claim, cold)
		d.filled(refilled)
		d.keep(0)
		d.filled(0)
		began := time.Now()
		d.keep(refilled)
		d.filled(refilled)
		refill := refilled / time.Since(began).Seconds()
		return []ratio{took(t[0].do.p50(), t[1].do.p50()), rates(refill, d.own())}
	}
}

// slotHelper runs the program that makes slots, in the machine's own mount namespace.
func (d *daemon) slotHelper() {
	cmd := child(d.program, "plumb", "--slots", "--socket", filepath.Join(d.folder, "sock"))
	cmd.Stderr = os.Stderr
	check(d.inside(cmd.Start))
	d.Cleanup(func() {
		d.keep(0)
		d.filled(0)
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
	})
}

// keep has the pool keep so many slots.
func (d *daemon) keep(n int) {
	p := must(d.client.Pools(d.ctx)).Pools[0]
	ask := api.PoolRequest{Prefix: p.Prefix, Gateway: p.Gateway, Bridge: p.Bridge, Exclude: p.Exclude}
	if n > 0 {
		ask.Warm = &api.PoolWarm{Size: int64(n), Max: int64(n) + 50}
	}
	must(d.client.ApplyPool(d.ctx, p.Name, ask))
}

// filled waits until so many slots are ready, and none is on its way in or out. It looks seldom:
// a listing of all costs the daemon as much as the making of one.
func (d *daemon) filled(n int) {
	realtest.Eventually(d, patience, strconv.Itoa(n)+" slots are ready", func() bool {
		time.Sleep(20 * time.Millisecond)
		all := must(d.client.Warm(d.ctx, "")).Slots
		ready := 0
		for _, s := range all {
			if s.State == api.SlotReady {
				ready++
			}
		}
		return ready == n && len(all) == n
	})
}

// own is how many ports a second the machine makes by itself, each with its namespace, by as many
// hands as the helper has.
func (d *daemon) own() float64 {
	const hands = helper.Hands
	runner := "bench-" + strconv.Itoa(os.Getpid())
	specs := make(chan plumb.Spec, refilled)
	for i := range refilled {
		owner := "own-" + strconv.Itoa(i)
		specs <- plumb.Spec{Owner: owner, Host: plumb.HostName(owner), Bridge: bridgeName, Netns: plumb.SlotPath(runner, owner), Guest: "eth0", MTU: 1500,
			Addresses: []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 8, 240, byte(i + 1)}), 16)},
			Routes:    []plumb.Route{{To: netip.MustParsePrefix("0.0.0.0/0"), Via: netip.MustParseAddr("10.8.0.1")}}}
	}
	close(specs)
	began := time.Now()
	done := make(chan error, hands)
	for range hands {
		go func() {
			var err error
			d.ns.Do(func() {
				for s := range specs {
					if _, err = plumb.MakeSlot(d.ctx, runner, s); err != nil {
						return
					}
				}
			})
			done <- err
		}()
	}
	for range hands {
		check(<-done)
	}
	rate := refilled / time.Since(began).Seconds()
	for i := range refilled {
		owner := "own-" + strconv.Itoa(i)
		check(d.inside(func() error {
			return plumb.RemoveSlot(d.ctx, runner, plumb.SlotPath(runner, owner), plumb.HostName(owner), owner)
		}))
	}
	return rate
}
