package netdb

import (
	"encoding/json"
	"net/netip"
	"time"
)

// A Lease is one row of the book: the present truth about one address. A
// *Lease that netdb returns is shared and immutable.
type Lease struct {
	Addr    netip.Addr
	ID      string // UUIDv7; the fence that every change names; never reused
	PoolUID string // never changes
	Pool    string // the pool's name
	State   State

	Sandbox   string // opaque name, 1-253 bytes; "" only for a quarantined address
	UID       string // the sandbox's incarnation
	Interface string
	Attempt   int64

	Rev        int64         // the revision that last changed it
	Created    Stamp         // when this lease began
	Since      Stamp         // when it entered its state
	BindWithin time.Duration // how long it may stay reserved, from Since

	Containers    []Container
	Netns         string
	HostInterface string
	MAC           string
	Plug          Plug // which link and namespace these names were when they were recorded
	Labels        map[string]string

	Evidence json.RawMessage // what the witnesses said, as a JSON array; kept, not interpreted
	Conflict json.RawMessage // the same of a conflict that stands on a held address, see [Book.ConflictAt]; nil while there is none
	Reason   string          // of the last change
	Cut      Cut             // of a lease that was given while its address cooled; "" of any other
	Hold     string          // an operator's words, when only an operator ends the quarantine
}

// A Cut says why a cooldown was cut short. It is kept with the lease, so that a
// repeated answer tells it too, and so that the rest of the cooldown is not
// forgotten with a lease that nobody used.
type Cut string

const (
	CutEarly Cut = "early" // nothing else was left
	CutOwn   Cut = "own"   // the sandbox got its own last address back
)

// A Container names one container of a lease.
type Container struct {
	Namespace string `json:"namespace"`
	ID        string `json:"id"`
}

// Owner is the key on which an allocation is idempotent: one open lease per
// (pool, sandbox uid, interface). A pool has one family.
type Owner struct {
	PoolUID   string
	UID       string
	Interface string
}

// Owner returns the lease's owner.
func (l *Lease) Owner() Owner { return Owner{l.PoolUID, l.UID, l.Interface} }

// Who says by whom and why a change is made. It is recorded with the change.
type Who struct {
	Actor  Actor
	Peer   string // the process behind it, for people: "uid=0 pid=4242"
	Reason string // lower_snake: "released", "expired", [SeenOnWire]
	Note   string // a person's words, at most [MaxNote] bytes; "" of a program
}

// A Subject is what a change is about.
type Subject string

const (
	OfLease   Subject = "lease"   // an address's move
	OfAttempt Subject = "attempt" // a sandbox uid's attempts up to this one were cancelled
	OfPool    Subject = "pool"
	OfBook    Subject = "book"
)

// A Change is one committed change, in the order of its revision.
type Change struct {
	Rev       int64
	At        Stamp
	Subject   Subject
	Addr      netip.Addr
	LeaseID   string
	PoolUID   string
	Pool      string
	Sandbox   string
	UID       string
	Interface string
	Attempt   int64
	From, To  State
	Who       Who
	Evidence  json.RawMessage
}

// A Reservation asks for one address that was picked before.
type Reservation struct {
	Candidate  Candidate
	Sandbox    string
	UID        string
	Interface  string
	Attempt    int64
	BindWithin time.Duration
	Labels     map[string]string
	Evidence   json.RawMessage // what the witnesses said, when there is something to keep
	// Unseen is asked in the transaction, last of all: an error ends the
	// whole request and nothing is written. It runs inside the commit and
	// must not wait.
	Unseen func() error
}

// A Binding is what is said of how a lease is used. It adds: what is left empty
// stays as it was.
type Binding struct {
	Containers    []Container
	Gone          []Container // are recorded no more; not among Containers
	Netns         string      // path of the network namespace
	HostInterface string      // the port of the bridge
	MAC           string      // of the sandbox's interface
	Plug          Plug        // what Netns and HostInterface are just now, as far as is known
}
