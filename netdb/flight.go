package netdb

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/ipamd/ipamd/ipam"
)

// A flightColumn is the flight of a sleep as its row has it, with that no mode was said: only a wake
// makes a row of such a pause.
type flightColumn struct {
	*ipam.Flight
	Plain bool `json:"plain,omitempty"`
}

func flightText(s *ipam.Sleep) string {
	if s.Flight == nil {
		return ""
	}
	return encode(flightColumn{s.Flight, s.Plain}, 1)
}

// plainSleep is what is recorded of a lease that was paused without a mode, once a flight is begun for
// it: the tasks that are there are resumed. That they were frozen nobody has said.
func plainSleep(lease string) ipam.Sleep {
	return ipam.Sleep{LeaseID: lease, Mode: ipam.Freeze, Plain: true, Still: true}
}

// took is what the history has of the end of a lease's flight: how long it lasted. nil while none is
// under way.
func took(s *ipam.Sleep, l *ipam.Lease, now ipam.Stamp) json.RawMessage {
	if s == nil || !s.Flight.Open() {
		return nil
	}
	return asJSON([]map[string]any{{"address": l.Addr, "witness": "wake", "at": now.Wall.UTC(),
		"note": fmt.Sprintf("took %v", now.Since(s.Flight.Begun).Round(time.Millisecond))}})
}

func endFlight(f *ipam.Flight, r ipam.FlightResult, detail string, now ipam.Stamp) *ipam.Flight {
	next := *f
	next.Phase, next.Result, next.Detail, next.End = ipam.Ended, r, detail, now
	if r == ipam.Woken {
		next.Failed = 0
	} else {
		next.Failed++
	}
	return &next
}

// Wake begins the flight of a paused lease, or joins the one that is under way. A lease
// that is bound has none to wait for: the flight is nil. evidence is kept with the change.
func (b sleeps) Wake(ctx context.Context, who ipam.Who, id string, within time.Duration, cause ipam.Cause, evidence json.RawMessage) (l *ipam.Lease, f *ipam.Flight, begun bool, err error) {
	l, err = b.w.changeLease(ctx, id, func(t *tx, l *ipam.Lease) (*ipam.Lease, error) {
		f, begun = nil, false
		switch l.State {
		case ipam.Bound:
			return l, nil
		case ipam.Paused:
		default:
			return nil, fmt.Errorf("wake %s: %w: it is %s", l.Addr, ipam.ErrState, l.State)
		}
		s := t.Sleep(id)
		if s == nil {
			plain := plainSleep(id)
			s = &plain
		}
		if s.Flight.Open() {
			f = s.Flight
			return l, nil
		}
		if cause.By == ipam.ByTraffic && s.Flight.BackOff() > 0 && t.now.Since(s.Flight.End) < s.Flight.BackOff() {
			return nil, fmt.Errorf("wake %s: %w: %s", l.Addr, ipam.ErrBackOff, s.Flight.Result)
		}
		if s.Wake != nil && s.Wake.Wait > 0 {
			within = s.Wake.Wait
		}
		f, begun = &ipam.Flight{ID: newID(), Cause: cause, Phase: ipam.Requested, Begun: t.now, Within: within}, true
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

// onFlight changes the open flight of a lease that has this id.
func (b sleeps) onFlight(ctx context.Context, id, flight string, fn func(*tx, *ipam.Lease, *ipam.Sleep) (*ipam.Lease, error)) (*ipam.Lease, error) {
	return b.w.changeLease(ctx, id, func(t *tx, l *ipam.Lease) (*ipam.Lease, error) {
		s := t.Sleep(id)
		if s == nil || s.Flight == nil || s.Flight.ID != flight {
			return nil, fmt.Errorf("lease %s has no flight %.40q: %w", id, flight, ipam.ErrFlightUnknown)
		}
		if !s.Flight.Open() {
			return nil, fmt.Errorf("flight %s of lease %s: %w: %s", flight, id, ipam.ErrFlightEnded, s.Flight.Result)
		}
		return fn(t, l, s)
	})
}

// TakeOn notes that the resumer is at work on a flight: from now on its deadline runs. Again is no
// change.
func (b sleeps) TakeOn(ctx context.Context, who ipam.Who, id, flight string) (*ipam.Lease, error) {
	return b.onFlight(ctx, id, flight, func(t *tx, l *ipam.Lease, s *ipam.Sleep) (*ipam.Lease, error) {
		if s.Flight.Phase == ipam.Waking {
			return l, nil
		}
		f := *s.Flight
		f.Phase, f.Working = ipam.Waking, t.now
		f.Attempts++
		return t.recordFlight(who, l, s, &f, nil)
	})
}

// Land ends a flight. One that woke its sandbox leaves the lease bound, any other leaves it
// paused.
func (b sleeps) Land(ctx context.Context, who ipam.Who, id, flight string, r ipam.FlightResult, detail string) (*ipam.Lease, error) {
	return b.onFlight(ctx, id, flight, func(t *tx, l *ipam.Lease, s *ipam.Sleep) (*ipam.Lease, error) {
		if r == ipam.Woken {
			now := *l
			now.State = ipam.Bound
			return t.record(who, l, now, nil) // its flight follows
		}
		return t.recordFlight(who, l, s, endFlight(s.Flight, r, detail, t.now), took(s, l, t.now))
	})
}

// Announce records once more that an open flight waits for its resumer, so that who follows
// the changes sees it again.
func (b sleeps) Announce(ctx context.Context, who ipam.Who, id, flight string) (*ipam.Lease, error) {
	return b.onFlight(ctx, id, flight, func(t *tx, l *ipam.Lease, s *ipam.Sleep) (*ipam.Lease, error) {
		if s.Flight.Phase != ipam.Requested {
			return l, nil
		}
		f := *s.Flight
		f.Attempts++
		return t.recordFlight(who, l, s, &f, nil)
	})
}

// recordFlight records with a change of its lease that a sleep has this flight from now on.
func (t *tx) recordFlight(who ipam.Who, l *ipam.Lease, s *ipam.Sleep, f *ipam.Flight, evidence json.RawMessage) (*ipam.Lease, error) {
	now, err := t.record(who, l, *l, evidence)
	if err == nil {
		next := *s
		next.Flight = f
		t.SetSleep(next)
	}
	return now, err
}
