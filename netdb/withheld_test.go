package netdb_test

import (
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

// What cooled in removed pools is given again in the order in which it was released, and
// not in that of its addresses, nor in that in which the pools were removed.
func TestWithheldRestInTheirOrder(t *testing.T) {
	clock := NewClock()
	opts := Options()
	opts.Now = clock.Now
	path := filepath.Join(t.TempDir(), "book.db")
	b := OpenAt(t, path, opts)
	first, second := Pool(t, b, "first", "10.8.64.0/30"), Pool(t, b, "second", "10.8.64.4/30")
	reserve := func(p *ipam.Pool, sandbox string) *ipam.Lease {
		t.Helper()
		l, err := TryReserve(b, p, sandbox, Policy)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	late, early := reserve(first, "late"), reserve(second, "early")
	Cool(t, b, early)
	clock.Pass(Policy.Cooldown / 2)
	Cool(t, b, late)
	remove(t, b, first.UID, false)
	remove(t, b, second.UID, false)

	wide := Pool(t, b, "wide", "10.8.64.0/29")
	for _, sandbox := range []string{"a", "b", "c"} { // what was never given
		reserve(wide, sandbox)
	}
	strict := Policy
	strict.Strict = true
	clock.Pass(Policy.Cooldown / 2)
	if l, err := TryReserve(b, wide, "d", strict); err != nil || l.Addr != early.Addr {
		t.Fatalf("%v, %v, and %s has cooled", l, err, early.Addr)
	}
	_, err := TryReserve(b, wide, "e", strict)
	wantErr(t, err, ipam.ErrExhausted)
	clock.Pass(Policy.Cooldown / 2)
	if l, err := TryReserve(b, wide, "e", strict); err != nil || l.Addr != late.Addr {
		t.Fatal(l, err)
	}
}

// Of one pool, too, and where all cooled within one tick of the clock.
func TestWithheldRestInTheOrderOfTheirRelease(t *testing.T) {
	clock := NewClock()
	opts := Options()
	opts.Now = clock.Now
	b := OpenAt(t, filepath.Join(t.TempDir(), "book.db"), opts)
	old := Pool(t, b, "default", "10.8.64.0/29")
	held := []*ipam.Lease{Reserve(t, b, "a"), Reserve(t, b, "b"), Reserve(t, b, "c"), Reserve(t, b, "d"), Reserve(t, b, "e")}
	released := []int{3, 0, 4, 2, 1}
	for _, i := range released {
		Cool(t, b, held[i])
	}
	remove(t, b, old.UID, false)
	made := Pool(t, b, "default", "10.8.64.0/29")
	clock.Pass(time.Hour)
	for n, i := range released {
		if l, err := TryReserve(b, made, string(rune('p'+n)), Policy); err != nil || l.Addr != held[i].Addr {
			t.Fatalf("%v, %v; %s was released before", l, err, held[i].Addr)
		}
	}
}

// P6: a pool that takes over what cooled in a removed one, and has rows of its own that
// cool, gives all of them in the order of their release: out of the rows, once their rest is
// over and they are free, over a restart, and over another removal. What has cooled by then
// is what counts as available.
func TestWithheldRestAmongThePoolsOwn(t *testing.T) {
	for name, tt := range map[string]struct{ free, reopen, again bool }{
		"rows": {}, "rows of before a restart": {reopen: true}, "free": {free: true}, "free behind a restart": {free: true, reopen: true},
		"of a pool that was made of them": {again: true}, "and reopened": {again: true, reopen: true},
	} {
		t.Run(name, func(t *testing.T) {
			clock := NewClock()
			opts := Options()
			opts.Now = clock.Now
			path := filepath.Join(t.TempDir(), "book.db")
			b := OpenAt(t, path, opts)
			own, old := Pool(t, b, "own", "10.8.64.0/29"), Pool(t, b, "old", "10.8.64.8/29")
			var held []*ipam.Lease
			for i, p := range []*ipam.Pool{old, own, own, old, own, old, old, own} {
				l, err := TryReserve(b, p, string(rune('a'+i)), Policy)
				if err != nil {
					t.Fatal(err)
				}
				held = append(held, l)
			}
			for _, l := range held {
				Cool(t, b, l)
				clock.Pass(time.Minute)
			}
			remove(t, b, old.UID, false)
			wide := set(t, b, netdb.PoolChange{Spec: spec("own", "10.8.64.0/28")}).Pool
			if tt.again {
				remove(t, b, wide.UID, false)
				wide = Pool(t, b, "again", "10.8.64.0/28")
			}
			if tt.reopen {
				Close(t, b)
				b = OpenAt(t, path, opts)
			}
			strict := Policy
			strict.Strict = true
			for n := 0; ; n++ { // what was never given
				if _, err := TryReserve(b, wide, "other"+string(rune('a'+n)), strict); err != nil {
					wantErr(t, err, ipam.ErrExhausted)
					break
				}
			}
			clock.Pass(Policy.Cooldown - time.Duration(len(held)-3)*time.Minute)
			if n, _ := b.Available(wide.UID, strict); n != 4 {
				t.Errorf("%d are available, 4 have cooled", n)
			}
			clock.Pass(time.Hour)
			if tt.free {
				due := b.Cooled(wide.UID, Policy.Cooldown, nil, 3)
				due = append(due, b.Cooled(wide.UID, Policy.Cooldown, due[2], 9)...)
				if n, err := b.Free(ctx, Who(ipam.ByReconciler, "rested"), due, func(*ipam.Lease) error { return nil }); err != nil || n != len(held) {
					t.Fatal(n, err)
				}
			}
			for i, was := range held {
				if l, err := TryReserve(b, wide, string(rune('p'+i)), strict); err != nil || l.Addr != was.Addr {
					t.Fatalf("number %d is %v, %v; %s was released before", i+1, l, err, was.Addr)
				}
			}
		})
	}
}

// A paused sandbox has nothing that a witness sees: what its pool's forced removal left
// withheld only an operator clears, and that it is unseen is no reason.
func TestAForcedRemovalHoldsWhatIsPaused(t *testing.T) {
	b := Open(t)
	old := Pool(t, b, "default", "10.8.64.0/28")
	l := bind(t, b, "paused")
	if _, err := b.Pause(ctx, client, l.ID, 0); err != nil {
		t.Fatal(err)
	}
	running := bind(t, b, "running")
	remove(t, b, old.UID, true)
	Pool(t, b, "default", "10.8.64.0/28")
	for a, held := range map[*ipam.Lease]bool{l: true, running: false} {
		row, ok := b.At(a.Addr)
		if !ok || row.State != ipam.Quarantined || row.Hold != "" != held {
			t.Fatalf("%+v", row)
		}
		past, err := b.History(ctx, ipam.Query{Addr: a.Addr, Limit: 1})
		if err != nil || len(past) != 1 || past[0].Who.Note != row.Hold {
			t.Errorf("a salvage of the changes would have the words %+v, %v, and not %q", past, err, row.Hold)
		}
		_, err = b.ClearAt(ctx, Who(ipam.ByReconciler, "unseen"), row.ID, row.Rev, nil)
		if (err != nil) != held {
			t.Errorf("%s: %v", row.Sandbox, err)
		}
	}
}

// The address that was the gateway of a pool with leases cools like one that was given:
// their routes still lead there. It can be the gateway again at once.
func TestAFormerGatewayRests(t *testing.T) {
	clock := NewClock()
	opts := Options()
	opts.Now = clock.Now
	b := OpenAt(t, filepath.Join(t.TempDir(), "book.db"), opts)
	p := Pool(t, b, "default", "10.8.65.0/29")
	Reserve(t, b, "a")
	was := p.PoolSpec
	wide := spec("default", "10.8.64.0/23") // with another first host
	p = set(t, b, netdb.PoolChange{Spec: wide}).Pool
	owner := ipam.Owner{PoolUID: p.UID, UID: "b", Interface: "eth0"}
	_, err := b.PickAddr(owner, was.Gateway, Policy)
	wantErr(t, err, ipam.ErrTaken)

	back := wide
	back.Gateway = was.Gateway
	set(t, b, netdb.PoolChange{Spec: back})
	_, err = b.PickAddr(owner, was.Gateway, Policy)
	wantErr(t, err, ipam.ErrNotInPool)
	_, err = b.PickAddr(owner, wide.Gateway, Policy)
	wantErr(t, err, ipam.ErrTaken)
	set(t, b, netdb.PoolChange{Spec: wide})
	clock.Pass(Policy.Cooldown)
	if c, err := b.PickAddr(owner, was.Gateway, Policy); err != nil {
		t.Error(err)
	} else {
		b.Drop(c)
	}
}

// So it does where the pool cannot give it, or its rest of before it was the gateway is over:
// what gives it back, a while later, finds that it cools.
func TestAFormerGatewayRestsWhereverItIs(t *testing.T) {
	narrow, excluded, moved := spec("default", "10.8.64.8/29"), spec("default", "10.8.64.0/28"), spec("default", "10.8.64.0/28")
	first := moved.Gateway
	excluded.Exclude = []ipam.Range{{From: first, To: first}}
	for _, s := range []*ipam.PoolSpec{&narrow, &excluded, &moved} {
		s.Gateway = addr("10.8.64.14")
	}
	for name, c := range map[string]struct {
		steps  []ipam.PoolSpec
		cooled bool // before it was the gateway
	}{
		"excluded, and then not":       {steps: []ipam.PoolSpec{excluded, moved}},
		"outside, and then not":        {steps: []ipam.PoolSpec{narrow, moved}},
		"it had cooled":                {steps: []ipam.PoolSpec{moved}, cooled: true},
		"it had cooled, and is out of": {steps: []ipam.PoolSpec{narrow, moved}, cooled: true},
	} {
		t.Run(name, func(t *testing.T) {
			clock := NewClock()
			opts := Options()
			opts.Now = clock.Now
			b := OpenAt(t, filepath.Join(t.TempDir(), "book.db"), opts)
			begin := moved
			if begin.Gateway = first; c.cooled {
				begin.Gateway = addr("10.8.64.13")
			}
			p := set(t, b, netdb.PoolChange{Spec: begin}).Pool
			Reserve(t, b, "lives")
			if c.cooled { // the first host was leased, and is the gateway then
				l, ok := b.At(first)
				if !ok {
					t.Fatal("it was not given")
				}
				Cool(t, b, l)
				Reserve(t, b, "still")
				begin.Gateway = first
				set(t, b, netdb.PoolChange{Spec: begin, Drain: true})
				clock.Pass(Policy.Cooldown)
			}
			for _, s := range c.steps {
				set(t, b, netdb.PoolChange{Spec: s, Drain: true})
			}
			owner := ipam.Owner{PoolUID: p.UID, UID: "b", Interface: "eth0"}
			_, err := b.PickAddr(owner, first, Policy)
			wantErr(t, err, ipam.ErrTaken)
			clock.Pass(Policy.Cooldown)
			got, err := b.PickAddr(owner, first, Policy)
			if err != nil {
				t.Fatal(err)
			}
			b.Drop(got)
		})
	}
}

// The rest of a former gateway belongs to no sandbox: the sandbox that had the address before, or a
// delegated prefix with it, waits for it as any other.
func TestAFormerGatewayIsNotItsFormerOwners(t *testing.T) {
	for _, bits := range []int{0, 28} {
		t.Run(fmt.Sprintf("of a /%d", bits), func(t *testing.T) {
			clock := NewClock()
			b, _ := openWith(t, clock, "10.8.64.0/24")
			Reserve(t, b, "lives")
			had := given(t, b, "had", bits)
			Cool(t, b, had)
			s := spec("default", "10.8.64.0/24")
			first := s.Gateway
			s.Gateway = had.Range().To
			set(t, b, netdb.PoolChange{Spec: s, Drain: true})
			s.Gateway = first
			s.Kept = []ipam.Kept{{Sandbox: "had", Address: had.Range().To}}
			p := set(t, b, netdb.PoolChange{Spec: s, Drain: true}).Pool
			_, err := takeKept(b, p, "had", "had", "eth0")
			wantErr(t, err, ipam.ErrTaken)
			s.Kept = nil
			p = set(t, b, netdb.PoolChange{Spec: s, Drain: true}).Pool
			again := func() (c netdb.Candidate, err error) {
				owner := ipam.Owner{PoolUID: p.UID, UID: "had", Interface: "eth0"}
				if c, is := b.PickOwn(owner, bits); is {
					t.Errorf("%s is offered", c.Text())
				}
				if bits == 0 {
					return b.PickAddr(owner, had.Addr, Policy)
				}
				return b.PickPrefixAt(owner, had.Prefix(), Policy)
			}
			for range 2 { // and in the next pool of the prefix
				if row, ok := b.At(had.Range().To); !ok || row.State != ipam.Cooling || row.Sandbox != "" || row.ID == had.ID || row.PrefixLen != bits {
					t.Errorf("%+v", row)
				}
				_, err := again()
				wantErr(t, err, ipam.ErrTaken)
				remove(t, b, p.UID, true)
				p = set(t, b, netdb.PoolChange{Spec: s}).Pool
			}
			clock.Pass(Policy.Cooldown)
			free(t, b, p)
			if _, err := again(); err != nil {
				t.Error(err)
			}
		})
	}
}

// given gives a sandbox an address, or a prefix of a length.
func given(t *testing.T, b *netdb.Book, sandbox string, bits int) *ipam.Lease {
	t.Helper()
	if bits == 0 {
		return Reserve(t, b, sandbox)
	}
	return ReservePrefix(t, b, sandbox, bits)
}

// A gateway that is withheld since a pool was removed cools as a row of its pool once it is the
// gateway no more, wherever it is then, and is withheld no more.
func TestAFormerGatewayThatIsWithheld(t *testing.T) {
	last := addr("10.8.64.254")
	for name, move := range map[string]func(s *ipam.PoolSpec, had ipam.Range){
		"in the pool": func(s *ipam.PoolSpec, _ ipam.Range) { s.Gateway = last },
		"excluded": func(s *ipam.PoolSpec, had ipam.Range) {
			s.Gateway, s.Exclude = last, []ipam.Range{had}
		},
		"outside": func(s *ipam.PoolSpec, _ ipam.Range) {
			s.Prefix, s.Gateway = netip.MustParsePrefix("10.8.64.128/25"), last
		},
	} {
		for _, bits := range []int{0, 31} {
			t.Run(fmt.Sprintf("%s, of a /%d", name, bits), func(t *testing.T) {
				clock := NewClock()
				b, p := openWith(t, clock, "10.8.64.0/24")
				had := given(t, b, "had", bits)
				former := had.Addr
				Cool(t, b, had)
				remove(t, b, p.UID, false)
				s := spec("default", "10.8.64.0/24")
				s.Gateway = former
				if bits != 0 { // else only a part of what is withheld would be in the pool
					s.Exclude = []ipam.Range{had.Range()}
				}
				uid := set(t, b, netdb.PoolChange{Spec: s}).Pool.UID
				c, err := b.PickAddr(ipam.Owner{PoolUID: uid, UID: "lives"}, addr("10.8.64.200"), Policy)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := take(b, c, "lives"); err != nil {
					t.Fatal(err)
				}
				s.Exclude = nil
				move(&s, had.Range())
				set(t, b, netdb.PoolChange{Spec: s})
				row, ok := b.At(former)
				if !ok || row.State != ipam.Cooling || row.PrefixLen != bits || row.PoolUID != uid || len(b.Withheld()) != 0 {
					t.Fatalf("%+v, and withheld are %+v", row, b.Withheld())
				}
				back := spec("default", "10.8.64.0/24")
				back.Gateway = last
				set(t, b, netdb.PoolChange{Spec: back, Drain: true})
				_, err = b.PickAddr(ipam.Owner{PoolUID: uid, UID: "b", Interface: "eth0"}, former, Policy)
				wantErr(t, err, ipam.ErrTaken)
				remove(t, b, uid, true)
				if w := b.Withheld(); len(w) != 2 || w[0].State != ipam.Cooling || w[1].State != ipam.Quarantined {
					t.Errorf("%+v", w)
				}
			})
		}
	}
}

// What was in use on one bridge no witness of another sees: a pool there has it held, for an
// operator, and a pool of the same bridge has it until it is unseen. So it is with what was
// withheld before the bridge was recorded. What cooled was confirmed to be gone, wherever it was.
func TestWhatWasInUseOnAnotherBridgeIsHeld(t *testing.T) {
	for name, c := range map[string]struct {
		again  string
		before bool // the bridge was recorded
		held   bool
	}{
		"the same bridge":               {again: "rt0"},
		"another bridge":                {again: "rt1", held: true},
		"a bridge that is not recorded": {again: "rt0", before: true, held: true},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "book.db")
			b := OpenAt(t, path, Options())
			old := Pool(t, b, "default", "10.8.64.0/28")
			l, cooled := bind(t, b, "running"), Cool(t, b, Reserve(t, b, "cooled"))
			remove(t, b, old.UID, true)
			if w := b.Withheld()[0]; w.Bridge != "rt0" || w.HostInterface != l.HostInterface {
				t.Fatalf("%+v", w)
			}
			Close(t, b)
			if c.before {
				raw(t, path, `UPDATE withheld SET bridge = ''`)
			}
			b = OpenAt(t, path, Options())
			s := spec("default", "10.8.64.0/28")
			s.Bridge = c.again
			set(t, b, netdb.PoolChange{Spec: s})
			row, ok := b.At(l.Addr)
			if !ok || row.State != ipam.Quarantined || row.Hold != "" != c.held {
				t.Fatalf("%+v", row)
			}
			if _, err := b.ClearAt(ctx, Who(ipam.ByReconciler, "unseen"), row.ID, row.Rev, nil); (err != nil) != c.held {
				t.Errorf("unseen: %v", err)
			}
			if row, ok := b.At(cooled.Addr); !ok || row.State != ipam.Cooling {
				t.Errorf("%+v", row)
			}
		})
	}
}

// What is withheld and has a row, too, or lies where a pool would give it, is damage: it is reported
// when the book is opened, and neither address is given, also once the row cools.
func TestWhatIsWithheldBesideARow(t *testing.T) {
	clock, opts := NewClock(), Options()
	opts.Now = clock.Now
	path := filepath.Join(t.TempDir(), "book.db")
	b := OpenAt(t, path, opts)
	p, old := Pool(t, b, "default", "10.8.64.0/29"), Pool(t, b, "old", "10.9.0.0/29")
	has := Reserve(t, b, "has")
	c, err := b.Pick(old.UID, Policy)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Reserve(ctx, allocator, netdb.Reservation{Candidate: c, Sandbox: "was", UID: "was", Interface: "eth0", Attempt: 1, BindWithin: time.Minute}); err != nil {
		t.Fatal(err)
	}
	remove(t, b, old.UID, true)
	Close(t, b)
	for _, at := range []string{has.Addr.String(), "10.8.64.5"} {
		key := netip.MustParseAddr(at).As16()
		raw(t, path, fmt.Sprintf(`CREATE TEMP TABLE w AS SELECT * FROM withheld LIMIT 1; UPDATE w SET ip = x'%x', address = '%s'; INSERT INTO withheld SELECT * FROM w`, key[:], at))
	}
	allow := []string{netdb.RowsAreReadable}
	b = OpenAt(t, path, opts, allow...)
	bad := b.Info().Unreadable
	if len(bad) != 2 || len(b.Withheld()) != 1 {
		t.Fatalf("reported: %+v, withheld: %+v", bad, b.Withheld())
	}
	for i, want := range []string{"is reserved in pool " + p.UID, "in pool " + p.UID + ", which would give it"} {
		if bad[i].Row != []string{has.Addr.String(), "10.8.64.5"}[i] || !strings.Contains(bad[i].Reason, netdb.WithheldHasNoRow) || !strings.Contains(bad[i].Reason, want) {
			t.Errorf("reported: %+v", bad[i])
		}
	}
	found, err := b.Check(ctx)
	if err != nil || len(found) != 2 {
		t.Errorf("the check says %v, %v", found, err)
	}
	Cool(t, b, has)
	clock.Pass(2 * Policy.Cooldown)
	for i := range 3 {
		if _, err := TryReserve(b, p, fmt.Sprint("new", i), Policy); err != nil {
			t.Fatal(err)
		}
	}
	_, err = TryReserve(b, p, "another", Policy)
	wantErr(t, err, ipam.ErrExhausted)
}
