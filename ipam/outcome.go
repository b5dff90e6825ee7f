package ipam

import (
	"net/netip"
)

// An Effect is what a change of its pool does to a lease.
type Effect string

const (
	LeaseStays    Effect = "stays"    // as it is
	LeaseOutside  Effect = "outside"  // it is valid, and its address is not given again
	LeaseInside   Effect = "inside"   // it was outside, and is no more
	LeaseEnds     Effect = "ends"     // it cooled: the row goes, and the rest goes on
	LeaseWithheld Effect = "withheld" // the row goes, and its address is withheld as quarantined
)

// A LeaseEffect is an effect on one lease, and why.
type LeaseEffect struct {
	Lease  *Lease // as it was before
	Effect Effect
	Note   string // for a person: "outside 10.8.64.0/25"
}

// A PoolOutcome is what a change of a pool did, or would do.
type PoolOutcome struct {
	Pool    *Pool // afterwards; nil when it was removed
	Was     *Pool // before; nil when there was none
	Changed bool
	Stay    int           // leases that stay as they are
	Effects []LeaseEffect // on the others, in the order of their addresses
	Cools   netip.Addr    // what was the gateway and cools from now on, zero for none
	Taken   int           // addresses of removed pools, withheld until now, that become the pool's
	Rev     int64         // of the change; 0 when there is none
}
