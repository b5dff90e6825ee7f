package allocator

import (
	"context"
	"encoding/json"
	"errors"
	"net/netip"
	"testing"

	"github.com/ipamd/ipamd/ipam"
	. "github.com/ipamd/ipamd/netdb/netdbtest"
)

// A pass takes the chosen address away between the choice and the commit. One
// that was wished for is refused; who wished for none gets another.
func TestChosenAddressIsTakenByAPass(t *testing.T) {
	two, three := netip.MustParseAddr("10.8.64.2"), netip.MustParseAddr("10.8.64.3")
	for name, c := range map[string]struct{ wish, want netip.Addr }{
		"no wish": {want: three}, "wished for": {wish: two},
	} {
		t.Run(name, func(t *testing.T) {
			var a *Allocator
			a = newAllocator(t, func(cfg *Config) {
				calls := 0
				cfg.Settle = func(context.Context, ...netip.Addr) error {
					if calls++; calls == 2 { // the one before the commit
						_, err := a.Book.Quarantine(ctx, Who(ipam.ByReconciler, "seen_on_wire"), two, json.RawMessage(`[{"witness":"netns"}]`))
						return err
					}
					return nil
				}
			})
			r, err := a.Allocate(ctx, Request{Sandbox: "a", Address: c.wish})
			if !c.want.IsValid() {
				if !errors.Is(err, ipam.ErrTaken) {
					t.Errorf("got %+v, %v", r, err)
				}
				return
			}
			if err != nil || r.Leases[0].Addr != c.want {
				t.Errorf("got %+v, %v, want %s", r, err, c.want)
			}
		})
	}
}
