package bridge

import (
	"context"
	"maps"
	"net/netip"
	"sync"
)

// A sweeper has calls at the same time share one walk through a table
// that can only be walked whole: fifty releases at once, each with a walk of
// its own, take 17 s where there are 100 000 connections.
//
// A call that comes while a walk is under way shares the next one, for the walk may be
// past the addresses in question. This is the difference to singleflight.
type sweeper struct {
	do      func(of map[netip.Addr]bool) error
	walking chan struct{} // one slot, held by the call that walks

	mu   sync.Mutex
	next *sweep // has not begun; nil when no call waits for one
}

// A sweep is one walk.
type sweep struct {
	of   map[netip.Addr]bool
	done chan struct{} // closed when err is final
	err  error
}

func newSweeper(do func(of map[netip.Addr]bool) error) *sweeper {
	return &sweeper{do: do, walking: make(chan struct{}, 1)}
}

// sweep returns when a walk for the addresses that began after the call is
// done. One of those that wait does it for all, so it goes by no caller's ctx; one that
// gives up waiting holds up no other. Safe for concurrent use.
func (s *sweeper) sweep(ctx context.Context, of map[netip.Addr]bool) error {
	mine := s.join(of)
	select {
	case <-mine.done:
		return mine.err
	case <-ctx.Done():
		return ctx.Err()
	case s.walking <- struct{}{}:
	}
	defer func() { <-s.walking }()
	if !s.begin(mine) {
		return mine.err // the caller before did it
	}
	defer close(mine.done)
	mine.err = s.do(mine.of)
	return mine.err
}

func (s *sweeper) join(of map[netip.Addr]bool) *sweep {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.next == nil {
		s.next = &sweep{of: make(map[netip.Addr]bool), done: make(chan struct{})}
	}
	maps.Copy(s.next.of, of)
	return s.next
}

// begin closes a sweep to those who come from now on; false when it is done
// already. The caller holds the slot.
func (s *sweeper) begin(mine *sweep) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.next != mine {
		return false
	}
	s.next = nil
	return true
}
