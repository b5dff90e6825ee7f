package netdb_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb"
	. "github.com/ipamd/ipamd/netdb/netdbtest"
)

// delegate gives a sandbox the pool's next prefix of a length.
func delegate(b *netdb.Book, p *ipam.Pool, sandbox string, bits int, policy ipam.Policy) (*ipam.Lease, error) {
	c, err := b.PickPrefix(p.UID, bits, policy)
	if err != nil {
		return nil, err
	}
	return take(b, c, sandbox)
}

func take(b *netdb.Book, c netdb.Candidate, sandbox string) (*ipam.Lease, error) {
	defer b.Drop(c)
	ls, err := b.Reserve(ctx, allocator, netdb.Reservation{Candidate: c, Sandbox: sandbox, UID: sandbox, Interface: "eth0",
		Attempt: 1, BindWithin: 10 * time.Minute})
	if err != nil {
		return nil, err
	}
	return ls[0], nil
}

func mustDelegate(t *testing.T, b *netdb.Book, p *ipam.Pool, sandbox string, bits int) *ipam.Lease {
	t.Helper()
	l, err := delegate(b, p, sandbox, bits, Policy)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// D5: whole prefixes come first of which no address was ever given, then the one that became
// free longest ago, all of it; and the refusal says when the next one will have cooled.
func TestD5PrefixesAreReusedInTheOrderOfTheirRelease(t *testing.T) {
	for _, tt := range []struct {
		prefix string
		bits   int
		want   string // all that there are
	}{
		{"10.8.64.0/26", 28, "10.8.64.16/28 10.8.64.32/28"}, // the first has the gateway, the last the broadcast address
		{"fd00:8::/64", 66, "fd00:8:0:0:4000::/66 fd00:8:0:0:8000::/66 fd00:8:0:0:c000::/66"},
	} {
		t.Run(tt.prefix, func(t *testing.T) {
			c, path := NewClock(), filepath.Join(t.TempDir(), "book.db")
			opts := Options()
			opts.Now = c.Now
			b := OpenAt(t, path, opts)
			p := Pool(t, b, "default", tt.prefix)
			var leases []*ipam.Lease
			var got []string
			for i := range len(strings.Fields(tt.want)) {
				leases = append(leases, mustDelegate(t, b, p, fmt.Sprint("s", i), tt.bits))
				got = append(got, leases[i].Text())
			}
			if strings.Join(got, " ") != tt.want {
				t.Fatalf("given are %v, want %s", got, tt.want)
			}
			_, err := delegate(b, p, "more", tt.bits, Policy)
			var full *ipam.ExhaustedError
			if !errors.As(err, &full) || full.PrefixLen != tt.bits || full.Next != 0 || !strings.Contains(err.Error(), fmt.Sprintf("no /%d of it is whole", tt.bits)) {
				t.Fatal(err)
			}
			last := leases[len(leases)-1]
			Cool(t, b, last)
			c.Pass(time.Second)
			Cool(t, b, leases[0])
			if _, err := delegate(b, p, "more", tt.bits, Policy); !errors.As(err, &full) || full.Next != Policy.CooldownMin-time.Second {
				t.Fatal(err, full.Next)
			}
			c.Pass(Policy.CooldownMin)
			strict := Policy
			strict.Strict = true
			if _, err := delegate(b, p, "more", tt.bits, strict); !errors.As(err, &full) || full.Next != Policy.Cooldown-Policy.CooldownMin-time.Second {
				t.Fatal(err, full.Next)
			}
			if own, ok := b.PickOwn(last.Owner(), 0); ok {
				t.Errorf("an address is wanted, and %s is offered", own.Text())
			}
			if own, ok := b.PickOwn(last.Owner(), tt.bits); !ok || own.Text() != last.Text() {
				t.Errorf("its own is %s, want %s", own.Text(), last.Text())
			} else {
				b.Drop(own)
			}
			early, err := b.PickPrefix(p.UID, tt.bits, Policy)
			if err != nil || early.Text() != last.Text() || !early.Early {
				t.Fatalf("early: %+v, %v", early, err)
			}
			b.Drop(early)
			c.Pass(Policy.Cooldown)
			if n := free(t, b, p); n != 2 {
				t.Fatalf("%d of 2 are free", n)
			}
			for _, when := range []string{"at once", "after a restart"} {
				if when == "after a restart" {
					Close(t, b)
					b = OpenAt(t, path, opts)
				}
				var got []string
				for range 2 {
					c, err := b.PickPrefix(p.UID, tt.bits, strict)
					if err != nil || c.Early {
						t.Fatal(c, err)
					}
					got = append(got, c.Text())
					defer b.Drop(c)
					if w, err := b.PickAddr(ipam.Owner{PoolUID: p.UID, UID: "z", Interface: "eth0"}, c.Range().To, Policy); !errors.Is(err, ipam.ErrTaken) {
						t.Errorf("%s is offered in two ways: %v, %v", c.Text(), w, err)
					}
				}
				if want := []string{last.Text(), leases[0].Text()}; !slices.Equal(got, want) {
					t.Errorf("%s, given are %v, want %v", when, got, want)
				}
			}
		})
	}
}

// D2: the file itself keeps every row out of a delegated prefix, whatever the state of the
// rows, and a prefix from containing one; and a lease from growing.
func TestD2TheFileKeepsPrefixesApart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "book.db")
	b := OpenAt(t, path, Options())
	p := Pool(t, b, "default", "10.8.64.0/24")
	inner := mustDelegate(t, b, p, "prefix", 28) // 10.8.64.16/28
	Cool(t, b, inner)
	alone := Reserve(t, b, "address") // 10.8.64.2
	Close(t, b)
	insert := func(address string, from, to int, bits string) string {
		last := "NULL"
		if bits != "NULL" {
			last = fmt.Sprintf("x'00000000000000000000ffff0a0840%02x'", to)
		}
		return fmt.Sprintf(`INSERT INTO leases SELECT x'00000000000000000000ffff0a0840%02x', '%s', pool_uid, 'other-id-of-thirty-six-characters-00', state, sandbox, 'u', interface, attempt,
			rev, created_wall, created_boot, created_boot_id, since_wall, since_boot, since_boot_id, bind_within, containers, netns, host_interface, mac, plug,
			labels, evidence, reason, cut, hold, conflict, %s, %s FROM leases WHERE address = '%s'`, from, address, bits, last, alone.Addr)
	}
	for name, statement := range map[string]string{
		"the first address":          insert("10.8.64.16", 16, 0, "NULL"),
		"an address inside":          insert("10.8.64.20", 20, 0, "NULL"),
		"the last address":           insert("10.8.64.31", 31, 0, "NULL"),
		"a smaller prefix":           insert("10.8.64.24/30", 24, 27, "30"),
		"a larger prefix":            insert("10.8.64.0/27", 0, 31, "27"),
		"a prefix around an address": insert("10.8.64.0/29", 0, 7, "29"),
		"a length alone":             `UPDATE leases SET prefix_length = 29`,
		"a prefix that grows":        `UPDATE leases SET prefix_length = 27 WHERE prefix_length = 28`,
		"a prefix without an end":    insert("10.8.64.48/28", 48, 40, "28"),
	} {
		t.Run(name, func(t *testing.T) {
			if err := tryRaw(path, statement); err == nil || !strings.Contains(err.Error(), "constraint failed") {
				t.Errorf("it is refused with %v", err)
			}
		})
	}
	for _, fine := range []string{insert("10.8.64.15", 15, 0, "NULL"), insert("10.8.64.32/28", 32, 47, "28")} {
		if err := tryRaw(path, strings.Replace(fine, "-00'", fmt.Sprintf("-%02d'", len(fine)%100)+"", 1)); err != nil {
			t.Error(err)
		}
	}
}

// D2: addresses and prefixes of three lengths come and go at random, with restarts; no two
// leases ever have an address together, nothing is given that cools, and Check finds all that
// is left free.
func TestD2PrefixesAndAddressesAreApart(t *testing.T) {
	for seed := range uint64(6) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(seed, 14))
			c, path := NewClock(), filepath.Join(t.TempDir(), "book.db")
			opts := Options()
			opts.Now, opts.QuarantineShare = c.Now, 1
			if seed%2 == 1 {
				opts = netdb.Forgetful(opts, 5)
			}
			prefix := "10.8.64.0/26"
			base := 32
			if seed >= 3 {
				prefix, base = "fd00:8::/122", 128
			}
			b := OpenAt(t, path, opts)
			p := Pool(t, b, "default", prefix)
			open := make(map[string]*ipam.Lease)
			coolsSince := make(map[netip.Addr]time.Time) // when its removal was confirmed
			for n := range 400 {
				switch r.IntN(9) {
				case 0, 1, 2, 3:
					bits := []int{0, base - 1, base - 2, base - 4}[r.IntN(4)]
					name := fmt.Sprint("s", n)
					l, err := TryReserve(b, p, name, Policy)
					if bits != 0 {
						if err == nil {
							if _, err := b.Expire(ctx, Who(ipam.ByWatchdog, "expired"), l.ID, l.Rev, func() error { return nil }); err == nil {
								delete(coolsSince, l.Addr)
							} else {
								open[l.ID] = l
							}
						}
						l, err = delegate(b, p, name+"p", bits, Policy)
					}
					if errors.Is(err, ipam.ErrExhausted) {
						continue
					}
					if err != nil {
						t.Fatal(err)
					}
					for _, other := range open {
						if other.Prefix().Overlaps(l.Prefix()) {
							t.Fatalf("%s is given, and %s is %s", l.Text(), other.Text(), other.State)
						}
					}
					for a, since := range coolsSince {
						if l.Covers(a) && (c.Wall.Sub(since) < Policy.CooldownMin || c.Wall.Sub(since) < Policy.Cooldown && l.Cut != ipam.CutEarly) {
							t.Fatalf("%s is given (cut %q) %v after %s was released", l.Text(), l.Cut, c.Wall.Sub(since), a)
						}
					}
					open[l.ID] = l
				case 4, 5:
					for id, l := range open {
						Cool(t, b, l)
						delete(open, id)
						for a := l.Addr; l.Covers(a); a = a.Next() {
							coolsSince[a] = c.Wall
						}
						break
					}
				case 6:
					c.Pass(time.Duration(r.IntN(int(Policy.Cooldown))))
				case 7:
					free(t, b, p)
				case 8:
					if r.IntN(4) == 0 {
						Close(t, b)
						b = OpenAt(t, path, opts)
					} else if pick, err := b.PickPrefix(p.UID, base-2, Policy); err == nil {
						b.Drop(pick)
					}
				}
				if n%20 == 0 {
					Check(t, b)
				}
			}
		})
	}
}

// D4: a quarantine of one address in a prefix that cools is one of all of it; and an address
// that is seen where a prefix was about to be given is quarantined alone.
func TestD4APrefixIsQuarantinedWhole(t *testing.T) {
	b, p := openWith(t, NewClock(), "10.8.64.0/26")
	l := mustDelegate(t, b, p, "a", 28)
	inside := netip.MustParseAddr("10.8.64.20")
	if _, err := b.Quarantine(ctx, Who(ipam.ByReconciler, ipam.SeenOnWire), inside, evidence); !errors.Is(err, ipam.ErrState) {
		t.Fatalf("a held prefix: %v", err)
	}
	Cool(t, b, l)
	q, err := b.Quarantine(ctx, Who(ipam.ByReconciler, ipam.SeenOnWire), inside, evidence)
	if err != nil || q.Text() != l.Text() || q.State != ipam.Quarantined || string(q.Evidence) != string(evidence) {
		t.Fatal(q, err)
	}
	if is, ok := b.At(netip.MustParseAddr("10.8.64.31")); !ok || is != q {
		t.Error(is)
	}
	if _, err := b.Adopt(ctx, Who(ipam.ByReconciler, "adopted"), ipam.Adoption{Addr: inside, Rev: q.Rev, Sandbox: "b", Binding: ipam.Binding{Netns: "/n"}}); !errors.Is(err, ipam.ErrState) {
		t.Errorf("one address of it is adopted: %v", err)
	}
	if past, err := b.History(ctx, ipam.Query{Addr: inside}); err != nil || len(past) != 4 || past[0].PrefixLen != 28 || past[0].Addr != l.Addr {
		t.Error(past, err)
	}
	candidate, err := b.PickPrefix(p.UID, 28, Policy)
	if err != nil || candidate.Text() != "10.8.64.32/28" {
		t.Fatal(candidate, err)
	}
	alone, err := b.Quarantine(ctx, Who(ipam.ByAllocator, ipam.SeenOnWire), netip.MustParseAddr("10.8.64.32"), evidence)
	if err != nil || alone.PrefixLen != 0 {
		t.Fatal(alone, err)
	}
	if _, err := take(b, candidate, "c"); !errors.Is(err, ipam.ErrTaken) {
		t.Error(err)
	}
	if u, _ := b.Usage(); u[0].Free != 61-16-1 {
		t.Errorf("%d are free", u[0].Free)
	}
}

// D5: a prefix that is wished for; and lengths that a pool cannot have.
func TestD5AWishedPrefix(t *testing.T) {
	c := NewClock()
	b, p := openWith(t, c, "10.8.64.0/26")
	o := ipam.Owner{PoolUID: p.UID, UID: "a", Interface: "eth0"}
	wish := func(s string) (netdb.Candidate, error) {
		return b.PickPrefixAt(o, netip.MustParsePrefix(s), Policy)
	}
	for s, want := range map[string]string{
		"10.8.64.18/28": "address", "10.8.64.0/26": "prefix_length", "10.8.0.0/16": "prefix_length",
	} {
		var fe *ipam.FieldError
		if _, err := wish(s); !errors.As(err, &fe) || fe.Field != want {
			t.Errorf("%s: %v", s, err)
		}
	}
	for _, bits := range []int{-1, 1, 26, 33, 128} {
		var fe *ipam.FieldError
		if _, err := b.PickPrefix(p.UID, bits, Policy); !errors.As(err, &fe) || fe.Field != "prefix_length" || !strings.Contains(fe.Reason, "27 to 31") {
			t.Errorf("/%d: %v", bits, err)
		}
	}
	for _, s := range []string{"10.8.64.0/28", "10.8.64.48/28", "10.9.0.0/28"} {
		if _, err := wish(s); !errors.Is(err, ipam.ErrNotInPool) {
			t.Errorf("%s: %v", s, err)
		}
	}
	Reserve(t, b, "x") // 10.8.64.2
	got, err := wish("10.8.64.32/28")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := wish("10.8.64.32/29"); !errors.Is(err, ipam.ErrTaken) {
		t.Error(err)
	}
	l, err := take(b, got, "a")
	if err != nil || l.Text() != "10.8.64.32/28" {
		t.Fatal(l, err)
	}
	if held, ok := b.OpenLease(o); !ok || held != l {
		t.Error(held)
	}
	Cool(t, b, l)
	if again, err := wish("10.8.64.32/28"); err != nil {
		t.Error("its own, while it cools:", err)
	} else {
		b.Drop(again)
	}
	o.UID = "b"
	if _, err := wish("10.8.64.32/28"); !errors.Is(err, ipam.ErrTaken) {
		t.Error(err)
	}
	if _, err := wish("10.8.64.2/31"); !errors.Is(err, ipam.ErrTaken) {
		t.Error(err)
	}
}

// D6: a removed pool leaves a delegated prefix withheld as one, a pool that would contain
// a part of it is refused, and one that contains all takes it over.
func TestD6APrefixOutlivesItsPool(t *testing.T) {
	path := filepath.Join(t.TempDir(), "book.db")
	b := OpenAt(t, path, Options())
	p := Pool(t, b, "default", "10.8.64.0/24")
	held := mustDelegate(t, b, p, "a", 28)
	remove(t, b, p.UID, true)
	Close(t, b)
	b = OpenAt(t, path, Options())
	if w := b.Withheld(); len(w) != 1 || w[0].Addr != held.Addr || w[0].PrefixLen != 28 {
		t.Fatal(w)
	}
	spec := ipam.PoolSpec{Name: "default", Prefix: netip.MustParsePrefix("10.8.64.16/29"), Bridge: "rt0"}
	var other *ipam.OtherPoolsRowError
	if _, err := b.SetPool(ctx, Who(ipam.ByOperator, "test"), netdb.PoolChange{Spec: spec}); !errors.As(err, &other) {
		t.Error(err)
	}
	Pool(t, b, "default", "10.8.64.0/25")
	if l, ok := b.At(netip.MustParseAddr("10.8.64.30")); !ok || l.Text() != held.Text() || l.State != ipam.Quarantined {
		t.Error(l)
	}
}

// D2: a pool that shrinks, or excludes one address of a delegated prefix, leaves all of the
// prefix outside, and it is given again once it is inside as a whole.
func TestD2APrefixOutsideItsPool(t *testing.T) {
	c := NewClock()
	b, p := openWith(t, c, "10.8.64.0/26")
	l := mustDelegate(t, b, p, "a", 28) // 10.8.64.16/28
	spec := p.PoolSpec
	spec.Exclude = []ipam.Range{{From: netip.MustParseAddr("10.8.64.20"), To: netip.MustParseAddr("10.8.64.20")}}
	out := set(t, b, netdb.PoolChange{Spec: spec, Drain: true})
	if len(out.Effects) != 1 || out.Effects[0].Effect != ipam.LeaseOutside || b.Outside(l) == "" {
		t.Fatal(shown(out))
	}
	Cool(t, b, l)
	c.Pass(Policy.Cooldown)
	free(t, b, p)
	Check(t, b)
	for range 2 { // 10.8.64.32/28 is whole, 10.8.64.16/28 is not
		l, err := delegate(b, p, "b", 28, Policy)
		if err == nil && l.Text() != "10.8.64.32/28" {
			t.Fatal(l.Text())
		}
	}
	set(t, b, netdb.PoolChange{Spec: p.PoolSpec})
	Check(t, b)
	if l := mustDelegate(t, b, p, "c", 28); l.Text() != "10.8.64.16/28" {
		t.Error(l.Text())
	}
}

// D5: what became free as a prefix keeps its place in the order of reuse over a restart, also where
// its pool does not contain it just then and one of its addresses has a row again.
func TestD5AFreedPrefixOutsideItsPoolOverARestart(t *testing.T) {
	clock, path := NewClock(), filepath.Join(t.TempDir(), "book.db")
	opts := Options()
	opts.Now = clock.Now
	b := OpenAt(t, path, opts)
	p := Pool(t, b, "lab", "10.8.64.0/26")
	own := func(uid string) ipam.Owner { return ipam.Owner{PoolUID: p.UID, UID: uid, Interface: "eth0"} }
	give := func(sandbox string, c netdb.Candidate, err error) *ipam.Lease {
		t.Helper()
		if err == nil {
			var l *ipam.Lease
			if l, err = take(b, c, sandbox); err == nil {
				return l
			}
		}
		t.Fatal(err)
		return nil
	}
	c, err := b.PickPrefixAt(own("x"), netip.MustParsePrefix("10.8.64.28/30"), Policy)
	gone := Cool(t, b, give("x", c, err))
	clock.Pass(time.Hour)
	if n, err := b.Free(ctx, Who(ipam.ByReconciler, "rested"), []*ipam.Lease{gone}, func(*ipam.Lease) error { return nil }); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	c, err = b.PickAddr(own("y"), netip.MustParseAddr("10.8.64.28"), Policy)
	give("y", c, err)
	change := func(prefix, gateway string) {
		t.Helper()
		s := p.PoolSpec
		s.Prefix, s.Gateway = netip.MustParsePrefix(prefix), netip.MustParseAddr(gateway)
		if _, err := b.SetPool(ctx, operator, netdb.PoolChange{Spec: s, Drain: true}); err != nil {
			t.Fatal(err)
		}
	}
	change("10.8.64.32/27", "10.8.64.33")
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	b = OpenAt(t, path, opts)
	change("10.8.64.0/26", "10.8.64.1")
	for i := range 56 { // all that was never given: /26 but for network, broadcast, both gateways and the prefix
		l, err := TryReserve(b, p, fmt.Sprint("n", i), Policy)
		if err != nil {
			t.Fatal(i, err)
		}
		if netip.MustParsePrefix("10.8.64.28/30").Contains(l.Addr) {
			t.Fatalf("%s is given again before %d addresses that were never given", l.Addr, 56-i)
		}
	}
}
