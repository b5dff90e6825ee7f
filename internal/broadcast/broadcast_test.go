package broadcast

import "testing"

func closed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

// Each that waits is woken by the next send, and by none of before.
func TestSignal(t *testing.T) {
	var s Signal
	s.Send()
	first, second := s.Next(), s.Next()
	if closed(first) || closed(second) {
		t.Error("woken by a send of before")
	}
	s.Send()
	third := s.Next()
	if !closed(first) || !closed(second) || closed(third) {
		t.Error("a send wakes those that waited, and no other")
	}
}
