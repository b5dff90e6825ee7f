package netdb_test

import (
	"errors"
	"testing"
	"time"

	"github.com/ipamd/ipamd/netdb"
	"github.com/ipamd/ipamd/netdb/netdbtest"
)

// P6: a lease that was never used does not end the rest of its address. A stranger
// got an address 23 ms after its owner had let it go: the owner's sandbox had
// come back for it, and had let the second lease go unbound.
func TestAnUnusedLeaseKeepsTheRest(t *testing.T) {
	for name, take := range map[string]func(b *netdb.Book, pool *netdb.Pool, a *netdb.Lease) (netdb.Candidate, netdb.Cut, error){
		"its own sandbox comes back": func(b *netdb.Book, _ *netdb.Pool, a *netdb.Lease) (netdb.Candidate, netdb.Cut, error) {
			c, ok := b.PickOwn(a.Owner(), 0)
			if !ok {
				return c, netdb.CutOwn, netdb.ErrTaken
			}
			return c, netdb.CutOwn, nil
		},
		"its own sandbox wishes for it": func(b *netdb.Book, _ *netdb.Pool, a *netdb.Lease) (netdb.Candidate, netdb.Cut, error) {
			c, err := b.PickAddr(a.Owner(), a.Addr, netdbtest.Policy)
			return c, netdb.CutOwn, err
		},
		"nothing else is left": func(b *netdb.Book, pool *netdb.Pool, _ *netdb.Lease) (netdb.Candidate, netdb.Cut, error) {
			c, err := b.Pick(pool.UID, netdbtest.Policy)
			return c, netdb.CutEarly, err
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := netdbtest.NewClock()
			b, pool := openWith(t, c, "10.8.64.0/30")
			a := netdbtest.Reserve(t, b, "a")
			netdbtest.Cool(t, b, a)
			c.Pass(netdbtest.Policy.CooldownMin)
			candidate, cut, err := take(b, pool, a)
			if err != nil {
				t.Fatal(err)
			}
			again, err := b.Reserve(t.Context(), netdbtest.Who(netdb.ByAllocator, "allocated"), netdb.Reservation{
				Candidate: candidate, Sandbox: "a", UID: "a", Interface: "eth0", Attempt: 1, BindWithin: time.Minute})
			if err != nil {
				t.Fatal(err)
			}
			l := again[0]
			if l.Cut != cut {
				t.Errorf("cut is %q, want %q", l.Cut, cut)
			}
			watchdog := netdbtest.Who(netdb.ByWatchdog, "released")
			if got, err := b.Expire(t.Context(), watchdog, l.ID, l.Rev, nil); !errors.Is(err, netdb.ErrCools) {
				t.Fatalf("ended at once: %+v, %v", got, err)
			}
			if l, err = b.Release(t.Context(), watchdog, l.ID, "", 0); err != nil {
				t.Fatal(err)
			}
			if l, err = b.Confirm(t.Context(), watchdog, l.ID, l.Rev, nil); err != nil || l.Cut != "" {
				t.Fatalf("confirmed: %+v, %v", l, err)
			}
			if got, err := netdbtest.TryReserve(b, pool, "stranger", netdbtest.Policy); err == nil {
				t.Errorf("%s went to a stranger at once", got.Addr)
			}
		})
	}
}

// A rested address is as good as a new one: its lease may end at once.
func TestARestedAddressIsFreeAtOnce(t *testing.T) {
	c := netdbtest.NewClock()
	b, pool := openWith(t, c, "10.8.64.0/30")
	netdbtest.Cool(t, b, netdbtest.Reserve(t, b, "a"))
	c.Pass(netdbtest.Policy.Cooldown)
	l, err := netdbtest.TryReserve(b, pool, "b", netdbtest.Policy)
	if err != nil || l.Cut != "" {
		t.Fatalf("%+v, %v", l, err)
	}
	if _, err := b.Expire(t.Context(), netdbtest.Who(netdb.ByWatchdog, "released"), l.ID, l.Rev, nil); err != nil {
		t.Error(err)
	}
}
