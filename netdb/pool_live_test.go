package netdb_test

import (
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb"
	. "github.com/ipamd/ipamd/netdb/netdbtest"
)

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

// spec is a pool on rt0 with the first host as its gateway.
func spec(name, prefix string) ipam.PoolSpec {
	p := netip.MustParsePrefix(prefix)
	return ipam.PoolSpec{Name: name, Prefix: p, Gateway: ipam.FirstHost(p), Bridge: "rt0"}
}

func set(t *testing.T, b *netdb.Book, c netdb.PoolChange) *ipam.PoolOutcome {
	t.Helper()
	preview, err := b.PreviewSetPool(c)
	if err != nil {
		t.Fatal(err)
	}
	out, err := b.SetPool(ctx, operator, c)
	if err != nil {
		t.Fatal(err)
	}
	if shown(preview) != shown(out) {
		t.Errorf("the preview says\n%s\nand it became\n%s", shown(preview), shown(out))
	}
	return out
}

// shown is what an outcome says, but for a new pool's uid and times.
func shown(o *ipam.PoolOutcome) string {
	s := fmt.Sprintf("changed %v, %d stay\n", o.Changed, o.Stay)
	if o.Pool != nil {
		s += fmt.Sprintf("%+v in generation %d, %s\n", o.Pool.PoolSpec, o.Pool.Generation, o.Pool.State)
	}
	for _, e := range o.Effects {
		s += fmt.Sprintf("%s %s: %s\n", e.Lease.Addr, e.Effect, e.Note)
	}
	return s
}

// refused wants the same error of a change and of its preview, and nothing changed.
func refused(t *testing.T, b *netdb.Book, c netdb.PoolChange, want error) error {
	t.Helper()
	rev := b.Rev()
	_, err := b.SetPool(ctx, operator, c)
	wantErr(t, err, want)
	if _, before := b.PreviewSetPool(c); !errors.Is(before, want) {
		t.Errorf("the preview answers %v, the change %v", before, err)
	}
	if b.Rev() != rev {
		t.Errorf("it wrote revision %d", b.Rev())
	}
	return err
}

// Scenario P6: generation 7 applied, generation 6 replayed: it is stale, and nothing
// comes back; neither does it when the pool drains or was removed since.
func TestAGenerationBelowIsStale(t *testing.T) {
	b := Open(t)
	uid := b.Pools()[0].UID
	six, seven := spec("default", "10.8.64.0/24"), spec("default", "10.8.64.0/24")
	six.MTU, seven.MTU = 1400, 1300
	set(t, b, netdb.PoolChange{Spec: six, Generation: 6})
	if out := set(t, b, netdb.PoolChange{Spec: seven, Generation: 7}); out.Pool.UID != uid || out.Pool.Generation != 7 {
		t.Fatalf("%+v", out.Pool)
	}
	stale := func(c netdb.PoolChange) {
		t.Helper()
		err := refused(t, b, c, ipam.ErrStaleGeneration)
		var e *ipam.StalePoolError
		if !errors.As(err, &e) || e.Asked != c.Generation {
			t.Errorf("%+v", err)
		}
	}
	stale(netdb.PoolChange{Spec: six, Generation: 6})
	stale(netdb.PoolChange{Spec: six, Generation: 7})
	stale(netdb.PoolChange{Spec: seven, UID: "0191e7a0-0000-7000-8000-000000000000"})
	for _, same := range []int64{0, 7} {
		if out := set(t, b, netdb.PoolChange{Spec: seven, Generation: same}); out.Changed {
			t.Errorf("generation %d changed %+v", same, out.Pool)
		}
	}
	var field *ipam.FieldError
	if _, err := b.SetPool(ctx, operator, netdb.PoolChange{Spec: seven, Generation: -1}); !errors.As(err, &field) || field.Field != "generation" {
		t.Error(err)
	}

	if out, err := b.DrainPool(ctx, operator, uid, 6); !errors.Is(err, ipam.ErrStaleGeneration) {
		t.Errorf("%+v, %v", out, err)
	}
	last := set(t, b, netdb.PoolChange{Spec: spec("last", "10.77.0.0/24"), Generation: 1 << 52}).Pool
	if _, err := b.SetPool(ctx, operator, netdb.PoolChange{Spec: last.PoolSpec, Generation: 1<<52 + 2}); !errors.As(err, &field) || field.Field != "generation" {
		t.Error(err)
	}
	if out := set(t, b, netdb.PoolChange{Spec: spec("last", "10.77.0.0/23"), Generation: 1<<52 + 1}); out.Pool.Generation != 1<<52+1 {
		t.Errorf("the next one: %+v", out.Pool)
	}
	drained, err := b.DrainPool(ctx, operator, uid, 7)
	if err != nil || drained.Pool.State != ipam.PoolDraining || drained.Pool.Generation != 8 {
		t.Fatalf("%+v, %v", drained, err)
	}
	if again, err := b.DrainPool(ctx, operator, uid, 7); err != nil || again.Changed {
		t.Errorf("%+v, %v", again, err)
	}
	stale(netdb.PoolChange{Spec: seven, Generation: 7})
	if out := set(t, b, netdb.PoolChange{Spec: seven}); out.Pool.State != ipam.PoolActive || out.Pool.Generation != 9 {
		t.Errorf("%+v", out.Pool)
	}

	if _, err := b.RemovePool(ctx, operator, uid, false); err != nil {
		t.Fatal(err)
	}
	stale(netdb.PoolChange{Spec: seven, Generation: 9})
	if out := set(t, b, netdb.PoolChange{Spec: seven}); out.Pool.Generation != 10 || out.Pool.UID == uid {
		t.Errorf("%+v", out.Pool)
	}
}

// Scenario P7: a pool that grows leaves its leases untouched, and gives the new addresses.
// One that shrinks or is excluded over a lease is refused with the list, or drained: the
// lease is valid and outside, and its address is never given again, neither as it cools
// nor behind that, before the pool grows back over it.
func TestGrowAndShrink(t *testing.T) {
	clock := NewClock()
	opts := Options()
	opts.Now = clock.Now
	path := filepath.Join(t.TempDir(), "book.db")
	b := OpenAt(t, path, opts)
	Pool(t, b, "default", "10.8.64.0/29")
	var held []*ipam.Lease
	for i := range 5 { // all there are: .2 to .6
		held = append(held, Reserve(t, b, fmt.Sprint("s", i)))
	}
	before, rev := b.Leases()
	grown := set(t, b, netdb.PoolChange{Spec: spec("default", "10.8.64.0/28")})
	if after, _ := b.Leases(); fmt.Sprint(after) != fmt.Sprint(before) || grown.Stay != 5 || len(grown.Effects) > 0 || b.Rev() != rev+1 {
		t.Fatalf("%s: %v became %v", shown(grown), before, after)
	}
	seven := Reserve(t, b, "seven") // the broadcast address of before
	if seven.Addr != addr("10.8.64.7") {
		t.Fatal(seven.Addr)
	}

	excluded := spec("default", "10.8.64.0/28")
	excluded.Exclude = []ipam.Range{{From: held[0].Addr, To: held[0].Addr}}
	for _, smaller := range []ipam.PoolSpec{spec("default", "10.8.64.0/29"), excluded, spec("default", "10.9.0.0/24")} {
		var e *ipam.PoolNotEmptyError
		if err := refused(t, b, netdb.PoolChange{Spec: smaller}, ipam.ErrPoolNotEmpty); !errors.As(err, &e) || len(e.Effects) == 0 ||
			!strings.Contains(err.Error(), e.Effects[0].Lease.Addr.String()) {
			t.Errorf("%v", err)
		}
	}
	shrunk := set(t, b, netdb.PoolChange{Spec: spec("default", "10.8.64.0/29"), Drain: true})
	if len(shrunk.Effects) != 1 || shrunk.Effects[0].Lease.ID != seven.ID || shrunk.Effects[0].Effect != ipam.LeaseOutside {
		t.Fatal(shown(shrunk))
	}
	if why := b.Outside(seven); why != "the broadcast address" || b.Outside(held[0]) != "" {
		t.Errorf("%q, %q", why, b.Outside(held[0]))
	}
	if usage, _ := b.Usage(); usage[0].Outside != 1 || usage[0].Free != 0 {
		t.Errorf("%+v", usage[0])
	}
	// It is a lease like any other.
	bound, err := b.Bind(ctx, client, seven.ID, 0, ipam.Binding{HostInterface: "veth7"})
	if err != nil {
		t.Fatal(err)
	}
	// Another pool cannot have its address meanwhile, whatever its own prefix is.
	set(t, b, netdb.PoolChange{Spec: spec("default", "10.8.64.0/30"), Drain: true})
	err = refused(t, b, netdb.PoolChange{Spec: spec("other", "10.8.64.4/30")}, ipam.ErrOverlap)
	var row *ipam.OtherPoolsRowError
	if !errors.As(err, &row) || row.OldUID != bound.PoolUID {
		t.Error(err)
	}
	notGiven := func(when string) {
		t.Helper()
		if l, err := TryReserve(b, b.Pools()[0], "next", Policy); !errors.Is(err, ipam.ErrExhausted) {
			t.Fatalf("%s: %+v, %v", when, l, err)
		}
		if c, err := b.PickAddr(ipam.Owner{PoolUID: bound.PoolUID, UID: "next", Interface: "eth0"}, seven.Addr, Policy); !errors.Is(err, ipam.ErrNotInPool) {
			t.Fatalf("%s: %+v, %v", when, c, err)
		}
		if _, ok := b.PickOwn(bound.Owner(), 0); ok {
			t.Fatalf("%s: its owner gets it back", when)
		}
		Check(t, b)
	}
	cooling := Cool(t, b, bound)
	notGiven("it cools")
	clock.Pass(time.Hour)
	notGiven("it has cooled")
	if n, _ := b.Available(bound.PoolUID, Policy); n != 0 {
		t.Errorf("%d available", n)
	}
	due := b.Cooled(bound.PoolUID, Policy.Cooldown, nil, 16)
	if len(due) != 1 || due[0].ID != cooling.ID {
		t.Fatalf("%v", due)
	}
	if n, err := b.Free(ctx, Who(ipam.ByReconciler, "rested"), due, func(*ipam.Lease) error { return nil }); err != nil || n != 1 {
		t.Fatal(n, err)
	}
	notGiven("its row is gone")
	Close(t, b)
	b = OpenAt(t, path, opts)
	notGiven("behind a restart")
	// Now the range is no one's: but for .4 to .6, which are leases.
	set(t, b, netdb.PoolChange{Spec: spec("default", "10.8.64.0/28"), Generation: 40})
	c, err := b.PickAddr(ipam.Owner{PoolUID: bound.PoolUID, UID: "next", Interface: "eth0"}, seven.Addr, Policy)
	if err != nil {
		t.Fatal(err)
	}
	b.Drop(c)
	for _, l := range held {
		if is, err := b.Lease(l.ID); err != nil || is.Rev != l.Rev || b.Outside(is) != "" {
			t.Errorf("%+v, %v", is, err)
		}
	}
}

// Scenario P7: what overlaps another pool is refused by ranges, in either family, and so
// is a gateway that is another's, or a lease's.
func TestOverlapByRanges(t *testing.T) {
	b := Open(t)
	Pool(t, b, "default", "fd00:8::/64")
	held := Reserve(t, b, "a")
	for _, prefix := range []string{"10.8.0.0/16", "10.8.64.128/25", "10.8.64.0/24", "10.8.64.1/32", "fd00::/16", "fd00:8::1:0/112"} {
		other := spec("other", prefix)
		var e *ipam.OverlapError
		if err := refused(t, b, netdb.PoolChange{Spec: other, Drain: true}, ipam.ErrOverlap); !errors.As(err, &e) || e.Other.Name != "default" {
			t.Errorf("%s: %v", prefix, err)
		}
	}
	moved := spec("default", "10.8.64.0/24")
	moved.Gateway = held.Addr
	refused(t, b, netdb.PoolChange{Spec: moved, Drain: true}, ipam.ErrPoolNotEmpty)
	bridge := spec("default", "10.8.64.0/24")
	bridge.Bridge = "rt1"
	refused(t, b, netdb.PoolChange{Spec: bridge, Drain: true}, ipam.ErrPoolNotEmpty)
}

// A pool that drains gives no address, also to a call that picked one before; what it has
// stays, and so does an address that was picked and is not in the pool any more.
func TestAPoolThatDrains(t *testing.T) {
	b := Open(t)
	pool := b.Pools()[0]
	held, cools := Reserve(t, b, "a"), Cool(t, b, Reserve(t, b, "b"))
	picked, err := b.Pick(pool.UID, Policy)
	if err != nil {
		t.Fatal(err)
	}
	take := func() error {
		_, err := b.Reserve(ctx, allocator, netdb.Reservation{Candidate: picked, Sandbox: "c", UID: "c", Interface: "eth0", Attempt: 1, BindWithin: time.Minute})
		return err
	}
	smaller := spec("default", "10.8.64.0/24")
	smaller.Exclude = []ipam.Range{{From: picked.Addr, To: picked.Addr}}
	set(t, b, netdb.PoolChange{Spec: smaller})
	wantErr(t, take(), ipam.ErrPoolChanged)
	set(t, b, netdb.PoolChange{Spec: spec("default", "10.8.64.0/24")})
	if _, err := b.DrainPool(ctx, operator, pool.UID, 0); err != nil {
		t.Fatal(err)
	}
	wantErr(t, take(), ipam.ErrPoolChanged)
	b.Drop(picked)
	_, err = b.Pick(pool.UID, Policy)
	wantErr(t, err, ipam.ErrDraining)
	_, err = b.PickAddr(ipam.Owner{PoolUID: pool.UID, UID: "c", Interface: "eth0"}, addr("10.8.64.9"), Policy)
	wantErr(t, err, ipam.ErrDraining)
	if c, ok := b.PickOwn(cools.Owner(), 0); ok {
		t.Errorf("%+v", c)
	}
	if n, _ := b.Available(pool.UID, Policy); n != 0 || b.Upcoming(pool.UID, 3, Policy) != nil {
		t.Errorf("%d available", n)
	}
	if l, err := b.Bind(ctx, client, held.ID, 0, ipam.Binding{HostInterface: "veth1"}); err != nil || l.State != ipam.Bound {
		t.Error(l, err)
	}
	if _, err := b.DrainPool(ctx, operator, "no such uid", 0); !errors.Is(err, ipam.ErrNotFound) {
		t.Error(err)
	}
}

// What was picked before its pool moved is not given: no witness looked at the other bridge, and
// the gateway of before may be another's address.
func TestACandidateOfBeforeItsPoolMoved(t *testing.T) {
	for name, change := range map[string]func(*ipam.PoolSpec){
		"to another bridge":         func(s *ipam.PoolSpec) { s.Bridge = "rt1" },
		"its gateway":               func(s *ipam.PoolSpec) { s.Gateway = addr("10.8.64.254") },
		"into a larger prefix":      func(s *ipam.PoolSpec) { s.Prefix = netip.MustParsePrefix("10.8.64.0/23") },
		"nowhere: another MTU only": func(s *ipam.PoolSpec) { s.MTU = 1400 },
	} {
		t.Run(name, func(t *testing.T) {
			b := Open(t)
			uid := b.Pools()[0].UID
			address, err := b.Pick(uid, Policy)
			if err != nil {
				t.Fatal(err)
			}
			prefix, err := b.PickPrefix(uid, 28, Policy)
			if err != nil {
				t.Fatal(err)
			}
			s := spec("default", "10.8.64.0/24")
			change(&s)
			set(t, b, netdb.PoolChange{Spec: s})
			for i, c := range []netdb.Candidate{address, prefix} {
				l, err := take(b, c, fmt.Sprint("s", i))
				if s.MTU == 0 {
					wantErr(t, err, ipam.ErrPoolChanged)
				} else if err != nil || l.Range() != c.Range() {
					t.Error(l, err)
				}
			}
		})
	}
}

// A pool's own waits go before the daemon's, each alone.
func TestAPoolsOwnPolicy(t *testing.T) {
	clock := NewClock()
	opts := Options()
	opts.Now = clock.Now
	b := OpenAt(t, filepath.Join(t.TempDir(), "book.db"), opts)
	own := spec("default", "10.8.64.0/30")
	own.Cooldown, own.CooldownMin, own.Exhausted = time.Hour, 10*time.Minute, "strict"
	set(t, b, netdb.PoolChange{Spec: own})
	Cool(t, b, Reserve(t, b, "a"))
	for _, step := range []struct {
		pass  time.Duration
		spec  func()
		given bool
	}{
		{31 * time.Minute, func() {}, false}, // the daemon's cooldown is over
		{0, func() { own.Exhausted = "" }, true},
		{0, func() { own.Exhausted, own.CooldownMin = "oldest", 40*time.Minute }, false},
		{10 * time.Minute, func() {}, true},
		{0, func() { own.Exhausted = "strict" }, false},
		{20 * time.Minute, func() {}, true},
	} {
		clock.Pass(step.pass)
		step.spec()
		set(t, b, netdb.PoolChange{Spec: own})
		c, err := b.Pick(b.Pools()[0].UID, Policy)
		if (err == nil) != step.given {
			t.Errorf("%+v: %+v, %v", own, c, err)
		}
		if err == nil {
			b.Drop(c)
		}
	}
	for field, spoil := range map[string]func(*ipam.PoolSpec){
		"pool.cooldown":     func(s *ipam.PoolSpec) { s.Cooldown = -1 },
		"pool.cooldown_min": func(s *ipam.PoolSpec) { s.CooldownMin = 2 * time.Hour },
		"pool.exhausted":    func(s *ipam.PoolSpec) { s.Exhausted = "newest" },
		"pool.mtu":          func(s *ipam.PoolSpec) { s.MTU = 67 },
		"pool.labels":       func(s *ipam.PoolSpec) { s.Labels = map[string]string{"": "x"} },
	} {
		bad := own
		spoil(&bad)
		var fe *ipam.FieldError
		if _, err := b.SetPool(ctx, operator, netdb.PoolChange{Spec: bad}); !errors.As(err, &fe) || fe.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
}
