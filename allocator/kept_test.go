package allocator

import (
	"errors"
	"net/netip"
	"sync"
	"testing"

	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb"
	. "github.com/ipamd/ipamd/netdb/netdbtest"
)

// keeping gives a pool reservations by sandbox name.
func keeping(t *testing.T, b *netdb.Book, reserved ...ipam.Kept) {
	t.Helper()
	spec := b.Pools()[0].PoolSpec
	spec.Kept = reserved
	if _, err := b.EnsurePool(ctx, Who(ipam.ByOperator, "test"), spec); err != nil {
		t.Fatal(err)
	}
}

// A sandbox gets the address that is kept for it without asking for it, again and again,
// and its next incarnation gets it too, as soon as nothing of it is seen. It is recorded
// like any lease, as a wish is.
func TestASandboxGetsTheAddressThatIsKeptForIt(t *testing.T) {
	a := newAllocator(t)
	nine := netip.MustParseAddr("10.8.64.9")
	keeping(t, a.Book, ipam.Kept{Sandbox: "db", Address: nine})
	get := func(r Request) *ipam.Lease {
		t.Helper()
		got, err := a.Allocate(ctx, r)
		if err != nil {
			t.Fatal(err)
		}
		return got.Leases[0]
	}
	if l := get(Request{Sandbox: "web"}); l.Addr == nine {
		t.Errorf("another got %s", l.Addr)
	}
	wish := get(Request{Sandbox: "api", Address: netip.MustParseAddr("10.8.64.7")})
	first := get(Request{Sandbox: "db", UID: "1"})
	for _, l := range []*ipam.Lease{wish, first} {
		past, err := a.Book.History(ctx, ipam.Query{Addr: l.Addr, Limit: 9})
		if err != nil || len(past) != 1 || past[0].Who.Reason != "allocated" || past[0].LeaseID != l.ID || past[0].From != ipam.Free {
			t.Errorf("the history of %s is %+v, %v", l.Addr, past, err)
		}
	}
	if again := get(Request{Sandbox: "db", UID: "1"}); first.Addr != nine || again.ID != first.ID {
		t.Errorf("got %s as %s, and again as %s", first.Addr, first.ID, again.ID)
	}
	if other := get(Request{Sandbox: "db", UID: "1", Interface: "eth1"}); other.Addr == nine {
		t.Errorf("a second interface got %s", other.Addr)
	}
	_, err := a.Allocate(ctx, Request{Sandbox: "db", UID: "2"})
	if !errors.Is(err, ipam.ErrTaken) {
		t.Errorf("while its former incarnation holds it: %v", err)
	}
	Cool(t, a.Book, first)
	if l := get(Request{Sandbox: "db", UID: "2"}); l.Addr != nine || l.Cut != ipam.CutOwn {
		t.Errorf("the next incarnation got %+v", l)
	}
	_, err = a.Allocate(ctx, Request{Sandbox: "impostor", Address: nine})
	if !errors.Is(err, ipam.ErrTaken) {
		t.Errorf("a wish while it is held: %v", err)
	}
	keeping(t, a.Book, ipam.Kept{Sandbox: "db", Address: nine}, ipam.Kept{Sandbox: "q", Address: netip.MustParseAddr("10.8.64.30")})
	_, err = a.Allocate(ctx, Request{Sandbox: "impostor", Address: netip.MustParseAddr("10.8.64.30")})
	if ke := new(ipam.KeptError); !errors.As(err, &ke) || ke.Sandbox != "q" {
		t.Errorf("a wish for what is kept: %v", err)
	}
	if l := get(Request{Sandbox: "q", Address: netip.MustParseAddr("10.8.64.30")}); l.Addr.String() != "10.8.64.30" {
		t.Errorf("its own wish got %s", l.Addr)
	}
}

// A kept address that is in use by another is refused with the evidence, and quarantined;
// its sandbox gets no other one in its place.
func TestAKeptAddressInUseIsRefused(t *testing.T) {
	var met []Skipped
	a := newAllocator(t, func(c *Config) { c.OnConflict = func(s Skipped) { met = append(met, s) } })
	nine := netip.MustParseAddr("10.8.64.9")
	keeping(t, a.Book, ipam.Kept{Sandbox: "db", Address: nine})
	a.Board.Replace(census.Netns, map[string][]census.Sighting{"veth9": {{Addr: nine, Witness: census.Netns, Port: "veth9", MAC: "02:00:00:00:00:09"}}}, nil)
	if r, err := a.Allocate(ctx, Request{Sandbox: "db"}); !errors.Is(err, ipam.ErrTaken) {
		t.Errorf("got %+v, %v", r, err)
	}
	if len(met) != 1 || met[0].Addr != nine || len(met[0].Seen) != 1 {
		t.Errorf("reported %+v", met)
	}
	if l, ok := a.Book.At(nine); !ok || l.State != ipam.Quarantined || len(l.Evidence) == 0 {
		t.Errorf("the row is %+v", l)
	}
	if r, err := a.Allocate(ctx, Request{Sandbox: "db"}); !errors.Is(err, ipam.ErrQuarantined) {
		t.Errorf("got %+v, %v", r, err)
	}
}

// Calls of one sandbox at once get one lease, and it is of the kept address.
func TestCallsAtOnceGetTheKeptAddress(t *testing.T) {
	a := newAllocator(t)
	nine := netip.MustParseAddr("10.8.64.9")
	keeping(t, a.Book, ipam.Kept{Sandbox: "db", Address: nine})
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if r, err := a.Allocate(ctx, Request{Sandbox: "db"}); err != nil || r.Leases[0].Addr != nine {
				t.Errorf("got %+v, %v", r, err)
			}
		})
	}
	all.Wait()
	if u, _ := a.Book.Usage(); u[0].ByState[ipam.Reserved] != 1 {
		t.Errorf("%d leases", u[0].ByState[ipam.Reserved])
	}
}
