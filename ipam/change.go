package ipam

import (
	"encoding/json"
	"net/netip"
	"time"

	"github.com/ipamd/ipamd/internal/elapsed"
)

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
	PrefixLen int // as of a [Lease]
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

// A Query selects changes; every field that is set must match.
type Query struct {
	Addr    netip.Addr // also in a delegated prefix
	Sandbox string     // a sandbox's name or uid
	LeaseID string
	Reason  string
	Since   time.Time // wall clock
	Before  int64     // revisions below this one; 0: all
	Limit   int       // 0: 1 000
}

// A BookIdentity says whose a book is. It never changes within an epoch.
type BookIdentity struct{ Epoch, RunnerUID, MachineID string }

// A Stamp is [elapsed.Stamp]. What deals with a book's times has it by this name, and the
// clocks by [Now]; package elapsed is for this one and netdb alone.
type Stamp = elapsed.Stamp

// Now is [elapsed.Now]: the machine's clocks. What a book has recorded is compared with
// netdb.Book.Now.
func Now() Stamp { return elapsed.Now() }

// SameBoot is [elapsed.SameBoot].
func SameBoot(a, b string) bool { return elapsed.SameBoot(a, b) }
