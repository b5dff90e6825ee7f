package allocator

import (
	"net/netip"
	"time"

	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/ipam"
)

// A Family is the address family of a request. The zero value takes the
// pool's: v4 when it has it, else v6.
type Family string

const (
	AnyFamily Family = ""
	V4        Family = "v4"
	V6        Family = "v6"
	Dual      Family = "dual" // one of each, all or nothing
)

// DefaultInterface is the interface of a request that names none.
const DefaultInterface = "eth0"

// A Request asks for an address for one interface of one sandbox.
type Request struct {
	Sandbox    string
	UID        string     // defaults to Sandbox
	Attempt    int64      // defaults to 1
	Pool       string     // defaults to the first pool
	Family     Family     //
	Interface  string     // defaults to DefaultInterface
	Address    netip.Addr // a wish: this one or an error; zero for none
	PrefixLen  int        // of a delegated prefix; 0, or that of one address: an address
	HostName   string     // of the link on the host, or a pattern like veth%d; "" for none
	BindWithin time.Duration
	Labels     map[string]string
	Peer       string // who asks, for the record
	// Binding is where the address will be used: a new lease is bound in the transaction
	// that reserves it, one that was there is not. nil binds none.
	Binding *ipam.Binding
	// Warm asks for a warm slot first. An [Allocator] gives none: package binding does.
	Warm *Warm
	// Slot makes a warm slot's lease of it, of which the uid is [ipam.SlotUID]. nil: a sandbox's.
	Slot *ipam.NewSlot
}

// A Warm says which warm slot will do, and what happens where none is ready.
type Warm struct {
	Require  bool          // an address without a slot will not do
	Fail     bool          // neither will one where the request only prefers a slot
	Wait     time.Duration // for a slot to become ready
	SpecHash string        // the only spec that will do; "": any that the pool allows
}

// A Result is what was given.
type Result struct {
	Leases     []*ipam.Lease // v4 first
	Pools      []*ipam.Pool  // one a lease, in the same order, as they were when it was given
	Fresh      []bool        // given by this call, one a lease
	Existing   bool          // none of them is fresh
	EarlyReuse bool          // the cooldown was cut short
	Skipped    []Skipped
	Claimed    []Skipped    // of the leases that were there: what others claim, and the kernel does not show
	Unprobed   []netip.Addr // given before a probe had its window

	Slot  *ipam.Slot // the warm slot that the lease has; nil: none
	Stale bool       // its pool wants slots of another spec by now
}

// A Skipped address was next, but is in use.
type Skipped struct {
	Addr netip.Addr
	Seen []census.Sighting
}
