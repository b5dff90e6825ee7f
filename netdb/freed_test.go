package netdb_test

import (
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"testing"

	"github.com/ipamd/ipamd/internal/realtest"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb"
	. "github.com/ipamd/ipamd/netdb/netdbtest"
)

// unseen is a wire on which no workload is, and every witness answers.
func unseen(*ipam.Lease) error { return nil }

// free frees every row that has cooled, in small batches.
func free(t *testing.T, b *netdb.Book, p *ipam.Pool) (freed int) {
	t.Helper()
	for {
		due := b.Cooled(p.UID, Policy.Cooldown, nil, 16)
		if len(due) == 0 {
			return freed
		}
		n, err := b.Free(ctx, allocator, due, unseen)
		if err != nil || n != len(due) {
			t.Fatalf("freed %d of %d: %v", n, len(due), err)
		}
		freed += n
	}
}

// order gives the pool out and returns the addresses in the order in which they
// were picked. The leases stay.
func order(t *testing.T, b *netdb.Book, p *ipam.Pool, n int) (got []netip.Addr) {
	t.Helper()
	for range n {
		c, err := b.Pick(p.UID, Policy)
		if err != nil {
			t.Fatal(err)
		}
		if c.Early {
			t.Errorf("%s is free, and its reuse is called early", c.Addr)
		}
		got = append(got, c.Addr)
		defer b.Drop(c)
	}
	return got
}

// P6, F1: an address that has cooled is free, in the order of release, and that
// order survives a restart, an offer that comes to nothing, and a memory that has
// no room for all: what is forgotten cooled longer than what is remembered.
func TestF1AnAddressThatRestedIsFree(t *testing.T) {
	for name, tt := range map[string]struct {
		most int
		want []int // which lease's address, as they are given again
	}{
		"all are remembered":  {0, []int{3, 1, 4, 0, 2}},
		"three are forgotten": {2, []int{1, 3, 4, 0, 2}}, // behind the cursor, in address order
	} {
		t.Run(name, func(t *testing.T) {
			c, path := NewClock(), filepath.Join(t.TempDir(), "book.db")
			opts := netdb.Forgetful(Options(), tt.most)
			opts.Now = c.Now
			b := OpenAt(t, path, opts)
			p := Pool(t, b, "default", "10.8.64.0/29")
			var leases []*ipam.Lease
			for i := range 5 {
				leases = append(leases, Reserve(t, b, fmt.Sprint("s", i)))
			}
			for _, i := range []int{3, 1, 4, 0, 2} {
				Cool(t, b, leases[i])
			}
			c.Pass(Policy.Cooldown - 1)
			if n := free(t, b, p); n != 0 {
				t.Fatalf("%d were free before their cooldown was over", n)
			}
			c.Pass(1)
			if n := free(t, b, p); n != 5 {
				t.Fatalf("%d of 5 are free", n)
			}
			if u, _ := b.Usage(); u[0].Free != 5 || u[0].ByState[ipam.Cooling] != 0 {
				t.Errorf("usage %+v", u[0])
			}
			var want []netip.Addr
			for _, i := range tt.want {
				want = append(want, leases[i].Addr)
			}
			for _, when := range []string{"at once", "after offers that came to nothing", "after a restart"} {
				if when == "after a restart" {
					Close(t, b)
					b = OpenAt(t, path, opts)
				}
				if got := b.Upcoming(p.UID, 9, Policy); !slices.Equal(got, want) {
					t.Errorf("%s, upcoming are %v, want %v", when, got, want)
				}
				if got := order(t, b, p, 5); !slices.Equal(got, want) {
					t.Errorf("%s, given are %v, want %v", when, got, want)
				}
			}
			if l, err := b.Release(ctx, client, leases[3].ID, "", 0); err != nil || l.State != ipam.Free {
				t.Errorf("a late release of a lease whose address is free: %+v, %v", l, err)
			}
			// Its owner is one like any other by now, and a wish is for a free address.
			if _, own := b.PickOwn(leases[0].Owner(), 0); own {
				t.Error("an address that has cooled is kept for its last owner")
			}
			if w, err := b.PickAddr(ipam.Owner{PoolUID: p.UID, UID: "z", Interface: "eth0"}, want[2], Policy); err != nil {
				t.Error(err)
			} else {
				b.Drop(w)
			}
			if got := order(t, b, p, 5); !slices.Equal(got, want) {
				t.Errorf("after a wish that came to nothing: %v, want %v", got, want)
			}
		})
	}
}

// F1: a thousand sandboxes, one after the other, leave no row, and the walk
// goes on above them, also after restarts and when the history is gone.
func TestF1AChurnLeavesNoRows(t *testing.T) {
	realtest.Long(t)
	t.Parallel()
	c, path := NewClock(), filepath.Join(t.TempDir(), "book.db")
	opts := netdb.Forgetful(Options(), 100)
	opts.Now, opts.KeepChanges = c.Now, 50
	b := OpenAt(t, path, opts)
	p := Pool(t, b, "default", "fd00:10:8::/64")
	var last netip.Addr
	for i := range 999 {
		l := Reserve(t, b, fmt.Sprint("s", i))
		if l.Addr.Less(last) {
			t.Fatalf("sandbox %d got %s, behind %s", i, l.Addr, last)
		}
		last = l.Addr
		Cool(t, b, l)
		c.Pass(Policy.Cooldown / 10)
		free(t, b, p)
		if u, _ := b.Usage(); u[0].ByState[ipam.Cooling] >= 10 {
			t.Fatalf("after %d sandboxes %d addresses cool", i+1, u[0].ByState[ipam.Cooling])
		}
		if i%333 == 332 {
			Close(t, b)
			b = OpenAt(t, path, opts)
		}
	}
	c.Pass(Policy.Cooldown)
	free(t, b, p)
	if ls, _ := b.Leases(); len(ls) != 0 {
		t.Fatalf("%d rows are left", len(ls))
	}
	// So many other changes that nothing of this is in the history any more.
	last = Reserve(t, b, "stays").Addr
	for i := range 500 {
		if _, err := b.Cancel(ctx, client, fmt.Sprint("u", i), 1); err != nil {
			t.Fatal(err)
		}
	}
	Close(t, b)
	b = OpenAt(t, path, opts)
	if l := Reserve(t, b, "after"); l.Addr.Less(last) {
		t.Errorf("after a restart %s is given, and the last one was %s", l.Addr, last)
	}
}

// P4: a row stays that a workload is seen on, that changed since it was looked at,
// and whose address is just being offered; its neighbours go.
func TestF1WhatStaysCooling(t *testing.T) {
	c := NewClock()
	b, p := openWith(t, c, "10.8.64.0/29")
	var leases []*ipam.Lease
	for i := range 5 {
		leases = append(leases, Reserve(t, b, fmt.Sprint("s", i)))
	}
	for _, l := range leases {
		Cool(t, b, l)
	}
	c.Pass(Policy.Cooldown)
	due := b.Cooled(p.UID, Policy.Cooldown, nil, 9)
	if len(due) != 5 {
		t.Fatalf("%d of 5 have cooled", len(due))
	}
	if rest := b.Cooled(p.UID, Policy.Cooldown, due[3], 9); len(rest) != 1 || rest[0] != due[4] {
		t.Errorf("behind the fourth: %v", rest)
	}
	offered, err := b.Pick(p.UID, Policy)
	if err != nil || offered.Addr != leases[0].Addr {
		t.Fatal(offered, err)
	}
	if _, err := b.Quarantine(ctx, Who(ipam.ByReconciler, ipam.SeenOnWire), leases[1].Addr, evidence); err != nil {
		t.Fatal(err)
	}
	n, err := b.Free(ctx, allocator, due, func(l *ipam.Lease) error {
		if l.Addr == leases[2].Addr {
			return errors.New("it is seen")
		}
		return nil
	})
	if n != 2 || err != nil {
		t.Errorf("freed %d, %v; want two", n, err)
	}
	for i, want := range []ipam.State{ipam.Cooling, ipam.Quarantined, ipam.Cooling, ipam.Free, ipam.Free} {
		l, ok := b.At(leases[i].Addr)
		if ok != (want != ipam.Free) || ok && l.State != want {
			t.Errorf("%s: %+v, want %s", leases[i].Addr, l, want)
		}
	}
	// The offer still stands, and no other caller has it.
	ls, err := b.Reserve(ctx, allocator, netdb.Reservation{Candidate: offered, Sandbox: "x", UID: "x", Interface: "eth0", Attempt: 1, BindWithin: 1})
	if err != nil || ls[0].Addr != leases[0].Addr {
		t.Error(ls, err)
	}
}
