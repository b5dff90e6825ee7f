package admission

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// G14: whatever the number of callers one reading is under way; who asks while one
// is gets the next, with all that asked meanwhile, and none that began before. A
// reading that no caller waits for any more is cancelled.
func TestG14OneReadingServesAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const took = 300 * time.Millisecond
		readings, cancelled, running := 0, 0, 0
		var mu sync.Mutex
		f := NewShared(time.Minute, func(ctx context.Context) ([]byte, error) {
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
		})
		var all sync.WaitGroup
		ask := func(want string) {
			all.Go(func() {
				if got, err := f.Join(t.Context()); err != nil || string(got) != want {
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
		if _, err := f.Join(ctx); err == nil {
			t.Error("a caller that has gone was answered")
		}
		synctest.Wait()
		if cancelled != 1 {
			t.Error("a reading that no caller waits for goes on")
		}
		time.Sleep(time.Minute)
	})
}
