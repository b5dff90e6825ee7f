package netdb

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb/sqlite"
)

// sameSleep reports whether two say the same of how a sandbox is paused and woken.
func sameSleep(s, o *ipam.Sleep) bool {
	return s != nil && o != nil && s.Mode == o.Mode && s.Do == o.Do && policyText(s) == policyText(o)
}

func policyText(s *ipam.Sleep) string {
	if s.Wake == nil {
		return ""
	}
	return encode(s.Wake, 1)
}

func flightText(s *ipam.Sleep) string {
	if s.Flight == nil {
		return ""
	}
	return encode(s.Flight, 1)
}

// Sleep returns how a lease's sandbox is paused and woken, nil when nothing is recorded.
func (m *memory) Sleep(leaseID string) *ipam.Sleep {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.idx.sleeps[leaseID]
}

// Sleeps returns every sleep, in the order of the leases' ids.
func (m *memory) Sleeps() []*ipam.Sleep {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return byLease(m.idx.sleeps)
}

// sleep returns the sleep of a lease, or nil.
func (t *tx) sleep(id string) *ipam.Sleep { return look(id, t.staged.sleeps, t.idx.sleeps) }

// setSleep adds a sleep to the last step, which changed its lease.
func (t *tx) setSleep(s ipam.Sleep) {
	last := t.staged.last()
	s.Rev = last.change.Rev
	last.sleep.lease, last.sleep.row = s.LeaseID, &s
	last.sleep.stage(t.staged.sleeps)
}

// setStill has the last step, which changed its lease, note that the tasks of a sleeper stand still.
func (t *tx) setStill(lease string) {
	if s := t.sleep(lease); s != nil && !s.Still {
		next := *s
		next.Still = true
		t.setSleep(next)
	}
}

// followSleep makes a sleep follow the change of its lease that was just staged: it ends
// with the lease, and a flight ends once the lease is bound, whatever resumed its sandbox.
func (t *tx) followSleep(old, now *ipam.Lease) {
	if old == nil {
		return
	}
	s := t.sleep(old.ID)
	switch {
	case s == nil:
	case now.ID != old.ID || !now.State.Open():
		t.endSleep(old.ID)
	case old.State == ipam.Paused && now.State == ipam.Bound && s.Flight.Open():
		next := *s
		next.Flight = endFlight(s.Flight, ipam.Woken, "", t.now)
		t.setSleep(next)
	case old.State == ipam.Paused && now.State == ipam.Bound && s.Flight.BackOff() > 0: // others resumed it: it is well
		next, f := *s, *s.Flight
		f.Failed = 0
		next.Flight = &f
		t.setSleep(next)
	}
}

// endSleep has the last step, which changed its lease, end what is recorded of a sleep.
func (t *tx) endSleep(lease string) {
	if t.sleep(lease) == nil {
		return
	}
	last := t.staged.last()
	last.sleep.ended = lease
	last.sleep.stage(t.staged.sleeps)
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

// readSleep reads a row. One that means nothing to this build is reported and skipped: its
// lease is then paused without a policy, and a call can wake it.
func (x *index) readSleep(r sqlite.Scanner) error {
	s, bad, err := scanSleep(r)
	if err != nil {
		return err
	}
	l := x.byID[s.LeaseID]
	switch {
	case bad != nil:
	case l == nil || !l.State.Open():
		bad = errors.New("no open lease has that id")
	default:
		bad = s.Check(l.Addr)
	}
	if bad != nil {
		x.unreadable(naming{text: "sleep of " + s.LeaseID}, "", bad)
		return nil
	}
	x.sleeps[s.LeaseID] = s
	return nil
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
		if err := json.Unmarshal([]byte(flight), &s.Flight); err != nil {
			return s, fmt.Errorf("flight: %w", err), nil
		}
		if f := s.Flight; f == nil || f.ID == "" || f.Phase != ipam.Requested && f.Phase != ipam.Waking && f.Phase != ipam.Ended {
			return s, fmt.Errorf("flight: %.80s is none", flight), nil
		}
	}
	return s, nil, nil
}
