package netdb

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb/sqlite"
)

// sleeps are the verbs of paused sandboxes, and of the flights that wake them.
type sleeps struct{ w *writer }

// sameSleep reports whether two say the same of how a sandbox is paused and woken.
func sameSleep(s, o *ipam.Sleep) bool {
	return s != nil && o != nil && s.Mode == o.Mode && s.Plain == o.Plain && s.Do == o.Do && policyText(s) == policyText(o)
}

func policyText(s *ipam.Sleep) string {
	if s.Wake == nil {
		return ""
	}
	return encode(s.Wake, 1)
}

// setStill has the last step, which changed its lease, note that the tasks of a sleeper stand still.
func (t *tx) setStill(lease string) {
	if s := t.Sleep(lease); s != nil && !s.Still {
		next := *s
		next.Still = true
		t.SetSleep(next)
	}
}

// followSleep makes a sleep follow the change of its lease that was just staged: it ends
// with the lease, and a flight ends once the lease is bound, whatever resumed its sandbox.
func (t *tx) followSleep(old, now *ipam.Lease) {
	if old == nil {
		return
	}
	s := t.Sleep(old.ID)
	switch {
	case s == nil:
	case now.ID != old.ID || !now.State.Open():
		t.EndSleep(old.ID)
	case old.State == ipam.Paused && now.State == ipam.Bound && s.Flight.Open():
		next := *s
		next.Flight = endFlight(s.Flight, ipam.Woken, "", t.now)
		t.SetSleep(next)
	case old.State == ipam.Paused && now.State == ipam.Bound && s.Flight.BackOff() > 0: // others resumed it: it is well
		next, f := *s, *s.Flight
		f.Failed = 0
		next.Flight = &f
		t.SetSleep(next)
	}
}

const (
	sleepColumns = `lease_id, rev, mode, do_pause, policy, flight, still`
	upsertSleep  = `INSERT INTO sleeps (` + sleepColumns + `) VALUES (?1,?2,?3,?4,?5,?6,?7)
		ON CONFLICT (lease_id) DO UPDATE SET (` + sleepColumns + `) = (?1,?2,?3,?4,?5,?6,?7)`
	deleteSleep = `DELETE FROM sleeps WHERE lease_id = ?1`
	readSleeps  = `SELECT ` + sleepColumns + ` FROM sleeps`
)

func sleepRow(s *ipam.Sleep) []any {
	return []any{s.LeaseID, s.Rev, string(s.Mode), s.Do, policyText(s), flightText(s), s.Still}
}

// scanSleep reads a row. bad says which of its columns means nothing; its lease's id is
// there all the same.
func scanSleep(r sqlite.Scanner) (s *ipam.Sleep, bad, err error) {
	s = new(ipam.Sleep)
	var policy, flight string
	if err := r.Scan(&s.LeaseID, &s.Rev, (*string)(&s.Mode), &s.Do, &policy, &flight, &s.Still); err != nil {
		return nil, nil, err
	}
	if policy != "" {
		if err := json.Unmarshal([]byte(policy), &s.Wake); err != nil {
			return s, fmt.Errorf("policy: %w", err), nil
		}
	}
	if flight != "" {
		var column flightColumn
		if err := json.Unmarshal([]byte(flight), &column); err != nil {
			return s, fmt.Errorf("flight: %w", err), nil
		}
		s.Flight, s.Plain = column.Flight, column.Plain
		if f := s.Flight; f == nil || f.ID == "" || f.Phase != ipam.Requested && f.Phase != ipam.Waking && f.Phase != ipam.Ended {
			return s, fmt.Errorf("flight: %.80s is none", flight), nil
		}
	}
	return s, nil, nil
}

// PauseAs is [Book.Pause] that also records how the sandbox is paused, and what wakes it.
// What is recorded of a flight stays; the same again is no change.
func (b sleeps) PauseAs(ctx context.Context, who ipam.Who, id string, ifRev int64, how ipam.Sleep) (*ipam.Lease, error) {
	return b.w.changeLease(ctx, id, func(t *tx, l *ipam.Lease) (*ipam.Lease, error) {
		if err := how.Check(l.Addr); err != nil {
			return nil, err
		}
		if l.State != ipam.Bound && l.State != ipam.Paused {
			return nil, fmt.Errorf("move %s to %s: %w: it is %s", l.Addr, ipam.Paused, ipam.ErrState, l.State)
		}
		was := t.Sleep(id)
		// A pass takes a task that is frozen for a moment, as for a checkpoint, for one that is
		// paused. That one is to be gone is another matter, which its owner says now.
		anew := l.State == ipam.Bound || l.Reason == ipam.RuntimePaused && how.Mode == ipam.Hibernate
		if !anew && sameSleep(was, &how) {
			return l, nil
		}
		if err := asSeen(l, ifRev); err != nil {
			return nil, err
		}
		now := *l
		now.State = ipam.Paused
		moved, err := t.record(who, l, now, nil)
		if err != nil {
			return nil, err
		}
		how.LeaseID, how.Plain, how.Flight, how.Still = id, false, nil, false
		if was != nil {
			how.Flight, how.Still = was.Flight, was.Still && !anew && was.Mode == how.Mode && !was.Plain
		}
		t.SetSleep(how)
		return moved, nil
	})
}

// TakeBack undoes a pause that [Book.PauseAs] has recorded since a moment as how says, in vain: the
// lease is in the state was again, and what is recorded of its sleep is as before, nil for nothing.
// What is recorded of a flight stays. One that was moved since, or is paused in another way, is
// [ipam.ErrState], and nothing is changed.
func (b sleeps) TakeBack(ctx context.Context, who ipam.Who, id string, since ipam.Stamp, how ipam.Sleep, was ipam.State, before *ipam.Sleep) (*ipam.Lease, error) {
	return b.w.changeLease(ctx, id, func(t *tx, l *ipam.Lease) (*ipam.Lease, error) {
		s := t.Sleep(id)
		if l.State != ipam.Paused || !l.Since.Same(since) || !sameSleep(s, &how) {
			return nil, fmt.Errorf("take the pause of %s back: %w: it was moved meanwhile, and is %s", l.Addr, ipam.ErrState, l.State)
		}
		if was == ipam.Paused && sameSleep(s, before) && s.Still == before.Still {
			return l, nil
		}
		now := *l
		now.State = was
		moved, err := t.record(who, l, now, nil)
		if err != nil {
			return nil, err
		}
		next := plainSleep(id)
		if before != nil {
			next = *before
		}
		next.LeaseID, next.Flight = id, t.Sleep(id).Flight
		if before == nil && !next.Flight.Open() {
			t.EndSleep(id)
		} else {
			t.SetSleep(next)
		}
		return moved, nil
	})
}

// Frozen notes that the tasks of a lease stand still that is paused since a moment. One that was
// moved since, or paused anew, is [ipam.ErrState], and nothing is changed. What was decided on the
// lease before is stale from then on.
func (b sleeps) Frozen(ctx context.Context, who ipam.Who, id string, since ipam.Stamp) (*ipam.Lease, error) {
	return b.w.changeLease(ctx, id, func(t *tx, l *ipam.Lease) (*ipam.Lease, error) {
		if l.State != ipam.Paused || !l.Since.Same(since) {
			return nil, fmt.Errorf("note that %s stands still: %w: it was moved meanwhile, and is %s", l.Addr, ipam.ErrState, l.State)
		}
		return t.noteStill(who, l)
	})
}

// Still notes that the tasks of a paused lease, as it was seen at a revision, stand still, or are
// gone. Again, and of one of which nothing is recorded, is no change.
func (b sleeps) Still(ctx context.Context, who ipam.Who, id string, ifRev int64) (*ipam.Lease, error) {
	return b.w.changeLease(ctx, id, func(t *tx, l *ipam.Lease) (*ipam.Lease, error) {
		if l.State != ipam.Paused {
			return nil, fmt.Errorf("note that %s stands still: %w: it is %s", l.Addr, ipam.ErrState, l.State)
		}
		if s := t.Sleep(id); s == nil || s.Still {
			return l, nil
		}
		if err := asSeen(l, ifRev); err != nil {
			return nil, err
		}
		return t.noteStill(who, l)
	})
}

func (t *tx) noteStill(who ipam.Who, l *ipam.Lease) (*ipam.Lease, error) {
	now, err := t.record(who, l, *l, nil)
	if err == nil {
		t.setStill(l.ID)
	}
	return now, err
}

// NoteIdle notes that the sandbox of a bound lease, as it was seen at a revision, has had no
// traffic. evidence is kept with the change.
func (b sleeps) NoteIdle(ctx context.Context, who ipam.Who, id string, rev int64, evidence json.RawMessage) (*ipam.Lease, error) {
	return b.w.changeLease(ctx, id, func(t *tx, l *ipam.Lease) (*ipam.Lease, error) {
		if err := asSeen(l, rev); err != nil {
			return nil, err
		}
		if l.State != ipam.Bound {
			return nil, fmt.Errorf("note that %s is idle: %w: it is %s", l.Addr, ipam.ErrState, l.State)
		}
		return t.record(who, l, *l, evidence)
	})
}
