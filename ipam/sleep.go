package ipam

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
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

// A Sleep is how a lease's sandbox is paused and woken. It stays while the lease is open,
// so that a sandbox that was woken can be paused again as it was. A *Sleep that netdb
// returns is shared and immutable.
type Sleep struct {
	LeaseID string
	Rev     int64 // of the change of the lease with which it was recorded last
	Mode    SleepMode
	Plain   bool        // the pause said no mode: Mode is what a wake goes by, and proves nothing of the tasks
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
		return Invalid("mode", "%.40q is neither freeze nor hibernate", s.Mode)
	}
	if s.Do && s.Mode == Hibernate {
		return Invalid("do", "ipamd can freeze a sandbox, not hibernate it: end its tasks, and pause its lease without do")
	}
	w := s.Wake
	if w == nil {
		return nil
	}
	if len(w.Sources) > mostSources {
		return Invalid("wake.sources", "%d are more than %d", len(w.Sources), mostSources)
	}
	for i, p := range w.Sources {
		field := fmt.Sprintf("wake.sources[%d]", i)
		switch {
		case !p.IsValid():
			return Invalid(field, "is no address or prefix")
		case p != p.Masked():
			return Invalid(field, "%s has bits beyond its length: write %s", p, p.Masked())
		case p.Addr().Is4() != addr.Is4():
			return Invalid(field, "%s is of another family than %s: no packet from there reaches it", p, addr)
		case multicast4.Overlaps(p) && p.Bits() >= multicast4.Bits() || multicast6.Overlaps(p) && p.Bits() >= multicast6.Bits():
			return Invalid(field, "%s is multicast: no packet comes from there", p)
		}
	}
	if len(w.Ports) > mostPorts {
		return Invalid("wake.ports", "%d are more than %d", len(w.Ports), mostPorts)
	}
	for i, r := range w.Ports {
		field := fmt.Sprintf("wake.ports[%d]", i)
		if r.First == 0 || r.Last == 0 {
			return Invalid(field, "there is no port 0")
		}
		if r.Last < r.First {
			return Invalid(field, "%s ends before it begins", r)
		}
	}
	for i, p := range w.Protocols {
		if p != TCP && p != UDP && p != ICMP {
			return Invalid(fmt.Sprintf("wake.protocols[%d]", i), "%.40q is none of tcp, udp, icmp", p)
		}
	}
	if len(w.Ports) > 0 && len(w.Protocols) > 0 && !slices.Contains(w.Protocols, TCP) && !slices.Contains(w.Protocols, UDP) {
		return Invalid("wake.ports", "none of wake.protocols has ports: add tcp or udp")
	}
	if w.Wait != 0 && (w.Wait < LeastWait || w.Wait > MostWait) {
		return Invalid("wake.wait", "%v is not from %v to %v", w.Wait, LeastWait, MostWait)
	}
	if w.RepauseAfter != 0 {
		if w.RepauseAfter < LeastIdle {
			return Invalid("wake.repause_after", "%v is below %v", w.RepauseAfter, LeastIdle)
		}
		if !s.Do {
			return Invalid("wake.repause_after", "wants do: without it ipamd pauses nothing by itself")
		}
	}
	return nil
}
