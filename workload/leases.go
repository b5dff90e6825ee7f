package workload

import (
	"slices"

	"github.com/ipamd/ipamd/ipam"
)

// Leases are the leases of the book that may have a workload, as they were read
// once: open ones, and those whose removal is not confirmed. They are safe for
// concurrent use. The zero value has none, and knows of no other lease than the
// one that it is asked about.
type Leases struct {
	byID        map[string]*ipam.Lease
	bySandbox   map[string][]*ipam.Lease
	byContainer map[ipam.Container][]*ipam.Lease // that record it
}

// NewLeases finds its way in the rows of a book.
func NewLeases(rows []*ipam.Lease) *Leases {
	x := &Leases{byID: make(map[string]*ipam.Lease), bySandbox: make(map[string][]*ipam.Lease), byContainer: make(map[ipam.Container][]*ipam.Lease)}
	for _, l := range rows {
		if !l.State.Open() && l.State != ipam.Releasing {
			continue
		}
		if l.ID != "" { // a container without a label names none
			x.byID[l.ID] = l
		}
		x.bySandbox[l.Sandbox] = append(x.bySandbox[l.Sandbox], l)
		for _, c := range l.Containers {
			x.byContainer[c] = append(x.byContainer[c], l)
		}
	}
	return x
}

// Lease returns the lease with an id, nil when there is none.
func (x *Leases) Lease(id string) *ipam.Lease { return x.byID[id] }

// Has reports whether a sandbox has a lease of these.
func (x *Leases) Has(sandbox string) bool { return len(x.bySandbox[sandbox]) > 0 }

// Successors returns the younger open leases of the same sandbox on the same
// interface of the same pool, whatever their incarnation. Names are used again: a
// sandbox that is made anew has its host interface, its namespace and its
// containers' ids under the same names.
func (x *Leases) Successors(l *ipam.Lease) []*ipam.Lease {
	var out []*ipam.Lease
	for _, o := range x.bySandbox[l.Sandbox] {
		if o.State.Open() && younger(o, l) && o.PoolUID == l.PoolUID && o.Interface == l.Interface {
			out = append(out, o)
		}
	}
	return out
}

// Plumbing returns what of a lease's recorded host interface and namespace is
// still its own; "" for what a successor records, where the two are known to be two
// links, or namespaces. A name of which that is not known stays the lease's: as long
// as it is plugged, the lease's workload may be there, also where a successor goes on with
// the very same link. Then a release ends with the link, or by an operator's force. No other lease takes plumbing
// over: a port that a lease of another sandbox records too, or the same sandbox's lease
// of another family or interface, keeps the address.
func (x *Leases) Plumbing(l *ipam.Lease) (host, netns string) {
	host, netns = l.HostInterface, l.Netns
	for _, o := range x.Successors(l) {
		if o.HostInterface == host && l.Plug.OtherLink(o.Plug) {
			host = ""
		}
		if o.Netns == netns && l.Plug.OtherNetns(o.Plug) {
			netns = ""
		}
	}
	return host, netns
}

// shares reports that a container of o may be l's as well: both are of one
// incarnation, for different interfaces or families, and o is not of a later
// generation than l.
func (x *Leases) shares(o, l *ipam.Lease) bool {
	return OtherInterfaceOrFamily(o, l) && !slices.ContainsFunc(x.Successors(l), func(next *ipam.Lease) bool { return !younger(next, o) })
}

// OtherInterfaceOrFamily reports whether two leases are of one incarnation of a sandbox, for different
// interfaces or families of it. Such leases may record one port, as both families of an interface do.
func OtherInterfaceOrFamily(o, l *ipam.Lease) bool {
	return o.Sandbox == l.Sandbox && o.UID == l.UID && (o.PoolUID != l.PoolUID || o.Interface != l.Interface)
}

// younger reports that a began after b. Two leases of one request began at once,
// and neither is younger.
func younger(a, b *ipam.Lease) bool {
	if a.Created.BootID == b.Created.BootID {
		return a.Created.Boottime > b.Created.Boottime
	}
	return a.Created.Wall.After(b.Created.Wall)
}
