package watchdog

import (
	"slices"

	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/netdb"
)

// A roll is which containers there are, and which there were, found by what
// ties one to a lease. It is called over the runtime's list, or over the
// board again and again.
type roll struct {
	calls     int
	present   int
	members   map[Container]*member
	bySandbox map[string][]*member
	byLease   map[string][]*member
}

// A member was there at the call with a number, when the book was at rev.
type member struct {
	Workload
	seen int
	rev  int64
}

// mostPast bounds how many containers are remembered that are not there; as
// many as one lease may record.
const mostPast = 256

func newRoll(all []Workload) *roll {
	r := &roll{}
	r.forget(nil)
	r.call(all, 0)
	return r
}

// call notes who is there now, rev being that of the book as it was read
// before. One with several addresses is told several times.
func (r *roll) call(all []Workload, rev int64) {
	r.calls++
	r.present = 0
	for _, w := range all {
		m := r.members[w.Container]
		if m == nil || m.Sandbox != w.Sandbox || m.UID != w.UID || m.LeaseID != w.LeaseID {
			m = r.enter(w)
		}
		if m.seen != r.calls {
			r.present++
		}
		m.seen, m.rev = r.calls, rev
	}
}

// enter writes a container down, anew when its labels have changed.
func (r *roll) enter(w Workload) *member {
	if old := r.members[w.Container]; old != nil {
		isOld := func(m *member) bool { return m == old }
		r.bySandbox[old.Sandbox] = slices.DeleteFunc(r.bySandbox[old.Sandbox], isOld)
		r.byLease[old.LeaseID] = slices.DeleteFunc(r.byLease[old.LeaseID], isOld)
	}
	m := &member{Workload: w}
	r.members[w.Container] = m
	if w.Sandbox != "" {
		r.bySandbox[w.Sandbox] = append(r.bySandbox[w.Sandbox], m)
	}
	if w.LeaseID != "" {
		r.byLease[w.LeaseID] = append(r.byLease[w.LeaseID], m)
	}
	return m
}

// forget drops those that are not there and that keep does not want.
func (r *roll) forget(keep func(Container) bool) {
	old := r.members
	r.members, r.bySandbox, r.byLease = make(map[Container]*member), make(map[string][]*member), make(map[string][]*member)
	for c, m := range old {
		if m.seen == r.calls || keep(c) {
			kept := r.enter(m.Workload)
			kept.seen, kept.rev = m.seen, m.rev
		}
	}
}

// past is how many are remembered that are not there.
func (r *roll) past() int { return len(r.members) - r.present }

func (r *roll) there(c Container) bool {
	m := r.members[c]
	return m != nil && m.seen == r.calls
}

// left reports that a container is not there, and was when the book was at rev
// or later.
func (r *roll) left(c Container, rev int64) bool {
	m := r.members[c]
	return m != nil && m.seen != r.calls && m.rev >= rev
}

// of returns the containers that belong to a lease: it records them, or their
// lease label is its id, or their owner label its sandbox or incarnation and
// their uid label no other incarnation; without those that are its successors'.
// With past, also those that were there.
func (r *roll) of(l *netdb.Lease, h heirs, past bool) []Container {
	var out []Container
	add := func(m *member) {
		if m != nil && (past || m.seen == r.calls) && !h.claims(m.Workload, l) && !slices.Contains(out, m.Container) {
			out = append(out, m.Container)
		}
	}
	for _, c := range l.Containers {
		add(r.members[Container(c)])
	}
	for _, m := range r.byLease[l.ID] {
		add(m)
	}
	for _, name := range []string{l.Sandbox, l.UID} {
		for _, m := range r.bySandbox[name] {
			if !another(m.UID, l) {
				add(m)
			}
		}
	}
	return out
}

// another reports that a uid label names another incarnation of a sandbox than
// the lease's. A lease whose uid is but the sandbox's name is of any.
func another(uid string, l *netdb.Lease) bool {
	return uid != "" && uid != l.UID && l.UID != l.Sandbox
}

// inherited returns those of the containers that a lease records which are
// there, and are a successor's.
func (r *roll) inherited(l *netdb.Lease, h heirs) map[Container]bool {
	var out map[Container]bool
	for _, c := range recorded(l) {
		if r.there(c) && h.claims(r.members[c].Workload, l) {
			if out == nil {
				out = make(map[Container]bool)
			}
			out[c] = true
		}
	}
	return out
}

// forsaken reports that a bound lease had containers and has none any more: it
// records some, all of those were there while it recorded them, and nothing
// that belongs to it is there. A container that is still to be made does not
// count, though one of its name was there for an earlier lease, or before the
// sandbox was resumed. A paused lease is never forsaken: a hibernated sandbox
// has no container.
func (r *roll) forsaken(l *netdb.Lease, kin func() kin) bool {
	if l.State != netdb.Bound || len(l.Containers) == 0 {
		return false
	}
	for _, c := range l.Containers {
		if !r.left(Container(c), l.Rev) {
			return false
		}
	}
	return len(r.of(l, kin().heirs(l), false)) == 0
}

// onBoard returns the containers that the runtime witness sees.
func onBoard(seen []census.Sighting) []Workload {
	out := make([]Workload, 0, len(seen))
	for _, s := range seen {
		if s.Container != "" {
			out = append(out, Workload{Container: Container{s.Namespace, s.Container}, Sandbox: s.Sandbox, UID: s.UID, LeaseID: s.LeaseID})
		}
	}
	return out
}
