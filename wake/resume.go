package wake

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/ipamd/ipamd/internal/broadcast"
	"github.com/ipamd/ipamd/ipam"
)

// How many sandboxes are resumed at once: so many whose resumer was asked a moment ago, and with
// those whose resumer takes its time no more than so many. One that hangs holds up no other.
const (
	mostAtWork = 32
	aMoment    = time.Second
	mostOfAll  = 256
)

// room is how many flights more the resumer may work on, and how long at most until it may be one
// more though none ends.
func (f *Flights) room() (n int, next time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n, next = mostAtWork, aMoment
	for _, began := range f.flying {
		if left := aMoment - time.Since(began); left > 0 {
			n, next = n-1, min(next, left)
		}
	}
	return min(n, mostOfAll-len(f.flying)), next
}

// fly has the resumer work on a flight, unless it does, and is false where there is no room for it.
func (f *Flights) fly(ctx context.Context, work *errgroup.Group, s *ipam.Sleep, room *int) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, does := f.flying[s.Flight.ID]; does {
		return true
	}
	if *room <= 0 {
		return false
	}
	*room--
	f.flying[s.Flight.ID] = time.Now()
	work.Go(func() error {
		if !f.resume(ctx, s) {
			broadcast.Pause(ctx, lastRetry) // a book that takes nothing is not asked as fast as it refuses
		}
		f.mu.Lock()
		delete(f.flying, s.Flight.ID)
		f.mu.Unlock()
		f.kick.Send() // one more may begin
		return nil
	})
	return true
}

// The pause between two attempts of the resumer: it doubles.
const (
	firstRetry = 50 * time.Millisecond
	lastRetry  = time.Second
)

// resume tries until the sandbox runs, the resumer refuses, the deadline passes or the flight
// is over, and reports whether the book has that. When ctx ends the flight stays as it is, for
// the next start.
func (f *Flights) resume(ctx context.Context, s *ipam.Sleep) (recorded bool) {
	if _, err := f.cfg.Book.TakeOn(ctx, itself(reasonWaking), s.LeaseID, s.Flight.ID); err != nil {
		return f.complain(ctx, "begin", s, err)
	}
	// What it waited for its turn, and what a daemon before this one has had of it, does not count:
	// nobody has tried meanwhile.
	bounded, cancel := context.WithTimeout(ctx, s.Flight.Within)
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
		return ctx.Err() != nil || f.land(ctx, s, ipam.TimedOut, fmt.Sprintf("not within %v: %v", s.Flight.Within, last))
	}
}

// attempt is one attempt of the resumer, alone with the sandbox's tasks. Without an error the
// sandbox runs, the resumer refuses, or others have ended the flight; recorded is whether the
// book has that.
func (f *Flights) attempt(ctx, bounded context.Context, s *ipam.Sleep) (recorded bool, err error) {
	l, err := f.cfg.Book.Lease(s.LeaseID)
	if err != nil {
		return true, nil // it was released
	}
	unlock, err := f.lock(bounded, l)
	if err != nil {
		return false, err
	}
	defer unlock()
	l, err = f.cfg.Book.Lease(s.LeaseID)
	now := f.cfg.Book.Sleep(s.LeaseID)
	if err != nil || l.State != ipam.Paused || now == nil || now.Flight == nil || now.Flight.ID != s.Flight.ID || !now.Flight.Open() {
		return true, nil // it was released, or resumed by others
	}
	switch err = f.cfg.Resumer.Resume(bounded, l, now); {
	case err == nil:
		return f.land(ctx, s, ipam.Woken, ""), nil
	case errors.Is(err, ErrRefused):
		return f.land(ctx, s, ipam.Refused, err.Error()), nil
	}
	return false, err
}
