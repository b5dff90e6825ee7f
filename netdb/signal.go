package netdb

import (
	"slices"
	"sync"

	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb/index"
)

// A signal is a broadcast without a payload: look again. A subscriber to some states
// only is not woken by a commit that touches none of them. A channel that was taken before
// a commit is closed before anybody can read that commit. A commit without waiters wakes no
// goroutine: each processor that is woken behind every commit is taken from the next one.
// Its zero value works.
type signal struct {
	mu      sync.Mutex
	waiting map[stateSet]chan struct{} // closed and dropped by the next that touches one of the states
}

// A stateSet has a bit for each state, and one that every commit touches.
type stateSet uint16

const (
	anyCommit  stateSet = 1 << 15
	poolCommit stateSet = 1 << 14
)

var stateBits = append([]ipam.State{ipam.Free}, ipam.States()...)

func setOf(states ...ipam.State) (set stateSet) {
	for _, s := range states {
		set |= 1 << slices.Index(stateBits, s)
	}
	return set
}

func (s *signal) next(of stateSet) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.waiting == nil {
		s.waiting = make(map[stateSet]chan struct{})
	}
	if s.waiting[of] == nil {
		s.waiting[of] = make(chan struct{})
	}
	return s.waiting[of]
}

func (s *signal) send(touched stateSet) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for of, ch := range s.waiting {
		if of&touched != 0 {
			close(ch)
			delete(s.waiting, of)
		}
	}
}

// touchedBy is the states that a step leaves and enters.
func touchedBy(s *index.Step) stateSet {
	switch s.Change.Subject {
	case ipam.OfPool, ipam.OfBook:
		return anyCommit | poolCommit
	case ipam.OfAttempt:
		return anyCommit
	}
	return anyCommit | setOf(s.Change.From, s.Change.To)
}

// Changed returns a channel that is closed at the next commit. It carries no
// payload: look again.
func (s *signal) Changed() <-chan struct{} { return s.next(anyCommit) }

// Touched returns a channel that is closed at the next commit which moves a lease
// into one of the states, or out of it. It carries no payload: look again.
func (s *signal) Touched(states ...ipam.State) <-chan struct{} {
	return s.next(setOf(states...))
}

// PoolsChanged returns a channel that is closed at the next commit that makes, changes or
// removes a pool, or is about the book itself: whose it is. It carries no payload: look again.
func (s *signal) PoolsChanged() <-chan struct{} { return s.next(poolCommit) }
