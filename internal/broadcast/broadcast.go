// Package broadcast wakes all that wait, without a payload: look again, and read the
// whole state. A wake-up that is lost, doubled or late costs nothing but time.
package broadcast

import "sync"

// A Signal wakes its subscribers. Its zero value works, and it is safe for concurrent
// use. One that is sent while none waits costs a lock.
type Signal struct {
	mu sync.Mutex
	ch chan struct{} // nil while none waits
}

// Next returns a channel that the next Send closes. Ask for it before reading what is
// waited for: a change in between is then not missed.
func (s *Signal) Next() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ch == nil {
		s.ch = make(chan struct{})
	}
	return s.ch
}

// Send wakes all that have asked for Next.
func (s *Signal) Send() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ch != nil {
		close(s.ch)
		s.ch = nil
	}
}

// Wake says "look again" on a one-slot channel: one that waits is as good as several.
func Wake(slot chan<- struct{}) {
	select {
	case slot <- struct{}{}:
	default:
	}
}
