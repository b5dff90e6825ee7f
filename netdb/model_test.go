package netdb_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/ipamd/ipamd/internal/realtest"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb"
	. "github.com/ipamd/ipamd/netdb/netdbtest"
)

// entry is what the model knows of one address.
type entry struct {
	id, sandbox string
	state       ipam.State
	rev         int64
	since       credit
}

// holding is what a lease id was given for.
type period struct {
	addr    netip.Addr
	sandbox string
}

// TestL17RandomOperationsAgainstAMap does random things to a small pool and to
// a map, restarts now and then, and compares after each step: the rows, the
// counts, and every invariant. The files are moved away under the book and back,
// others try to open it, and the machine's clocks are stepped, under the book and
// between two openings (F15, F16, F20).
func TestL17RandomOperationsAgainstAMap(t *testing.T) {
	realtest.Long(t)
	t.Parallel()
	base := t.TempDir()
	n := 0
	rapid.Check(t, func(t *rapid.T) {
		n++
		dir := filepath.Join(base, fmt.Sprint(n))
		defer os.RemoveAll(dir)
		clock := NewClock()
		opts := Options()
		opts.Now = clock.Now
		opts.QuarantineShare = 0.5
		path := filepath.Join(dir, "state", "book.db")
		open := func() *netdb.Book {
			b, err := netdb.Open(path, opts)
			if err != nil {
				t.Fatal(err)
			}
			return b
		}
		b := open()
		defer func() {
			found, err := b.Check(ctx)
			if err != nil || len(found) > 0 {
				t.Errorf("at the end: %v, %v", found, err)
			}
			b.Close()
		}()
		prefix := netip.MustParsePrefix("10.8.64.0/29") // .2 to .6
		pool, err := b.EnsurePool(ctx, Who(ipam.ByOperator, "test"), ipam.PoolSpec{
			Name: "p", Prefix: prefix, Gateway: ipam.FirstHost(prefix), Bridge: "rt0"})
		if err != nil {
			t.Fatal(err)
		}
		model := make(map[netip.Addr]*entry)
		ended := make(map[string]bool)
		known := make(map[string]period)     // every lease id there ever was
		last := make(map[netip.Addr]string)  // an address's last lease id
		freed := make(map[netip.Addr]int64)  // the revision that made it free, of one that was given before
		keeps := make(map[netip.Addr]string) // the sandbox that an address is kept for
		names := make(map[string]string)     // the sandbox that has a host interface name
		steps := 0

		passed := newPassing(clock)
		rev := b.Rev()

		name := rapid.SampledFrom([]string{"a", "b", "c", "d", "e", "f"})
		// some returns an address of the model in one of the states.
		some := func(t *rapid.T, states ...ipam.State) (netip.Addr, *entry) {
			for a := netip.MustParseAddr("10.8.64.2"); prefix.Contains(a); a = a.Next() {
				if e := model[a]; e != nil {
					for _, s := range states {
						if e.state == s && rapid.Bool().Draw(t, "this one") {
							return a, e
						}
					}
				}
			}
			t.Skip("none")
			return netip.Addr{}, nil
		}
		move := func(l *ipam.Lease, err error, e *entry, to ipam.State) {
			if err != nil {
				t.Fatalf("%s to %s: %v", e.state, to, err)
			}
			if l.State != to {
				t.Fatalf("%s is %s, want %s", l.Addr, l.State, to)
			}
			if e.state != to {
				e.since = passed.now()
			}
			e.state, e.rev = to, l.Rev
		}
		open1 := []ipam.State{ipam.Reserved, ipam.Bound, ipam.Paused}

		t.Repeat(map[string]func(*rapid.T){
			"reserve": func(t *rapid.T) {
				s := name.Draw(t, "sandbox")
				var had netip.Addr
				for a, e := range model {
					if e.sandbox == s && e.state.Open() {
						had = a
					}
				}
				l, err := TryReserve(b, pool, s, Policy)
				var owned *ipam.OwnedError
				switch {
				case had.IsValid():
					if !errors.As(err, &owned) && !errors.Is(err, ipam.ErrExhausted) {
						t.Fatalf("%s has %s and got %v, %v", s, had, l, err)
					}
				case errors.Is(err, ipam.ErrExhausted):
					for a := netip.MustParseAddr("10.8.64.2"); a.Compare(netip.MustParseAddr("10.8.64.7")) < 0; a = a.Next() {
						e := model[a]
						if keeps[a] == "" && (e == nil || e.state == ipam.Cooling && passed.since(e.since) >= Policy.CooldownMin) {
							t.Fatalf("exhausted, but %s could be given: %+v", a, e)
						}
					}
				case err != nil:
					t.Fatal(err)
				default:
					e := model[l.Addr]
					if keeps[l.Addr] != "" || e != nil && (e.state != ipam.Cooling || passed.since(e.since) < Policy.CooldownMin) {
						t.Fatalf("%s was given while %+v, kept for %q", l.Addr, e, keeps[l.Addr])
					}
					for a, other := range model {
						if e != nil && other.state == ipam.Cooling && other.rev < e.rev && keeps[a] == "" {
							t.Fatalf("%s was given, %s has cooled longer", l.Addr, a)
						}
					}
					since, used := freed[l.Addr]
					for a := netip.MustParseAddr("10.8.64.2"); a.Compare(netip.MustParseAddr("10.8.64.7")) < 0; a = a.Next() {
						switch other, again := freed[a]; {
						case model[a] != nil || a == l.Addr || keeps[a] != "":
						case e != nil:
							t.Fatalf("%s was given, which cools, and %s is free", l.Addr, a)
						case used && !again, used && other < since:
							t.Fatalf("%s was given, free since %d, and %s is free since %d", l.Addr, since, a, other)
						}
					}
					delete(freed, l.Addr)
					if e != nil {
						ended[e.id] = true
					}
					model[l.Addr] = &entry{l.ID, s, ipam.Reserved, l.Rev, passed.now()}
					known[l.ID], last[l.Addr] = period{l.Addr, s}, l.ID
				}
			},
			"keep": func(t *rapid.T) {
				spec := pool.PoolSpec
				spec.Kept, keeps = nil, make(map[netip.Addr]string)
				for a := netip.MustParseAddr("10.8.64.2"); a.Compare(netip.MustParseAddr("10.8.64.7")) < 0; a = a.Next() {
					if s := string(rune('a' + a.As4()[3] - 2)); rapid.Bool().Draw(t, "kept for "+s) {
						spec.Kept = append(spec.Kept, ipam.Kept{Sandbox: s, Address: a})
						keeps[a] = s
					}
				}
				var err error
				if pool, err = b.EnsurePool(ctx, Who(ipam.ByOperator, "test"), spec); err != nil {
					t.Fatal(err)
				}
			},
			"reserve what is kept": func(t *rapid.T) {
				s := name.Draw(t, "sandbox")
				var a, had netip.Addr
				for at, of := range keeps {
					if of == s {
						a = at
					}
				}
				for at, e := range model {
					if e.sandbox == s && e.state.Open() {
						had = at
					}
				}
				e := model[a]
				l, err := takeKept(b, pool, s, s, "eth0")
				var owned *ipam.OwnedError
				switch {
				case !a.IsValid() || had == a:
					if l != nil || err != nil {
						t.Fatalf("%s, for which %s is kept and which has %s, got %v, %v", s, a, had, l, err)
					}
				case e != nil && e.state == ipam.Quarantined:
					if !errors.Is(err, ipam.ErrQuarantined) {
						t.Fatal(l, err)
					}
				case e != nil && (e.state != ipam.Cooling || e.sandbox != s && passed.since(e.since) < Policy.Cooldown):
					if !errors.Is(err, ipam.ErrTaken) {
						t.Fatal(l, err)
					}
				case had.IsValid():
					if !errors.As(err, &owned) {
						t.Fatal(l, err)
					}
				case err != nil || l.Addr != a:
					t.Fatal(l, err)
				default:
					delete(freed, a)
					if e != nil {
						ended[e.id] = true
					}
					model[a] = &entry{l.ID, s, ipam.Reserved, l.Rev, passed.now()}
					known[l.ID], last[a] = period{a, s}, l.ID
				}
			},
			"bind": func(t *rapid.T) {
				_, e := some(t, ipam.Reserved)
				l, err := b.Bind(ctx, client, e.id, 0, ipam.Binding{HostInterface: "veth"})
				move(l, err, e, ipam.Bound)
			},
			"name": func(t *rapid.T) {
				_, e := some(t, open1...)
				want := rapid.SampledFrom([]string{"n1", "n2", "veth%d"}).Draw(t, "name")
				n, has := netdb.Naming{Want: want, Name: want}, ""
				for name := range b.Names(e.sandbox, "eth0", want) {
					n.Name = name
					break
				}
				for name, of := range names {
					if of == e.sandbox {
						has = name
					}
				}
				l, err := b.Name(ctx, allocator, e.id, n)
				fits := has == want || want == "veth%d" && strings.HasPrefix(has, "veth")
				switch _, other := names[want]; {
				case has != "" && !fits:
					if !errors.Is(err, ipam.ErrState) {
						t.Fatal(l, err)
					}
				case has == "" && other:
					if !errors.Is(err, ipam.ErrNameTaken) {
						t.Fatal(l, err)
					}
				case err != nil || has != "" && l.Rev != e.rev:
					t.Fatal(l, err)
				case has == "":
					if _, twice := names[n.Name]; twice {
						t.Fatalf("%s has %s, and %s gets it", names[n.Name], n.Name, e.sandbox)
					}
					names[n.Name], e.rev = e.sandbox, l.Rev
				}
			},
			"pause": func(t *rapid.T) {
				_, e := some(t, ipam.Bound)
				l, err := b.Pause(ctx, client, e.id, 0)
				move(l, err, e, ipam.Paused)
			},
			"resume": func(t *rapid.T) {
				_, e := some(t, ipam.Paused)
				l, err := b.Resume(ctx, client, e.id, 0)
				move(l, err, e, ipam.Bound)
			},
			"release": func(t *rapid.T) {
				_, e := some(t, open1...)
				l, err := b.Release(ctx, client, e.id, "", 0)
				move(l, err, e, ipam.Releasing)
			},
			"release again": func(t *rapid.T) {
				_, e := some(t, ipam.Releasing, ipam.Cooling)
				rev := b.Rev()
				l, err := b.Release(ctx, client, e.id, "", 0)
				if err != nil || l.State != e.state || b.Rev() != rev {
					t.Fatal(l, err)
				}
			},
			"release what ended": func(t *rapid.T) {
				for id := range ended {
					rev := b.Rev()
					if l, err := b.Release(ctx, client, id, "", 0); err == nil && l.State != ipam.Free || err != nil && !errors.Is(err, ipam.ErrGone) {
						t.Fatal(l, err)
					}
					if b.Rev() != rev {
						t.Fatal("a late release changed something")
					}
				}
			},
			"release as seen": func(t *rapid.T) {
				_, e := some(t, open1...)
				if _, err := b.ReleaseAt(ctx, reconciler, e.id, e.rev-1, nil); !errors.Is(err, ipam.ErrStale) {
					t.Fatal(err)
				}
				l, err := b.ReleaseAt(ctx, reconciler, e.id, e.rev, nil)
				move(l, err, e, ipam.Releasing)
			},
			"quarantined": func(t *rapid.T) {
				_, e := some(t, ipam.Releasing)
				l, err := b.QuarantineReleasing(ctx, watchdog, e.id, e.rev, evidence)
				move(l, err, e, ipam.Quarantined)
			},
			"adopt": func(t *rapid.T) {
				a := netip.AddrFrom4([4]byte{10, 8, 64, byte(rapid.IntRange(2, 6).Draw(t, "last"))})
				e, s := model[a], name.Draw(t, "sandbox")
				ids := append([]string{"", uuid.NewString()}, slices.Sorted(maps.Keys(known))...)
				ad := adoption(a, 0, rapid.SampledFrom(ids).Draw(t, "label"))
				ad.Sandbox, ad.Interface = s, "eth0"
				if e != nil {
					ad.Rev = e.rev
				}
				var had *entry
				sameID := ad.ID != "" && !ended[ad.ID]
				for at, other := range model {
					if other.sandbox == s && other.state.Open() {
						had = other
					}
					sameID = sameID && (other.id != ad.ID || at == a && other.sandbox == s && other.state == ipam.Quarantined)
				}
				if k, ok := known[ad.ID]; ok {
					sameID = sameID && k == period{a, s} && last[a] == ad.ID
				}
				l, err := b.Adopt(ctx, reconciler, ad)
				var owned *ipam.OwnedError
				switch {
				case e != nil && e.state != ipam.Cooling && e.state != ipam.Quarantined:
					if !errors.Is(err, ipam.ErrState) {
						t.Fatal(l, err)
					}
				case had != nil:
					if !errors.As(err, &owned) || owned.Lease.ID != had.id {
						t.Fatal(l, err)
					}
				case err != nil:
					t.Fatal(err)
				case (l.ID == ad.ID) != sameID:
					t.Fatalf("adopted %+v by the label %q; that it has the label's id should be %v", l, ad.ID, sameID)
				default:
					if e != nil && e.id != l.ID {
						ended[e.id] = true
					}
					delete(freed, a)
					model[a] = &entry{l.ID, s, ipam.Bound, l.Rev, passed.now()}
					known[l.ID], last[a] = period{a, s}, l.ID
				}
			},
			"expire": func(t *rapid.T) {
				a, e := some(t, ipam.Reserved)
				l, err := b.Lease(e.id)
				if err != nil {
					t.Fatal(err)
				}
				switch _, err := b.Expire(ctx, watchdog, e.id, e.rev, nil); {
				case l.Cut != "" && errors.Is(err, ipam.ErrCools):
					return
				case l.Cut != "" || err != nil:
					t.Fatalf("%s, cut %q: %v", a, l.Cut, err)
				}
				ended[e.id] = true
				delete(model, a)
				freed[a] = b.Rev()
			},
			"free": func(t *rapid.T) {
				for _, l := range b.Cooled(pool.UID, Policy.Cooldown, nil, rapid.IntRange(1, 3).Draw(t, "most")) {
					e := model[l.Addr]
					if e == nil || e.rev != l.Rev || e.state != ipam.Cooling || passed.since(e.since) < Policy.Cooldown {
						t.Fatalf("%s is said to have cooled: %+v", l.Addr, e)
					}
					if n, err := b.Free(ctx, allocator, []*ipam.Lease{l}, unseen); n != 1 || err != nil {
						t.Fatal(n, err)
					}
					ended[e.id] = true
					delete(model, l.Addr)
					freed[l.Addr] = b.Rev()
				}
			},
			"confirm": func(t *rapid.T) {
				_, e := some(t, ipam.Releasing)
				if _, err := b.Confirm(ctx, watchdog, e.id, e.rev-1, nil); !errors.Is(err, ipam.ErrStale) {
					t.Fatal(err)
				}
				l, err := b.Confirm(ctx, watchdog, e.id, e.rev, nil)
				move(l, err, e, ipam.Cooling)
			},
			"quarantine": func(t *rapid.T) {
				a := netip.AddrFrom4([4]byte{10, 8, 64, byte(rapid.IntRange(2, 6).Draw(t, "last"))})
				e := model[a]
				count := 0
				for _, e := range model {
					if e.state == ipam.Quarantined {
						count++
					}
				}
				l, err := b.Quarantine(ctx, Who(ipam.ByReconciler, "seen_on_wire"), a, json.RawMessage(`[1]`))
				switch {
				case e != nil && e.state == ipam.Quarantined:
					if err != nil || l.ID != e.id {
						t.Fatal(l, err)
					}
				case count >= 2: // half of five
					if !errors.Is(err, ipam.ErrQuarantineFull) {
						t.Fatal(l, err)
					}
				case e == nil || e.state == ipam.Cooling:
					if err != nil {
						t.Fatal(err)
					}
					if e != nil {
						ended[e.id] = true
					}
					delete(freed, a)
					model[a] = &entry{l.ID, "", ipam.Quarantined, l.Rev, passed.now()}
					known[l.ID], last[a] = period{a, ""}, l.ID
				default:
					if !errors.Is(err, ipam.ErrState) {
						t.Fatal(l, err)
					}
				}
			},
			"clear": func(t *rapid.T) {
				a, e := some(t, ipam.Quarantined)
				l, err := Clear(b, a)
				move(l, err, e, ipam.Cooling)
			},
			"time passes": func(t *rapid.T) {
				clock.Pass(time.Duration(rapid.IntRange(1, 40).Draw(t, "minutes")) * time.Minute)
			},
			"the clock steps": func(t *rapid.T) {
				clock.Step(time.Duration(rapid.IntRange(-1000, 1000).Draw(t, "hours")) * time.Hour)
			},
			"the uptime steps": func(t *rapid.T) {
				b.Now() // as the daemon does each second
				passed.stepUptime(t)
				b.Now()
			},
			"another opens it": func(t *rapid.T) {
				another(t, path)
			},
			"files are away": func(t *rapid.T) {
				_, e := some(t, open1...)
				files := takeAway(t, path)
				known := rapid.Bool().Draw(t, "known")
				if known {
					_ = b.Info() // as the daemon does each second
				}
				l, err := b.Release(ctx, client, e.id, "", 0)
				switch {
				case err == nil && (known || !files.indexOnly):
					t.Fatalf("acknowledged at revision %d, without %v", l.Rev, files.moved)
				case err != nil && !errors.Is(err, netdb.ErrMoved):
					t.Fatal(err)
				}
				if rapid.Bool().Draw(t, "stop meanwhile") {
					if err := b.Close(); err != nil {
						t.Fatal(err)
					}
					files.putBack(t)
					b = open()
					if now := b.Rev(); now != rev { // it was made
						rev = now
						passed.changed()
					}
					passed.reopen()
				} else {
					files.putBack(t)
					if err := b.Retry(ctx); err != nil || b.Info().ReadOnly != nil {
						t.Fatalf("once they are back: %v, %v", err, b.Info().ReadOnly)
					}
				}
				now, there := b.Lease(e.id)
				switch {
				case there != nil:
					t.Fatal(there)
				case known && now.Rev != e.rev, err == nil && now.Rev != l.Rev:
					t.Fatalf("it is %s at revision %d: %v", now.State, now.Rev, err)
				case now.Rev != e.rev: // made, and not acknowledged, in the moment in which they went
					move(now, nil, e, ipam.Releasing)
				}
			},
			"restart": func(t *rapid.T) {
				if err := b.Close(); err != nil {
					t.Fatal(err)
				}
				passed.whileDown(t)
				b = open()
				passed.reopen()
			},
			"": func(t *rapid.T) {
				if now := b.Rev(); now != rev {
					rev = now
					passed.changed()
				}
				leases, _ := b.Leases()
				if len(leases) != len(model) {
					t.Fatalf("%d rows, want %d", len(leases), len(model))
				}
				count := make(map[ipam.State]int)
				for _, l := range leases {
					e := model[l.Addr]
					if e == nil || e.id != l.ID || e.state != l.State || e.sandbox != l.Sandbox || e.rev != l.Rev {
						t.Fatalf("row %+v, want %+v", l, e)
					}
					count[l.State]++
				}
				u, _ := b.Usage()
				for _, s := range ipam.States() {
					if u[0].ByState[s] != count[s] {
						t.Fatalf("%d %s are counted, there are %d", u[0].ByState[s], s, count[s])
					}
				}
				for name, of := range names {
					if !slices.ContainsFunc(slices.Collect(maps.Values(model)), func(e *entry) bool { return e.sandbox == of && e.state != ipam.Cooling }) {
						delete(names, name)
					}
				}
				leased := make(map[string]string)
				for _, n := range b.HostNames() {
					leased[n.Name] = n.UID
				}
				if !maps.Equal(leased, names) {
					t.Fatalf("names %v, want %v", leased, names)
				}
				reserved := uint64(0)
				for a := range keeps {
					if model[a] == nil {
						reserved++
					}
				}
				if u[0].Kept != reserved || u[0].Free != uint64(5-len(model))-reserved {
					t.Fatalf("%d kept, %d free; want %d of %d", u[0].Kept, u[0].Free, reserved, 5-len(model))
				}
				// Every invariant costs a walk over the file; now and then, and at the end.
				if steps++; steps%8 != 0 {
					return
				}
				found, err := b.Check(ctx)
				if err != nil || len(found) > 0 {
					t.Fatal(found, err)
				}
			},
		})
	})
}
