package reconciler

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/workload"
)

// A pass whose reading hangs is no sign of life. Between two passes, and when
// the reading has come back, Alive answers.
func TestAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var hangs atomic.Bool
		free := make(chan struct{})
		s := runShift(t, func(s *shift) {
			s.refresh = func(context.Context) error {
				if hangs.Load() {
					<-free
				}
				return nil
			}
		})
		defer s.stop()
		s.lives("between two passes")
		hangs.Store(true)
		wait(ctx, s.Every+pause) // the next whole pass is under way
		s.hangs("in a reading that hangs")
		close(free)
		s.lives("after it")
	})
}

// slowBook takes its time to list its leases, and counts how often it did.
type slowBook struct {
	Book
	takes time.Duration
	lists atomic.Int32
}

func (b *slowBook) Leases() ([]*ipam.Lease, int64) {
	b.lists.Add(1)
	wait(ctx, b.takes)
	return b.Book.Leases()
}

// After two looks that took long, news has to wait for long. A sign of life has
// not, nor has a whole pass.
func TestAliveAtRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const takes = 2 * time.Second
		var book *slowBook
		s := runShift(t, func(s *shift) {
			book = &slowBook{Book: s.Book, takes: takes}
			s.Book = book
		})
		defer s.stop()
		wait(ctx, 3*takes) // a whole pass and a look
		s.show(container("c1"))
		wait(ctx, 2*takes) // another look
		lists := book.lists.Load()
		s.show(container("c1"), container("c2"))
		wait(ctx, 2*takes)
		if n := book.lists.Load(); n != lists {
			t.Errorf("news did not wait: %d looks more", n-lists)
		}
		if err := s.aliveWithin(takes); err != nil {
			t.Errorf("while it rests: %v", err)
		}
		s.counted(1, 0)
		wait(ctx, s.Every)
		s.counted(2, 0)
	})
}

// A leash holds every look-up of a dog until the test lets one go.
type leash struct {
	*dog
	free chan struct{}
}

func (l leash) Gone(context.Context, *ipam.Lease, *workload.Leases) (bool, error) {
	<-l.free
	return false, nil
}

// A pass whose look-ups hang is no sign of life; each that ends is one.
func TestAliveInLookUps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		free := make(chan struct{})
		s := runShift(t, func(s *shift) {
			s.hold("A", "c1")
			s.hold("B", "c2")
			s.Watchdog = leash{s.dog, free}
		})
		defer s.stop()
		wait(ctx, s.Age+s.Every+pause) // both are overdue, and asked about
		s.hangs("in look-ups that hang")
		reply := make(chan error)
		go func() { reply <- s.aliveWithin(time.Minute) }()
		synctest.Wait()
		free <- struct{}{}
		if err := <-reply; err != nil {
			t.Errorf("when one of two look-ups ends: %v", err)
		}
		s.hangs("in the other one")
		close(free)
		s.lives("after them")
	})
}

func (s *shift) aliveWithin(d time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	return s.Alive(ctx)
}

func (s *shift) lives(when string) {
	s.t.Helper()
	if err := s.aliveWithin(time.Minute); err != nil {
		s.t.Errorf("%s: %v", when, err)
	}
}

func (s *shift) hangs(when string) {
	s.t.Helper()
	if err := s.aliveWithin(time.Minute); !errors.Is(err, context.DeadlineExceeded) {
		s.t.Errorf("%s Alive says %v", when, err)
	}
}
