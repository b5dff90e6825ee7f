package server

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// G14: of what reads much one step runs at a time where there is one place, and
// the holders take turns however many calls one of them has.
func TestG14CostlyCallsTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newCostly()
		k.most = 1
		many, few, gone := holder{uid: 1}, holder{uid: 2}, holder{uid: 3}
		first, err := k.enter(t.Context(), many)
		if err != nil {
			t.Fatal(err)
		}
		var mu sync.Mutex
		var order []string
		var all sync.WaitGroup
		ask := func(h holder, name string) {
			all.Go(func() {
				leave, err := k.enter(t.Context(), h)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				order = append(order, name)
				mu.Unlock()
				leave()
				leave() // once more costs nobody anything
			})
			synctest.Wait() // it is in its queue
		}
		for i := range 4 {
			ask(many, fmt.Sprint("many", i))
		}
		hangs, cancel := context.WithCancel(t.Context())
		all.Go(func() {
			if _, err := k.enter(hangs, gone); err == nil {
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

		// A step that waits for something keeps nobody for long.
		if _, err := k.enter(t.Context(), many); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		leave, err := k.enter(t.Context(), few)
		if err != nil || time.Since(began) != k.lasts {
			t.Errorf("behind a step that hangs after %v, %v", time.Since(began), err)
		}
		leave()
		if k.running != 0 || len(k.waiting) != 0 || len(k.order) != 0 {
			t.Errorf("left behind: %d running, %d waiting, %d in the order", k.running, len(k.waiting), len(k.order))
		}
	})
}

// G14: whatever the number of callers one reading is under way; who asks while one
// is gets the next, with all that asked meanwhile, and none that began before. A
// reading that nobody waits for any more is cancelled.
func TestG14OneReadingServesAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const took = 300 * time.Millisecond
		readings, cancelled, running := 0, 0, 0
		var mu sync.Mutex
		f := &flight{within: time.Minute, read: func(ctx context.Context) ([]byte, error) {
			mu.Lock()
			readings++
			n := readings
			if running++; running > 1 {
				t.Error("two readings at once")
			}
			mu.Unlock()
			defer func() { mu.Lock(); running--; mu.Unlock() }()
			select {
			case <-time.After(took):
			case <-ctx.Done():
				mu.Lock()
				cancelled++
				mu.Unlock()
			}
			return []byte(fmt.Sprint(n)), ctx.Err()
		}}
		var all sync.WaitGroup
		ask := func(want string) {
			all.Go(func() {
				if got, err := f.join(t.Context()); err != nil || string(got) != want {
					t.Errorf("reading %q, %v; want %s", got, err, want)
				}
			})
		}
		ask("1")
		synctest.Wait()
		for range 64 {
			ask("2")
		}
		began := time.Now()
		all.Wait()
		if readings != 2 || time.Since(began) != 3*took { // the second one after a rest
			t.Errorf("%d readings in %v", readings, time.Since(began))
		}

		time.Sleep(time.Minute)
		ctx, cancel := context.WithTimeout(t.Context(), took/2)
		defer cancel()
		if _, err := f.join(ctx); err == nil {
			t.Error("a caller that has gone was answered")
		}
		synctest.Wait()
		if cancelled != 1 {
			t.Error("a reading that nobody waits for goes on")
		}
		time.Sleep(time.Minute)
	})
}
