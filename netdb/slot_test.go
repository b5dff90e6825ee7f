package netdb_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ipamd/ipamd/netdb"
	. "github.com/ipamd/ipamd/netdb/netdbtest"
)

var slotting = netdb.Who{Actor: netdb.ByAllocator, Peer: "test", Reason: netdb.SlotReserved}

// warm makes the first pool of a book keep slots; mtu tells one spec from another.
func warm(t *testing.T, b *netdb.Book, strategy string, mtu int) *netdb.Pool {
	t.Helper()
	spec := b.Pools()[0].PoolSpec
	spec.MTU, spec.Warm = mtu, &netdb.Warm{Size: 5, Strategy: strategy}
	p, err := b.EnsurePool(ctx, Who(netdb.ByOperator, "test"), spec)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// slot is a ready one.
func slot(t *testing.T, b *netdb.Book, id string) *netdb.Lease {
	t.Helper()
	c, err := b.Pick(b.Pools()[0].UID, Policy)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Drop(c)
	ls, err := b.Reserve(ctx, slotting, netdb.Reservation{Candidate: c, Sandbox: "warm slot", UID: netdb.SlotUID(id), Interface: "eth0",
		Attempt: 1, BindWithin: 10 * time.Minute, Slot: &netdb.NewSlot{ID: id, Netns: "/run/netns/" + id}})
	if err != nil {
		t.Fatal(err)
	}
	l, err := b.Bind(ctx, client, ls[0].ID, 0, netdb.Binding{Netns: "/run/netns/" + id, HostInterface: "sb" + id})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func claimed(b *netdb.Book, l *netdb.Lease, sandbox string) (*netdb.Lease, bool, error) {
	return b.ClaimSlot(ctx, netdb.Who{Actor: netdb.ByAllocator, Peer: "test", Reason: netdb.SlotClaimed}, netdb.Claim{
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
	if given.ID == l.ID || given.Addr != l.Addr || given.UID != "a" || given.State != netdb.Bound || given.Netns != l.Netns || given.HostInterface != l.HostInterface {
		t.Errorf("given: %+v", given)
	}
	if _, _, err := claimed(b, l, "b"); !errors.Is(err, netdb.ErrSlotTaken) {
		t.Errorf("claimed again: %v", err)
	}
	if _, _, err := claimed(b, given, "b"); !errors.Is(err, netdb.ErrSlotTaken) {
		t.Errorf("the sandbox's own: %v", err)
	}
	// Whoever asks again has its lease already, whatever became of the spec.
	warm(t, b, "", 1300)
	other := slot(t, b, "two")
	owned := new(netdb.OwnedError)
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
	if got, _ := b.At(given.Addr); got == nil || got.State != netdb.Cooling {
		t.Errorf("the address that a sandbox had: %+v", got)
	}
}

// The address of a slot that no sandbox had rests not at all.
func TestAnUnusedSlotsAddressIsFreeAtOnce(t *testing.T) {
	b := Open(t)
	warm(t, b, "", 1400)
	l := slot(t, b, "one")
	if end := Cool(t, b, l); end.State != netdb.Free {
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
	if _, err := TryReserve(b, p, netdb.SlotUID("one"), Policy); !errors.Is(err, netdb.ErrInvalid) {
		t.Errorf("reserved: %v", err)
	}
	if _, _, err := claimed(b, slot(t, b, "one"), netdb.SlotUID("one")); !errors.Is(err, netdb.ErrInvalid) {
		t.Errorf("claimed: %v", err)
	}
}

// Of a pool whose spec changed no slot of before is given under recreate, whoever asks; under
// on_replenish it is, and the answer says so.
func TestSlotsOfAnotherSpec(t *testing.T) {
	for strategy, given := range map[string]bool{"": false, netdb.SlotsRecreate: false, netdb.SlotsOnReplenish: true} {
		b := Open(t)
		warm(t, b, strategy, 1400)
		var slots []*netdb.Lease
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
				case err != nil && !errors.Is(err, netdb.ErrSlotTaken) && !errors.Is(err, netdb.ErrSlotStale):
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
			if _, err := b.EnsurePool(ctx, Who(netdb.ByOperator, "test"), spec); err != nil {
				t.Error(err)
			}
		})
		got := make([]*netdb.Lease, claims)
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
				case !errors.Is(err, netdb.ErrSlotTaken) && !errors.Is(err, netdb.ErrSlotStale):
					t.Error(err)
				case late && errors.Is(err, netdb.ErrSlotStale):
					refused.Add(1)
				}
			})
		}
		wg.Wait()
		switch got = slices.DeleteFunc(got, func(l *netdb.Lease) bool { return l == nil }); len(got) {
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
	var slots []*netdb.Lease
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
				if errors.Is(err, netdb.ErrSlotTaken) {
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
	p := warm(t, b, netdb.SlotsOnReplenish, 1400)
	l := slot(t, b, "one")
	if _, err := b.RemovePool(ctx, netdb.Who{Actor: netdb.ByOperator, Peer: "test", Reason: "removed", Note: "test"}, p.UID, true); err != nil {
		t.Fatal(err)
	}
	if _, err := b.EnsurePool(ctx, Who(netdb.ByOperator, "test"), p.PoolSpec); err != nil {
		t.Fatal(err)
	}
	if _, _, err := claimed(b, l, "a"); !errors.Is(err, netdb.ErrSlotTaken) {
		t.Errorf("claimed: %v", err)
	}
	if len(b.Slots()) != 0 {
		t.Errorf("slots: %v", b.Slots())
	}
}

// A broken slot is released with its reason, and given to nobody.
func TestABrokenSlotIsNotGiven(t *testing.T) {
	b := Open(t)
	warm(t, b, "", 1400)
	l := slot(t, b, "one")
	broken, err := b.BreakSlot(ctx, Who(netdb.ByReconciler, netdb.SlotBroken), l.ID, "its port is gone")
	if err != nil || broken.State != netdb.Releasing || b.Slot(l.ID).Broken != "its port is gone" {
		t.Fatal(broken, err)
	}
	if _, _, err := claimed(b, l, "a"); !errors.Is(err, netdb.ErrSlotTaken) {
		t.Errorf("claimed: %v", err)
	}
}

// Every field that changes the plumbing changes its hash, and none that does not.
func TestWhatAPlumbingIsHashedOf(t *testing.T) {
	spec := func() netdb.PoolSpec {
		return netdb.PoolSpec{Name: "p", Prefix: netip.MustParsePrefix("10.8.64.0/24"), Gateway: netip.MustParseAddr("10.8.64.1"), Bridge: "rt0",
			Routes: []netdb.Route{{Destination: netip.MustParsePrefix("10.0.0.0/8"), Via: netip.MustParseAddr("10.8.64.2")}, {Destination: netip.MustParsePrefix("10.9.0.0/16"), Via: netip.MustParseAddr("10.8.64.3")}},
			DNS:    []netip.Addr{netip.MustParseAddr("1.1.1.1"), netip.MustParseAddr("8.8.8.8")}}
	}
	was := spec()
	base := was.Plumbing("eth0", netdb.Profile{}).Hash()
	if want := "sha256:9f92729c544afcf5d2c4568f8d7bf48c2da6f815f6fb8cc07a841ae119dc955e"; base != want {
		t.Errorf("the hash of one spec is %s by this build, and was %s: slots of before would be stale", base, want)
	}
	for name, row := range map[string]struct {
		edit  func(*netdb.PoolSpec, *string, *netdb.Profile)
		other bool
	}{
		"bridge":          {func(s *netdb.PoolSpec, _ *string, _ *netdb.Profile) { s.Bridge = "rt1" }, true},
		"prefix":          {func(s *netdb.PoolSpec, _ *string, _ *netdb.Profile) { s.Prefix = netip.MustParsePrefix("10.8.64.0/23") }, true},
		"gateway":         {func(s *netdb.PoolSpec, _ *string, _ *netdb.Profile) { s.Gateway = netip.MustParseAddr("10.8.64.9") }, true},
		"MTU":             {func(s *netdb.PoolSpec, _ *string, _ *netdb.Profile) { s.MTU = 1400 }, true},
		"bridge's MTU":    {func(_ *netdb.PoolSpec, _ *string, p *netdb.Profile) { p.BridgeMTU = 1400 }, true},
		"DNS":             {func(s *netdb.PoolSpec, _ *string, _ *netdb.Profile) { s.DNS = s.DNS[:1] }, true},
		"order of DNS":    {func(s *netdb.PoolSpec, _ *string, _ *netdb.Profile) { slices.Reverse(s.DNS) }, true},
		"routes":          {func(s *netdb.PoolSpec, _ *string, _ *netdb.Profile) { s.Routes = s.Routes[:1] }, true},
		"interface":       {func(_ *netdb.PoolSpec, i *string, _ *netdb.Profile) { *i = "net1" }, true},
		"MAC policy":      {func(_ *netdb.PoolSpec, _ *string, p *netdb.Profile) { p.MAC = "address" }, true},
		"enforcement":     {func(_ *netdb.PoolSpec, _ *string, p *netdb.Profile) { p.Enforce = "enforce" }, true},
		"wake":            {func(_ *netdb.PoolSpec, _ *string, p *netdb.Profile) { p.Wake = "on" }, true},
		"name":            {func(s *netdb.PoolSpec, _ *string, _ *netdb.Profile) { s.Name = "q" }, false},
		"order of routes": {func(s *netdb.PoolSpec, _ *string, _ *netdb.Profile) { slices.Reverse(s.Routes) }, false},
		"size": {func(s *netdb.PoolSpec, _ *string, _ *netdb.Profile) {
			s.Warm = &netdb.Warm{Size: 9, Strategy: netdb.SlotsOnReplenish}
		}, false},
		"cooldown": {func(s *netdb.PoolSpec, _ *string, _ *netdb.Profile) {
			s.Cooldown, s.CooldownMin, s.Exhausted = time.Hour, time.Minute, "strict"
		}, false},
		"labels": {func(s *netdb.PoolSpec, _ *string, _ *netdb.Profile) { s.Labels = map[string]string{"a": "b"} }, false},
		"exclusions": {func(s *netdb.PoolSpec, _ *string, _ *netdb.Profile) {
			s.Exclude = []netdb.Range{{From: s.Gateway, To: s.Gateway}}
		}, false},
		"reservations": {func(s *netdb.PoolSpec, _ *string, _ *netdb.Profile) {
			s.Kept = []netdb.Kept{{Sandbox: "a", Address: netip.MustParseAddr("10.8.64.7")}}
		}, false},
	} {
		s, iface, p := spec(), "eth0", netdb.Profile{}
		row.edit(&s, &iface, &p)
		if got := s.Plumbing(iface, p).Hash(); (got != base) != row.other {
			t.Errorf("%s: %s and %s", name, base, got)
		}
	}
}

// Another algorithm of hashes alone makes no slot stale, and one that cannot be read neither.
func TestAnUpgradeDrainsNothing(t *testing.T) {
	spec := netdb.PoolSpec{Prefix: netip.MustParsePrefix("10.8.64.0/24"), Bridge: "rt0"}
	pool := &netdb.Pool{PoolSpec: spec}
	const same = `{"bridge":"rt0","prefix":"10.8.64.0/24","interface":"eth0"}`
	for name, row := range map[string]struct {
		hash, spec  string
		stale, fail bool
	}{
		"this build's":               {spec.Plumbing("eth0", netdb.Profile{}).Hash(), `{}`, false, false},
		"this build's of another":    {"sha256:0", same, true, false},
		"another algorithm":          {"blake3:0", same, false, false},
		"another algorithm and spec": {"blake3:0", `{"bridge":"rt1","prefix":"10.8.64.0/24","interface":"eth0"}`, true, false},
		"a field of later":           {"blake3:0", `{"bridge":"rt0","prefix":"10.8.64.0/24","interface":"eth0","vlan":3}`, false, true},
		"not to be read":             {"blake3:0", `{}`, false, true},
	} {
		stale, err := (&netdb.Slot{SpecHash: row.hash, Spec: row.spec}).Stale(pool, "eth0", netdb.Profile{})
		if stale != row.stale || (err != nil) != row.fail {
			t.Errorf("%s: %t, %v", name, stale, err)
		}
	}
}

// Of a pool that names no MTU the bridge's is part of the plumbing, where it is known. A record of a
// build that left it out makes no slot stale.
func TestTheMTUOfABridge(t *testing.T) {
	of := func(mtu int) netdb.PoolSpec {
		return netdb.PoolSpec{Prefix: netip.MustParsePrefix("10.8.64.0/24"), Bridge: "rt0", MTU: mtu}
	}
	none, named := of(0), of(1400)
	on := func(mtu int) netdb.Profile { return netdb.Profile{Enforce: "enforce", BridgeMTU: mtu} }
	text := func(s netdb.PoolSpec, p netdb.Profile) string {
		b, err := json.Marshal(s.Plumbing("eth0", p))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	for name, row := range map[string]struct {
		pool        netdb.PoolSpec
		bridge      int // its MTU now; 0: unknown
		made        netdb.PoolSpec
		by          netdb.Profile
		stale, fail bool
	}{
		"as the bridge is":              {none, 1500, none, on(1500), false, false},
		"as it was":                     {none, 1400, none, on(1500), true, false},
		"not recorded":                  {none, 1500, none, on(0), false, false},
		"not recorded, of other rules":  {none, 1500, none, netdb.Profile{}, true, false},
		"unknown now":                   {none, 0, none, on(1500), false, true},
		"unknown now, of other rules":   {none, 0, none, netdb.Profile{BridgeMTU: 1500}, true, false},
		"unknown now, not recorded":     {none, 0, none, on(0), false, false},
		"the pool's":                    {named, 1500, named, on(1450), false, false},
		"the pool's, not the bridge's":  {named, 1500, none, on(1500), true, false},
		"the pool's, as the bridge was": {named, 1500, none, on(1400), false, false},
		"the pool's, not recorded":      {named, 1500, none, on(0), true, false},
		"the pool's, unknown now":       {named, 0, named, on(0), false, false},
		"the bridge's, not the pool's":  {none, 1500, named, on(1500), true, false},
	} {
		made := row.made.Plumbing("eth0", row.by)
		for _, hash := range []string{made.Hash(), "blake3:0"} {
			stale, err := (&netdb.Slot{SpecHash: hash, Spec: text(row.made, row.by)}).Stale(&netdb.Pool{PoolSpec: row.pool}, "eth0", on(row.bridge))
			if stale != row.stale || (err != nil) != row.fail {
				t.Errorf("%s, by %.6s: %t, %v", name, hash, stale, err)
			}
		}
	}
}
