package netdb

import "net/netip"

// A Candidate is an address that the book would give next. While it is held
// no other caller is offered it. A hold lives in memory only: it ends with
// [Book.Reserve], [Book.Quarantine] or [Book.Drop].
type Candidate struct {
	Addr  netip.Addr
	Pool  *Pool
	Early bool // its cooldown was cut short, because nothing else is left

	cut Cut
	rev int64 // of the cooling row that was found rested; 0: there was none
}
