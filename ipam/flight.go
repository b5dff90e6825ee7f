package ipam

import (
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

// What begins a flight.
const (
	ByTraffic = "traffic"
	ByCall    = "api"
)

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
