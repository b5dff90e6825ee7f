package allocator

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/ipam"
	. "github.com/ipamd/ipamd/netdb/netdbtest"
)

// D1: the same owner gets the same prefix again; another length, or an address, is refused by
// what it holds; and bad lengths are refused with the field and the range.
func TestD1APrefixIsItsOwners(t *testing.T) {
	a := newAllocator(t)
	ask := Request{Sandbox: "web", PrefixLen: 28}
	got, err := a.Allocate(ctx, ask)
	if err != nil || got.Existing || got.Leases[0].Text() != "10.8.64.16/28" {
		t.Fatal(got, err)
	}
	again, err := a.Allocate(ctx, ask)
	if err != nil || !again.Existing || again.Leases[0].ID != got.Leases[0].ID {
		t.Fatal(again, err)
	}
	for _, other := range []Request{{Sandbox: "web"}, {Sandbox: "web", PrefixLen: 29}} {
		if _, err := a.Allocate(ctx, other); !errors.Is(err, ipam.ErrState) || !strings.Contains(err.Error(), "10.8.64.16/28") {
			t.Errorf("%d: %v", other.PrefixLen, err)
		}
	}
	beside, err := a.Allocate(ctx, Request{Sandbox: "web", Interface: "eth1", PrefixLen: 32})
	if err != nil || beside.Leases[0].PrefixLen != 0 || got.Leases[0].Covers(beside.Leases[0].Addr) {
		t.Error(beside, err)
	}
	wish := netip.MustParseAddr("10.8.64.64")
	if l, err := a.Allocate(ctx, Request{Sandbox: "db", PrefixLen: 26, Address: wish}); err != nil || l.Leases[0].Text() != "10.8.64.64/26" {
		t.Error(l, err)
	}
	for _, bad := range []Request{{PrefixLen: 24}, {PrefixLen: 33}, {PrefixLen: -1}, {PrefixLen: 28, Family: Dual}} {
		bad.Sandbox = "bad"
		_, err := a.Allocate(ctx, bad)
		wantField(t, err, "prefix_length")
		if fe := new(ipam.FieldError); bad.Family != Dual && (!errors.As(err, &fe) || !strings.Contains(fe.Reason, "25 to 31")) {
			t.Error(err)
		}
	}
	if leases, _ := a.Book.Leases(); len(leases) != 3 {
		t.Errorf("%d leases", len(leases))
	}
}

// D3: an address that is seen anywhere in a prefix keeps the prefix from being given, and is
// quarantined alone; a silent witness refuses; and a prefix that cools cools until none is seen.
func TestD3EveryAddressOfAPrefixIsAskedAbout(t *testing.T) {
	clock := NewClock()
	opts := Options()
	opts.Now = clock.Now
	book := OpenAt(t, t.TempDir()+"/book.db", opts)
	pool := Pool(t, book, "default", "10.8.64.0/24")
	a := newAllocator(t, func(c *Config) { c.Book = book })
	see := func(addr string) {
		a.Board.ReplaceScope(census.Neighbour, "test", []census.Sighting{{Addr: netip.MustParseAddr(addr), MAC: "02:00:00:00:00:09"}})
	}
	see("10.8.64.31")
	got, err := a.Allocate(ctx, Request{Sandbox: "web", PrefixLen: 28})
	if err != nil || got.Leases[0].Text() != "10.8.64.32/28" || len(got.Skipped) != 1 || got.Skipped[0].Addr.String() != "10.8.64.31" {
		t.Fatal(got, err)
	}
	if q, ok := book.At(netip.MustParseAddr("10.8.64.31")); !ok || q.State != ipam.Quarantined || q.PrefixLen != 0 {
		t.Error(q)
	}
	a.Board.Silence(census.Netns, errors.New("a test"))
	if _, err := a.Allocate(ctx, Request{Sandbox: "api", PrefixLen: 28}); !errors.Is(err, ErrEvidence) {
		t.Error(err)
	}
	a.Board.Replace(census.Netns, nil, nil)
	Cool(t, book, got.Leases[0])
	clock.Pass(Policy.Cooldown)
	see("10.8.64.47")
	if err := a.freeCooled(ctx, pool); err != nil {
		t.Fatal(err)
	}
	if l, ok := book.At(netip.MustParseAddr("10.8.64.32")); !ok || l.State != ipam.Cooling {
		t.Errorf("its last address is seen, and it is free: %v", l)
	}
	a.Board.ReplaceScope(census.Neighbour, "test", nil)
	if err := a.freeCooled(ctx, pool); err != nil {
		t.Fatal(err)
	}
	if l, ok := book.At(netip.MustParseAddr("10.8.64.32")); ok {
		t.Error(l)
	}
}

// An address that can be no host's is refused as a wish, with the field named.
func TestAWishForNoHost(t *testing.T) {
	a := newAllocator(t)
	for _, wish := range []string{"255.255.255.255", "0.0.0.0", "224.0.0.1", "127.0.0.1", "169.254.1.1", "::", "::1", "ff02::1", "fe80::1"} {
		_, err := a.Allocate(ctx, Request{Sandbox: "web", Address: netip.MustParseAddr(wish)})
		wantField(t, err, "address")
	}
}
