package netdb

import (
	"net/netip"
	"time"
)

// A Range is an inclusive range of addresses of one family.
type Range struct {
	From netip.Addr `json:"from"`
	To   netip.Addr `json:"to"`
}

// Contains reports whether a is in the range.
func (r Range) Contains(a netip.Addr) bool {
	return r.From.Compare(a) <= 0 && a.Compare(r.To) <= 0
}

// A Route is handed to the sandbox with its address.
type Route struct {
	Destination netip.Prefix `json:"destination"`
	Via         netip.Addr   `json:"via"`
}

// A PoolSpec is what an operator wants of a pool. Name and family together
// are unique: a v4 and a v6 pool of one name serve dual-stack requests.
type PoolSpec struct {
	Name    string       `json:"name"`
	Prefix  netip.Prefix `json:"prefix"`
	Gateway netip.Addr   `json:"gateway"` // zero: none on this prefix (a /32)
	Bridge  string       `json:"bridge"`
	Exclude []Range      `json:"exclude,omitempty"`
	Routes  []Route      `json:"routes,omitempty"`
	DNS     []netip.Addr `json:"dns,omitempty"`
}

// A Pool is a pool of the book.
type Pool struct {
	PoolSpec
	UID        string
	Generation int64
	State      string // "active"
	Created    Stamp
}

// A Policy says which cooling addresses may be given again, and when.
type Policy struct {
	Cooldown    time.Duration // full wait after confirmed removal
	CooldownMin time.Duration // at exhaustion, never before this
	Strict      bool          // refuse rather than reuse before Cooldown
}

// least is how long an address cools at least before another owner gets it.
func (p Policy) least() time.Duration {
	if p.Strict {
		return p.Cooldown
	}
	return p.CooldownMin
}

// A Usage is what a pool holds, counted from memory.
type Usage struct {
	Pool    Pool
	Size    uint64 // addresses that can be given at all; saturates at 2^64-1
	Free    uint64 // addresses without a row; saturates likewise
	ByState map[State]int
	// QuarantineCap is how many may be quarantined without an operator.
	QuarantineCap int
}
