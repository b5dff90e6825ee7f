package reconciler

import (
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/workload"
)

// misses is what was observed of one bound lease since its workload was last
// seen. It belongs to the lease, not to its address, and is kept in memory
// only: a restart starts again.
type misses struct {
	count int // of whole and complete passes, at most policy.misses
	since ipam.Stamp
}

// absent reports whether there is no sign of a lease's workload: no witness
// sees the address, and the runtime shows no container of it. Where there is no
// runtime to ask, nothing shows the containers that a lease records.
func (v *view) absent(l *ipam.Lease) bool {
	return len(workload.SeenOf(v.census, l)) == 0 && len(v.of(l)) == 0 && (v.runtime || len(l.Containers) == 0)
}

// mayBeDead reports that a lease whose workload is absent may end for it: a bound one, and one
// whose tasks were frozen in another boot of the machine, which no task outlives. One that
// hibernates has no task, and is its owner's to end. One of which nothing was ever seen on its bridge is
// its owner's to end, too: the owner oracle may not know the sandbox, and call it gone. There is one
// exception: where the owner has said that namespace and port are all that there is, as a CNI plugin
// does that may be killed before it plugs, the kernel shows the end (workload.EndsByKernel).
func (v *view) mayBeDead(l *ipam.Lease) bool {
	if workload.NeverSeen(l, v.now.BootID) && !workload.EndsByKernel(l, v.now.BootID) {
		return false
	}
	return l.State == ipam.Bound || l.State == ipam.Paused && v.now.Rebooted(l.Since) && v.mode(l) == ipam.Freeze
}

// missed counts which leases that may be dead are absent, and which have been for
// long enough to be reaped. before is what earlier passes observed; what this
// one knows comes back, for leases that are absent only.
//
// A census that a witness is missing from, or that was not read anew for this
// pass, neither counts nor takes back. One sighting starts all over.
func (v *view) missed(before map[string]misses) (after map[string]misses, absent int, overdue map[string]bool) {
	after, overdue = make(map[string]misses), make(map[string]bool)
	counts := func(l *ipam.Lease) bool { return v.whole && v.census.CompleteAbout(l.Addr) }
	for _, l := range v.book {
		if !v.mayBeDead(l) || !v.absent(l) {
			continue
		}
		absent++
		m, known := before[l.ID]
		if !counts(l) {
			if known {
				after[l.ID] = m
			}
			continue
		}
		if !known {
			m.since = v.now
		}
		m.count = min(m.count+1, v.misses)
		after[l.ID] = m
		if m.count >= v.misses && v.now.Since(m.since) >= v.age {
			overdue[l.ID] = true
		}
	}
	return after, absent, overdue
}
