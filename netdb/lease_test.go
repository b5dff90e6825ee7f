package netdb_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/netip"
	"path/filepath"
	"testing"

	"github.com/ipamd/ipamd/internal/ranges"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb"
	. "github.com/ipamd/ipamd/netdb/netdbtest"
)

var (
	ctx       = context.Background()
	allocator = Who(ipam.ByAllocator, "allocated")
	client    = Who(ipam.ByClient, "released")
	watchdog  = Who(ipam.ByWatchdog, "removal_confirmed")
	evidence  = json.RawMessage(`[{"witness":"netns"}]`)
)

func wantErr(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("error is %v, want %v", err, want)
	}
}

func openWith(t *testing.T, c *Clock, prefix string) (*netdb.Book, *ipam.Pool) {
	t.Helper()
	opts := Options()
	opts.Now = c.Now
	b := OpenAt(t, filepath.Join(t.TempDir(), "book.db"), opts)
	return b, Pool(t, b, "default", prefix)
}

// L9: text sorts .10 before .2; listings and ranges do not.
func TestL9ListingsSortAsNumbers(t *testing.T) {
	b := Open(t)
	for i := range 12 {
		Reserve(t, b, string(rune('a'+i)))
	}
	leases, rev := b.Leases()
	if rev != b.Rev() || len(leases) != 12 {
		t.Fatal(len(leases), rev)
	}
	for i, l := range leases {
		if want := netip.AddrFrom4([4]byte{10, 8, 64, byte(2 + i)}); l.Addr != want {
			t.Errorf("place %d has %s, want %s", i, l.Addr, want)
		}
	}
	r, err := ranges.Parse("10.8.64.2-10.8.64.10")
	if err != nil || !r.Contains(netip.MustParseAddr("10.8.64.9")) || r.Contains(netip.MustParseAddr("10.8.64.11")) {
		t.Error(r, err)
	}
}
