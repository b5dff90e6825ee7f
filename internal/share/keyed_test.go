package share

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
)

// One call at a time has a key; another key's does not wait for it, and who gives up leaves nothing.
func TestKeyedOneAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var k Keyed[string]
		lock := func(key string) func() {
			unlock, err := k.Lock(t.Context(), key)
			if err != nil {
				t.Error(err)
			}
			return unlock
		}
		unlock := lock("a")
		got := make(chan func())
		for range 2 {
			go func() { got <- lock("a") }()
		}
		lock("b")()
		none := func() {
			t.Helper()
			synctest.Wait()
			select {
			case <-got:
				t.Fatal("two have one key")
			default:
			}
		}
		none()
		gone, leave := context.WithCancel(t.Context())
		leave()
		if _, err := k.Lock(gone, "a"); !errors.Is(err, context.Canceled) {
			t.Errorf("of one that left: %v", err)
		}
		unlock()
		second := <-got
		unlock() // again: it is not the second's
		none()
		second()
		(<-got)()
		if len(k.locks) != 0 {
			t.Errorf("kept: %v", k.locks)
		}
	})
}
