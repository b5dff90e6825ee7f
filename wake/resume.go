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
		f.resume(ctx, s)
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
// is over. When ctx ends the flight stays as it is, for the next start.
func (f *Flights) resume(ctx context.Context, s *netdb.Sleep) {
	if _, err := f.cfg.Book.TakeOn(ctx, itself(reasonWaking), s.LeaseID, s.Flight.ID); err != nil {
		f.complain(ctx, "begin", s, err)
		return
	}
	left := s.Flight.Within - f.cfg.Book.Now().Since(s.Flight.Begun)
	bounded, cancel := context.WithTimeout(ctx, max(left, 0))
	defer cancel()
	last := errors.New("no attempt was made")
	for pause := firstRetry; ; pause = min(2*pause, lastRetry) {
		var err error
		if bounded.Err() == nil {
			if err = f.attempt(ctx, bounded, s); err == nil {
				return
			}
			last = err
		}
		if broadcast.Pause(bounded, pause) {
			continue
		}
		if ctx.Err() == nil {
			f.land(ctx, s, netdb.TimedOut, fmt.Sprintf("not within %v: %v", s.Flight.Within, last))
		}
		return
	}
}

// attempt is one attempt of the resumer, alone with the lease's tasks. nil means that the
// flight is over: the sandbox runs, the resumer refuses, or others have ended it.
func (f *Flights) attempt(ctx, bounded context.Context, s *netdb.Sleep) error {
	release, err := f.hold(bounded, s.LeaseID)
	if err != nil {
		return err
	}
	defer release()
	l, err := f.cfg.Book.Lease(s.LeaseID)
	now := f.cfg.Book.Sleep(s.LeaseID)
	if err != nil || l.State != netdb.Paused || now == nil || now.Flight == nil || now.Flight.ID != s.Flight.ID || !now.Flight.Open() {
		return nil // it was released, or resumed by others
	}
	switch err = f.cfg.Resumer.Resume(bounded, l, now); {
	case err == nil:
		f.land(ctx, s, netdb.Woken, "")
	case errors.Is(err, ErrRefused):
		f.land(ctx, s, netdb.Refused, err.Error())
	default:
		return err
	}
	return nil
}
