package warm

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/plumb"
)

// A slot that is being made does not give its address up before it is made, neither to a sandbox that
// wishes for it nor to a change of its pool: else another has the address as the port comes up. Its lease is
// reserved until then, and records no namespace.
func TestASlotInTheMakingKeepsItsAddress(t *testing.T) {
	addr := netip.MustParseAddr("10.8.64.7")
	pool := &ipam.Pool{UID: "p"}
	for name, ask := range map[string]func(ctx context.Context, k *Keeper, l *ipam.Lease) error{
		"a wish": func(ctx context.Context, k *Keeper, _ *ipam.Lease) error {
			_, err := k.GiveAddress(ctx, addr)
			return err
		},
		"a change of the pool": func(ctx context.Context, k *Keeper, l *ipam.Lease) error {
			return k.Vacate(ctx, func() error {
				return &ipam.PoolNotEmptyError{Pool: pool, Effects: []ipam.LeaseEffect{{Lease: l}}}
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := &ipam.Lease{ID: "l", Addr: addr, UID: ipam.SlotUID("s"), State: ipam.Reserved, PoolUID: "p"}
				s := &scene{leases: map[netip.Addr]*ipam.Lease{addr: l}, changed: make(chan struct{}),
					slots: []*ipam.Slot{{LeaseID: "l", ID: "s", Netns: plumb.SlotPath("one", "s")}}}
				k := s.keeper()
				k.busy[s.slots[0].Netns] = true
				done := make(chan error, 1)
				go func() { done <- ask(t.Context(), k, l) }()
				time.Sleep(time.Second)
				synctest.Wait()
				if len(s.ended) > 0 {
					t.Fatal("it ends while it is made")
				}
				k.mu.Lock()
				delete(k.busy, s.slots[0].Netns)
				k.mu.Unlock()
				if err := <-done; !errors.Is(err, context.DeadlineExceeded) || !slices.Contains(s.ended, "l") {
					t.Errorf("%v, ended are %v", err, s.ended)
				}
			})
		})
	}
}
