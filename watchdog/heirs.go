package watchdog

import (
	"slices"
	"time"

	"github.com/ipamd/ipamd/netdb"
)

// heirs is what the successors of a released lease have taken over of it. Names
// are used again: a sandbox that is made anew gets its host interface, its
// network namespace, its containers' ids and its owner label under the same
// names, and what the new lease has must not hold up the old one for as long as
// the sandbox lives.
//
// Nobody else inherits. A port that a lease of another sandbox records too, or
// the same sandbox's lease of its other family or interface, is still the port
// that this one recorded, and keeps its address.
type heirs struct {
	host, netns bool                    // the recorded plumbing is a successor's
	leases      []string                // ids of the successors
	containers  map[Container]time.Time // that they record; when the first that does began
}

// claims reports that a container is a successor's and not the lease's own. Its
// lease label says whose it is; without one, a successor's record. A container
// that both record, and that was there before the successor, is the old one's.
func (h heirs) claims(w Workload, l *netdb.Lease) bool {
	if w.LeaseID != "" && w.LeaseID == l.ID {
		return false
	}
	if slices.Contains(h.leases, w.LeaseID) {
		return true
	}
	began, theirs := h.containers[w.Container]
	older := !w.Created.IsZero() && w.Created.Before(began)
	return theirs && !(older && slices.Contains(l.Containers, netdb.Container(w.Container)))
}

// kin finds the open leases of a sandbox by its name.
type kin map[string][]*netdb.Lease

func newKin(rows []*netdb.Lease) kin {
	k := make(kin)
	for _, l := range rows {
		if l.State.Open() {
			k[l.Sandbox] = append(k[l.Sandbox], l)
		}
	}
	return k
}

// heirs returns what was taken over of l. A successor is a younger lease of the
// same sandbox on the same interface of the same pool.
func (k kin) heirs(l *netdb.Lease) heirs {
	var h heirs
	for _, o := range k[l.Sandbox] {
		if o.ID == l.ID || !younger(o, l) || o.PoolUID != l.PoolUID || o.Interface != l.Interface {
			continue
		}
		h.host = h.host || l.HostInterface != "" && o.HostInterface == l.HostInterface
		h.netns = h.netns || l.Netns != "" && o.Netns == l.Netns
		h.leases = append(h.leases, o.ID)
		for _, c := range recorded(o) {
			if h.containers == nil {
				h.containers = make(map[Container]time.Time)
			}
			if began, known := h.containers[c]; !known || o.Created.Wall.Before(began) {
				h.containers[c] = o.Created.Wall
			}
		}
	}
	return h
}

// younger reports that a began after b. Two leases of one request began at
// once, and neither is younger.
func younger(a, b *netdb.Lease) bool {
	if a.Created.BootID == b.Created.BootID {
		return a.Created.Boottime > b.Created.Boottime
	}
	return a.Created.Wall.After(b.Created.Wall)
}

// recorded returns the containers that the lease records.
func recorded(l *netdb.Lease) []Container {
	out := make([]Container, len(l.Containers))
	for i, c := range l.Containers {
		out[i] = Container(c)
	}
	return out
}
