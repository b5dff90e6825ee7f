package allocator

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"testing"
	"time"

	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/internal/realtest"
	"github.com/ipamd/ipamd/ipam"
	. "github.com/ipamd/ipamd/netdb/netdbtest"
)

// P4, P5, F1: an address that has cooled is free once every witness answers and
// none sees it; a witness that cannot answer, the runtime too, keeps all of them,
// and one that sees a workload keeps that one.
func TestF1AWitnessKeepsWhatHasRested(t *testing.T) {
	clock := NewClock()
	opts := Options()
	opts.Now = clock.Now
	a := newAllocator(t, func(c *Config) {
		c.Book = OpenAt(t, filepath.Join(t.TempDir(), "book.db"), opts)
		Pool(t, c.Book, "default", "10.8.64.0/24")
	})
	pool := a.Book.Pools()[0]
	const all = 3 * freeBatch
	var first netip.Addr
	for i := range all {
		l := Reserve(t, a.Book, fmt.Sprint("s", i))
		if i == 0 {
			first = l.Addr
		}
		Cool(t, a.Book, l)
	}
	cools := func(want int, when string) {
		t.Helper()
		if err := a.freeCooled(ctx, pool); (err != nil) != (want == all) {
			t.Errorf("%s: %v", when, err)
		}
		if u, _ := a.Book.Usage(); u[0].ByState[ipam.Cooling] != want {
			t.Errorf("%s: %d cool, want %d", when, u[0].ByState[ipam.Cooling], want)
		}
	}
	clock.Pass(Policy.Cooldown)
	for _, w := range []census.Witness{census.Runtime, census.Netns, census.Host, census.Neighbour} {
		a.Board.Silence(w, errors.New("a test"))
		cools(all, fmt.Sprint("silent: ", w))
		a.Board.Replace(w, nil, nil)
	}
	gate := a.Gate
	a.Gate = func(...*ipam.Pool) error { return ErrNotReady }
	cools(all, "not ready")
	a.Gate = gate
	settle := a.Settle
	a.Settle = func(context.Context, ...netip.Addr) error { return errors.New("a test") }
	cools(all, "news that cannot be read")
	// The witness falls silent, and another sees a workload, as late as can be.
	a.Settle = func(context.Context, ...netip.Addr) error {
		a.Board.ReplaceScope(census.Netns, "late", []census.Sighting{{Addr: first}})
		return nil
	}
	cools(1, "one is seen")
	a.Settle = settle
	a.Board.ReplaceScope(census.Netns, "late", nil)
	cools(0, "none is seen")
}

// F1: the loop does it by itself, and ends when it is asked to.
func TestF1RestedAddressesAreFreedByALoop(t *testing.T) {
	a := newAllocator(t, func(c *Config) {
		c.Policy.Cooldown, c.Policy.CooldownMin = 20*time.Millisecond, time.Millisecond
	})
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- a.FreeCooled(running) }()
	for i := range 40 {
		Cool(t, a.Book, Reserve(t, a.Book, fmt.Sprint("s", i)))
	}
	realtest.Eventually(t, time.Minute, "all rows to go", func() bool {
		ls, _ := a.Book.Leases()
		return len(ls) == 0
	})
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// Scenario P9: a sandbox that is made again a thousand times has one address all the while,
// and the book one row.
func TestACrashLoopHasOneAddress(t *testing.T) {
	t.Parallel()
	a := newAllocator(t)
	var first netip.Addr
	for n := range 1000 {
		r, err := a.Allocate(ctx, Request{Sandbox: "loops"})
		if err != nil {
			t.Fatal(err)
		}
		l := r.Leases[0]
		if n == 0 {
			first = l.Addr
		}
		if rows, _ := a.Book.Leases(); l.Addr != first || len(rows) != 1 {
			t.Fatalf("made again %d times it has %v, not %v, and the book %d rows", n, l.Addr, first, len(rows))
		}
		Cool(t, a.Book, l)
	}
}
