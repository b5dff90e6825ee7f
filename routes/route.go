package routes

import (
	"cmp"
	"fmt"
	"net/netip"

	"github.com/ipamd/ipamd/api"
)

// longestSandbox is the longest name of a sandbox, in bytes.
const longestSandbox = 253

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
	case r.State == "":
		return r, &FieldError{"state", "is missing"}
	case !Kept(r.State): // whose it was does not matter
	case r.Sandbox == "" || len(r.Sandbox) > longestSandbox:
		return r, &FieldError{"sandbox", fmt.Sprintf("has %d bytes; a name has 1 to %d", len(r.Sandbox), longestSandbox)}
	case r.UID == "":
		return r, &FieldError{"uid", "is missing"}
	case r.Lease == "":
		return r, &FieldError{"lease_id", "is missing"}
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
