package workload

import (
	"slices"

	"github.com/ipamd/ipamd/ipam"
)

// A Verdict says what something that was seen has to do with one lease.
type Verdict int

const (
	Unknown Verdict = iota // nothing says whose it is
	Ours                   // it belongs to the lease
	Another                // it belongs to another lease, incarnation or sandbox
)

func (v Verdict) String() string {
	switch v {
	case Ours:
		return "ours"
	case Another:
		return "another's"
	}
	return "unknown"
}

// Judge says whether a container belongs to a lease. The first of these that
// says anything settles it:
//
//  1. The lease label, where it names this lease or another one of the book. The
//     name of a lease that the book does not have proves nothing: a rebuilt book
//     may have given the workload another id.
//  2. The containers that leases record. A container that l records and whose
//     label names an older lease outlived that one and is l's; an id that l and a
//     successor record is the successor's from when it was made anew.
//  3. The owner label, which is the sandbox's name or uid, and the uid label where
//     there is one. A lease whose uid is the sandbox's name is of any incarnation
//     that has no lease, and a container without a uid label may be of each.
//
// Leases of one incarnation for its other interfaces and families share its
// containers: a label that names one of those does not speak against l.
func (x *Leases) Judge(l *ipam.Lease, r Record) Verdict {
	if r.LeaseID != "" && r.LeaseID == l.ID {
		return Ours
	}
	recorded := slices.Contains(l.Containers, r.Container)
	named := x.byID[r.LeaseID]
	switch {
	case named != nil && !x.shares(named, l):
		if recorded && !younger(named, l) {
			return Ours
		}
		return Another
	case recorded && x.succeeded(l, r):
		return Another
	case recorded:
		return Ours
	case named == nil && x.recordedBefore(l, r):
		return Another
	case r.Sandbox == "":
		return Unknown
	case r.Sandbox != l.Sandbox && r.Sandbox != l.UID:
		return Another
	case r.UID != "" && r.UID != l.UID && (l.UID != l.Sandbox || x.leased(l.Sandbox, r.UID)):
		return Another
	}
	return Ours
}

// leased reports whether an incarnation of a sandbox has a lease.
func (x *Leases) leased(sandbox, uid string) bool {
	return slices.ContainsFunc(x.bySandbox[sandbox], func(l *ipam.Lease) bool { return l.UID == uid })
}

// AboutToUse reports whether a container may be about to use a lease that is not
// bound yet. One that is labelled with another lease, that another open one records
// or that claims another address lives with that: a sandbox's second interface that
// never came ends beside its first.
func (x *Leases) AboutToUse(l *ipam.Lease, r Record) bool {
	elsewhere := r.LeaseID != "" && r.LeaseID != l.ID || r.Addr.IsValid() && r.Addr != l.Addr ||
		slices.ContainsFunc(x.byContainer[r.Container], func(o *ipam.Lease) bool { return o.ID != l.ID && o.State.Open() })
	return !elsewhere && x.Judge(l, r) == Ours
}

// succeeded reports that a container which l records was made anew for a
// successor, which records it too.
func (x *Leases) succeeded(l *ipam.Lease, r Record) bool {
	return slices.ContainsFunc(x.Successors(l), func(o *ipam.Lease) bool {
		before := !r.Made.IsZero() && r.Made.Before(o.Created.Wall)
		return slices.Contains(o.Containers, r.Container) && !before
	})
}

// recordedBefore reports that another lease records a container which l does not:
// a younger one, or one whose container was there before l began.
func (x *Leases) recordedBefore(l *ipam.Lease, r Record) bool {
	return slices.ContainsFunc(x.byContainer[r.Container], func(o *ipam.Lease) bool {
		before := !r.Made.IsZero() && r.Made.Before(l.Created.Wall)
		return o.ID != l.ID && !x.shares(o, l) && (younger(o, l) || before)
	})
}
