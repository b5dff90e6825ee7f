package admission

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sync/semaphore"
)

// callers asks for slots and counts those that have one.
type callers struct {
	*Control
	mu   sync.Mutex
	all  sync.WaitGroup
	ends []func()
}

func newCallers(slot time.Duration) *callers {
	return &callers{Control: New(Limits{InFlight: 1, Slot: slot}, slog.New(slog.DiscardHandler))}
}

func (c *callers) ask(ctx context.Context, h Holder, n int) {
	c.all.Go(func() {
		end, err := c.Slot(ctx, h, n)
		if err != nil {
			return
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.ends = append(c.ends, end)
	})
	synctest.Wait()
}

func (c *callers) running() int {
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.ends)
}

func (c *callers) end(n int) {
	c.mu.Lock()
	over := c.ends[:n]
	c.ends = c.ends[n:]
	c.mu.Unlock()
	for _, end := range over {
		end()
		end() // once more gives nothing back
	}
	synctest.Wait()
}

// Of a holder's calls sixty-four run by itself and eight beside another one, first
// come, first served.
func TestSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCallers(time.Hour)
		a, b := Holder{UID: 1}, Holder{UID: 2}
		want := func(n int, when string) {
			t.Helper()
			if got := c.running(); got != n {
				t.Errorf("%s: %d calls run, want %d", when, got, n)
			}
		}
		for range 80 {
			c.ask(t.Context(), a, 1)
		}
		want(64, "alone")
		c.ask(t.Context(), b, 1)
		want(65, "the first call of another one")
		c.end(65)
		want(16, "those that asked before the other one")
		for range 40 {
			c.ask(t.Context(), a, 1)
		}
		c.end(16)
		want(8, "those that asked beside the other one")
		time.Sleep(besideFor)
		left, leave := context.WithCancel(t.Context())
		c.ask(left, a, 1)
		for range 9 {
			c.ask(t.Context(), a, 1)
		}
		c.end(8)
		leave()
		for c.running() > 0 {
			c.end(1)
		}
		c.all.Wait()

		c.ask(t.Context(), a, 2*64)
		c.ask(t.Context(), a, 1)
		want(1, "one that takes more than there is, and one behind it")
		c.end(1)
		want(1, "the one behind it")
		c.end(1)
		if !c.of[a].slots.TryAcquire(runAlone) {
			t.Error("no call runs, and slots are taken")
		}
	})
}

// A call that hangs keeps the others of its peer for no longer than its slot, and gives
// it back once.
func TestSlotsThatHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCallers(0)
		h := Holder{UID: 1}
		for range 65 {
			c.ask(t.Context(), h, 1)
		}
		time.Sleep(slotTime - 1)
		if n := c.running(); n != 64 {
			t.Errorf("%d run, want as many as may", n)
		}
		time.Sleep(time.Nanosecond)
		if n := c.running(); n != 65 {
			t.Fatal("one waits for calls that hang")
		}
		c.end(65)
		for range 65 {
			c.ask(t.Context(), h, 1)
		}
		if n := c.running(); n != 64 {
			t.Errorf("%d run: slots were given back twice, or not at all", n)
		}
		c.end(64)
		c.all.Wait()
	})
}

// G14: of what reads much one step runs at a time where there is one place, and
// the holders alternate however many calls one of them has.
func TestG14CostlyCallsAlternate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(Limits{InFlight: 1}, slog.New(slog.DiscardHandler))
		c.heavy = semaphore.NewWeighted(1)
		many, few, gone := Holder{UID: 1}, Holder{UID: 2}, Holder{UID: 3}
		first, err := c.Heavy(t.Context(), many)
		if err != nil {
			t.Fatal(err)
		}
		var mu sync.Mutex
		var order []string
		var all sync.WaitGroup
		ask := func(h Holder, name string) {
			all.Go(func() {
				end, err := c.Heavy(t.Context(), h)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				order = append(order, name)
				mu.Unlock()
				time.Sleep(time.Millisecond)
				end()
				end() // once more gives nothing back
			})
			synctest.Wait() // it is in its queue
		}
		for i := range 4 {
			ask(many, fmt.Sprint("many", i))
		}
		hangs, cancel := context.WithCancel(t.Context())
		all.Go(func() {
			if _, err := c.Heavy(hangs, gone); err == nil {
				t.Error("one whose caller has gone was given a place")
			}
		})
		synctest.Wait()
		ask(few, "few")
		cancel()
		synctest.Wait()
		first()
		all.Wait()
		if got := strings.Join(order, " "); got != "many0 few many1 many2 many3" {
			t.Errorf("in the order %s", got)
		}

		// A step that waits for something keeps others for its time only.
		if _, err := c.Heavy(t.Context(), many); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		end, err := c.Heavy(t.Context(), few)
		if err != nil || time.Since(began) != slotTime {
			t.Errorf("behind a step that hangs after %v, %v", time.Since(began), err)
		}
		end()
		if !c.heavy.TryAcquire(1) {
			t.Error("a step is left behind")
		}
		for h, acc := range c.of {
			if !acc.heavy.TryAcquire(1) {
				t.Errorf("a step of %v is left behind", h)
			}
		}
	})
}
