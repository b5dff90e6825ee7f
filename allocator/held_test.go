package allocator

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/ipam"
	. "github.com/ipamd/ipamd/netdb/netdbtest"
)

// What a retry finds of its lease may have changed by the time it acts: a reserved lease whose address is seen is
// released only as it was looked at. One that is bound meanwhile is not, for its sandbox runs.
func TestARetryReleasesItsLeaseOnlyAsItWasSeen(t *testing.T) {
	two, other := netip.MustParseAddr("10.8.64.2"), ipam.Container{Namespace: "default", ID: "c9"}
	bind := func(to ipam.Binding) func(*Allocator, *ipam.Lease, int) error {
		return func(a *Allocator, l *ipam.Lease, look int) error {
			if look > 1 {
				return nil
			}
			_, err := a.Book.Bind(ctx, Who(ipam.ByClient, "bound"), l.ID, 0, to)
			return err
		}
	}
	renew := func(times int) func(*Allocator, *ipam.Lease, int) error {
		return func(a *Allocator, l *ipam.Lease, look int) error {
			if look > times {
				return nil
			}
			_, err := a.Book.Renew(ctx, Who(ipam.ByAllocator, "asked_again"), l.ID, int64(look)+1, time.Minute)
			return err
		}
	}
	for name, tt := range map[string]struct {
		between func(a *Allocator, l *ipam.Lease, look int) error // the look and what follows from it
		want    string                                            // the answered address
		err     error
		becomes ipam.State // of the lease
		looks   int
	}{
		"nothing happens":             {func(*Allocator, *ipam.Lease, int) error { return nil }, "10.8.64.3", nil, ipam.Releasing, 1},
		"it is bound to what is seen": {bind(ipam.Binding{Containers: []ipam.Container{other}}), "10.8.64.2", nil, ipam.Bound, 2},
		"it is bound elsewhere":       {bind(ipam.Binding{HostInterface: "veth1"}), "", ipam.ErrTaken, ipam.Bound, 2},
		"it is asked for again":       {renew(1), "10.8.64.3", nil, ipam.Releasing, 2},
		"and again, each time":        {renew(1000), "", ipam.ErrStale, ipam.Reserved, looksMost},
		"it is released meanwhile": {func(a *Allocator, l *ipam.Lease, _ int) error {
			_, err := a.Book.Release(ctx, Who(ipam.ByClient, "released"), l.ID, "", 0)
			return err
		}, "10.8.64.3", nil, ipam.Releasing, 1},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAllocator(t)
			first, err := a.Allocate(ctx, Request{Sandbox: "a"})
			if err != nil || first.Leases[0].Addr != two {
				t.Fatal(first, err)
			}
			a.Board.ReplaceScope(census.Runtime, "c9", []census.Sighting{{Addr: two, Namespace: other.Namespace, Container: other.ID, Sandbox: "b", Task: "running"}})
			looks := 0
			a.Settle = func(_ context.Context, about ...netip.Addr) error {
				if !slices.Contains(about, two) {
					return nil
				}
				looks++
				return tt.between(a, first.Leases[0], looks)
			}
			r, err := a.Allocate(ctx, Request{Sandbox: "a"})
			if !errors.Is(err, tt.err) || tt.err == nil && r.Leases[0].Addr.String() != tt.want {
				t.Errorf("answered %+v, %v", r, err)
			}
			if l, ok := a.Book.At(two); !ok || l.ID != first.Leases[0].ID || l.State != tt.becomes {
				t.Errorf("its lease is %+v, want %s", l, tt.becomes)
			}
			if looks != tt.looks {
				t.Errorf("it was looked at %d times, want %d", looks, tt.looks)
			}
		})
	}
}
