package watchdog

import (
	"context"
	"net/netip"
	"sync"
)

// surveys has those who come at the same time share one reading of the
// runtime's list. Who comes while one is under way shares the next: the
// container that it must not miss may be on that one only.
type surveys struct {
	slot chan struct{} // one slot, held by the reader

	mu   sync.Mutex
	next *waiting // has not begun; nil when none is waited for
}

// waiting is one reading, and those who wait for it.
type waiting struct {
	ties []Tie         // of all who wait
	done chan struct{} // closed when in is final
	in   inventory
}

// An inventory is what is read once for many leases. Its containers are those
// that may belong to them, and perhaps others.
type inventory struct {
	newsErr error
	listed  bool
	listErr error
	there   *containerIndex
}

// survey takes in the kernel's news and reads which containers may belong to
// the leases of these ties.
func (w *Watchdog) survey(ctx context.Context, of ...Tie) (in inventory) {
	about := make([]netip.Addr, len(of))
	for i, t := range of {
		about[i] = t.Addr
	}
	in.newsErr = w.cfg.Settle(ctx, about...)
	in.there = newIndex(nil)
	if w.cfg.Runtime == nil {
		return in
	}
	var all []Workload
	all, in.listErr = w.cfg.Runtime.Tied(ctx, of)
	in.listed, in.there = in.listErr == nil, newIndex(all)
	return in
}

// sharedSurvey is a survey that began after the call, shared with those who
// call at the same time. One of them makes it, under its own ctx.
func (w *Watchdog) sharedSurvey(ctx context.Context, of Tie) inventory {
	s := &w.surveys
	s.mu.Lock()
	if s.next == nil {
		s.next = &waiting{done: make(chan struct{})}
	}
	mine := s.next
	mine.ties = append(mine.ties, of)
	s.mu.Unlock()
	select {
	case <-mine.done:
		return mine.in
	case <-ctx.Done():
		return inventory{newsErr: ctx.Err(), listErr: ctx.Err(), there: newIndex(nil)}
	case s.slot <- struct{}{}:
	}
	defer func() { <-s.slot }()
	s.mu.Lock()
	over := s.next != mine
	if !over {
		s.next = nil
	}
	s.mu.Unlock()
	if !over { // else the holder before made it
		mine.in = w.survey(ctx, mine.ties...)
		close(mine.done)
	}
	return mine.in
}
