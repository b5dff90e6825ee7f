package routes

import (
	"cmp"
	"fmt"
	"net/netip"

	"github.com/ipamd/ipamd/api"
)

// What a book has at most, in bytes: a push with more is none of a daemon's, and what is pushed is
// kept until the stream has it.
const (
	longestName  = 253 // of a sandbox, or its uid
	longestLink  = 15  // IFNAMSIZ, without its end
	longestID    = 64  // of a lease or an epoch
	longestState = 32
)

// A Route is what is known of one address at one revision.
type Route struct {
	Sandbox   string // opaque, compared as a whole
	UID       string // its incarnation
	Interface string
	Attempt   int64
	Lease     string
	Addr      netip.Addr
	State     api.State
	Revision  int64 // of the change that made it so
}

// Kept reports whether the table keeps a route in this state. It is the one predicate
// for that: a route goes when its lease ended, and for nothing else.
func Kept(s api.State) bool {
	switch s {
	case api.Free, api.Cooling, api.Quarantined, api.Cancelled:
		return false
	}
	return true
}

// Served reports whether packets may be sent to the sandbox. Those of a route that is
// kept and not served wait, or wake it, or are refused; they go nowhere else.
func (r Route) Served() bool { return r.State == api.Bound }

// OfLease is the route that a listing shows. The error names the field.
func OfLease(l api.Lease) (Route, error) {
	return checked(Route{Sandbox: l.Sandbox, UID: l.UID, Interface: l.Interface, Attempt: l.Attempt,
		Lease: l.ID, State: l.State, Revision: l.Revision}, l.Address)
}

// OfChange is the route as a change left it. The error names the field.
func OfChange(c api.Change) (Route, error) {
	return checked(Route{Sandbox: c.Sandbox, UID: c.UID, Interface: c.Interface, Attempt: c.Attempt,
		Lease: c.LeaseID, State: c.To, Revision: c.Revision}, c.Address)
}

func checked(r Route, address string) (Route, error) {
	addr, err := netip.ParseAddr(address)
	switch {
	case err != nil || addr.Zone() != "" || addr.Is4In6():
		return r, &FieldError{"address", fmt.Sprintf("%.60q is not an address", address)}
	case r.Revision < 1:
		return r, &FieldError{"revision", fmt.Sprintf("%d is not a revision; the first is 1", r.Revision)}
	case r.Attempt < 0:
		return r, &FieldError{"attempt", fmt.Sprintf("%d is below 0", r.Attempt)}
	}
	for _, text := range []struct {
		field, value string
		most         int
		needed       bool
	}{
		{"state", string(r.State), longestState, true},
		{"sandbox", r.Sandbox, longestName, Kept(r.State)}, // of one that ended it does not matter whose it was
		{"uid", r.UID, longestName, Kept(r.State)},
		{"lease_id", r.Lease, longestID, Kept(r.State)},
		{"interface", r.Interface, longestLink, false},
	} {
		switch {
		case text.value == "" && text.needed:
			return r, &FieldError{text.field, "is missing"}
		case len(text.value) > text.most:
			return r, &FieldError{text.field, fmt.Sprintf("has %d bytes; at most %d are known", len(text.value), text.most)}
		}
	}
	r.Addr = addr
	return r, nil
}

// compare orders the routes of one sandbox, the best first: one that is served, IPv4
// before IPv6, the later lease before the earlier (their ids are ordered by time), so
// that a new incarnation is preferred to an old one that still lives.
func compare(a, b *Route) int {
	return cmp.Or(boolFirst(a.Served(), b.Served()), boolFirst(a.Addr.Is4(), b.Addr.Is4()),
		cmp.Compare(b.Lease, a.Lease), a.Addr.Compare(b.Addr))
}

// boolFirst orders true before false.
func boolFirst(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

// A FieldError names what is wrong in something that was given to a table.
type FieldError struct{ Field, Message string }

// Error is "field: message".
func (e *FieldError) Error() string { return e.Field + ": " + e.Message }
