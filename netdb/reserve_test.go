package netdb_test

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb"
	. "github.com/ipamd/ipamd/netdb/netdbtest"
)

// A sandbox that asks again for what it has not bound yet has time to: half of
// what it asks for, at the least. What has enough left is not written.
func TestRenew(t *testing.T) {
	c := NewClock()
	opts := Options()
	opts.Now = c.Now
	b := OpenAt(t, filepath.Join(t.TempDir(), "book.db"), opts)
	Pool(t, b, "default", "10.8.64.0/24")
	l := Reserve(t, b, "a")
	left := func(l *ipam.Lease) time.Duration { return l.BindWithin - c.Now().Since(l.Since) }
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
		if got.State != ipam.Reserved || left(got) != step.left || (got.Rev != l.Rev) != step.written || got.Since != l.Since {
			t.Errorf("%+v: %v left, revision %d after %d", step, left(got), got.Rev, l.Rev)
		}
		l = got
	}
	if _, err := b.Bind(ctx, client, l.ID, 0, ipam.Binding{HostInterface: "veth1"}); err != nil {
		t.Fatal(err)
	}
	c.Pass(time.Hour)
	rev := b.Rev()
	if got, err := b.Renew(ctx, allocator, l.ID, l.Attempt, time.Minute); err != nil || got.State != ipam.Bound || b.Rev() != rev {
		t.Errorf("of a bound one: %+v, %v", got, err)
	}
	if _, err := b.Release(ctx, client, l.ID, "", 0); err != nil {
		t.Fatal(err)
	}
	_, err := b.Renew(ctx, allocator, l.ID, l.Attempt, time.Minute)
	wantErr(t, err, ipam.ErrState)
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
			var fe *ipam.FieldError
			if !errors.As(err, &fe) || fe.Field != tt.field {
				t.Errorf("error is %v, want field %s", err, tt.field)
			}
		})
	}
	if b.Rev() != rev {
		t.Errorf("revision went from %d to %d", rev, b.Rev())
	}
}

// A reservation that is bound at once is both changes of one commit, or neither.
func TestReserveBinds(t *testing.T) {
	b := Open(t)
	p := b.Pools()[0]
	give := func(sandbox string, where ipam.Binding) (*ipam.Lease, error) {
		c, err := b.Pick(p.UID, Policy)
		if err != nil {
			t.Fatal(err)
		}
		defer b.Drop(c)
		ls, err := b.Reserve(ctx, Who(ipam.ByAllocator, "allocated"), netdb.Reservation{Candidate: c, Sandbox: sandbox, UID: sandbox,
			Interface: "eth0", Attempt: 1, BindWithin: time.Minute, Binding: &where, BoundBy: Who(ipam.ByClient, "bound")})
		if err != nil {
			return nil, err
		}
		return ls[0], nil
	}
	l, err := give("a", ipam.Binding{Netns: "/run/netns/a", HostInterface: "vetha", MAC: "02:00:00:00:00:0A"})
	if err != nil {
		t.Fatal(err)
	}
	if l.State != ipam.Bound || l.Netns != "/run/netns/a" || l.HostInterface != "vetha" || l.MAC != "02:00:00:00:00:0a" {
		t.Errorf("bound as %+v", l)
	}
	rev := b.Rev()
	for field, where := range map[string]ipam.Binding{
		"mac":        {MAC: "01:00:00:00:00:0a"},
		"netns":      {Netns: "relative"},
		"containers": {},
	} {
		wrong := new(ipam.FieldError)
		if l, err := give("b", where); !errors.As(err, &wrong) || wrong.Field != field {
			t.Errorf("bound by a wrong %s: %+v, %v", field, l, err)
		}
	}
	// What the bind is refused for in the transaction takes the reservation back.
	if _, _, err := reserveNamed(b, p, "named", "eth0", netdb.Naming{Want: "vethn", Name: "vethn"}); err != nil {
		t.Fatal(err)
	}
	rev++
	if l, err := give("b", ipam.Binding{HostInterface: "vethn"}); !errors.Is(err, ipam.ErrNameTaken) {
		t.Errorf("bound to another's name: %+v, %v", l, err)
	}
	if b.Rev() != rev {
		t.Errorf("the book is at revision %d, and was at %d before what it refused", b.Rev(), rev)
	}
}

// P6: a lease that was never used does not end the rest of its address. A stranger
// got an address 23 ms after its owner had released it: the owner's sandbox had
// come back for it, and had let the second lease go unbound.
func TestAnUnusedLeaseKeepsTheRest(t *testing.T) {
	for name, take := range map[string]func(b *netdb.Book, pool *ipam.Pool, a *ipam.Lease) (netdb.Candidate, ipam.Cut, error){
		"its own sandbox comes back": func(b *netdb.Book, _ *ipam.Pool, a *ipam.Lease) (netdb.Candidate, ipam.Cut, error) {
			c, ok := b.PickOwn(a.Owner(), 0)
			if !ok {
				return c, ipam.CutOwn, ipam.ErrTaken
			}
			return c, ipam.CutOwn, nil
		},
		"its own sandbox wishes for it": func(b *netdb.Book, _ *ipam.Pool, a *ipam.Lease) (netdb.Candidate, ipam.Cut, error) {
			c, err := b.PickAddr(a.Owner(), a.Addr, Policy)
			return c, ipam.CutOwn, err
		},
		"nothing else is left": func(b *netdb.Book, pool *ipam.Pool, _ *ipam.Lease) (netdb.Candidate, ipam.Cut, error) {
			c, err := b.Pick(pool.UID, Policy)
			return c, ipam.CutEarly, err
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := NewClock()
			b, pool := openWith(t, c, "10.8.64.0/30")
			a := Reserve(t, b, "a")
			Cool(t, b, a)
			c.Pass(Policy.CooldownMin)
			candidate, cut, err := take(b, pool, a)
			if err != nil {
				t.Fatal(err)
			}
			again, err := b.Reserve(t.Context(), Who(ipam.ByAllocator, "allocated"), netdb.Reservation{
				Candidate: candidate, Sandbox: "a", UID: "a", Interface: "eth0", Attempt: 1, BindWithin: time.Minute})
			if err != nil {
				t.Fatal(err)
			}
			l := again[0]
			if l.Cut != cut {
				t.Errorf("cut is %q, want %q", l.Cut, cut)
			}
			watchdog := Who(ipam.ByWatchdog, "released")
			if got, err := b.Expire(t.Context(), watchdog, l.ID, l.Rev, nil); !errors.Is(err, ipam.ErrCools) {
				t.Fatalf("ended at once: %+v, %v", got, err)
			}
			if l, err = b.Release(t.Context(), watchdog, l.ID, "", 0); err != nil {
				t.Fatal(err)
			}
			if l, err = b.Confirm(t.Context(), watchdog, l.ID, l.Rev, nil); err != nil || l.Cut != "" {
				t.Fatalf("confirmed: %+v, %v", l, err)
			}
			if got, err := TryReserve(b, pool, "stranger", Policy); err == nil {
				t.Errorf("%s went to a stranger at once", got.Addr)
			}
		})
	}
}

// A cooled address is as good as a new one: its lease may end at once.
func TestARestedAddressIsFreeAtOnce(t *testing.T) {
	c := NewClock()
	b, pool := openWith(t, c, "10.8.64.0/30")
	Cool(t, b, Reserve(t, b, "a"))
	c.Pass(Policy.Cooldown)
	l, err := TryReserve(b, pool, "b", Policy)
	if err != nil || l.Cut != "" {
		t.Fatalf("%+v, %v", l, err)
	}
	if _, err := b.Expire(t.Context(), Who(ipam.ByWatchdog, "released"), l.ID, l.Rev, nil); err != nil {
		t.Error(err)
	}
}
