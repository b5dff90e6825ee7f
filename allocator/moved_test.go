package allocator

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"testing"

	"github.com/ipamd/ipamd/ipam"
	. "github.com/ipamd/ipamd/netdb/netdbtest"
)

// A pool that moves to another bridge while a call looks for an address gives it the one of a
// pool there: the address is asked for again, once that bridge is ready, and a wish is still one.
func TestAPoolMovesUnderACall(t *testing.T) {
	notReady := errors.New("the bridge is not ready")
	for name, tt := range map[string]struct {
		wish  string
		ready bool
	}{
		"the next address":                  {ready: true},
		"a wish":                            {wish: "10.8.64.50", ready: true},
		"to a bridge that is not ready yet": {},
	} {
		t.Run(name, func(t *testing.T) {
			settled := 0
			a := newAllocator(t, func(c *Config) {
				c.Settle = func(_ context.Context, about ...netip.Addr) error {
					if len(about) == 0 { // of the call as a whole
						return nil
					}
					if settled++; settled == 1 {
						spec := c.Book.Pools()[0].PoolSpec
						spec.Bridge, spec.Gateway = "rt1", netip.MustParseAddr("10.8.64.254")
						if _, err := c.Book.EnsurePool(ctx, Who(ipam.ByOperator, "test"), spec); err != nil {
							t.Error(err)
						}
					}
					return nil
				}
				c.Gate = func(pools ...*ipam.Pool) error {
					if !tt.ready && slices.ContainsFunc(pools, func(p *ipam.Pool) bool { return p.Bridge == "rt1" }) {
						return notReady
					}
					return nil
				}
			})
			r := Request{Sandbox: "a"}
			if tt.wish != "" {
				r.Address = netip.MustParseAddr(tt.wish)
			}
			given, err := a.Allocate(ctx, r)
			if !tt.ready {
				if rows, _ := a.Book.Leases(); !errors.Is(err, notReady) || len(rows) != 0 {
					t.Errorf("%v, and the book has %v", err, rows)
				}
				if c, err := a.Book.PickAddr(ipam.Owner{PoolUID: a.Book.Pools()[0].UID}, netip.MustParseAddr("10.8.64.2"), Policy); err != nil {
					t.Errorf("the address stays offered: %v", err)
				} else {
					a.Book.Drop(c)
				}
				return
			}
			if err != nil || tt.wish != "" && given.Leases[0].Addr != r.Address {
				t.Fatal(given, err)
			}
			if p := given.Pools[0]; p.Bridge != "rt1" || p.Gateway.String() != "10.8.64.254" {
				t.Errorf("answered with bridge %s and gateway %s", p.Bridge, p.Gateway)
			}
			if settled < 2 {
				t.Error("it was not looked at again")
			}
		})
	}
}
