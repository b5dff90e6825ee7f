package netdb_test

import (
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb"
	. "github.com/ipamd/ipamd/netdb/netdbtest"
)

var slotting = ipam.Who{Actor: ipam.ByAllocator, Peer: "test", Reason: ipam.SlotReserved}

// warm makes the first pool of a book keep slots; mtu distinguishes one spec from another.
func warm(t *testing.T, b *netdb.Book, strategy string, mtu int) *ipam.Pool {
	t.Helper()
	spec := b.Pools()[0].PoolSpec
	spec.MTU, spec.Warm = mtu, &ipam.Warm{Size: 5, Strategy: strategy}
	p, err := b.EnsurePool(ctx, Who(ipam.ByOperator, "test"), spec)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// slot is a ready one.
func slot(t *testing.T, b *netdb.Book, id string) *ipam.Lease {
	t.Helper()
	c, err := b.Pick(b.Pools()[0].UID, Policy)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Drop(c)
	ls, err := b.Reserve(ctx, slotting, netdb.Reservation{Candidate: c, Sandbox: "warm slot", UID: ipam.SlotUID(id), Interface: "eth0",
		Attempt: 1, BindWithin: 10 * time.Minute, Slot: &ipam.NewSlot{ID: id, Netns: "/run/netns/" + id}})
	if err != nil {
		t.Fatal(err)
	}
	l, err := b.Bind(ctx, client, ls[0].ID, 0, ipam.Binding{Netns: "/run/netns/" + id, HostInterface: "sb" + id})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func claimed(b *netdb.Book, l *ipam.Lease, sandbox string) (*ipam.Lease, bool, error) {
	return b.ClaimSlot(ctx, ipam.Who{Actor: ipam.ByAllocator, Peer: "test", Reason: ipam.SlotClaimed}, netdb.Claim{
		LeaseID: l.ID, Sandbox: sandbox, UID: sandbox, Interface: "eth0", Attempt: 1})
}

// A claim gives the slot's address, namespace and port to a sandbox under a new lease id,
// once, and the book has that still when it is opened again.
func TestASlotIsGivenOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "book.db")
	b := OpenAt(t, path, Options())
	Pool(t, b, "default", "10.8.64.0/24")
	warm(t, b, "", 1400)
	l := slot(t, b, "one")
	given, stale, err := claimed(b, l, "a")
	if err != nil || stale {
		t.Fatal(given, stale, err)
	}
	if given.ID == l.ID || given.Addr != l.Addr || given.UID != "a" || given.State != ipam.Bound || given.Netns != l.Netns || given.HostInterface != l.HostInterface {
		t.Errorf("given: %+v", given)
	}
	if _, _, err := claimed(b, l, "b"); !errors.Is(err, ipam.ErrSlotTaken) {
		t.Errorf("claimed again: %v", err)
	}
	if _, _, err := claimed(b, given, "b"); !errors.Is(err, ipam.ErrSlotTaken) {
		t.Errorf("the sandbox's own: %v", err)
	}
	// Whoever asks again has its lease already, whatever became of the spec.
	warm(t, b, "", 1300)
	other := slot(t, b, "two")
	owned := new(ipam.OwnedError)
	if _, _, err := claimed(b, other, "a"); !errors.As(err, &owned) || owned.Lease.ID != given.ID {
		t.Errorf("asked again: %v", err)
	}
	Close(t, b)
	b = OpenAt(t, path, Options())
	if s := b.Slot(given.ID); s == nil || !s.Claimed || s.ID != "one" || b.Slot(l.ID) != nil {
		t.Errorf("after a restart: %+v, %+v", s, b.Slot(l.ID))
	}
	Cool(t, b, given)
	if s := b.Slot(given.ID); s != nil {
		t.Errorf("its lease cools: %+v", s)
	}
	if got, _ := b.At(given.Addr); got == nil || got.State != ipam.Cooling {
		t.Errorf("the address that a sandbox had: %+v", got)
	}
}

// The address of a slot that no sandbox had cools not at all.
func TestAnUnusedSlotsAddressIsFreeAtOnce(t *testing.T) {
	b := Open(t)
	warm(t, b, "", 1400)
	l := slot(t, b, "one")
	if end := Cool(t, b, l); end.State != ipam.Free {
		t.Errorf("it is %s", end.State)
	}
	if got, has := b.At(l.Addr); has || b.Slot(l.ID) != nil {
		t.Errorf("left: %+v, %+v", got, b.Slot(l.ID))
	}
}

// No sandbox gets a slot's lease by its uid.
func TestASlotsUIDIsNoSandboxs(t *testing.T) {
	b := Open(t)
	p := warm(t, b, "", 1400)
	if _, err := TryReserve(b, p, ipam.SlotUID("one"), Policy); !errors.Is(err, ipam.ErrInvalid) {
		t.Errorf("reserved: %v", err)
	}
	if _, _, err := claimed(b, slot(t, b, "one"), ipam.SlotUID("one")); !errors.Is(err, ipam.ErrInvalid) {
		t.Errorf("claimed: %v", err)
	}
}

// Of a pool whose spec changed no slot of before is given under recreate, to no request; under
// on_replenish it is, and the answer says so.
func TestSlotsOfAnotherSpec(t *testing.T) {
	for strategy, given := range map[string]bool{"": false, ipam.SlotsRecreate: false, ipam.SlotsOnReplenish: true} {
		b := Open(t)
		warm(t, b, strategy, 1400)
		var slots []*ipam.Lease
		for i := range 5 {
			slots = append(slots, slot(t, b, fmt.Sprint(i)))
		}
		warm(t, b, strategy, 1300)
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				l, stale, err := claimed(b, slots[i%5], fmt.Sprint("s", i))
				switch {
				case err == nil && (!given || !stale):
					t.Errorf("strategy %q: %s was given, stale: %t", strategy, l.Addr, stale)
				case err != nil && !errors.Is(err, ipam.ErrSlotTaken) && !errors.Is(err, ipam.ErrSlotStale):
					t.Error(err)
				}
			})
		}
		wg.Wait()
		n := 0
		for _, s := range b.Slots() {
			if s.Claimed {
				n++
			}
		}
		if want := map[bool]int{true: 5}[given]; n != want {
			t.Errorf("strategy %q: %d slots were given, not %d", strategy, n, want)
		}
		l, stale, err := claimed(b, slot(t, b, "new"), "n")
		if err != nil || stale {
			t.Errorf("a slot of the new spec: %v, %t, %v", l, stale, err)
		}
		Close(t, b)
	}
}

// M4: a claim that begins after the change of a pool is acknowledged never gets a slot of
// before, however the two meet in commits: ten thousand claims, each of which races a change, by
// twenty on the slot of a round. A round takes milliseconds and most of that is the slot's making,
// so that ten thousand rounds of a claim each would find the same in twenty times the time.
func TestClaimsRaceAChangeOfThePool(t *testing.T) {
	opts := Options()
	opts.Synchronous = "normal"
	b := OpenAt(t, filepath.Join(t.TempDir(), "book.db"), opts)
	Pool(t, b, "default", "10.8.0.0/16")
	warm(t, b, "", 1300)
	const claims = 20 // a round: one in four begins beside the change, the others when it is acknowledged
	rounds := 10_000 / claims
	if testing.Short() {
		rounds = 50
	}
	var refused atomic.Int64 // claims behind the change that found the slot there, and stale
	won := 0
	for i := range rounds {
		l := slot(t, b, fmt.Sprint("r", i))
		changed := make(chan struct{})
		spec := b.Pools()[0].PoolSpec
		spec.MTU = 1301 + i
		var wg sync.WaitGroup
		wg.Go(func() {
			defer close(changed)
			if _, err := b.EnsurePool(ctx, Who(ipam.ByOperator, "test"), spec); err != nil {
				t.Error(err)
			}
		})
		got := make([]*ipam.Lease, claims)
		for j := range got {
			wg.Go(func() {
				late := j%4 > 0
				if late {
					<-changed
				}
				l, _, err := claimed(b, l, fmt.Sprint("race", i, "-", j))
				switch {
				case err == nil && late:
					t.Errorf("round %d: given after the pool changed: %s", i, l.Addr)
				case err == nil:
					got[j] = l
				case !errors.Is(err, ipam.ErrSlotTaken) && !errors.Is(err, ipam.ErrSlotStale):
					t.Error(err)
				case late && errors.Is(err, ipam.ErrSlotStale):
					refused.Add(1)
				}
			})
		}
		wg.Wait()
		switch got = slices.DeleteFunc(got, func(l *ipam.Lease) bool { return l == nil }); len(got) {
		case 0:
			Cool(t, b, l)
		case 1:
			won++
		default:
			t.Fatalf("round %d: given %d times", i, len(got))
		}
	}
	if refused.Load() == 0 {
		t.Error("no claim behind a change found its slot there: none of them would have been given it")
	}
	t.Logf("%d of %d slots were given before the change; behind it %d of %d claims were refused for it", won, rounds, refused.Load(), rounds*claims*3/4)
}

// A hundred claims on ten slots: each slot is one sandbox's.
func TestAHundredClaimsOnTenSlots(t *testing.T) {
	b := Open(t)
	warm(t, b, "", 1400)
	var slots []*ipam.Lease
	for i := range 10 {
		slots = append(slots, slot(t, b, fmt.Sprint(i)))
	}
	var mu sync.Mutex
	var got []netip.Addr
	var wg sync.WaitGroup
	for i := range 100 {
		wg.Go(func() {
			for _, s := range slots {
				l, _, err := claimed(b, s, fmt.Sprint("s", i))
				if errors.Is(err, ipam.ErrSlotTaken) {
					continue
				}
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				defer mu.Unlock()
				got = append(got, l.Addr)
				return
			}
		})
	}
	wg.Wait()
	slices.SortFunc(got, netip.Addr.Compare)
	if len(slices.Compact(got)) != 10 || len(got) != 10 {
		t.Errorf("given: %v", got)
	}
}

// A pool of the same name is another one: it gives no slot of the removed one.
func TestSlotsEndWithTheirPool(t *testing.T) {
	b := Open(t)
	p := warm(t, b, ipam.SlotsOnReplenish, 1400)
	l := slot(t, b, "one")
	if _, err := b.RemovePool(ctx, ipam.Who{Actor: ipam.ByOperator, Peer: "test", Reason: "removed", Note: "test"}, p.UID, true); err != nil {
		t.Fatal(err)
	}
	if _, err := b.EnsurePool(ctx, Who(ipam.ByOperator, "test"), p.PoolSpec); err != nil {
		t.Fatal(err)
	}
	if _, _, err := claimed(b, l, "a"); !errors.Is(err, ipam.ErrSlotTaken) {
		t.Errorf("claimed: %v", err)
	}
	if len(b.Slots()) != 0 {
		t.Errorf("slots: %v", b.Slots())
	}
}

// A broken slot is released with its reason, and given to none.
func TestABrokenSlotIsNotGiven(t *testing.T) {
	b := Open(t)
	warm(t, b, "", 1400)
	l := slot(t, b, "one")
	broken, err := b.BreakSlot(ctx, Who(ipam.ByReconciler, ipam.SlotBroken), l.ID, "its port is gone")
	if err != nil || broken.State != ipam.Releasing || b.Slot(l.ID).Broken != "its port is gone" {
		t.Fatal(broken, err)
	}
	if _, _, err := claimed(b, l, "a"); !errors.Is(err, ipam.ErrSlotTaken) {
		t.Errorf("claimed: %v", err)
	}
}
