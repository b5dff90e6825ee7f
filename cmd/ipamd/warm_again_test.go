package main

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/ipamd/ipamd/allocator"
	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/binding"
	"github.com/ipamd/ipamd/client"
	"github.com/ipamd/ipamd/config"
	"github.com/ipamd/ipamd/internal/nstest"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb"
)

// oneCall is what the daemon gives by, with other rules and another allocator.
func (w *world) oneCall(from binding.Allocator, rules binding.Rules) binding.OneCallAllocator {
	p := w.program
	return binding.OneCallAllocator{Allocator: from, Profile: w.program.slotProfile, Book: &binding.Book{Book: p.book, Kernel: p.bridge, Board: p.board,
		Watchdog: p.watchdog, Reclaimer: p.allocator, Rules: rules, Log: p.log}}
}

// notOnce are rules that cannot be made the first time.
type notOnce struct{ asked []string }

var errRules = errors.New("the rules could not be made")

func (n *notOnce) Ensure(_ context.Context, id string) error {
	if n.asked = append(n.asked, id); len(n.asked) == 1 {
		return errRules
	}
	return nil
}

// A claim whose rules did not hold is an error, and the sandbox that asks again is answered with the
// same slot once they do, and not before.
func TestM7TheRulesOfASlotThatIsAskedForAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, quick)
	w.warmHelper()
	w.keepSlots(1400, &ipam.Warm{Size: 1})
	w.settled(1)
	rules := new(notOnce)
	g := w.oneCall(w.program.allocator, rules)
	ask := allocator.Request{Sandbox: "a", Warm: &allocator.Warm{Require: true}}
	if r, err := g.Allocate(ctx, ask); !errors.Is(err, errRules) {
		t.Fatalf("without rules: %+v, %v", r, err)
	}
	r, err := g.Allocate(ctx, ask)
	if err != nil || !r.Existing || r.Slot == nil {
		t.Fatalf("asked again: %+v, %v", r, err)
	}
	if id := r.Leases[0].ID; len(rules.asked) != 2 || rules.asked[0] != id || rules.asked[1] != id {
		t.Errorf("rules were asked for of %q, and the lease is %s", rules.asked, id)
	}
}

// ending ends the lease that the sandbox has before it asks the allocator.
type ending struct {
	*allocator.Allocator
	book *netdb.Book
	id   string
}

func (e ending) Allocate(c context.Context, r allocator.Request) (*allocator.Result, error) {
	if _, err := e.book.Release(c, ipam.Who{Actor: ipam.ByClient, Peer: "test", Reason: "released"}, e.id, "", 0); err != nil {
		return nil, err
	}
	return e.Allocator.Allocate(c, r)
}

// A request that requires a slot gets no address alone, also when the sandbox's lease ends while it
// is answered.
func TestM5ALeaseThatEndsMeanwhile(t *testing.T) {
	t.Parallel()
	w := newWorld(t, quick)
	given := w.allocate("a").Leases[0]
	g := w.oneCall(ending{w.program.allocator, w.program.book, given.ID}, nil)
	if r, err := g.Allocate(ctx, allocator.Request{Sandbox: "a", Warm: &allocator.Warm{Require: true}}); !errors.Is(err, allocator.ErrNoSlot) {
		t.Errorf("it was given %+v, %v", r, err)
	}
	if l, err := w.client.Leases(ctx, client.LeaseFilter{Sandbox: "a", State: string(api.Reserved)}); err != nil || len(l.Leases) != 0 {
		t.Errorf("left are %+v, %v", l.Leases, err)
	}
}

// M5: one that has waited in vain for longer than a call may last has its port made all the same.
func TestM5AWaitInVainIsAttached(t *testing.T) {
	t.Parallel()
	w := newWorld(t, quick, func(c *config.Config) { c.Socket.Deadline = config.Duration(2 * time.Second) })
	w.helper()
	w.keepSlots(1400, &ipam.Warm{Size: 1})
	guest := nstest.New(t).Path()
	r, err := w.client.Allocate(ctx, api.AllocateRequest{Sandbox: "a", Attach: &api.AttachRequest{Netns: guest},
		Warm: &api.WarmRequest{OnEmpty: api.OnEmptyWait, Wait: "2500ms"}})
	if err != nil || r.Slot != nil || r.Leases[0].State != api.Bound || r.Leases[0].Netns != guest {
		t.Errorf("it has %+v, %v", r, err)
	}
}
