package bridge

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
)

// A waiter comes before the one who unlocks and wants it back at once.
func TestFairMutexIsFair(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lock := newFairMutex()
		entered := false
		lock.Lock()
		go func() {
			lock.Lock()
			entered = true
			lock.Unlock()
		}()
		synctest.Wait()
		lock.Unlock()
		lock.Lock()
		defer lock.Unlock()
		if !entered {
			t.Error("the last holder took it back before the waiter")
		}
	})
}

// A waiter whose context ends gets nothing, and the one behind it does.
func TestFairMutexWaiterGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lock := newFairMutex()
		lock.Lock()
		ctx, cancel := context.WithCancel(t.Context())
		gaveUp, got := make(chan error, 1), make(chan error, 1)
		go func() { gaveUp <- lock.LockContext(ctx) }()
		synctest.Wait()
		go func() { got <- lock.LockContext(t.Context()) }()
		synctest.Wait()
		cancel()
		if err := <-gaveUp; !errors.Is(err, context.Canceled) {
			t.Errorf("gave up with %v", err)
		}
		lock.Unlock()
		if err := <-got; err != nil {
			t.Error(err)
		}
	})
}
