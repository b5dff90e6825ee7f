package allocator

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ipamd/ipamd/ipam"
	. "github.com/ipamd/ipamd/netdb/netdbtest"
)

// What a request leaves open is filled in; what it says stays.
func TestComplete(t *testing.T) {
	a := newAllocator(t)
	r := Request{Sandbox: "a"}
	if err := r.complete(a); err != nil {
		t.Fatal(err)
	}
	if r.UID != "a" || r.Attempt != 1 || r.Pool != "default" || r.Interface != "eth0" || r.BindWithin != 10*time.Minute {
		t.Errorf("completed to %+v", r)
	}
	r = Request{Sandbox: "a", UID: "u", Attempt: 7, Pool: "p", Interface: "net1", BindWithin: time.Minute, Family: V6}
	if err := r.complete(a); err != nil {
		t.Fatal(err)
	}
	if r.UID != "u" || r.Attempt != 7 || r.Pool != "p" || r.Interface != "net1" || r.BindWithin != time.Minute || r.Family != V6 {
		t.Errorf("changed to %+v", r)
	}
}

// Every way for a request to be wrong names its field, and takes nothing.
func TestBadRequests(t *testing.T) {
	a := newAllocator(t)
	Pool(t, a.Book, "only6", "fd00:8::/64")
	rev := a.Book.Rev()
	four, six := netip.MustParseAddr("10.8.64.9"), netip.MustParseAddr("fd00:8::9")
	for name, tt := range map[string]struct {
		spoil func(*Request)
		field string
	}{
		"no sandbox":                   {func(r *Request) { r.Sandbox = "" }, "sandbox"},
		"a sandbox of 254 bytes":       {func(r *Request) { r.Sandbox = strings.Repeat("x", 254) }, "sandbox"},
		"a uid that is not UTF-8":      {func(r *Request) { r.UID = "\xff" }, "uid"},
		"attempt -1":                   {func(r *Request) { r.Attempt = -1 }, "attempt"},
		"an interface with a slash":    {func(r *Request) { r.Interface = "a/b" }, "interface"},
		"bind_within -1s":              {func(r *Request) { r.BindWithin = -time.Second }, "bind_within"},
		"bind_within 25h":              {func(r *Request) { r.BindWithin = 25 * time.Hour }, "bind_within"},
		"an empty label key":           {func(r *Request) { r.Labels = map[string]string{"": ""} }, "labels"},
		"family v5":                    {func(r *Request) { r.Family = "v5" }, "family"},
		"family in capitals":           {func(r *Request) { r.Family = "V4" }, "family"},
		"a wish for dual":              {func(r *Request) { r.Family, r.Address = Dual, four }, "address"},
		"an unknown pool":              {func(r *Request) { r.Pool = "nowhere" }, "pool"},
		"v6 of a v4 pool":              {func(r *Request) { r.Family = V6 }, "family"},
		"dual of a v4 pool":            {func(r *Request) { r.Family = Dual }, "family"},
		"v4 of a v6 pool":              {func(r *Request) { r.Pool, r.Family = "only6", V4 }, "family"},
		"dual of a v6 pool":            {func(r *Request) { r.Pool, r.Family = "only6", Dual }, "family"},
		"a v6 wish of a v4 pool":       {func(r *Request) { r.Address = six }, "family"},
		"a v4 wish of a v6 pool":       {func(r *Request) { r.Pool, r.Address = "only6", four }, "family"},
		"a v6 wish with family v4":     {func(r *Request) { r.Family, r.Address = V4, six }, "address"},
		"a v4 wish with v6, a v6 pool": {func(r *Request) { r.Pool, r.Family, r.Address = "only6", V6, four }, "address"},
	} {
		t.Run(name, func(t *testing.T) {
			r := Request{Sandbox: "a"}
			tt.spoil(&r)
			_, err := a.Allocate(ctx, r)
			wantField(t, err, tt.field)
		})
	}
	if a.Book.Rev() != rev {
		t.Errorf("revision went from %d to %d", rev, a.Book.Rev())
	}
}

// Which pools a request draws from, v4 first.
func TestPools(t *testing.T) {
	a := newAllocator(t)
	Pool(t, a.Book, "default", "fd00:8::/64")
	Pool(t, a.Book, "only6", "fd00:9::/64")
	six := netip.MustParseAddr("fd00:8::9")
	for name, tt := range map[string]struct {
		ask  Request
		want []string
	}{
		"nothing said":          {Request{}, []string{"10.8.64.0/24"}},
		"v4":                    {Request{Family: V4}, []string{"10.8.64.0/24"}},
		"v6":                    {Request{Family: V6}, []string{"fd00:8::/64"}},
		"dual":                  {Request{Family: Dual}, []string{"10.8.64.0/24", "fd00:8::/64"}},
		"a v6 wish":             {Request{Address: six}, []string{"fd00:8::/64"}},
		"a pool that has no v4": {Request{Pool: "only6"}, []string{"fd00:9::/64"}},
	} {
		t.Run(name, func(t *testing.T) {
			tt.ask.Sandbox = "a"
			if err := tt.ask.complete(a); err != nil {
				t.Fatal(err)
			}
			pools, err := a.pools(&tt.ask)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, p := range pools {
				got = append(got, p.Prefix.String())
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("draws from %v, want %v", got, tt.want)
			}
		})
	}
	// The families of a dual request are given together or not at all.
	r, err := a.Allocate(ctx, Request{Sandbox: "a", Family: Dual})
	if err != nil || len(r.Leases) != 2 || !r.Leases[0].Addr.Is4() || !r.Leases[1].Addr.Is6() || r.Leases[0].State != ipam.Reserved {
		t.Errorf("dual: %+v, %v", r, err)
	}
}
