package helper

import (
	"testing"
	"testing/synctest"
)

// One piece of work at a time is on an owner's port, and another owner's does not wait for it.
func TestOwnersOneAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var o owners
		free := o.lock("a")
		got := make(chan func())
		for range 2 {
			go func() { got <- o.lock("a") }()
		}
		o.lock("b")()
		synctest.Wait()
		select {
		case <-got:
			t.Fatal("two have one owner")
		default:
		}
		free()
		second := <-got
		free() // again: it is not the second's
		synctest.Wait()
		select {
		case <-got:
			t.Fatal("two have one owner")
		default:
		}
		second()
		(<-got)()
		if len(o.held) != 0 {
			t.Errorf("kept: %v", o.held)
		}
	})
}
