package api

import "time"

// A SleepMode is what becomes of a sandbox that is paused.
type SleepMode string

const (
	Freeze    SleepMode = "freeze"    // its tasks stand still, and the kernel answers for them
	Hibernate SleepMode = "hibernate" // its tasks are gone, and made anew to wake it
)

// A WakePolicy says which traffic wakes a paused sandbox, and for how long.
type WakePolicy struct {
	Sources   []string `json:"sources,omitempty"`   // addresses or prefixes; empty: all
	Ports     []string `json:"ports,omitempty"`     // of TCP and UDP, "80" or "8000-8100"; empty: all
	Protocols []string `json:"protocols,omitempty"` // tcp, udp, icmp; empty: tcp
	Wait      Duration `json:"wait,omitempty"`      // how long a wake may last; empty: wake.wait of the daemon
	// RepauseAfter is how long after a wake, and without traffic, ipamd pauses it again; empty: never. It wants do.
	RepauseAfter Duration `json:"repause_after,omitempty"`
}

// A Sleep is how a lease's sandbox is paused and woken. It stays while the lease is open.
type Sleep struct {
	Mode   SleepMode   `json:"mode"`
	Do     bool        `json:"do,omitempty"`
	Wake   *WakePolicy `json:"wake,omitempty"`
	Flight *Flight     `json:"flight,omitempty"` // the wake that is under way, or the last one
}

// A Flight is one wake of a lease: there is one at a time, however many ask.
type Flight struct {
	ID       string     `json:"id"`
	Phase    string     `json:"phase"` // requested, waking, ended
	Cause    Cause      `json:"cause"`
	Begun    time.Time  `json:"begun"`
	Within   Duration   `json:"within"` // how long it may last
	Attempts int        `json:"attempts"`
	Ended    *time.Time `json:"ended,omitempty"`
	Result   string     `json:"result,omitempty"` // woken, timeout, refused
	Detail   string     `json:"detail,omitempty"` // one sentence
}

// A Cause is why a wake began.
type Cause struct {
	By       string `json:"by"`               // traffic, api
	Source   string `json:"source,omitempty"` // of the first packet
	Port     int    `json:"port,omitempty"`   // its destination's
	Protocol string `json:"protocol,omitempty"`
	Rule     string `json:"rule,omitempty"` // the policy that it met
}

// WakeRequest asks that a paused sandbox is woken.
type WakeRequest struct {
	Wait Duration `json:"wait,omitempty"` // Go duration: wait so long for it, at most 60s; empty: do not wait
}

// AckRequest is the runtime's word on a flight that was announced to it.
type AckRequest struct {
	Flight  string `json:"flight"`
	Outcome string `json:"outcome"`          // waking, woken, refused
	Detail  string `json:"detail,omitempty"` // why it is refused: one sentence, up to 1000 bytes
}
