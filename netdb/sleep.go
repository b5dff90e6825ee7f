package netdb

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/ipamd/ipamd/netdb/sqlite"
)

// A SleepMode is what becomes of a sandbox that is paused.
type SleepMode string

const (
	// Freeze: its tasks stand still. The kernel answers for them and keeps what arrives.
	Freeze SleepMode = "freeze"
	// Hibernate: its tasks are gone, and made anew to wake it. Nothing listens.
	Hibernate SleepMode = "hibernate"
)

// A Protocol is one that may wake a sandbox.
type Protocol string

const (
	TCP  Protocol = "tcp"
	UDP  Protocol = "udp"
	ICMP Protocol = "icmp" // an echo request, of IPv4 or IPv6
)

// A PortRange is some destination ports, both ends included.
type PortRange struct {
	First uint16 `json:"first"`
	Last  uint16 `json:"last"`
}

func (r PortRange) String() string {
	if r.First == r.Last {
		return fmt.Sprint(r.First)
	}
	return fmt.Sprintf("%d-%d", r.First, r.Last)
}

// A WakePolicy says which traffic wakes a paused sandbox, and for how long.
type WakePolicy struct {
	Sources   []netip.Prefix `json:"sources,omitempty"`   // empty: all
	Ports     []PortRange    `json:"ports,omitempty"`     // of TCP and UDP; empty: all
	Protocols []Protocol     `json:"protocols,omitempty"` // empty: TCP
	// Wait is how long an attempt to wake it may last; 0 stands for the daemon's own.
	Wait time.Duration `json:"wait,omitempty"`
	// RepauseAfter is how long after a wake, and without traffic, it is paused again; 0 is never.
	RepauseAfter time.Duration `json:"repause_after,omitempty"`
}

// A Sleep is how a lease's sandbox is paused and woken. It stays while the lease is open,
// so that a sandbox that was woken can be paused again as it was. A *Sleep that netdb
// returns is shared and immutable.
type Sleep struct {
	LeaseID string
	Rev     int64 // of the change of the lease with which it was recorded last
	Mode    SleepMode
	Do      bool        // ipamd pauses and resumes the tasks itself
	Wake    *WakePolicy // nil: traffic does not wake it
	Still   bool        // its tasks were seen to stand still, or to be gone, since it was paused so
	Flight  *Flight     // the wake that is under way, or the last one that ended; nil before the first
}

// Bounds of a policy.
const (
	LeastWait = 100 * time.Millisecond
	MostWait  = 10 * time.Minute

	// LeastIdle is the shortest time without traffic that counts as idle.
	LeastIdle = time.Second

	mostSources = 64
	mostPorts   = 64
)

var (
	multicast4 = netip.MustParsePrefix("224.0.0.0/4")
	multicast6 = netip.MustParsePrefix("ff00::/8")
)

// Check returns a [FieldError] for the first part that cannot be, on a lease of addr.
func (s *Sleep) Check(addr netip.Addr) error {
	if s.Mode != Freeze && s.Mode != Hibernate {
		return invalid("mode", "%.40q is neither freeze nor hibernate", s.Mode)
	}
	if s.Do && s.Mode == Hibernate {
		return invalid("do", "ipamd can freeze a sandbox, not hibernate it: end its tasks, and pause its lease without do")
	}
	w := s.Wake
	if w == nil {
		return nil
	}
	if len(w.Sources) > mostSources {
		return invalid("wake.sources", "%d are more than %d", len(w.Sources), mostSources)
	}
	for i, p := range w.Sources {
		field := fmt.Sprintf("wake.sources[%d]", i)
		switch {
		case !p.IsValid():
			return invalid(field, "is no address or prefix")
		case p != p.Masked():
			return invalid(field, "%s has bits beyond its length: write %s", p, p.Masked())
		case p.Addr().Is4() != addr.Is4():
			return invalid(field, "%s is of another family than %s: no packet from there reaches it", p, addr)
		case multicast4.Overlaps(p) && p.Bits() >= multicast4.Bits() || multicast6.Overlaps(p) && p.Bits() >= multicast6.Bits():
			return invalid(field, "%s is multicast: no packet comes from there", p)
		}
	}
	if len(w.Ports) > mostPorts {
		return invalid("wake.ports", "%d are more than %d", len(w.Ports), mostPorts)
	}
	for i, r := range w.Ports {
		field := fmt.Sprintf("wake.ports[%d]", i)
		if r.First == 0 || r.Last == 0 {
			return invalid(field, "there is no port 0")
		}
		if r.Last < r.First {
			return invalid(field, "%s ends before it begins", r)
		}
	}
	for i, p := range w.Protocols {
		if p != TCP && p != UDP && p != ICMP {
			return invalid(fmt.Sprintf("wake.protocols[%d]", i), "%.40q is none of tcp, udp, icmp", p)
		}
	}
	if len(w.Ports) > 0 && len(w.Protocols) > 0 && !slices.Contains(w.Protocols, TCP) && !slices.Contains(w.Protocols, UDP) {
		return invalid("wake.ports", "none of wake.protocols has ports: add tcp or udp")
	}
	if w.Wait != 0 && (w.Wait < LeastWait || w.Wait > MostWait) {
		return invalid("wake.wait", "%v is not from %v to %v", w.Wait, LeastWait, MostWait)
	}
	if w.RepauseAfter != 0 {
		if w.RepauseAfter < LeastIdle {
			return invalid("wake.repause_after", "%v is below %v", w.RepauseAfter, LeastIdle)
		}
		if !s.Do {
			return invalid("wake.repause_after", "wants do: without it ipamd pauses nothing by itself")
		}
	}
	return nil
}

// Wakes returns the protocols of a policy.
func (w *WakePolicy) Wakes() []Protocol {
	if len(w.Protocols) == 0 {
		return []Protocol{TCP}
	}
	return w.Protocols
}

func (w *WakePolicy) String() string {
	var parts []string
	for _, p := range w.Wakes() {
		parts = append(parts, string(p))
	}
	text := strings.Join(parts, ",")
	list := func(what string, n int, at func(int) string) {
		for i := range n {
			if i > 0 {
				what = ","
			}
			text += what + at(i)
		}
	}
	list(" to ", len(w.Ports), func(i int) string { return w.Ports[i].String() })
	list(" from ", len(w.Sources), func(i int) string { return w.Sources[i].String() })
	return text
}

// sameAs reports whether two say the same of how a sandbox is paused and woken.
func (s *Sleep) sameAs(o *Sleep) bool {
	return s != nil && o != nil && s.Mode == o.Mode && s.Do == o.Do && s.policy() == o.policy()
}

func (s *Sleep) policy() string {
	if s.Wake == nil {
		return ""
	}
	return encode(s.Wake, 1)
}

func (s *Sleep) flight() string {
	if s.Flight == nil {
		return ""
	}
	return encode(s.Flight, 1)
}

// Sleep returns how a lease's sandbox is paused and woken, nil when nothing is recorded.
func (m *memory) Sleep(leaseID string) *Sleep {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.idx.sleeps[leaseID]
}

// Sleeps returns every sleep, in the order of the leases' ids.
func (m *memory) Sleeps() []*Sleep {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return byLease(m.idx.sleeps)
}

// sleep returns the sleep of a lease, or nil.
func (t *tx) sleep(id string) *Sleep { return look(id, t.staged.sleeps, t.idx.sleeps) }

// setSleep adds a sleep to the last step, which changed its lease.
func (t *tx) setSleep(s Sleep) {
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
func (t *tx) followSleep(old, now *Lease) {
	if old == nil {
		return
	}
	s := t.sleep(old.ID)
	switch {
	case s == nil:
	case now.ID != old.ID || !now.State.Open():
		t.endSleep(old.ID)
	case old.State == Paused && now.State == Bound && s.Flight.Open():
		next := *s
		next.Flight = s.Flight.ended(Woken, "", t.now)
		t.setSleep(next)
	case old.State == Paused && now.State == Bound && s.Flight.BackOff() > 0: // others resumed it: it is well
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

func (s *Sleep) row() []any {
	return []any{s.LeaseID, s.Rev, string(s.Mode), s.Do, s.policy(), s.flight(), s.Still}
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
func scanSleep(r sqlite.Scanner) (s *Sleep, bad, err error) {
	s = new(Sleep)
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
		if f := s.Flight; f == nil || f.ID == "" || f.Phase != Requested && f.Phase != Waking && f.Phase != Ended {
			return s, fmt.Errorf("flight: %.80s is none", flight), nil
		}
	}
	return s, nil, nil
}
