package netdb_test

import (
	"errors"
	"net/netip"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb"
	. "github.com/ipamd/ipamd/netdb/netdbtest"
)

func keeping(t *testing.T, b *netdb.Book, prefix string, kept ...ipam.Kept) *ipam.Pool {
	t.Helper()
	p := netip.MustParsePrefix(prefix)
	pool, err := b.EnsurePool(ctx, Who(ipam.ByOperator, "test"), ipam.PoolSpec{
		Name: "default", Prefix: p, Gateway: ipam.FirstHost(p), Bridge: "rt0", Kept: kept})
	if err != nil {
		t.Fatal(err)
	}
	return pool
}

func keep(sandbox, addr string) ipam.Kept {
	return ipam.Kept{Sandbox: sandbox, Address: netip.MustParseAddr(addr)}
}

// takeKept gives a sandbox what its pool keeps for it.
func takeKept(b *netdb.Book, p *ipam.Pool, sandbox, uid, iface string) (*ipam.Lease, error) {
	c, is, err := b.PickKept(ipam.Owner{PoolUID: p.UID, UID: uid, Interface: iface}, sandbox, Policy)
	if err != nil || !is {
		return nil, err
	}
	ls, err := b.Reserve(ctx, Who(ipam.ByAllocator, "allocated"), netdb.Reservation{
		Candidate: c, Sandbox: sandbox, UID: uid, Interface: iface, Attempt: 1, BindWithin: 10 * time.Minute})
	if err != nil {
		return nil, err
	}
	return ls[0], nil
}

// Reservations that make no sense name the field, and the pool stays as it was.
func TestBadReservationsAreRefused(t *testing.T) {
	b := Open(t)
	rev := b.Rev()
	p := netip.MustParsePrefix("10.8.64.0/24")
	for name, k := range map[string][]ipam.Kept{
		"outside":          {keep("db", "10.8.65.9")},
		"the gateway":      {keep("db", "10.8.64.1")},
		"the network":      {keep("db", "10.8.64.0")},
		"excluded":         {keep("db", "10.8.64.200")},
		"of IPv6":          {keep("db", "fd00::9")},
		"no address":       {{Sandbox: "db"}},
		"no sandbox":       {keep("", "10.8.64.9")},
		"an address twice": {keep("db", "10.8.64.9"), keep("web", "10.8.64.9")},
		"a sandbox twice":  {keep("db", "10.8.64.9"), keep("db", "10.8.64.10")},
	} {
		_, err := b.EnsurePool(ctx, Who(ipam.ByOperator, "test"), ipam.PoolSpec{Name: "default", Prefix: p, Gateway: ipam.FirstHost(p),
			Bridge: "rt0", Kept: k, Exclude: []ipam.Range{{From: netip.MustParseAddr("10.8.64.200"), To: netip.MustParseAddr("10.8.64.210")}}})
		if fe := new(ipam.FieldError); !errors.As(err, &fe) || fe.Field != "pool.reservation" {
			t.Errorf("%s: %v", name, err)
		}
	}
	if b.Rev() != rev {
		t.Errorf("revision went from %d to %d", rev, b.Rev())
	}
}

// A kept address is given to its sandbox and to no other, also at exhaustion and also
// while it cools; the counts leave it out of what can be given.
func TestAKeptAddressIsForItsSandboxOnly(t *testing.T) {
	c := NewClock()
	path := filepath.Join(t.TempDir(), "book.db")
	opts := Options()
	opts.Now = c.Now
	b := OpenAt(t, path, opts)
	p := keeping(t, b, "10.8.64.0/29", keep("db", "10.8.64.4"), keep("web", "10.8.64.6")) // five can be given
	usage := func(free, kept, available uint64) {
		t.Helper()
		u, _ := b.Usage()
		if n, _ := b.Available(p.UID, Policy); u[0].Size != 5 || u[0].Free != free || u[0].Kept != kept || n != available {
			t.Errorf("size %d, free %d, kept %d, available %d; want 5, %d, %d, %d", u[0].Size, u[0].Free, u[0].Kept, n, free, kept, available)
		}
		Check(t, b)
	}
	usage(3, 2, 3)
	if ahead := b.Upcoming(p.UID, 9, Policy); len(ahead) != 3 || slices.Contains(ahead, netip.MustParseAddr("10.8.64.4")) {
		t.Errorf("upcoming are %v", ahead)
	}
	for _, name := range []string{"a", "b", "c"} {
		if l, err := TryReserve(b, p, name, Policy); err != nil || l.Addr.String() == "10.8.64.4" || l.Addr.String() == "10.8.64.6" {
			t.Fatal(l, err)
		}
	}
	usage(0, 2, 0)
	_, err := TryReserve(b, p, "d", Policy)
	wantErr(t, err, ipam.ErrExhausted)

	// A wish of another, and a reservation that was picked before it was kept.
	_, err = b.PickAddr(ipam.Owner{PoolUID: p.UID, UID: "d", Interface: "eth0"}, netip.MustParseAddr("10.8.64.4"), Policy)
	ke := new(ipam.KeptError)
	if !errors.As(err, &ke) || ke.Sandbox != "db" || !errors.Is(err, ipam.ErrTaken) {
		t.Errorf("a wish of another: %v", err)
	}

	l, err := takeKept(b, p, "db", "db-1", "eth0")
	if err != nil || l.Addr.String() != "10.8.64.4" {
		t.Fatal(l, err)
	}
	usage(0, 1, 0)
	// A second interface has no claim to it; another incarnation waits for the first.
	if l, err := takeKept(b, p, "db", "db-1", "eth1"); l != nil || err != nil {
		t.Errorf("a second interface got %v, %v", l, err)
	}
	_, err = takeKept(b, p, "db", "db-2", "eth0")
	wantErr(t, err, ipam.ErrTaken)
	// What cools of it is its own at once, and no other's at exhaustion.
	Cool(t, b, l)
	c.Pass(time.Hour)
	usage(0, 1, 0)
	_, err = TryReserve(b, p, "d", Policy)
	wantErr(t, err, ipam.ErrExhausted)
	l, err = takeKept(b, p, "db", "db-2", "eth0")
	if err != nil || l.Addr.String() != "10.8.64.4" || l.Cut != "" {
		t.Fatal(l, err)
	}
	Cool(t, b, l)
	if l, err = takeKept(b, p, "db", "db-3", "eth0"); err != nil || l.Addr.String() != "10.8.64.4" || l.Cut != ipam.CutOwn {
		t.Fatal(l, err)
	}
	cools := Cool(t, b, l)
	c.Pass(time.Hour)
	if n, err := b.Free(ctx, Who(ipam.ByAllocator, "rested"), []*ipam.Lease{cools}, func(*ipam.Lease) error { return nil }); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	usage(0, 2, 0)

	// After a restart it is as before, and when no pool keeps it any more it is in its
	// place in the order of reuse.
	Close(t, b)
	b = OpenAt(t, path, opts)
	usage(0, 2, 0)
	if place := b.Place(l.Addr); place.Kept != "db" || !place.Usable {
		t.Errorf("its place is %+v", place)
	}
	keeping(t, b, "10.8.64.0/29", keep("web", "10.8.64.6"))
	usage(1, 1, 1)
	Close(t, b)
	b = OpenAt(t, path, opts)
	usage(1, 1, 1)
	if l, err := TryReserve(b, p, "d", Policy); err != nil || l.Addr.String() != "10.8.64.4" {
		t.Fatal(l, err)
	}
}

// A reservation over another's lease is for the time after it, and takes nothing away.
// Neither does the address go to its sandbox before it has cooled.
func TestAReservationOverALiveLeaseTakesNothing(t *testing.T) {
	c := NewClock()
	b, p := openWith(t, c, "10.8.64.0/29")
	other := Reserve(t, b, "other") // .2
	offered, err := b.Pick(p.UID, Policy)
	if err != nil {
		t.Fatal(err)
	}
	p, err = b.EnsurePool(ctx, Who(ipam.ByOperator, "test"), func() ipam.PoolSpec {
		s := b.Pools()[0].PoolSpec
		s.Kept = []ipam.Kept{{Sandbox: "db", Address: other.Addr}, {Sandbox: "web", Address: offered.Addr}}
		return s
	}())
	if err != nil || p.Generation != 2 {
		t.Fatal(p, err)
	}
	// The pool was changed while .3 was on offer to another.
	_, err = b.Reserve(ctx, Who(ipam.ByAllocator, "allocated"), netdb.Reservation{
		Candidate: offered, Sandbox: "late", UID: "late", Interface: "eth0", Attempt: 1, BindWithin: time.Minute})
	if ke := new(ipam.KeptError); !errors.As(err, &ke) || ke.Sandbox != "web" {
		t.Errorf("what is kept by now: %v", err)
	}
	b.Drop(offered)
	Check(t, b)
	_, err = takeKept(b, p, "db", "db", "eth0")
	wantErr(t, err, ipam.ErrTaken)
	if l, ok := b.OpenLease(other.Owner()); !ok || l.ID != other.ID {
		t.Errorf("its holder has %v", l)
	}
	cools := Cool(t, b, other)
	if own, ok := b.PickOwn(cools.Owner(), 0); ok {
		t.Errorf("its former holder is offered %v", own)
	}
	_, err = takeKept(b, p, "db", "db", "eth0")
	wantErr(t, err, ipam.ErrTaken)
	c.Pass(Policy.Cooldown)
	if l, err := takeKept(b, p, "db", "db", "eth0"); err != nil || l.Addr != other.Addr {
		t.Fatal(l, err)
	}
}

// An address that is kept no more has the place in the order of reuse that it had.
func TestWhatIsKeptNoMoreComesBackInItsOrder(t *testing.T) {
	c := NewClock()
	b, _ := openWith(t, c, "10.8.64.0/29") // five can be given
	p := keeping(t, b, "10.8.64.0/29", keep("db", "10.8.64.2"))
	l, err := takeKept(b, p, "db", "db", "eth0")
	if err != nil {
		t.Fatal(err)
	}
	cools := Cool(t, b, l)
	c.Pass(time.Hour)
	if n, err := b.Free(ctx, allocator, []*ipam.Lease{cools}, unseen); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	keeping(t, b, "10.8.64.0/29")
	var got []string
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		got = append(got, Reserve(t, b, name).Addr.String())
	}
	if got[4] != "10.8.64.2" {
		t.Errorf("given in the order %v", got)
	}
}

// An address of a delegated prefix that cools is given to no one alone, also not to the
// sandbox that had the prefix, and that it is reserved for: it becomes free with the others.
func TestAKeptAddressInACoolingPrefixWaitsForIt(t *testing.T) {
	clock := NewClock()
	b, _ := openWith(t, clock, "10.8.64.0/27")
	prefix := ReservePrefix(t, b, "db", 29)
	reserved := prefix.Addr.Next()
	p := keeping(t, b, "10.8.64.0/27", ipam.Kept{Sandbox: "db", Address: reserved})
	cools := Cool(t, b, prefix)
	for range 2 { // before the cooldown is over, and behind it, while its row is there
		l, err := takeKept(b, p, "db", "db", "eth0")
		if !errors.Is(err, ipam.ErrTaken) {
			t.Errorf("%v, %v", l, err)
		}
		Check(t, b)
		clock.Pass(Policy.Cooldown)
	}
	if n, err := b.Free(ctx, allocator, []*ipam.Lease{cools}, unseen); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	l, err := takeKept(b, p, "db", "db", "eth0")
	if err != nil || l.Addr != reserved || l.PrefixLen != 0 {
		t.Fatal(l, err)
	}
	if again, err := b.Lease(l.ID); err != nil || again.Addr != reserved {
		t.Error(again, err)
	}
}
