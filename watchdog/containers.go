package watchdog

import (
	"net/netip"
	"slices"

	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/workload"
)

// A containerIndex is which containers there are, and which there were. It takes
// in the runtime's list once, or the board again and again.
type containerIndex struct {
	readings int
	present  int
	all      *workload.Containers[*member]
	uses     map[string]use // by lease
}

// A use is the container that a bound lease recorded last, and the lease's revision when
// it was first read so.
type use struct {
	since ipam.Stamp // of its state
	last  ipam.Container
	rev   int64
}

// A member was there at the reading with a number, when the book was at rev.
type member struct {
	Record
	seen int
	rev  int64
	ran  bool // has a task, or had one
}

// mostPast is how many more containers than are there may be remembered that are not, before those that no
// lease records are forgotten; as many as one lease may record.
const mostPast = 256

func newIndex(all []Record) *containerIndex {
	r := &containerIndex{all: noMembers(), uses: make(map[string]use)}
	r.read(all, 0)
	return r
}

func noMembers() *workload.Containers[*member] {
	return workload.NewContainers(func(m *member) Record { return m.Record }, nil)
}

// read notes who is there now, rev being that of the book as it was read
// before. One with several addresses is several times in all.
func (r *containerIndex) read(all []Record, rev int64) {
	r.readings++
	r.present = 0
	for _, w := range all {
		m := r.member(w.Container)
		if m == nil || m.Sandbox != w.Sandbox || m.UID != w.UID || m.LeaseID != w.LeaseID {
			ran := m != nil && m.ran
			if m != nil {
				r.all.Drop(m)
			}
			m = &member{Record: w, ran: ran}
			r.all.Add(m)
		}
		if m.seen != r.readings {
			r.present++
		}
		m.Made, m.seen, m.rev, m.ran = w.Made, r.readings, rev, m.ran || w.Task
	}
}

// use notes since when the leases are used as they are. A lease's own revision would not
// do: a noted conflict changes it too.
func (r *containerIndex) use(rows []*ipam.Lease) {
	old := r.uses
	r.uses = make(map[string]use, len(old))
	for _, l := range rows {
		if l.State != ipam.Bound || len(l.Containers) == 0 {
			continue
		}
		now := use{since: l.Since, last: l.Containers[len(l.Containers)-1], rev: l.Rev}
		if was, ok := old[l.ID]; ok && was.since == now.since && was.last == now.last {
			now.rev = was.rev
		}
		r.uses[l.ID] = now
	}
}

// forget drops those that are not there and that keep does not want.
func (r *containerIndex) forget(keep func(Container) bool) {
	old := r.all
	r.all = noMembers()
	for m := range old.Each {
		if m.seen == r.readings || keep(m.Container) {
			r.all.Add(m)
		}
	}
}

// past is how many are remembered that are not there.
func (r *containerIndex) past() int { return r.all.Len() - r.present }

// member returns what is remembered of a container; nil for nothing.
func (r *containerIndex) member(c Container) *member {
	if found := r.all.At(c); len(found) > 0 {
		return found[0]
	}
	return nil
}

func (r *containerIndex) there(c Container) bool {
	m := r.member(c)
	return m != nil && m.seen == r.readings
}

// went reports that a container is not there, and was when the book was at rev
// or later.
func (r *containerIndex) went(c Container, rev int64) bool {
	m := r.member(c)
	return m != nil && m.seen != r.readings && m.rev >= rev
}

// of returns the containers that belong to a lease; with past, also those that
// were there.
func (r *containerIndex) of(l *ipam.Lease, x *workload.Leases, past bool) []Container {
	var out []Container
	for _, m := range r.all.Of(l, x) {
		if past || m.seen == r.readings {
			out = append(out, m.Container)
		}
	}
	return out
}

// aboutToUse returns the containers that may be about to use a lease which is not
// bound yet.
func (r *containerIndex) aboutToUse(l *ipam.Lease, x *workload.Leases) []Container {
	return slices.DeleteFunc(r.of(l, x, false), func(c Container) bool { return !x.AboutToUse(l, r.member(c).Record) })
}

// byNameAlone returns those of a released lease's containers that only their owner label
// gives to it, and that never had a task as far as the board has shown: anyone who may
// write records can make one.
func (r *containerIndex) byNameAlone(l *ipam.Lease, of []Container) []Container {
	if l.State != ipam.Releasing {
		return nil
	}
	var out []Container
	for _, c := range of {
		m := r.member(c)
		if r.there(c) && !m.ran && m.LeaseID != l.ID && !slices.Contains(l.Containers, c) {
			out = append(out, c)
		}
	}
	return out
}

// reassigned returns those of the containers that a lease records which are there and
// belong to another lease by now.
func (r *containerIndex) reassigned(l *ipam.Lease, x *workload.Leases) map[Container]bool {
	var out map[Container]bool
	for _, c := range l.Containers {
		if r.there(c) && x.Judge(l, r.member(c).Record) == workload.Another {
			if out == nil {
				out = make(map[Container]bool)
			}
			out[c] = true
		}
	}
	return out
}

// containersGone reports that a bound lease had containers and has none any more: the
// one that it records last was there while the lease recorded it, and nothing that it
// records or that belongs to it is there now. Earlier ones may have been replaced
// without a bind, and are looked up by their ids before the lease ends. A container
// that is still to be made does not count, though one of its name was there for an
// earlier lease, or before the sandbox was resumed. Of a paused lease it is never
// true: a hibernated sandbox has no container.
func (r *containerIndex) containersGone(l *ipam.Lease, all func() *workload.Leases) bool {
	u, bound := r.uses[l.ID]
	if !bound || !r.went(u.last, u.rev) {
		return false
	}
	return !slices.ContainsFunc(l.Containers, r.there) && len(r.of(l, all(), false)) == 0
}

// onBoard returns the containers that the runtime witness sees, whatever addresses they
// claim.
func onBoard(seen []census.Sighting) []Record {
	out := make([]Record, 0, len(seen))
	for _, s := range seen {
		if s.Container != "" {
			s.Addr = netip.Addr{}
			out = append(out, workload.Seen(s))
		}
	}
	return out
}
