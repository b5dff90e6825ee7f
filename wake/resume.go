package wake

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/ipamd/ipamd/internal/broadcast"
	"github.com/ipamd/ipamd/netdb"
)

// fly has the resumer work on a flight, unless it does.
func (f *Flights) fly(ctx context.Context, work *errgroup.Group, s *netdb.Sleep) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.flying[s.Flight.ID] {
		return
	}
	f.flying[s.Flight.ID] = work.TryGo(func() error {
		if !f.resume(ctx, s) {
			broadcast.Pause(ctx, lastRetry) // a book that takes nothing is not asked as fast as it refuses
		}
		f.mu.Lock()
		delete(f.flying, s.Flight.ID)
		f.mu.Unlock()
		f.kick.Send() // one more may begin
		return nil
	})
	if !f.flying[s.Flight.ID] {
		delete(f.flying, s.Flight.ID)
	}
}

// The pause between two attempts of the resumer: it doubles.
const (
	firstRetry = 50 * time.Millisecond
	lastRetry  = time.Second
)

// resume tries until the sandbox runs, the resumer refuses, the deadline passes or the flight
// is over, and reports whether the book has that. When ctx ends the flight stays as it is, for
// the next start.
func (f *Flights) resume(ctx context.Context, s *netdb.Sleep) (recorded bool) {
	if _, err := f.cfg.Book.TakeOn(ctx, itself(reasonWaking), s.LeaseID, s.Flight.ID); err != nil {
		return f.complain(ctx, "begin", s, err)
	}
	left := s.Flight.Within - f.cfg.Book.Now().Since(s.Flight.Begun)
	bounded, cancel := context.WithTimeout(ctx, max(left, 0))
	defer cancel()
	last := errors.New("no attempt was made")
	for pause := firstRetry; ; pause = min(2*pause, lastRetry) {
		var err error
		if bounded.Err() == nil {
			var over bool
			if over, err = f.attempt(ctx, bounded, s); err == nil {
				return over
			}
			last = err
		}
		if broadcast.Pause(bounded, pause) {
			continue
		}
		return ctx.Err() != nil || f.land(ctx, s, netdb.TimedOut, fmt.Sprintf("not within %v: %v", s.Flight.Within, last))
	}
}

// attempt is one attempt of the resumer, alone with the lease's tasks. Without an error the
// sandbox runs, the resumer refuses, or others have ended the flight; recorded is whether the
// book has that.
func (f *Flights) attempt(ctx, bounded context.Context, s *netdb.Sleep) (recorded bool, err error) {
	release, err := f.hold(bounded, s.LeaseID)
	if err != nil {
		return false, err
	}
	defer release()
	l, err := f.cfg.Book.Lease(s.LeaseID)
	now := f.cfg.Book.Sleep(s.LeaseID)
	if err != nil || l.State != netdb.Paused || now == nil || now.Flight == nil || now.Flight.ID != s.Flight.ID || !now.Flight.Open() {
		return true, nil // it was released, or resumed by others
	}
	switch err = f.cfg.Resumer.Resume(bounded, l, now); {
	case err == nil:
		return f.land(ctx, s, netdb.Woken, ""), nil
	case errors.Is(err, ErrRefused):
		return f.land(ctx, s, netdb.Refused, err.Error()), nil
	}
	return false, err
}
