package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/client"
	"github.com/ipamd/ipamd/config"
	"github.com/ipamd/ipamd/internal/nstest"
	"github.com/ipamd/ipamd/internal/realtest"
)

// rt0 is deleted and made again, over and over, while 32 callers allocate, plumb,
// bind and release. While it is gone nothing is given, for that reason and no
// other, and nothing cools, though passes run with a person's word; health
// reports it. When it is back, under another index, and its ports are, everything
// goes on without a restart. No sandbox ever gets what another holds, and who
// was bound before stays so.
func TestBridgeLostUnderLoad(t *testing.T) {
	w := newWorld(t, quick, func(c *config.Config) {
		// One pass would do to miss a lease; it lasts for the age that is default.
		c.Reconcile.Misses = 1
		c.Allocation.Quarantine = config.Duration(time.Hour)
	})
	var ports []*nstest.Port
	held := &holders{of: make(map[string]string)}
	var settled []api.Lease
	for i := range 8 {
		name := fmt.Sprint("settled", i)
		l := w.allocate(name).Leases[0]
		p := w.ns.Port("rt0", l.Address+"/24")
		r, err := w.client.Bind(ctx, l.ID, api.BindRequest{Netns: p.NS.Path(), HostInterface: p.HostName, MAC: p.MAC.String()})
		if err != nil {
			t.Fatal(err)
		}
		held.take(l.Address, name)
		ports, settled = append(ports, p), append(settled, r.Lease)
	}
	const stranger = "10.8.64.100"
	ports = append(ports, w.ns.Port("rt0", stranger+"/24"))
	held.take(stranger, "a stranger")
	w.becomes(stranger, api.Quarantined)

	var all sync.WaitGroup
	var gone atomic.Int64 // odd while rt0 is
	var refused atomic.Int64
	end, failed := make(chan struct{}), make(chan error, 1000)
	stop := sync.OnceFunc(func() {
		close(end)
		all.Wait()
	})
	defer stop()
	for i := range 32 {
		p := w.ns.Port("rt0")
		ports = append(ports, p)
		c := &caller{world: w, name: fmt.Sprint("caller", i), port: p, held: held, gone: &gone, refused: &refused}
		all.Go(func() {
			for {
				select {
				case <-end:
					return
				default:
				}
				if err := c.cycle(); err != nil {
					failed <- fmt.Errorf("%s: %w", c.name, err)
					return
				}
			}
		})
	}
	index := w.linkIndex("rt0")
	for round := range 3 {
		given := held.given.Load()
		realtest.Eventually(t, wait, "the callers to get on", func() bool { return held.given.Load() >= given+64 || len(failed) > 0 })

		w.ns.Exec("ip", "link", "del", "rt0")
		realtest.Eventually(t, wait, "health to report it", func() bool {
			_, err := w.client.Ready(ctx)
			return errors.Is(err, client.ErrNotReady)
		})
		// What was decided before, and is being written, is before: also by a pass that is under way.
		w.pass()
		if err := w.program.book.Ping(ctx); err != nil {
			t.Fatal(err)
		}
		from := w.program.book.Rev()
		refused.Store(0)
		gone.Add(1)
		realtest.Eventually(t, wait, "every caller to be refused", func() bool { return refused.Load() >= 64 || len(failed) > 0 })
		for range 3 {
			if r := w.pass(); r.Complete || len(r.Actions) != 0 {
				t.Errorf("round %d: a pass without rt0: %+v", round, r)
			}
		}
		if got := w.findings(); !slices.Contains(got, "bridge_not_ready") || !slices.Contains(got, "witness_silent") {
			t.Errorf("round %d: doctor says %v", round, got)
		}
		to := w.program.book.Rev()
		gone.Add(1)
		w.onlyReleased(from, to)

		index = w.makeAgain(ports, index)
	}
	for range 3 { // so fast that it need not have been seen missing
		w.ns.Exec("ip", "link", "del", "rt0")
		index = w.makeAgain(ports, index)
	}
	given := held.given.Load()
	realtest.Eventually(t, wait, "the callers to go on", func() bool { return held.given.Load() >= given+64 || len(failed) > 0 })
	stop()
	// A loop that has had no processor for seconds beside all of them is not ready before it has.
	realtest.Eventually(t, wait, "the daemon to be ready", func() bool { _, err := w.client.Ready(ctx); return err == nil })
	for _, l := range settled {
		w.stays(l)
		realtest.Eventually(t, wait, l.Address+" to be seen again", func() bool { return seenBy(w, l.Address, "netns") })
	}
	if got := w.state(stranger); got != api.Quarantined {
		t.Errorf("the stranger's address is %s", got)
	}
	w.oneOwnerAtATime()
	for len(failed) > 0 {
		t.Error(<-failed)
	}
}

// onlyReleased fails the test when an address was given or became reusable in a
// range of the book's history.
func (w *world) onlyReleased(from, to int64) {
	w.t.Helper()
	list, err := w.client.History(ctx, client.HistoryFilter{Limit: 1000})
	if err != nil {
		w.t.Fatal(err)
	}
	for _, c := range list.Changes {
		if c.Revision > from && c.Revision <= to && c.To != api.Releasing && c.To != api.Bound {
			w.t.Errorf("while rt0 was gone: %+v", c)
		}
	}
}

func (w *world) linkIndex(name string) int {
	w.t.Helper()
	l, err := w.ns.Netlink().LinkByName(name)
	if err != nil {
		w.t.Fatal(err)
	}
	return l.Attrs().Index
}

// makeAgain makes rt0 and plugs its ports again. It returns the index, which
// is another one.
func (w *world) makeAgain(ports []*nstest.Port, former int) int {
	w.t.Helper()
	w.ns.Bridge("rt0", "10.8.64.1/24")
	index := w.linkIndex("rt0")
	if index == former {
		w.t.Fatalf("rt0 has its former index %d", index)
	}
	for _, p := range ports {
		near, err := w.ns.Netlink().LinkByName(p.HostName)
		if err == nil {
			err = w.ns.Netlink().LinkSetMasterByIndex(near, index)
		}
		if err != nil {
			w.t.Fatal(err)
		}
	}
	return index
}

// holders know who holds which address, as their holders were answered.
type holders struct {
	mu    sync.Mutex
	of    map[string]string
	given atomic.Int64
}

// take notes a holder, and returns who held the address already.
func (h *holders) take(addr, name string) (before string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if before = h.of[addr]; before == "" {
		h.of[addr] = name
	}
	return before
}

// drop notes that no sandbox holds an address.
func (h *holders) drop(addr string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.of, addr)
}

// A caller is a runtime that makes and ends sandboxes, one after the other, in
// a namespace of its own.
type caller struct {
	*world
	name    string
	step    int
	port    *nstest.Port
	held    *holders
	gone    *atomic.Int64
	refused *atomic.Int64
}

// cycle is one sandbox's life, or one refusal.
func (c *caller) cycle() error {
	c.step++
	name := fmt.Sprint(c.name, "-", c.step)
	before := c.gone.Load()
	r, err := c.client.Allocate(ctx, api.AllocateRequest{Sandbox: name})
	missing := before%2 == 1 && c.gone.Load() == before
	switch {
	case missing && !errors.Is(err, client.ErrBridgeNotReady):
		return fmt.Errorf("without rt0: %+v, %w", r, err)
	case errors.Is(err, client.ErrBridgeNotReady) || errors.Is(err, client.ErrEvidenceUnavailable):
		if missing {
			c.refused.Add(1)
		}
		<-time.After(time.Millisecond)
		return nil
	case err != nil:
		return err
	}
	l := r.Leases[0]
	if other := c.held.take(l.Address, name); other != "" {
		return fmt.Errorf("got %s, which %s holds", l.Address, other)
	}
	c.held.given.Add(1)
	eth0, err := c.port.NS.Netlink().LinkByName("eth0")
	if err != nil {
		return err
	}
	addr, err := netlink.ParseAddr(l.Address + "/24")
	if err == nil {
		err = c.port.NS.Netlink().AddrAdd(eth0, addr)
	}
	if err != nil {
		return err
	}
	if _, err := c.client.Bind(ctx, l.ID, api.BindRequest{MAC: c.port.MAC.String()}); err != nil {
		return err
	}
	<-time.After(time.Duration(rand.IntN(5000)) * time.Microsecond)
	if err := c.port.NS.Netlink().AddrDel(eth0, addr); err != nil {
		return err
	}
	c.held.drop(l.Address)
	_, err = c.client.Release(ctx, l.ID, api.ReleaseRequest{})
	return err
}

// A bridge that is deleted and made again has no ports. A sandbox without containers
// that is not plugged again yet is seen by no witness, and its link shows that it lives: it is
// reaped once the link has gone with it.
func TestABridgeMadeAgainReapsNoLiveSandbox(t *testing.T) {
	t.Parallel()
	w := newWorld(t, hasty)
	live := w.wired("live")
	former := w.linkIndex("rt0")
	w.ns.Exec("ip", "link", "del", "rt0")
	w.makeAgain(nil, former)
	skipped := func() bool {
		return slices.ContainsFunc(w.pass().Actions, func(a api.Action) bool {
			return a.Kind == "reap" && a.Result == "skipped" && strings.Contains(a.Reason, live.port.HostName+" is a port of no bridge, and leads to a namespace with "+live.held.Address)
		})
	}
	realtest.Eventually(t, wait, "a pass that would reap it", skipped)
	w.keeps("default", live.held.Address)
	live.port.Close()
	realtest.Eventually(t, wait, "its lease to be reaped", func() bool { w.pass(); return w.is(live.held.Address, api.Cooling) })
}
