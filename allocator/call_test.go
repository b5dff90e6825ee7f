package allocator

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/ipam"
	. "github.com/ipamd/ipamd/netdb/netdbtest"
)

// lateWire answers questions, but its answers lie in a socket until the daemon
// reads them, as the kernel's do.
type lateWire struct {
	board *census.Board
	live  map[netip.Addr]bool
	mu    sync.Mutex
	asked []netip.Addr
}

func (w *lateWire) Probe(_ context.Context, a netip.Addr) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked = append(w.asked, a)
	return nil
}

func (w *lateWire) MissedSince(time.Time) bool { return false }

func (w *lateWire) settle(context.Context, ...netip.Addr) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, a := range w.asked {
		if w.live[a] {
			w.board.ReplaceScope(census.Probe, a.String(), []census.Sighting{{Addr: a}})
		}
	}
	w.asked = nil
	return nil
}

// P5: an address that there was no time to probe ahead, wished for or one's own
// again, is asked for at once, and the answer is read before it is given.
func TestAnswersToALateQuestionAreRead(t *testing.T) {
	wire := &lateWire{live: map[netip.Addr]bool{netip.MustParseAddr("10.8.64.77"): true, netip.MustParseAddr("10.8.64.2"): true}}
	a := newAllocator(t, func(c *Config) {
		wire.board = c.Board
		c.Prober, c.Settle = wire, wire.settle
	})
	if r, err := a.Allocate(ctx, Request{Sandbox: "a", Address: netip.MustParseAddr("10.8.64.77")}); !errors.Is(err, ipam.ErrTaken) {
		t.Errorf("a wish for an address that answers: %+v, %v", r, err)
	}
	r, err := a.Allocate(ctx, Request{Sandbox: "b"})
	if err != nil || r.Leases[0].Addr.String() != "10.8.64.3" || len(r.Unprobed) != 1 {
		t.Fatalf("the next one answers: %+v, %v", r, err)
	}
	Cool(t, a.Book, r.Leases[0])
	wire.live[r.Leases[0].Addr] = true
	if r, err := a.Allocate(ctx, Request{Sandbox: "b"}); err != nil || r.Leases[0].Addr.String() != "10.8.64.4" {
		t.Errorf("one's own again, and it answers: %+v, %v", r, err)
	}
}

// Strangers beyond the quarantine's share cost a call no more than one look
// each, and do not hide addresses that have cooled.
func TestStrangersBeyondTheShareDoNotStarveThePool(t *testing.T) {
	clock, opts := NewClock(), Options()
	opts.Now = clock.Now
	book := OpenAt(t, filepath.Join(t.TempDir(), "book.db"), opts)
	pool := Pool(t, book, "default", "10.9.0.0/28") // .2 to .14
	a := newAllocator(t, func(c *Config) { c.Book = book })
	for i := range 8 {
		l, err := TryReserve(book, pool, fmt.Sprint("s", i), Policy)
		if err != nil {
			t.Fatal(err)
		}
		Cool(t, book, l)
	}
	clock.Pass(time.Hour)
	for i := range 5 {
		addr := netip.AddrFrom4([4]byte{10, 9, 0, byte(10 + i)})
		a.Board.ReplaceScope(census.Netns, addr.String(), []census.Sighting{{Addr: addr}})
	}
	for i := range 8 {
		r, err := a.Allocate(ctx, Request{Sandbox: fmt.Sprint("n", i)})
		if err != nil {
			t.Fatalf("request %d: %v", i, err)
		}
		if len(r.Skipped) > 5 {
			t.Errorf("request %d met %d strangers, there are 5", i, len(r.Skipped))
		}
	}
	_, err := a.Allocate(ctx, Request{Sandbox: "late"})
	var conflicts *ConflictError
	if !errors.Is(err, ipam.ErrExhausted) || errors.As(err, &conflicts) && len(conflicts.Skipped) > 5 {
		t.Errorf("with nothing left: %v", err)
	}
}

// Two attempts of one sandbox at once: the second one is answered only
// what any held lease must pass, so a late cancel of the first attempt leaves
// the second alone.
func TestLoserOfTwoAttemptsIsNoted(t *testing.T) {
	a := newAllocator(t)
	for i := range 200 {
		name := fmt.Sprint("s", i)
		var wg sync.WaitGroup
		var second *Result
		wg.Go(func() { a.Allocate(ctx, Request{Sandbox: name, Attempt: 1}) })
		wg.Go(func() {
			var err error
			if second, err = a.Allocate(ctx, Request{Sandbox: name, Attempt: 2}); err != nil {
				t.Error(err)
			}
		})
		wg.Wait()
		if t.Failed() {
			return
		}
		l, err := a.Book.Lease(second.Leases[0].ID)
		if err != nil || l.Attempt != 2 {
			t.Fatalf("attempt 2 of %s was answered %+v, which is %+v, %v", name, second.Leases[0], l, err)
		}
		if _, err := a.Book.Expire(ctx, Who(ipam.ByWatchdog, "test"), l.ID, l.Rev, nil); err != nil {
			t.Fatal(err)
		}
	}
}

// L5: a cancelled attempt is refused also while a later one holds a lease.
func TestL5CancelledAttemptIsRefusedBesideALaterOne(t *testing.T) {
	a := newAllocator(t)
	if _, err := a.Book.Cancel(ctx, Who(ipam.ByClient, "cancelled"), "a", 3); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Allocate(ctx, Request{Sandbox: "a", Attempt: 5}); err != nil {
		t.Fatal(err)
	}
	if r, err := a.Allocate(ctx, Request{Sandbox: "a", Attempt: 2}); !errors.Is(err, ipam.ErrCancelled) {
		t.Errorf("attempt 2 after its cancel: %+v, %v", r, err)
	}
	if r, err := a.Allocate(ctx, Request{Sandbox: "a", Attempt: 4}); err != nil || !r.Existing {
		t.Errorf("attempt 4, never cancelled: %+v, %v", r, err)
	}
}

// News that the bridge is down count for the very request that reads them.
func TestGateIsAskedAfterTheNews(t *testing.T) {
	down := false
	a := newAllocator(t, func(c *Config) {
		c.Settle = func(context.Context, ...netip.Addr) error { down = true; return nil }
		c.Gate = func(...*ipam.Pool) error {
			if down {
				return ErrBridge
			}
			return nil
		}
	})
	if r, err := a.Allocate(ctx, Request{Sandbox: "a"}); !errors.Is(err, ErrBridge) {
		t.Errorf("the bridge went down: %+v, %v", r, err)
	}
}
