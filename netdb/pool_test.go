package netdb_test

import (
	"errors"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ipamd/ipamd/internal/ranges"
	"github.com/ipamd/ipamd/ipam"
	. "github.com/ipamd/ipamd/netdb/netdbtest"
)

// L7: every prefix gives exactly its hosts, without network, broadcast,
// gateway and excluded addresses, and then says that it is exhausted.
func TestL7EveryPrefixGivesItsHostsAndNoMore(t *testing.T) {
	for _, tt := range []struct {
		prefix, gateway string
		exclude         []string
		want            []string // all, or the first when size is larger
		size            uint64
	}{
		{prefix: "10.8.64.0/30", gateway: "10.8.64.1", want: []string{"10.8.64.2"}, size: 1},
		{prefix: "10.8.64.0/29", gateway: "10.8.64.1", want: []string{"10.8.64.2", "10.8.64.3", "10.8.64.4", "10.8.64.5", "10.8.64.6"}, size: 5},
		{prefix: "10.8.64.0/29", gateway: "10.8.64.6", exclude: []string{"10.8.64.2-10.8.64.3"}, want: []string{"10.8.64.1", "10.8.64.4", "10.8.64.5"}, size: 3},
		{prefix: "10.8.64.0/31", gateway: "10.8.64.0", want: []string{"10.8.64.1"}, size: 1},
		{prefix: "10.8.64.0/31", want: []string{"10.8.64.0", "10.8.64.1"}, size: 2},
		{prefix: "10.8.64.7/32", want: []string{"10.8.64.7"}, size: 1},
		{prefix: "fd00:8::/64", gateway: "fd00:8::1", want: []string{"fd00:8::2", "fd00:8::3"}, size: 1<<64 - 2},
		{prefix: "fd00:8::/126", gateway: "fd00:8::1", want: []string{"fd00:8::2", "fd00:8::3"}, size: 2},
		{prefix: "fd00:8::/127", want: []string{"fd00:8::", "fd00:8::1"}, size: 2},
		{prefix: "fd00:8::9/128", want: []string{"fd00:8::9"}, size: 1},
	} {
		t.Run(tt.prefix, func(t *testing.T) {
			b := OpenAt(t, filepath.Join(t.TempDir(), "book.db"), Options())
			spec := ipam.PoolSpec{Name: "p", Prefix: netip.MustParsePrefix(tt.prefix), Bridge: "rt0"}
			if tt.gateway != "" {
				spec.Gateway = netip.MustParseAddr(tt.gateway)
			}
			for _, e := range tt.exclude {
				r, err := ranges.Parse(e)
				if err != nil {
					t.Fatal(err)
				}
				spec.Exclude = append(spec.Exclude, r)
			}
			p, err := b.EnsurePool(ctx, Who(ipam.ByOperator, "test"), spec)
			if err != nil {
				t.Fatal(err)
			}
			if u, _ := b.Usage(); u[0].Size != tt.size || u[0].Free != tt.size {
				t.Fatalf("size %d, free %d, want %d", u[0].Size, u[0].Free, tt.size)
			}
			for i, want := range tt.want {
				l, err := TryReserve(b, p, string(rune('a'+i)), Policy)
				if err != nil || l.Addr.String() != want {
					t.Fatalf("address %d is %v (%v), want %s", i, l, err, want)
				}
			}
			if tt.size == uint64(len(tt.want)) {
				_, err = TryReserve(b, p, "late", Policy)
				wantErr(t, err, ipam.ErrExhausted)
			}
		})
	}
}

// L7: bad pools are refused with the field and, where there is one, the restore.
func TestL7BadPoolsAreRefused(t *testing.T) {
	b := Open(t)
	good := ipam.PoolSpec{Name: "x", Prefix: netip.MustParsePrefix("10.9.0.0/24"), Gateway: netip.MustParseAddr("10.9.0.1"), Bridge: "rt0"}
	for name, tt := range map[string]struct {
		spoil func(*ipam.PoolSpec)
		field string
		says  string
	}{
		"unmasked prefix":      {func(s *ipam.PoolSpec) { s.Prefix = netip.MustParsePrefix("10.9.0.7/24") }, "pool.prefix", "10.9.0.0/24"},
		"no prefix":            {func(s *ipam.PoolSpec) { s.Prefix = netip.Prefix{} }, "pool.prefix", "missing"},
		"4in6 prefix":          {func(s *ipam.PoolSpec) { s.Prefix = netip.MustParsePrefix("::ffff:10.9.0.0/120") }, "pool.prefix", "plain"},
		"no name":              {func(s *ipam.PoolSpec) { s.Name = "" }, "pool.name", ""},
		"name with a slash":    {func(s *ipam.PoolSpec) { s.Name = "a/b" }, "pool.name", ""},
		"gateway elsewhere":    {func(s *ipam.PoolSpec) { s.Gateway = netip.MustParseAddr("10.8.0.1") }, "pool.gateway", "10.9.0.0/24"},
		"gateway is network":   {func(s *ipam.PoolSpec) { s.Gateway = netip.MustParseAddr("10.9.0.0") }, "pool.gateway", "host"},
		"gateway is broadcast": {func(s *ipam.PoolSpec) { s.Gateway = netip.MustParseAddr("10.9.0.255") }, "pool.gateway", "host"},
		"no bridge":            {func(s *ipam.PoolSpec) { s.Bridge = "" }, "pool.bridge", ""},
		"bridge name too long": {func(s *ipam.PoolSpec) { s.Bridge = "abcdefghijklmnop" }, "pool.bridge", ""},
		"exclusion elsewhere": {func(s *ipam.PoolSpec) {
			s.Exclude = []ipam.Range{{From: netip.MustParseAddr("10.8.0.1"), To: netip.MustParseAddr("10.8.0.2")}}
		}, "pool.exclude", ""},
		"exclusion of all": {func(s *ipam.PoolSpec) {
			s.Exclude = []ipam.Range{{From: netip.MustParseAddr("10.9.0.0"), To: netip.MustParseAddr("10.9.0.255")}}
		}, "pool.prefix", "no address"},
		"route of two families": {func(s *ipam.PoolSpec) {
			s.Routes = []ipam.Route{{Destination: netip.MustParsePrefix("::/0"), Via: netip.MustParseAddr("10.9.0.1")}}
		}, "pool.routes", ""},
	} {
		t.Run(name, func(t *testing.T) {
			spec := good
			tt.spoil(&spec)
			_, err := b.EnsurePool(ctx, Who(ipam.ByOperator, "test"), spec)
			var fe *ipam.FieldError
			if !errors.As(err, &fe) || fe.Field != tt.field || !strings.Contains(fe.Reason, tt.says) {
				t.Errorf("error is %v, want field %s and %q", err, tt.field, tt.says)
			}
		})
	}
	over := good
	over.Prefix, over.Gateway = netip.MustParsePrefix("10.8.0.0/16"), netip.Addr{}
	_, err := b.EnsurePool(ctx, Who(ipam.ByOperator, "test"), over)
	wantErr(t, err, ipam.ErrOverlap)
	Reserve(t, b, "a")
	moved := ipam.PoolSpec{Name: "default", Prefix: netip.MustParsePrefix("10.10.0.0/24"), Bridge: "rt0"}
	_, err = b.EnsurePool(ctx, Who(ipam.ByOperator, "test"), moved)
	wantErr(t, err, ipam.ErrPoolNotEmpty)
}

// Scenario P7: a pool described again as it is changes nothing; with another exclusion it
// is the same pool in its next generation, and the lease under the exclusion
// stays.
func TestEnsurePoolTwiceEqualsOnce(t *testing.T) {
	b := Open(t)
	l := Reserve(t, b, "a")
	rev, was := b.Rev(), b.Pools()[0]
	if p := Pool(t, b, "default", "10.8.64.0/24"); p.UID != was.UID || b.Rev() != rev {
		t.Fatalf("the same pool again made %+v at %d", p, b.Rev())
	}
	spec := was.PoolSpec
	spec.Exclude = []ipam.Range{{From: l.Addr, To: l.Addr.Next()}}
	p, err := b.EnsurePool(ctx, Who(ipam.ByOperator, "test"), spec)
	if err != nil || p.UID != was.UID || p.Generation != was.Generation+1 {
		t.Fatal(p, err)
	}
	if got, ok := b.At(l.Addr); !ok || got.ID != l.ID {
		t.Fatalf("the excluded lease is %+v", got)
	}
	if next := Reserve(t, b, "b"); next.Addr.String() != "10.8.64.4" {
		t.Fatalf("next is %s", next.Addr)
	}
	Cool(t, b, l)
	if place := b.Place(l.Addr); place.Usable || !strings.Contains(place.Note, "excluded") {
		t.Fatalf("%+v", place)
	}
}
