package netdb_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ipamd/ipamd/internal/ranges"
	"github.com/ipamd/ipamd/netdb"
	. "github.com/ipamd/ipamd/netdb/netdbtest"
)

var (
	ctx       = context.Background()
	allocator = Who(netdb.ByAllocator, "allocated")
	client    = Who(netdb.ByClient, "released")
	watchdog  = Who(netdb.ByWatchdog, "removal_confirmed")
	evidence  = json.RawMessage(`[{"witness":"netns"}]`)
)

func wantErr(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("error is %v, want %v", err, want)
	}
}

func openWith(t *testing.T, c *Clock, prefix string) (*netdb.Book, *netdb.Pool) {
	t.Helper()
	opts := Options()
	opts.Now = c.Now
	b := OpenAt(t, filepath.Join(t.TempDir(), "book.db"), opts)
	return b, Pool(t, b, "default", prefix)
}

// L3: a release of a lease that is already gone succeeds, changes nothing and
// does not restart the cooldown.
func TestL3ReleaseAgainDoesNotRestartTheCooldown(t *testing.T) {
	c := NewClock()
	b, p := openWith(t, c, "10.8.64.0/30")
	l := Reserve(t, b, "a")
	Cool(t, b, l)
	c.Pass(20 * time.Minute)
	rev := b.Rev()
	again, err := b.Release(ctx, client, l.ID, "a", 0)
	if err != nil || again.State != netdb.Cooling || b.Rev() != rev {
		t.Fatalf("released again: %+v, %v, revision %d after %d", again, err, b.Rev(), rev)
	}
	c.Pass(10 * time.Minute)
	next, err := TryReserve(b, p, "b", netdb.Policy{Cooldown: 30 * time.Minute, CooldownMin: time.Minute, Strict: true})
	if err != nil || next.Addr != l.Addr {
		t.Fatalf("after the first cooldown: %v, %v", next, err)
	}
	// An unbound lease that expired left no row at all; the same holds.
	gone, err := b.Expire(ctx, watchdog, next.ID, next.Rev, func() error { return nil })
	if err != nil || gone.State != netdb.Free {
		t.Fatal(gone, err)
	}
	if l, err := b.Release(ctx, client, next.ID, "", 0); err != nil || l.State != netdb.Free {
		t.Fatalf("release of an expired lease: %+v, %v", l, err)
	}
	if _, err := b.Release(ctx, client, "0190e0e0-0000-7000-8000-000000000000", "", 0); !errors.Is(err, netdb.ErrNotFound) {
		t.Fatalf("release of a lease that never was: %v", err)
	}
}

// L4: A owned an address, let it go, B owns it. A's late release is refused
// and leaves B alone; so do all of A's late verbs.
func TestL4LateReleaseLeavesTheNextOwnerAlone(t *testing.T) {
	c := NewClock()
	b, p := openWith(t, c, "10.8.64.0/30")
	a := Reserve(t, b, "a")
	Cool(t, b, a)
	c.Pass(31 * time.Minute)
	next, err := TryReserve(b, p, "b", Policy)
	if err != nil || next.Addr != a.Addr {
		t.Fatal(next, err)
	}
	_, err = b.Release(ctx, client, a.ID, "", 0)
	wantErr(t, err, netdb.ErrGone)
	_, err = b.Bind(ctx, client, a.ID, 0, netdb.Binding{Netns: "/run/netns/a"})
	wantErr(t, err, netdb.ErrGone)
	_, err = b.Pause(ctx, client, a.ID, 0)
	wantErr(t, err, netdb.ErrGone)
	_, err = b.Confirm(ctx, watchdog, a.ID, a.Rev, nil)
	wantErr(t, err, netdb.ErrGone)
	_, err = b.Lease(a.ID)
	wantErr(t, err, netdb.ErrGone)
	if l, ok := b.At(a.Addr); !ok || l.ID != next.ID || l.State != netdb.Reserved {
		t.Fatalf("B's lease is %+v", l)
	}
}

// L7: every prefix gives exactly its hosts, without network, broadcast,
// gateway and excluded addresses, and then says that it is exhausted.
func TestL7EveryPrefixGivesItsHostsAndNoMore(t *testing.T) {
	for _, tt := range []struct {
		prefix, gateway string
		exclude         []string
		want            []string // all, or the first when size is larger
		size            uint64
	}{
		{prefix: "10.8.64.0/30", gateway: "10.8.64.1", want: []string{"10.8.64.2"}, size: 1},
		{prefix: "10.8.64.0/29", gateway: "10.8.64.1", want: []string{"10.8.64.2", "10.8.64.3", "10.8.64.4", "10.8.64.5", "10.8.64.6"}, size: 5},
		{prefix: "10.8.64.0/29", gateway: "10.8.64.6", exclude: []string{"10.8.64.2-10.8.64.3"}, want: []string{"10.8.64.1", "10.8.64.4", "10.8.64.5"}, size: 3},
		{prefix: "10.8.64.0/31", gateway: "10.8.64.0", want: []string{"10.8.64.1"}, size: 1},
		{prefix: "10.8.64.0/31", want: []string{"10.8.64.0", "10.8.64.1"}, size: 2},
		{prefix: "10.8.64.7/32", want: []string{"10.8.64.7"}, size: 1},
		{prefix: "fd00:8::/64", gateway: "fd00:8::1", want: []string{"fd00:8::2", "fd00:8::3"}, size: 1<<64 - 2},
		{prefix: "fd00:8::/126", gateway: "fd00:8::1", want: []string{"fd00:8::2", "fd00:8::3"}, size: 2},
		{prefix: "fd00:8::/127", want: []string{"fd00:8::", "fd00:8::1"}, size: 2},
		{prefix: "fd00:8::9/128", want: []string{"fd00:8::9"}, size: 1},
	} {
		t.Run(tt.prefix, func(t *testing.T) {
			b := OpenAt(t, filepath.Join(t.TempDir(), "book.db"), Options())
			spec := netdb.PoolSpec{Name: "p", Prefix: netip.MustParsePrefix(tt.prefix), Bridge: "rt0"}
			if tt.gateway != "" {
				spec.Gateway = netip.MustParseAddr(tt.gateway)
			}
			for _, e := range tt.exclude {
				r, err := ranges.Parse(e)
				if err != nil {
					t.Fatal(err)
				}
				spec.Exclude = append(spec.Exclude, r)
			}
			p, err := b.EnsurePool(ctx, Who(netdb.ByOperator, "test"), spec)
			if err != nil {
				t.Fatal(err)
			}
			if u, _ := b.Usage(); u[0].Size != tt.size || u[0].Free != tt.size {
				t.Fatalf("size %d, free %d, want %d", u[0].Size, u[0].Free, tt.size)
			}
			for i, want := range tt.want {
				l, err := TryReserve(b, p, string(rune('a'+i)), Policy)
				if err != nil || l.Addr.String() != want {
					t.Fatalf("address %d is %v (%v), want %s", i, l, err, want)
				}
			}
			if tt.size == uint64(len(tt.want)) {
				_, err = TryReserve(b, p, "late", Policy)
				wantErr(t, err, netdb.ErrExhausted)
			}
		})
	}
}

// L7: after one confirmed release and its cooldown an exhausted pool works
// again.
func TestL7ExhaustedPoolWorksAgainAfterOneRelease(t *testing.T) {
	c := NewClock()
	b, p := openWith(t, c, "10.8.64.0/29")
	var leases []*netdb.Lease
	for _, s := range []string{"a", "b", "c", "d", "e"} {
		leases = append(leases, Reserve(t, b, s))
	}
	_, err := TryReserve(b, p, "f", Policy)
	var full *netdb.ExhaustedError
	if !errors.As(err, &full) || full.ByState[netdb.Reserved] != 5 {
		t.Fatalf("full pool: %v", err)
	}
	if _, err := b.Release(ctx, client, leases[2].ID, "", 0); err != nil {
		t.Fatal(err)
	}
	c.Pass(time.Hour)
	_, err = TryReserve(b, p, "f", Policy)
	wantErr(t, err, netdb.ErrExhausted) // released, and the removal is not confirmed
	l, _ := b.At(leases[2].Addr)
	if _, err := b.Confirm(ctx, watchdog, l.ID, l.Rev, nil); err != nil {
		t.Fatal(err)
	}
	c.Pass(30 * time.Minute)
	if l, err := TryReserve(b, p, "f", Policy); err != nil || l.Addr != leases[2].Addr {
		t.Fatalf("after release and cooldown: %v, %v", l, err)
	}
}

// L7: bad pools are refused with the field and, where there is one, the restore.
func TestL7BadPoolsAreRefused(t *testing.T) {
	b := Open(t)
	good := netdb.PoolSpec{Name: "x", Prefix: netip.MustParsePrefix("10.9.0.0/24"), Gateway: netip.MustParseAddr("10.9.0.1"), Bridge: "rt0"}
	for name, tt := range map[string]struct {
		spoil func(*netdb.PoolSpec)
		field string
		says  string
	}{
		"unmasked prefix":      {func(s *netdb.PoolSpec) { s.Prefix = netip.MustParsePrefix("10.9.0.7/24") }, "pool.prefix", "10.9.0.0/24"},
		"no prefix":            {func(s *netdb.PoolSpec) { s.Prefix = netip.Prefix{} }, "pool.prefix", "missing"},
		"4in6 prefix":          {func(s *netdb.PoolSpec) { s.Prefix = netip.MustParsePrefix("::ffff:10.9.0.0/120") }, "pool.prefix", "plain"},
		"no name":              {func(s *netdb.PoolSpec) { s.Name = "" }, "pool.name", ""},
		"name with a slash":    {func(s *netdb.PoolSpec) { s.Name = "a/b" }, "pool.name", ""},
		"gateway elsewhere":    {func(s *netdb.PoolSpec) { s.Gateway = netip.MustParseAddr("10.8.0.1") }, "pool.gateway", "10.9.0.0/24"},
		"gateway is network":   {func(s *netdb.PoolSpec) { s.Gateway = netip.MustParseAddr("10.9.0.0") }, "pool.gateway", "host"},
		"gateway is broadcast": {func(s *netdb.PoolSpec) { s.Gateway = netip.MustParseAddr("10.9.0.255") }, "pool.gateway", "host"},
		"no bridge":            {func(s *netdb.PoolSpec) { s.Bridge = "" }, "pool.bridge", ""},
		"bridge name too long": {func(s *netdb.PoolSpec) { s.Bridge = "abcdefghijklmnop" }, "pool.bridge", ""},
		"exclusion elsewhere": {func(s *netdb.PoolSpec) {
			s.Exclude = []netdb.Range{{From: netip.MustParseAddr("10.8.0.1"), To: netip.MustParseAddr("10.8.0.2")}}
		}, "pool.exclude", ""},
		"exclusion of all": {func(s *netdb.PoolSpec) {
			s.Exclude = []netdb.Range{{From: netip.MustParseAddr("10.9.0.0"), To: netip.MustParseAddr("10.9.0.255")}}
		}, "pool.prefix", "no address"},
		"route of two families": {func(s *netdb.PoolSpec) {
			s.Routes = []netdb.Route{{Destination: netip.MustParsePrefix("::/0"), Via: netip.MustParseAddr("10.9.0.1")}}
		}, "pool.routes", ""},
	} {
		t.Run(name, func(t *testing.T) {
			spec := good
			tt.spoil(&spec)
			_, err := b.EnsurePool(ctx, Who(netdb.ByOperator, "test"), spec)
			var fe *netdb.FieldError
			if !errors.As(err, &fe) || fe.Field != tt.field || !strings.Contains(fe.Reason, tt.says) {
				t.Errorf("error is %v, want field %s and %q", err, tt.field, tt.says)
			}
		})
	}
	over := good
	over.Prefix, over.Gateway = netip.MustParsePrefix("10.8.0.0/16"), netip.Addr{}
	_, err := b.EnsurePool(ctx, Who(netdb.ByOperator, "test"), over)
	wantErr(t, err, netdb.ErrOverlap)
	Reserve(t, b, "a")
	moved := netdb.PoolSpec{Name: "default", Prefix: netip.MustParsePrefix("10.10.0.0/24"), Bridge: "rt0"}
	_, err = b.EnsurePool(ctx, Who(netdb.ByOperator, "test"), moved)
	wantErr(t, err, netdb.ErrPoolNotEmpty)
}

// Scenario P7: a pool described again as it is changes nothing; with another exclusion it
// is the same pool in its next generation, and the lease under the exclusion
// stays.
func TestEnsurePoolTwiceEqualsOnce(t *testing.T) {
	b := Open(t)
	l := Reserve(t, b, "a")
	rev, was := b.Rev(), b.Pools()[0]
	if p := Pool(t, b, "default", "10.8.64.0/24"); p.UID != was.UID || b.Rev() != rev {
		t.Fatalf("the same pool again made %+v at %d", p, b.Rev())
	}
	spec := was.PoolSpec
	spec.Exclude = []netdb.Range{{From: l.Addr, To: l.Addr.Next()}}
	p, err := b.EnsurePool(ctx, Who(netdb.ByOperator, "test"), spec)
	if err != nil || p.UID != was.UID || p.Generation != was.Generation+1 {
		t.Fatal(p, err)
	}
	if got, ok := b.At(l.Addr); !ok || got.ID != l.ID {
		t.Fatalf("the excluded lease is %+v", got)
	}
	if next := Reserve(t, b, "b"); next.Addr.String() != "10.8.64.4" {
		t.Fatalf("next is %s", next.Addr)
	}
	Cool(t, b, l)
	if place := b.Place(l.Addr); place.Usable || !strings.Contains(place.Note, "excluded") {
		t.Fatalf("%+v", place)
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
	var leases []*netdb.Lease
	for _, s := range []string{"a", "b", "c", "d", "e"} {
		leases = append(leases, Reserve(t, b, s))
	}
	for _, i := range []int{3, 1, 4} {
		Cool(t, b, leases[i])
		c.Pass(time.Second)
	}
	refuse := func(policy netdb.Policy, when string) {
		t.Helper()
		if got, err := b.Pick(p.UID, policy); !errors.Is(err, netdb.ErrExhausted) {
			t.Fatalf("%s: %v, %v", when, got, err)
		}
	}
	offer := func(policy netdb.Policy, want *netdb.Lease, early bool, when string) {
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

// L9: text sorts .10 before .2; listings and ranges do not.
func TestL9ListingsSortAsNumbers(t *testing.T) {
	b := Open(t)
	for i := range 12 {
		Reserve(t, b, string(rune('a'+i)))
	}
	leases, rev := b.Leases()
	if rev != b.Rev() || len(leases) != 12 {
		t.Fatal(len(leases), rev)
	}
	for i, l := range leases {
		if want := netip.AddrFrom4([4]byte{10, 8, 64, byte(2 + i)}); l.Addr != want {
			t.Errorf("place %d has %s, want %s", i, l.Addr, want)
		}
	}
	r, err := ranges.Parse("10.8.64.2-10.8.64.10")
	if err != nil || !r.Contains(netip.MustParseAddr("10.8.64.9")) || r.Contains(netip.MustParseAddr("10.8.64.11")) {
		t.Error(r, err)
	}
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
	for _, stranger := range []netdb.Owner{
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
	if _, err := b.Reserve(ctx, allocator, want("a"), want("b")); !errors.Is(err, netdb.ErrTaken) {
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
	wantErr(t, err, netdb.ErrTaken)
	if l, ok := b.At(c.Addr); !ok || l.ID != a[0].ID || l.Sandbox != "a" || l.Rev != a[0].Rev {
		t.Errorf("the address is %+v, want a's", l)
	}
}

// What is offered stays offered, and the walk goes on where it was, when the
// pool is described anew and when memory is thrown away and loaded again.
func TestHoldsOutliveTheIndex(t *testing.T) {
	for name, renew := range map[string]func(t *testing.T, b *netdb.Book, path string, bystander *netdb.Lease){
		"the pool changes": func(t *testing.T, b *netdb.Book, _ string, _ *netdb.Lease) {
			spec := b.Pools()[0].PoolSpec
			spec.Exclude = []netdb.Range{{From: netip.MustParseAddr("10.8.64.200"), To: netip.MustParseAddr("10.8.64.201")}}
			if p, err := b.EnsurePool(ctx, allocator, spec); err != nil || p.Generation != 2 {
				t.Fatal(p, err)
			}
		},
		"memory is loaded again": func(t *testing.T, b *netdb.Book, path string, bystander *netdb.Lease) {
			raw(t, path, `DELETE FROM leases WHERE id = '`+bystander.ID+`'`)
			_, err := b.Bind(ctx, client, bystander.ID, 0, netdb.Binding{Netns: "/x"})
			wantErr(t, err, netdb.ErrStale)
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
				wantErr(t, err, netdb.ErrTaken)
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
	stranger := netdb.Owner{PoolUID: p.UID, UID: "b", Interface: "eth0"}
	for _, at := range []struct {
		since time.Duration
		given bool
	}{{0, false}, {Policy.CooldownMin, false}, {Policy.Cooldown - 1, false}, {Policy.Cooldown, true}} {
		c.Pass(at.since - c.Since(cools.Since))
		cand, err := b.PickAddr(stranger, cools.Addr, Policy)
		if at.given != (err == nil) || !at.given && !errors.Is(err, netdb.ErrTaken) {
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

// A sandbox that asks again for what it has not bound yet has time to: half of
// what it asks for, at the least. What has enough left is not written.
func TestRenew(t *testing.T) {
	c := NewClock()
	opts := Options()
	opts.Now = c.Now
	b := OpenAt(t, filepath.Join(t.TempDir(), "book.db"), opts)
	Pool(t, b, "default", "10.8.64.0/24")
	l := Reserve(t, b, "a")
	left := func(l *netdb.Lease) time.Duration { return l.BindWithin - c.Now().Since(l.Since) }
	for _, step := range []struct {
		pass, within time.Duration
		attempt      int64
		written      bool
		left         time.Duration
	}{
		{0, l.BindWithin, l.Attempt, false, l.BindWithin},
		{l.BindWithin - time.Second, 2 * time.Second, l.Attempt, false, time.Second},
		{time.Millisecond, 2 * time.Second, l.Attempt, true, 2 * time.Second},
		{time.Hour, time.Minute, l.Attempt, true, time.Minute},
		{time.Second, time.Minute, l.Attempt + 1, true, 59 * time.Second},
		{0, time.Minute, l.Attempt, false, 59 * time.Second},
	} {
		c.Pass(step.pass)
		got, err := b.Renew(ctx, allocator, l.ID, step.attempt, step.within)
		if err != nil {
			t.Fatal(err)
		}
		if got.State != netdb.Reserved || left(got) != step.left || (got.Rev != l.Rev) != step.written || got.Since != l.Since {
			t.Errorf("%+v: %v left, revision %d after %d", step, left(got), got.Rev, l.Rev)
		}
		l = got
	}
	if _, err := b.Bind(ctx, client, l.ID, 0, netdb.Binding{HostInterface: "veth1"}); err != nil {
		t.Fatal(err)
	}
	c.Pass(time.Hour)
	rev := b.Rev()
	if got, err := b.Renew(ctx, allocator, l.ID, l.Attempt, time.Minute); err != nil || got.State != netdb.Bound || b.Rev() != rev {
		t.Errorf("of a bound one: %+v, %v", got, err)
	}
	if _, err := b.Release(ctx, client, l.ID, "", 0); err != nil {
		t.Fatal(err)
	}
	_, err := b.Renew(ctx, allocator, l.ID, l.Attempt, time.Minute)
	wantErr(t, err, netdb.ErrState)
}

// L5: a cancel that arrives first refuses the late allocate, also across a
// restart; the next attempt works; after an hour the tombstone is gone.
func TestL5CancelBeforeAllocate(t *testing.T) {
	c, path := NewClock(), filepath.Join(t.TempDir(), "book.db")
	opts := Options()
	opts.Now = c.Now
	b := OpenAt(t, path, opts)
	p := Pool(t, b, "default", "10.8.64.0/24")
	if _, err := b.Cancel(ctx, client, "a", 1); err != nil {
		t.Fatal(err)
	}
	_, err := TryReserve(b, p, "a", Policy)
	wantErr(t, err, netdb.ErrCancelled)
	Close(t, b)
	b = OpenAt(t, path, opts)
	_, err = TryReserve(b, p, "a", Policy)
	wantErr(t, err, netdb.ErrCancelled)
	pick, _ := b.Pick(p.UID, Policy)
	second := netdb.Reservation{Candidate: pick, Sandbox: "a", UID: "a", Interface: "eth0", Attempt: 2, BindWithin: time.Minute}
	ls, err := b.Reserve(ctx, allocator, second)
	if err != nil {
		t.Fatal(err)
	}
	// A late cancel of attempt 1 leaves attempt 2 alone; of attempt 2 it does not.
	if freed, err := b.Cancel(ctx, client, "a", 1); err != nil || len(freed) != 0 {
		t.Fatal(freed, err)
	}
	if freed, err := b.Cancel(ctx, client, "a", 2); err != nil || len(freed) != 1 || freed[0].ID != ls[0].ID || freed[0].State != netdb.Releasing {
		t.Fatal(freed, err)
	}
	c.Pass(61 * time.Minute)
	if _, err := TryReserve(b, p, "a", Policy); err != nil {
		t.Fatalf("an hour later: %v", err)
	}
}

// F22: a bind adds. What it leaves out stays, and a container goes only when it
// is named as gone; the record has an end. Again is no change, and a lease that
// was released is refused.
func TestF22ABindAdds(t *testing.T) {
	b := Open(t)
	l := Reserve(t, b, "a")
	n := netdb.Binding{Containers: []netdb.Container{{Namespace: "default", ID: "c1"}}, Netns: "/run/netns/a", HostInterface: "veth1", MAC: "02-00-00-00-00-AA"}
	bound, err := b.Bind(ctx, client, l.ID, 0, n)
	if err != nil || bound.State != netdb.Bound || bound.MAC != "02:00:00:00:00:aa" {
		t.Fatal(bound, err)
	}
	if again, err := b.Bind(ctx, client, l.ID, 0, n); err != nil || again.Rev != bound.Rev {
		t.Fatal(again, err)
	}
	c := func(id string) netdb.Container { return netdb.Container{Namespace: "default", ID: id} }
	more, err := b.Bind(ctx, client, l.ID, 0, netdb.Binding{Containers: []netdb.Container{c("c2"), c("c2")}, MAC: "02:00:00:00:00:bb"})
	if err != nil || more.Rev == bound.Rev || more.Since != bound.Since || more.Netns != n.Netns || more.HostInterface != "veth1" ||
		more.MAC != "02:00:00:00:00:bb" || !slices.Equal(more.Containers, []netdb.Container{c("c1"), c("c2")}) {
		t.Fatal(more, err)
	}
	for _, part := range []netdb.Binding{{HostInterface: "veth1"}, {Containers: []netdb.Container{c("c1")}}, {Gone: []netdb.Container{c("c9")}}} {
		if again, err := b.Bind(ctx, client, l.ID, 0, part); err != nil || again.Rev != more.Rev {
			t.Errorf("%+v: %+v, %v", part, again, err)
		}
	}
	less, err := b.Bind(ctx, client, l.ID, 0, netdb.Binding{Gone: []netdb.Container{c("c1")}, Containers: []netdb.Container{c("c3")}})
	if err != nil || !slices.Equal(less.Containers, []netdb.Container{c("c2"), c("c3")}) {
		t.Fatal(less, err)
	}
	many := make([]netdb.Container, netdb.MaxContainers-1)
	for i := range many {
		many[i] = c(fmt.Sprint("many", i))
	}
	for name, wrong := range map[string]netdb.Binding{
		"too many with those of before": {Containers: many},
		"there and gone":                {Containers: []netdb.Container{c("c4")}, Gone: []netdb.Container{c("c4")}},
		"gone without a name":           {Gone: []netdb.Container{{Namespace: "default"}}},
	} {
		if _, err := b.Bind(ctx, client, l.ID, 0, wrong); !errors.Is(err, netdb.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	fresh := Reserve(t, b, "fresh")
	if _, err := b.Bind(ctx, client, fresh.ID, 0, netdb.Binding{Gone: []netdb.Container{c("c1")}}); !errors.Is(err, netdb.ErrInvalid) {
		t.Errorf("a first bind that only takes away: %v", err)
	}
	if p, err := b.Pause(ctx, client, l.ID, 0); err != nil || p.State != netdb.Paused {
		t.Fatal(p, err)
	}
	if r, err := b.Resume(ctx, client, l.ID, 0); err != nil || r.State != netdb.Bound || len(r.Containers) != 2 {
		t.Fatal(r, err)
	}
	_, err = b.Release(ctx, client, l.ID, "another incarnation", 0)
	wantErr(t, err, netdb.ErrInvalid)
	if r, err := b.Release(ctx, client, l.ID, "a", 0); err != nil || r.State != netdb.Releasing {
		t.Fatal(r, err)
	}
	_, err = b.Bind(ctx, client, l.ID, 0, n)
	wantErr(t, err, netdb.ErrState)
	_, err = b.Confirm(ctx, watchdog, l.ID, less.Rev, nil)
	wantErr(t, err, netdb.ErrStale)
	_, err = b.Confirm(ctx, client, l.ID, b.Rev(), nil)
	wantErr(t, err, netdb.ErrState)
}

// A quarantine's share is of what the pool can give, never less than one
// address, and has an end where the pool has none.
func TestQuarantineCap(t *testing.T) {
	opts := Options()
	opts.QuarantineShare = 1
	b := OpenAt(t, filepath.Join(t.TempDir(), "book.db"), opts)
	want := map[string]int{"10.8.64.0/24": 253, "10.8.65.2/32": 1, "fd00:8::/120": 254, "fd00:8:0:1::/64": 1 << 16, "fd00:8:1::/48": 1 << 16}
	for prefix := range want {
		Pool(t, b, strings.NewReplacer(":", "-", "/", "-").Replace("p"+prefix), prefix)
	}
	usage, _ := b.Usage()
	for _, u := range usage {
		if got := u.QuarantineCap; got != want[u.Pool.Prefix.String()] {
			t.Errorf("of %s %d may be quarantined, want %d", u.Pool.Prefix, got, want[u.Pool.Prefix.String()])
		}
	}
}

// Quarantine takes what is not held, keeps its evidence, never a held
// address, and no more than its share of the pool.
func TestQuarantine(t *testing.T) {
	b := Open(t)
	seen := Who(netdb.ByAllocator, "seen_on_wire")
	held := Reserve(t, b, "a")
	_, err := b.Quarantine(ctx, seen, held.Addr, evidence)
	wantErr(t, err, netdb.ErrState)
	_, err = b.Quarantine(ctx, seen, netip.MustParseAddr("10.8.64.1"), evidence)
	wantErr(t, err, netdb.ErrNotInPool)
	_, err = b.Quarantine(ctx, seen, netip.MustParseAddr("10.8.64.9"), nil)
	wantErr(t, err, netdb.ErrInvalid)
	a := netip.MustParseAddr("10.8.64.9")
	for range 63 {
		q, err := b.Quarantine(ctx, seen, a, evidence)
		if err != nil || q.State != netdb.Quarantined || string(q.Evidence) != string(evidence) {
			t.Fatal(q, err)
		}
		a = a.Next()
	}
	_, err = b.Quarantine(ctx, seen, a, evidence)
	wantErr(t, err, netdb.ErrQuarantineFull)
	if again, err := b.Quarantine(ctx, seen, a.Prev(), evidence); err != nil || again.Addr != a.Prev() {
		t.Fatal(again, err)
	}
	if _, err := b.Quarantine(ctx, Who(netdb.ByOperator, "by hand"), a, evidence); err != nil {
		t.Fatal(err)
	}
	cleared, err := Clear(b, a)
	if err != nil || cleared.State != netdb.Cooling {
		t.Fatal(cleared, err)
	}
	_, err = Clear(b, a)
	wantErr(t, err, netdb.ErrState)
}

// Bad reservations name their field, and nothing is reserved by them.
func TestBadReservationsNameTheirField(t *testing.T) {
	b := Open(t)
	rev := b.Rev()
	many := make(map[string]string)
	for i := range 65 {
		many[string(rune('a'+i))] = "x"
	}
	for name, tt := range map[string]struct {
		spoil func(*netdb.Reservation)
		field string
	}{
		"no sandbox":            {func(r *netdb.Reservation) { r.Sandbox = "" }, "sandbox"},
		"sandbox of 254 bytes":  {func(r *netdb.Reservation) { r.Sandbox = strings.Repeat("x", 254) }, "sandbox"},
		"sandbox not UTF-8":     {func(r *netdb.Reservation) { r.Sandbox = "\xff" }, "sandbox"},
		"no uid":                {func(r *netdb.Reservation) { r.UID = "" }, "uid"},
		"no interface":          {func(r *netdb.Reservation) { r.Interface = "" }, "interface"},
		"interface of 16 bytes": {func(r *netdb.Reservation) { r.Interface = strings.Repeat("e", 16) }, "interface"},
		"interface with slash":  {func(r *netdb.Reservation) { r.Interface = "a/b" }, "interface"},
		"interface with space":  {func(r *netdb.Reservation) { r.Interface = "a b" }, "interface"},
		"attempt 0":             {func(r *netdb.Reservation) { r.Attempt = 0 }, "attempt"},
		"bind_within 0":         {func(r *netdb.Reservation) { r.BindWithin = 0 }, "bind_within"},
		"bind_within 25h":       {func(r *netdb.Reservation) { r.BindWithin = 25 * time.Hour }, "bind_within"},
		"65 labels":             {func(r *netdb.Reservation) { r.Labels = many }, "labels"},
		"empty label key":       {func(r *netdb.Reservation) { r.Labels = map[string]string{"": "x"} }, "labels"},
		"16 KiB of labels and 1": {func(r *netdb.Reservation) {
			r.Labels = map[string]string{"a": strings.Repeat("x", 4095), "b": strings.Repeat("x", 4095), "c": strings.Repeat("x", 4095), "d": strings.Repeat("x", 4095), "e": ""}
		}, "labels"}, // G12
		"label not UTF-8": {func(r *netdb.Reservation) { r.Labels = map[string]string{"k": "\xff"} }, "labels"},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := b.Pick(b.Pools()[0].UID, Policy)
			if err != nil {
				t.Fatal(err)
			}
			defer b.Drop(c)
			r := netdb.Reservation{Candidate: c, Sandbox: "s", UID: "u", Interface: "eth0", Attempt: 1, BindWithin: time.Minute}
			tt.spoil(&r)
			_, err = b.Reserve(ctx, allocator, r)
			var fe *netdb.FieldError
			if !errors.As(err, &fe) || fe.Field != tt.field {
				t.Errorf("error is %v, want field %s", err, tt.field)
			}
		})
	}
	if b.Rev() != rev {
		t.Errorf("revision went from %d to %d", rev, b.Rev())
	}
}
