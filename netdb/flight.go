package netdb

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"time"
)

// A FlightPhase is how far a wake is.
type FlightPhase string

const (
	Requested FlightPhase = "requested" // no runtime has answered for it yet
	Waking    FlightPhase = "waking"    // the resumer is at work
	Ended     FlightPhase = "ended"
)

// A FlightResult is how a wake ended.
type FlightResult string

const (
	Woken     FlightResult = "woken"      // its lease is bound: the network can pass
	TimedOut  FlightResult = "timeout"    // its deadline passed
	Refused   FlightResult = "refused"    // the resumer cannot: another attempt would not help
	CalledOff FlightResult = "called_off" // by a pause without a mode; the book records no such flight
	Released  FlightResult = "released"   // its lease ended first; the book records no such flight
)

// A Cause is why a wake began.
type Cause struct {
	By       string     `json:"by"` // traffic, api
	Source   netip.Addr `json:"source,omitzero"`
	Port     uint16     `json:"port,omitempty"` // the destination's
	Protocol Protocol   `json:"protocol,omitempty"`
	Rule     string     `json:"rule,omitempty"` // the policy that it met, in words
}

// A Flight is one wake of a lease. There is one at a time: what wants to wake the lease
// meanwhile joins it. It is in the book, so that it survives a restart.
type Flight struct {
	ID       string        `json:"id"`
	Cause    Cause         `json:"cause"`
	Phase    FlightPhase   `json:"phase"`
	Begun    Stamp         `json:"begun"`
	Within   time.Duration `json:"within"`             // from Working on, until it is given up
	Working  Stamp         `json:"working,omitzero"`   // when the resumer took it on
	Attempts int           `json:"attempts,omitempty"` // of the resumer
	End      Stamp         `json:"end,omitzero"`
	Result   FlightResult  `json:"result,omitempty"`
	Detail   string        `json:"detail,omitempty"` // one sentence on why it ended so
	Failed   int           `json:"failed,omitempty"` // how many in a row did not wake the lease, with this one
}

// Open reports that the flight is under way.
func (f *Flight) Open() bool { return f != nil && f.Phase != Ended }

// took is what the history has of the end of a lease's flight: how long it lasted. nil while none is
// under way.
func (s *Sleep) took(l *Lease, now Stamp) json.RawMessage {
	if s == nil || !s.Flight.Open() {
		return nil
	}
	return asJSON([]map[string]any{{"address": l.Addr, "witness": "wake", "at": now.Wall.UTC(),
		"note": fmt.Sprintf("took %v", now.Since(s.Flight.Begun).Round(time.Millisecond))}})
}

// The pause before traffic may begin another flight after one that failed.
const (
	firstBackOff = time.Second
	mostBackOff  = 30 * time.Second
)

// BackOff is how long after the end of a flight traffic begins no other. A call is not held up.
func (f *Flight) BackOff() time.Duration {
	if f == nil || f.Open() || f.Failed == 0 {
		return 0
	}
	return min(firstBackOff<<min(f.Failed-1, 10), mostBackOff)
}

func (f *Flight) ended(r FlightResult, detail string, now Stamp) *Flight {
	next := *f
	next.Phase, next.Result, next.Detail, next.End = Ended, r, detail, now
	if r == Woken {
		next.Failed = 0
	} else {
		next.Failed++
	}
	return &next
}

var (
	// ErrFlightUnknown means that the lease has no flight of that id: nothing was changed.
	ErrFlightUnknown = fmt.Errorf("%w: no such flight", ErrNotFound)
	// ErrFlightEnded means that the flight has ended: nothing was changed.
	ErrFlightEnded = fmt.Errorf("%w: the flight has ended", ErrState)
	// ErrBackOff means that the last flight failed a moment ago, and that traffic begins
	// no other yet.
	ErrBackOff = errors.New("the last wake failed a moment ago")
	// ErrWakeTimeout means that the sandbox was not woken in the time that its policy, or the
	// caller, gives it. Ask again.
	ErrWakeTimeout = errors.New("not woken in time")
	// ErrWakeRefused means that the resumer says that it cannot wake the sandbox.
	ErrWakeRefused = errors.New("cannot be woken")
)

// RuntimePaused is the reason of a pause that a pass records, as it sees the tasks paused.
const RuntimePaused = "runtime_paused"

// PauseAs is [Book.Pause] that also records how the sandbox is paused, and what wakes it.
// What is recorded of a flight stays; the same again is no change.
func (b *Book) PauseAs(ctx context.Context, who Who, id string, ifRev int64, how Sleep) (*Lease, error) {
	return b.changeLease(ctx, id, func(t *tx, l *Lease) (*Lease, error) {
		if err := how.Check(l.Addr); err != nil {
			return nil, err
		}
		if l.State != Bound && l.State != Paused {
			return nil, fmt.Errorf("move %s to %s: %w: it is %s", l.Addr, Paused, ErrState, l.State)
		}
		was := t.sleep(id)
		// A pass takes a task that is frozen for a moment, as for a checkpoint, for one that is
		// paused. That one is to be gone is another matter, which its owner says now.
		anew := l.State == Bound || l.Reason == RuntimePaused && how.Mode == Hibernate
		if !anew && was.sameAs(&how) {
			return l, nil
		}
		if err := asSeen(l, ifRev); err != nil {
			return nil, err
		}
		now := *l
		now.State = Paused
		moved, err := t.record(who, l, now, nil)
		if err != nil {
			return nil, err
		}
		how.LeaseID, how.Flight, how.Still = id, nil, false
		if was != nil {
			how.Flight, how.Still = was.Flight, was.Still && !anew && was.Mode == how.Mode
		}
		t.setSleep(how)
		return moved, nil
	})
}

// TakeBack undoes a pause that [Book.PauseAs] has recorded since a moment as how says, in vain: the
// lease is in the state was again, and what is recorded of its sleep is as before, nil for nothing.
// What is recorded of a flight stays. One that was moved since, or is paused in another way, is
// [ErrState], and nothing is changed.
func (b *Book) TakeBack(ctx context.Context, who Who, id string, since Stamp, how Sleep, was State, before *Sleep) (*Lease, error) {
	return b.changeLease(ctx, id, func(t *tx, l *Lease) (*Lease, error) {
		s := t.sleep(id)
		if l.State != Paused || !l.Since.Same(since) || !s.sameAs(&how) {
			return nil, fmt.Errorf("take the pause of %s back: %w: it was moved meanwhile, and is %s", l.Addr, ErrState, l.State)
		}
		if was == Paused && s.sameAs(before) && s.Still == before.Still {
			return l, nil
		}
		now := *l
		now.State = was
		moved, err := t.record(who, l, now, nil)
		if err != nil {
			return nil, err
		}
		next := Sleep{Mode: Freeze, Still: true} // as [Book.Wake] has it of a pause that said nothing
		if before != nil {
			next = *before
		}
		next.LeaseID, next.Flight = id, t.sleep(id).Flight
		if before == nil && !next.Flight.Open() {
			t.endSleep(id)
		} else {
			t.setSleep(next)
		}
		return moved, nil
	})
}

// Frozen notes that the tasks of a lease stand still that is paused since a moment. One that was
// moved since, or paused anew, is [ErrState], and nothing is changed. What was decided on the
// lease before is stale from then on.
func (b *Book) Frozen(ctx context.Context, who Who, id string, since Stamp) (*Lease, error) {
	return b.changeLease(ctx, id, func(t *tx, l *Lease) (*Lease, error) {
		if l.State != Paused || !l.Since.Same(since) {
			return nil, fmt.Errorf("note that %s stands still: %w: it was moved meanwhile, and is %s", l.Addr, ErrState, l.State)
		}
		return t.noteStill(who, l)
	})
}

// Still notes that the tasks of a paused lease, as it was seen at a revision, stand still, or are
// gone. Again, and of one of which nothing is recorded, is no change.
func (b *Book) Still(ctx context.Context, who Who, id string, ifRev int64) (*Lease, error) {
	return b.changeLease(ctx, id, func(t *tx, l *Lease) (*Lease, error) {
		if l.State != Paused {
			return nil, fmt.Errorf("note that %s stands still: %w: it is %s", l.Addr, ErrState, l.State)
		}
		if s := t.sleep(id); s == nil || s.Still {
			return l, nil
		}
		if err := asSeen(l, ifRev); err != nil {
			return nil, err
		}
		return t.noteStill(who, l)
	})
}

func (t *tx) noteStill(who Who, l *Lease) (*Lease, error) {
	now, err := t.record(who, l, *l, nil)
	if err == nil {
		t.setStill(l.ID)
	}
	return now, err
}

// NoteIdle notes that the sandbox of a bound lease, as it was seen at a revision, has had no
// traffic. evidence is kept with the change.
func (b *Book) NoteIdle(ctx context.Context, who Who, id string, rev int64, evidence json.RawMessage) (*Lease, error) {
	return b.changeLease(ctx, id, func(t *tx, l *Lease) (*Lease, error) {
		if err := asSeen(l, rev); err != nil {
			return nil, err
		}
		if l.State != Bound {
			return nil, fmt.Errorf("note that %s is idle: %w: it is %s", l.Addr, ErrState, l.State)
		}
		return t.record(who, l, *l, evidence)
	})
}

// Wake begins the flight of a paused lease, or joins the one that is under way. A lease
// that is bound has none to wait for: the flight is nil. evidence is kept with the change.
func (b *Book) Wake(ctx context.Context, who Who, id string, within time.Duration, cause Cause, evidence json.RawMessage) (l *Lease, f *Flight, begun bool, err error) {
	l, err = b.changeLease(ctx, id, func(t *tx, l *Lease) (*Lease, error) {
		f, begun = nil, false
		switch l.State {
		case Bound:
			return l, nil
		case Paused:
		default:
			return nil, fmt.Errorf("wake %s: %w: it is %s", l.Addr, ErrState, l.State)
		}
		s := t.sleep(id)
		if s == nil {
			s = &Sleep{LeaseID: id, Mode: Freeze, Still: true} // a pause that said nothing stands by what runs
		}
		if s.Flight.Open() {
			f = s.Flight
			return l, nil
		}
		if cause.By == ByTraffic && s.Flight.BackOff() > 0 && t.now.Since(s.Flight.End) < s.Flight.BackOff() {
			return nil, fmt.Errorf("wake %s: %w: %s", l.Addr, ErrBackOff, s.Flight.Result)
		}
		if s.Wake != nil && s.Wake.Wait > 0 {
			within = s.Wake.Wait
		}
		f, begun = &Flight{ID: newID(), Cause: cause, Phase: Requested, Begun: t.now, Within: within}, true
		if s.Flight != nil {
			f.Failed = s.Flight.Failed
		}
		return t.recordFlight(who, l, s, f, evidence)
	})
	if err != nil {
		return nil, nil, false, err
	}
	return l, f, begun, nil
}

// What begins a flight.
const (
	ByTraffic = "traffic"
	ByCall    = "api"
)

// onFlight changes the open flight of a lease that has this id.
func (b *Book) onFlight(ctx context.Context, id, flight string, fn func(*tx, *Lease, *Sleep) (*Lease, error)) (*Lease, error) {
	return b.changeLease(ctx, id, func(t *tx, l *Lease) (*Lease, error) {
		s := t.sleep(id)
		if s == nil || s.Flight == nil || s.Flight.ID != flight {
			return nil, fmt.Errorf("lease %s has no flight %.40q: %w", id, flight, ErrFlightUnknown)
		}
		if !s.Flight.Open() {
			return nil, fmt.Errorf("flight %s of lease %s: %w: %s", flight, id, ErrFlightEnded, s.Flight.Result)
		}
		return fn(t, l, s)
	})
}

// TakeOn notes that the resumer is at work on a flight: from now on its deadline runs. Again is no
// change.
func (b *Book) TakeOn(ctx context.Context, who Who, id, flight string) (*Lease, error) {
	return b.onFlight(ctx, id, flight, func(t *tx, l *Lease, s *Sleep) (*Lease, error) {
		if s.Flight.Phase == Waking {
			return l, nil
		}
		f := *s.Flight
		f.Phase, f.Working = Waking, t.now
		f.Attempts++
		return t.recordFlight(who, l, s, &f, nil)
	})
}

// Land ends a flight. One that woke its sandbox leaves the lease bound, any other leaves it
// paused.
func (b *Book) Land(ctx context.Context, who Who, id, flight string, r FlightResult, detail string) (*Lease, error) {
	return b.onFlight(ctx, id, flight, func(t *tx, l *Lease, s *Sleep) (*Lease, error) {
		if r == Woken {
			now := *l
			now.State = Bound
			return t.record(who, l, now, nil) // its flight follows
		}
		return t.recordFlight(who, l, s, s.Flight.ended(r, detail, t.now), s.took(l, t.now))
	})
}

// Announce records once more that an open flight waits for its resumer, so that who follows
// the changes sees it again.
func (b *Book) Announce(ctx context.Context, who Who, id, flight string) (*Lease, error) {
	return b.onFlight(ctx, id, flight, func(t *tx, l *Lease, s *Sleep) (*Lease, error) {
		if s.Flight.Phase != Requested {
			return l, nil
		}
		f := *s.Flight
		f.Attempts++
		return t.recordFlight(who, l, s, &f, nil)
	})
}

// recordFlight records with a change of its lease that a sleep has this flight from now on.
func (t *tx) recordFlight(who Who, l *Lease, s *Sleep, f *Flight, evidence json.RawMessage) (*Lease, error) {
	now, err := t.record(who, l, *l, evidence)
	if err == nil {
		next := *s
		next.Flight = f
		t.setSleep(next)
	}
	return now, err
}
