package netdb_test

import (
	"encoding/json"
	"net/netip"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb"
	"github.com/ipamd/ipamd/netdb/bookfile"
	. "github.com/ipamd/ipamd/netdb/netdbtest"
	"github.com/ipamd/ipamd/netdb/salvage"
)

var ofOldBook = json.RawMessage(`[{"witness":"book"}]`)

// What another book knew and no pool of this one has is withheld, over a restart, and the
// pool that comes to contain it does not give it.
func TestWithholdFormer(t *testing.T) {
	path := filepath.Join(t.TempDir(), "book.db")
	b := OpenAt(t, path, Options())
	Pool(t, b, "default", "10.8.64.0/24")
	id := uuid.NewString()
	w := ipam.Withheld{Addr: addr("10.9.0.2"), State: ipam.Quarantined, LeaseID: id, Sandbox: "s", UID: "s", Interface: "eth0", Pool: "lab", Evidence: ofOldBook, Hold: "it was paused"}
	for range 2 { // the same again is the same
		if err := b.WithholdFormer(ctx, operator, w); err != nil {
			t.Fatal(err)
		}
	}
	cools := ipam.Withheld{Addr: addr("10.9.0.16"), PrefixLen: 28, State: ipam.Cooling, LeaseID: uuid.NewString()}
	if err := b.WithholdFormer(ctx, operator, cools); err != nil {
		t.Fatal(err)
	}
	for what, c := range map[string]struct {
		w    ipam.Withheld
		want error
	}{
		"an address that a pool gives":   {ipam.Withheld{Addr: addr("10.8.64.9")}, ipam.ErrGives},
		"a prefix around a pool":         {ipam.Withheld{Addr: addr("10.8.0.0"), PrefixLen: 16}, ipam.ErrGives},
		"a part of what is withheld":     {ipam.Withheld{Addr: addr("10.9.0.17")}, ipam.ErrTaken},
		"without evidence":               {ipam.Withheld{Addr: addr("10.9.0.9"), State: ipam.Quarantined}, ipam.ErrInvalid},
		"in a state that it cannot have": {ipam.Withheld{Addr: addr("10.9.0.9"), State: ipam.Bound}, ipam.ErrInvalid},
	} {
		if c.w.State == "" {
			c.w.State = ipam.Cooling
		}
		if err := b.WithholdFormer(ctx, operator, c.w); err == nil {
			t.Errorf("%s: it is withheld", what)
		} else {
			wantErr(t, err, c.want)
		}
	}
	Check(t, b)
	Close(t, b)
	b = OpenAt(t, path, Options())
	if got := b.Withheld(); len(got) != 2 || got[0].Hold != w.Hold || got[0].LeaseID != id {
		t.Fatalf("withheld: %+v", got)
	}
	_, err := b.Lease(id)
	wantErr(t, err, ipam.ErrGone)
	lab := Pool(t, b, "lab", "10.9.0.0/24")
	for want, state := range map[string]ipam.State{"10.9.0.2": ipam.Quarantined, "10.9.0.20": ipam.Cooling} {
		if l, ok := b.At(addr(want)); !ok || l.State != state || l.PoolUID != lab.UID {
			t.Errorf("%s: %+v", want, l)
		}
	}
}

// What is withheld can be a pool's gateway, which no pool gives. The pool can be changed, and
// once it has another gateway it takes the address over, or leaves it withheld outside.
func TestWithholdFormerGateway(t *testing.T) {
	for _, excluded := range []bool{false, true} {
		b := Open(t)
		Reserve(t, b, "routed")
		w := ipam.Withheld{Addr: addr("10.8.64.1"), State: ipam.Quarantined, Sandbox: "s", UID: "s", Interface: "eth0", Evidence: ofOldBook, Hold: "it may be in use"}
		if err := b.WithholdFormer(ctx, operator, w); err != nil {
			t.Fatal(err)
		}
		s := spec("default", "10.8.64.0/24")
		s.MTU = 1400
		set(t, b, netdb.PoolChange{Spec: s})
		s.Gateway = addr("10.8.64.254")
		if excluded {
			s.Exclude = []ipam.Range{{From: w.Addr, To: w.Addr}}
		}
		set(t, b, netdb.PoolChange{Spec: s})
		l, there := b.At(w.Addr)
		if there == excluded || there && (l.State != ipam.Quarantined || l.Hold != w.Hold) || len(b.Withheld()) > 0 != excluded {
			t.Errorf("excluded %v: it is %+v, and %+v are withheld", excluded, l, b.Withheld())
		}
		s.Exclude, s.Gateway = nil, w.Addr
		if excluded {
			refused(t, b, netdb.PoolChange{Spec: s}, ipam.ErrOverlap)
		}
		Check(t, b)
	}
}

// A lease that was outside of its pool comes back as a row of that pool, outside, by an
// adoption and by a quarantine; in another pool, or on the gateway, it does not.
func TestAFormerLeaseOutsideItsPool(t *testing.T) {
	b := Open(t)
	Pool(t, b, "other", "10.7.0.0/24")
	p := Pool(t, b, "lab", "10.9.0.0/25")
	live, err := b.Adopt(ctx, Who(ipam.ByReconciler, "rebuilt"), ipam.Adoption{Addr: addr("10.9.0.200"), ID: uuid.NewString(), Sandbox: "live", PoolUID: p.UID, Attempt: 7,
		Binding: ipam.Binding{HostInterface: "veth1"}})
	if err != nil || live.PoolUID != p.UID || b.Outside(live) == "" || live.Attempt != 7 {
		t.Fatalf("%+v, %v", live, err)
	}
	prefix, err := b.QuarantineFormer(ctx, operator, &ipam.Lease{Addr: addr("10.9.0.144"), PrefixLen: 28, PoolUID: p.UID}, ofOldBook)
	if err != nil || prefix.PoolUID != p.UID || prefix.PrefixLen != 28 {
		t.Fatalf("%+v, %v", prefix, err)
	}
	for _, l := range []ipam.Lease{{Addr: addr("10.9.0.201")}, {Addr: addr("10.9.0.1"), PoolUID: p.UID}, {Addr: addr("10.9.0.202"), PoolUID: "none"}, {Addr: addr("10.6.0.0"), PrefixLen: 7, PoolUID: p.UID}} {
		_, err := b.QuarantineFormer(ctx, operator, &l, ofOldBook)
		wantErr(t, err, ipam.ErrNotInPool)
	}
	if l, err := b.QuarantineFormer(ctx, operator, &ipam.Lease{Addr: addr("10.7.0.9"), PoolUID: p.UID}, ofOldBook); err != nil || l.Pool != "other" {
		t.Errorf("in the pool that has it now: %+v, %v", l, err)
	}
	Check(t, b)
	grown := p.PoolSpec
	grown.Prefix = netip.MustParsePrefix("10.9.0.0/24")
	if _, err := b.SetPool(ctx, operator, netdb.PoolChange{Spec: grown}); err != nil {
		t.Fatal(err)
	}
	if b.Outside(live) != "" {
		t.Error(b.Outside(live))
	}
}

// Pools of another book come as they were, with what their names remember: what was sent
// before stays old, and a configuration that has not changed changes nothing.
func TestKeepPools(t *testing.T) {
	path := filepath.Join(t.TempDir(), "book.db")
	old := OpenAt(t, path, Options())
	reply := []ipam.PoolSpec{spec("default", "10.8.64.0/28"), spec("gone", "10.7.0.0/24")}
	if _, err := old.Configure(ctx, operator, reply); err != nil {
		t.Fatal(err)
	}
	wide := set(t, old, netdb.PoolChange{Spec: spec("default", "10.8.64.0/24"), Generation: 7}).Pool
	for _, p := range old.Pools() {
		if p.Name == "gone" {
			remove(t, old, p.UID, false)
		}
	}
	drains := set(t, old, netdb.PoolChange{Spec: spec("drains", "10.6.0.0/24")}).Pool
	if _, err := old.DrainPool(ctx, operator, drains.UID, 0); err != nil {
		t.Fatal(err)
	}
	Close(t, old)
	s, err := salvage.Book(path)
	if err != nil || len(s.Problems) > 0 {
		t.Fatal(s.Problems, err)
	}
	odd := *wide
	odd.Name, odd.UID = "odd", uuid.NewString()

	b := OpenAt(t, filepath.Join(t.TempDir(), "book.db"), Options())
	left, err := b.KeepPools(ctx, operator, append(s.Pools, &odd), s.Names)
	if err != nil || len(left) != 1 {
		t.Fatal(left, err)
	}
	wantErr(t, left[0], ipam.ErrOverlap)
	if changed, err := b.Configure(ctx, operator, reply); err != nil || len(changed) > 0 {
		t.Errorf("the configuration changed %v, %v", changed, err)
	}
	got := make(map[string]*ipam.Pool)
	for _, p := range b.Pools() {
		got[p.Name] = p
	}
	if p := got["default"]; len(got) != 2 || p.UID != wide.UID || p.Generation != 7 || p.Prefix != wide.Prefix || got["drains"].State != ipam.PoolDraining || got["drains"].Generation != 2 {
		t.Errorf("there are %+v", got)
	}
	// What was sent to one that is left out stays old, also where no configuration named it.
	for _, c := range []netdb.PoolChange{{Spec: spec("default", "10.8.64.0/26"), Generation: 3}, {Spec: spec("gone", "10.7.0.0/24"), Generation: 1}, {Spec: spec("odd", "10.5.0.0/24"), Generation: 6}} {
		refused(t, b, c, ipam.ErrStaleGeneration)
	}
	Check(t, b)
}

// How a new book cools what the old one had cooling, by the moves that an
// operator may make: the whole cooldown begins again.
func TestARebuiltBookRestsWhatCooled(t *testing.T) {
	dir, c := t.TempDir(), NewClock()
	opts := Options()
	opts.Now = c.Now
	path := filepath.Join(dir, "book.db")
	b := OpenAt(t, path, opts)
	Pool(t, b, "default", "10.8.64.0/30")
	cools := Cool(t, b, Reserve(t, b, "a"))
	Close(t, b)
	to, err := bookfile.MoveAside(path, noon)
	if err != nil {
		t.Fatal(err)
	}
	s, err := salvage.Book(to)
	if err != nil || len(s.Leases) != 1 || s.Leases[0].State != ipam.Cooling {
		t.Fatalf("%+v, %v", s, err)
	}
	b = OpenAt(t, path, opts)
	p := Pool(t, b, "default", "10.8.64.0/30")
	if _, err := b.Quarantine(ctx, operator, s.Leases[0].Addr, evidence); err != nil {
		t.Fatal(err)
	}
	if _, err := Clear(b, s.Leases[0].Addr); err != nil {
		t.Fatal(err)
	}
	strict := Policy
	strict.Strict = true
	c.Pass(Policy.Cooldown - time.Second)
	_, err = TryReserve(b, p, "b", strict)
	wantErr(t, err, ipam.ErrExhausted)
	c.Pass(time.Second)
	if l, err := TryReserve(b, p, "b", strict); err != nil || l.Addr != cools.Addr {
		t.Fatal(l, err)
	}
}
