package netdb_test

import (
	"errors"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb"
	. "github.com/ipamd/ipamd/netdb/netdbtest"
)

// L7: after one confirmed release and its cooldown an exhausted pool works
// again.
func TestL7ExhaustedPoolWorksAgainAfterOneRelease(t *testing.T) {
	c := NewClock()
	b, p := openWith(t, c, "10.8.64.0/29")
	var leases []*ipam.Lease
	for _, s := range []string{"a", "b", "c", "d", "e"} {
		leases = append(leases, Reserve(t, b, s))
	}
	_, err := TryReserve(b, p, "f", Policy)
	var full *ipam.ExhaustedError
	if !errors.As(err, &full) || full.ByState[ipam.Reserved] != 5 {
		t.Fatalf("full pool: %v", err)
	}
	if _, err := b.Release(ctx, client, leases[2].ID, "", 0); err != nil {
		t.Fatal(err)
	}
	c.Pass(time.Hour)
	_, err = TryReserve(b, p, "f", Policy)
	wantErr(t, err, ipam.ErrExhausted) // released, and the removal is not confirmed
	l, _ := b.At(leases[2].Addr)
	if _, err := b.Confirm(ctx, watchdog, l.ID, l.Rev, nil); err != nil {
		t.Fatal(err)
	}
	c.Pass(30 * time.Minute)
	if l, err := TryReserve(b, p, "f", Policy); err != nil || l.Addr != leases[2].Addr {
		t.Fatalf("after release and cooldown: %v, %v", l, err)
	}
}

// L8: with never-used addresses left, a released one is not given again, and
// the walk goes on where it was, also across a restart.
func TestL8ThePoolIsWalkedBeforeAnAddressComesBack(t *testing.T) {
	path := filepath.Join(t.TempDir(), "book.db")
	b := OpenAt(t, path, Options())
	p := Pool(t, b, "default", "10.8.64.0/24")
	seen := make(map[netip.Addr]int)
	for i := range 300 {
		if i == 100 || i == 200 {
			Close(t, b)
			b = OpenAt(t, path, Options())
		}
		l, err := TryReserve(b, p, "churn", Policy)
		if err != nil {
			t.Fatal(err)
		}
		if last, again := seen[l.Addr]; again && i-last < 253 {
			t.Fatalf("%s was given in cycle %d and again in %d", l.Addr, last, i)
		}
		seen[l.Addr] = i
		if _, err := b.Expire(ctx, watchdog, l.ID, l.Rev, nil); err != nil {
			t.Fatal(err)
		}
	}
}

// L8: at exhaustion "oldest" gives the one released longest ago, not before
// cooldown_min, and says so; "strict" refuses. The cooldown survives a
// restart, a clock step and, from the boot on, a reboot.
func TestL8CooldownAtExhaustion(t *testing.T) {
	c, path := NewClock(), filepath.Join(t.TempDir(), "book.db")
	opts := Options()
	opts.Now = c.Now
	b := OpenAt(t, path, opts)
	p := Pool(t, b, "default", "10.8.64.0/29")
	strict := Policy
	strict.Strict = true
	var leases []*ipam.Lease
	for _, s := range []string{"a", "b", "c", "d", "e"} {
		leases = append(leases, Reserve(t, b, s))
	}
	for _, i := range []int{3, 1, 4} {
		Cool(t, b, leases[i])
		c.Pass(time.Second)
	}
	refuse := func(policy ipam.Policy, when string) {
		t.Helper()
		if got, err := b.Pick(p.UID, policy); !errors.Is(err, ipam.ErrExhausted) {
			t.Fatalf("%s: %v, %v", when, got, err)
		}
	}
	offer := func(policy ipam.Policy, want *ipam.Lease, early bool, when string) {
		t.Helper()
		got, err := b.Pick(p.UID, policy)
		if err != nil || got.Addr != want.Addr || got.Early != early {
			t.Fatalf("%s: %+v, %v; want %s, early %v", when, got, err, want.Addr, early)
		}
		b.Drop(got)
	}
	refuse(Policy, "before cooldown_min")
	c.Step(24 * time.Hour)
	refuse(Policy, "after the clock stepped a day ahead")
	c.Step(-48 * time.Hour)
	c.Pass(2*time.Minute - 3*time.Second)
	offer(Policy, leases[3], true, "after cooldown_min, clock a day behind")
	refuse(strict, "strict, after cooldown_min")
	c.Step(24 * time.Hour) // a restart counts what the wall clock says, too
	Close(t, b)
	b = OpenAt(t, path, opts)
	offer(Policy, leases[3], true, "after a restart")
	c.Reboot("two", 30*time.Second)
	refuse(Policy, "half a minute after a reboot")
	c.Pass(2 * time.Minute)
	offer(Policy, leases[3], true, "two and a half minutes after a reboot")
	refuse(strict, "strict, after a reboot")
	c.Pass(28 * time.Minute)
	offer(strict, leases[3], false, "strict, a cooldown after the reboot")
}

// L18: the same sandbox gets its own cooling address back under a new lease;
// no other owner is offered it meanwhile.
func TestL18OwnAddressComesBack(t *testing.T) {
	b := Open(t)
	a := Reserve(t, b, "a")
	Cool(t, b, a)
	if other := Reserve(t, b, "b"); other.Addr == a.Addr {
		t.Fatal("another sandbox got it")
	}
	for _, stranger := range []ipam.Owner{
		{PoolUID: a.PoolUID, UID: "b", Interface: "eth0"}, // another sandbox
		{PoolUID: a.PoolUID, UID: "a", Interface: "eth1"}, // another interface
		{PoolUID: a.PoolUID},
		{},
	} {
		if c, ok := b.PickOwn(stranger, 0); ok {
			t.Errorf("%+v was offered %s, which cools after a", stranger, c.Addr)
		}
	}
	c, ok := b.PickOwn(a.Owner(), 0)
	if !ok || c.Addr != a.Addr {
		t.Fatalf("offered %+v, %v", c, ok)
	}
	if _, again := b.PickOwn(a.Owner(), 0); again {
		t.Error("offered twice at once")
	}
	ls, err := b.Reserve(ctx, allocator, netdb.Reservation{Candidate: c, Sandbox: "a", UID: "a", Interface: "eth0", Attempt: 1, BindWithin: time.Minute})
	if err != nil || ls[0].Addr != a.Addr || ls[0].ID == a.ID {
		t.Fatal(ls, err)
	}
}

// P1: a candidate that another request took meanwhile is refused, in a batch of
// its own and behind the one that took it, and the owner keeps it.
func TestACandidateIsTakenOnce(t *testing.T) {
	b := Open(t)
	c, err := b.Pick(b.Pools()[0].UID, Policy)
	if err != nil {
		t.Fatal(err)
	}
	want := func(sandbox string) netdb.Reservation {
		return netdb.Reservation{Candidate: c, Sandbox: sandbox, UID: sandbox, Interface: "eth0", Attempt: 1, BindWithin: time.Minute}
	}
	if _, err := b.Reserve(ctx, allocator, want("a"), want("b")); !errors.Is(err, ipam.ErrTaken) {
		t.Errorf("one candidate for two sandboxes at once: %v", err)
	}
	if l, ok := b.At(c.Addr); ok {
		t.Errorf("half of a refused call left %+v", l)
	}
	a, err := b.Reserve(ctx, allocator, want("a"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = b.Reserve(ctx, allocator, want("b"))
	wantErr(t, err, ipam.ErrTaken)
	if l, ok := b.At(c.Addr); !ok || l.ID != a[0].ID || l.Sandbox != "a" || l.Rev != a[0].Rev {
		t.Errorf("the address is %+v, want a's", l)
	}
}

// What is offered stays offered, and the walk goes on where it was, when the
// pool is described anew and when memory is thrown away and loaded again.
func TestHoldsOutliveTheIndex(t *testing.T) {
	for name, renew := range map[string]func(t *testing.T, b *netdb.Book, path string, bystander *ipam.Lease){
		"the pool changes": func(t *testing.T, b *netdb.Book, _ string, _ *ipam.Lease) {
			spec := b.Pools()[0].PoolSpec
			spec.Exclude = []ipam.Range{{From: netip.MustParseAddr("10.8.64.200"), To: netip.MustParseAddr("10.8.64.201")}}
			if p, err := b.EnsurePool(ctx, allocator, spec); err != nil || p.Generation != 2 {
				t.Fatal(p, err)
			}
		},
		"memory is loaded again": func(t *testing.T, b *netdb.Book, path string, bystander *ipam.Lease) {
			raw(t, path, `DELETE FROM leases WHERE id = '`+bystander.ID+`'`)
			_, err := b.Bind(ctx, client, bystander.ID, 0, ipam.Binding{Netns: "/x"})
			wantErr(t, err, ipam.ErrStale)
			if _, ok := b.At(bystander.Addr); ok {
				t.Fatal("memory was not loaded again")
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "book.db")
			b := OpenAt(t, path, Options(), netdb.RowsHaveTheirLast)
			p := Pool(t, b, "default", "10.8.64.0/24")
			bystander, cools := Reserve(t, b, "bystander"), Cool(t, b, Reserve(t, b, "a"))
			fresh, err := b.Pick(p.UID, Policy)
			if err != nil {
				t.Fatal(err)
			}
			own, ok := b.PickOwn(cools.Owner(), 0)
			if !ok {
				t.Fatal("its own address is not offered")
			}
			renew(t, b, path, bystander)
			for _, c := range []netdb.Candidate{fresh, own} {
				_, err := b.PickAddr(cools.Owner(), c.Addr, Policy)
				wantErr(t, err, ipam.ErrTaken)
			}
			if again, ok := b.PickOwn(cools.Owner(), 0); ok {
				t.Errorf("%s is offered twice at once", again.Addr)
			}
			next, err := b.Pick(p.UID, Policy)
			if err != nil || next.Addr != fresh.Addr.Next() {
				t.Errorf("the walk goes on with %s, %v after %s", next.Addr, err, fresh.Addr)
			}
			for _, c := range []netdb.Candidate{fresh, own, next} {
				b.Drop(c)
			}
		})
	}
}

// A wish for an address that cools after another owner waits for the whole
// cooldown, however early exhaustion would give it; the former owner's does
// not wait.
func TestAWishWaitsForTheWholeCooldown(t *testing.T) {
	c := NewClock()
	b, p := openWith(t, c, "10.8.64.0/24")
	cools := Cool(t, b, Reserve(t, b, "a"))
	stranger := ipam.Owner{PoolUID: p.UID, UID: "b", Interface: "eth0"}
	for _, at := range []struct {
		since time.Duration
		given bool
	}{{0, false}, {Policy.CooldownMin, false}, {Policy.Cooldown - 1, false}, {Policy.Cooldown, true}} {
		c.Pass(at.since - c.Since(cools.Since))
		cand, err := b.PickAddr(stranger, cools.Addr, Policy)
		if at.given != (err == nil) || !at.given && !errors.Is(err, ipam.ErrTaken) {
			t.Errorf("after %v a stranger's wish: %v", at.since, err)
		}
		if err == nil {
			b.Drop(cand)
		}
		if cand, err = b.PickAddr(cools.Owner(), cools.Addr, Policy); err != nil {
			t.Errorf("after %v its own wish: %v", at.since, err)
		}
		b.Drop(cand)
	}
}

// An address that has cooled for long enough is one that can be given: a pool of
// them is not full. Before that the refusal says when the next one will have cooled.
func TestAvailableCountsWhatHasRested(t *testing.T) {
	c := NewClock()
	b, p := openWith(t, c, "10.8.64.0/29") // five can be given
	oldest := ipam.Policy{Cooldown: 30 * time.Minute, CooldownMin: 2 * time.Minute}
	strict := ipam.Policy{Cooldown: 30 * time.Minute, CooldownMin: 2 * time.Minute, Strict: true}
	available := func(policy ipam.Policy, want uint64, next time.Duration) {
		t.Helper()
		if n, in := b.Available(p.UID, policy); n != want || in != next {
			t.Errorf("%d available, the next in %s; want %d, %s", n, in, want, next)
		}
	}
	available(strict, 5, 0)
	Cool(t, b, Reserve(t, b, "a"))
	c.Pass(time.Minute)
	Cool(t, b, Reserve(t, b, "b"))
	available(strict, 3, 0)
	for _, name := range []string{"c", "d", "e"} {
		Reserve(t, b, name)
	}
	available(oldest, 0, time.Minute)
	available(strict, 0, 29*time.Minute)
	_, err := TryReserve(b, p, "f", strict)
	var full *ipam.ExhaustedError
	if !errors.As(err, &full) || full.Next != 29*time.Minute || !strings.HasSuffix(err.Error(), "the next address will have cooled in 29m0s") {
		t.Errorf("the refusal is %v, %+v", err, full)
	}
	c.Pass(time.Minute)
	available(oldest, 1, 0)
	c.Pass(time.Minute)
	available(oldest, 2, 0)
	available(strict, 0, 27*time.Minute)
	c.Pass(28 * time.Minute)
	available(strict, 2, 0)
}
